#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Every header compiles on its own: public headers as C11 and C++17, without any macro of the
# project, internal headers as the library's C. docs/interface.json describes rdmux.h as it is.
set -euo pipefail
cd "${RDMUX_SOURCE:-$(dirname "${BASH_SOURCE[0]}")/../..}"
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# compiles COMPILER SUFFIX HEADER OPTION...: includes only the header, twice.
compiles() {
    local compiler=$1 unit=$scratch/unit.$2 header=$3
    shift 3
    printf '#include "%s"\n#include "%s"\nextern int rdmux_test_unit;\n' "$header" "$header" >"$unit"
    "$compiler" "$@" -Werror -Iapi/include -fsyntax-only "$unit"
}

# rdmux_ep_info() and struct rdmux_ep_info share a name, as stat(2) does; in C++ this "hides a
# constructor".
cxx_warnings=()
for warning in "${COMMON_WARNINGS[@]}"; do
    [[ $warning == -Wshadow ]] || cxx_warnings+=("$warning")
done
cxx_warnings+=(-Wold-style-cast -Wzero-as-null-pointer-constant)

for header in api/include/rdmux/*.h; do
    name=rdmux/${header##*/}
    tap "$name alone is C11" compiles cc c "$name" -std=c11 "${C_WARNINGS[@]}"
    tap "$name alone is C++17" compiles c++ cc "$name" -std=c++17 "${cxx_warnings[@]}"
    if have clang && have clang++; then
        tap "$name alone is C11 for clang" compiles clang c "$name" -std=c11 "${C_WARNINGS[@]}"
    fi
done

while IFS= read -r header; do
    case $header in
    api/include/*) ;;
    tests/conformance/*) # sees public headers only
        tap "$header alone is C11" compiles cc c "$PWD/$header" -std=c11 -D_GNU_SOURCE \
            "${C_WARNINGS[@]}"
        ;;
    tests/plugins/*) ;; # a project of its own
    api/system/*_posix.h)
        tap "$header alone is C11 with POSIX calls alone" compiles cc c "$PWD/$header" -std=c11 \
            -D_POSIX_C_SOURCE=200809L -D_XOPEN_SOURCE=700 -DRDMUX_POSIX_ONLY -I. "${C_WARNINGS[@]}"
        ;;
    *)
        tap "$header alone is C11" compiles cc c "$PWD/$header" -std=c11 -D_GNU_SOURCE -I. \
            "${C_WARNINGS[@]}"
        ;;
    esac
done < <(project_files '*.h')

if have clang && have jq; then
    tap 'docs/interface.json is the interface of rdmux.h' scripts/interface --check
else
    tap_skip 'docs/interface.json is the interface of rdmux.h' 'clang or jq is not installed'
fi
tap_end
