#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$root/tests/mutation.sh"

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
mutation_scratch security-check

# first_failure PROGRAM: prints the failing case of the unit test, or how else it fails, if it does.
first_failure() {
    mkdir -p "$scratch/tmp"
    mutation_first_failure "$limit" "$scratch/tap" env "TMPDIR=$scratch/tmp" \
        CMOCKA_MESSAGE_OUTPUT=TAP "$copy/build/dev/tests/unit/$1" || true
    rm -rf "$scratch/tmp"
}

# check_one NAME PROGRAMS FILE: with FILE broken, one of the programs fails.
check_one() {
    local program seen='' what='NOT seen'
    local -a programs
    IFS=, read -r -a programs <<<"$2"
    if ! mutation_tree_build "$copy" dev "$jobs" "$log" "${programs[@]}"; then
        cp "$log" "$log.$1" # the next one writes to the same log
        printf '%s: %s does not compile; the log is %s\n' "$1" "$3" "$log.$1" >&2
        return 1
    fi
    for program in "${programs[@]}"; do
        seen=$(first_failure "$program")
        [[ -z $seen ]] || break
    done
    # shellcheck disable=SC2016
    [[ -z $seen ]] || what=$(printf '`%s`: %s' "$program" "${seen//_/ }")
    # shellcheck disable=SC2016
    printf '| %s | `%s` | %s |\n' "$1" "$3" "$what"
    [[ -n $seen ]]
}

mutation_tree "$copy" dev "$log" || die "the log is $log"
cd "$copy"
printf '| broken | source | seen by |\n|---|---|---|\n'
mutation_checks "$copy" tests/security/checks.def check_one "$@"
printf '# %d were not seen\n' "$mutation_failed"
((mutation_failed == 0))
