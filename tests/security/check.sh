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

Breaks one protection at a time, as checks.def says, in a copy of the tree (build/security-check), and
prints the test that catches it. Without names, breaks all. Fails unless all are caught. A run of all takes
some four minutes on two processors; it is not part of scripts/test.
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
readonly limit=120 # seconds that a program may take: one that hangs catches the mistake, too
jobs=$(nproc 2>/dev/null || echo 2)
mutation_scratch security-check

# first_failure PROGRAM: prints the failing case of the unit test, or how else it fails, if it does.
first_failure() {
    mkdir -p "$scratch/tmp"
    mutation_first_failure "$limit" "$scratch/tap" env "TMPDIR=$scratch/tmp" \
        CMOCKA_MESSAGE_OUTPUT=TAP "$copy/build/dev/tests/unit/$1" || true
    rm -rf "$scratch/tmp"
}

# check_one NAME PROGRAMS FILE: prints the verdict: with FILE broken, one of the programs fails.
check_one() {
    local program failed
    local -a programs
    IFS=, read -r -a programs <<<"$2"
    mutation_tree_build "$copy" dev "$jobs" "$log" "${programs[@]}" || {
        cp "$log" "$log.$1" # the next one writes to the same log
        mutation_verdict unbuilt "the log is $log.$1"
        return
    }
    for program in "${programs[@]}"; do
        failed=$(first_failure "$program")
        # shellcheck disable=SC2016
        [[ -z $failed ]] || {
            mutation_verdict caught "$(printf '`%s`: %s' "$program" "${failed//_/ }")"
            return
        }
    done
    mutation_verdict survived
}

mutation_tree "$copy" dev "$log" || die "the log is $log"
cd "$copy"
mutation_checks "$copy" tests/security/checks.def check_one "$@"
