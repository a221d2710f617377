#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"

usage() {
    cat <<'END'
usage: tests/security/check.sh [NAME...]

Breaks what keeps others out, one thing at a time, as checks.def says, in a copy of the tree
(build/security-check), and tells which test sees it. All of them, if none is named. Fails if one is not
seen. A run of all takes some four minutes on two processors; it is not part of scripts/test.
END
}

for word; do
    case $word in
    --help | -h)
        usage
        exit 0
        ;;
    -*)
        usage >&2
        exit 2
        ;;
    esac
done

readonly copy=$root/build/security-check
readonly log=$copy/check.log
readonly limit=120 # seconds that a program may take: one that hangs has seen it, too
jobs=$(nproc 2>/dev/null || echo 2)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-security-check.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# first_failure PROGRAM: prints the failing case, if any.
first_failure() {
    local status=0
    mkdir -p "$scratch/tmp"
    TMPDIR=$scratch/tmp CMOCKA_MESSAGE_OUTPUT=TAP timeout --kill-after=5 "$limit" \
        "$copy/build/dev/tests/unit/$1" >"$scratch/tap" 2>&1 </dev/null || status=$?
    rm -rf "$scratch/tmp"
    ((status != 0)) || return 0
    sed -nE 's/^not ok [0-9]+ - ([A-Za-z0-9_]+).*/\1/p' "$scratch/tap" | head -n 1 | grep . || echo "it ends with status $status"
}

# build PROGRAM,...
build_programs() {
    local -a programs
    IFS=, read -r -a programs <<<"$1"
    cmake --build "$copy/build/dev" --parallel "$jobs" --target "${programs[@]}" >"$log" 2>&1
}

# check_one NAME PROGRAMS FILE EDIT
check_one() {
    local program seen='' programs
    cp "$3" "$scratch/original"
    sed -i -E "$4" "$3"
    ! cmp -s "$3" "$scratch/original" || die "$1: the edit changes nothing of $3"
    build_programs "$2" || die "$1: does not build; the log is $log"
    IFS=, read -r -a programs <<<"$2"
    for program in "${programs[@]}"; do
        seen=$(first_failure "$program")
        [[ -z $seen ]] || break
    done
    cp "$scratch/original" "$3"
    local what='NOT seen'
    # shellcheck disable=SC2016
    [[ -z $seen ]] || what=$(printf '`%s`: %s' "$program" "${seen//_/ }")
    # shellcheck disable=SC2016
    printf '| %s | `%s` | %s |\n' "$1" "$3" "$what"
    [[ -n $seen ]]
}

mkdir -p "$copy"
cd "$root"
# Compiles anew: the object may be of the previous edit.
project_files '*' | tar -cf - --files-from=- | tar -xmf - -C "$copy"
cd "$copy"
cmake --preset dev >"$log" 2>&1 || die "the log is $log"
missed=0 known=() wanted=("$@")
printf '| broken | source | seen by |\n|---|---|---|\n'
while IFS='|' read -r name programs file edit; do
    [[ -n $name && $name != '#'* ]] || continue
    known+=("$name")
    ((${#wanted[@]} == 0)) || [[ " ${wanted[*]} " == *" $name "* ]] || continue
    check_one "$name" "$programs" "$file" "$edit" || missed=$((missed + 1))
done <tests/security/checks.def
for name in "${wanted[@]}"; do
    [[ " ${known[*]} " == *" $name "* ]] || die "no check '$name'; there are: ${known[*]}"
done
printf '# %d were not seen\n' "$missed"
((missed == 0))
