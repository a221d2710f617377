#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# The model of failover: spin searches every order of events. The protocol must hold in all of them.
# With one of its rules left out some order must break a promise, and spin must find it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"

have spin || {
    echo '1..0 # SKIP spin is not installed'
    exit 77
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# search DEFINITION...: writes the search result of this build of the model to $scratch/log. The
# model itself checks the final state if no event is left (-E).
search() {
    # Optimising the generated program takes longer than it saves in the search.
    rm -rf "$scratch/build"
    mkdir "$scratch/build"
    (
        cd "$scratch/build"
        spin -a "$@" "$here/failover.pml" &&
            "${CC:-cc}" -O0 -w -DSAFETY -DCOLLAPSE -DMEMLIM=3500 -o pan pan.c &&
            ./pan -E -m1000000 -w24
    ) >"$scratch/log" 2>&1
}

holds() {
    if ! search "$@" || ! grep -q 'errors: 0$' "$scratch/log" ||
        grep -qE 'max search depth too small|Search not completed|out of memory' "$scratch/log"; then
        tail -n 30 "$scratch/log"
        return 1
    fi
}

# breaks ASSERTION DEFINITION...: spin finds a violated assertion that matches the pattern.
breaks() {
    search "${@:2}" || true
    grep -qE "assertion violated .*($1)" "$scratch/log" || {
        echo 'spin has found no order of events that breaks a promise'
        tail -n 30 "$scratch/log"
        return 1
    }
}

states() {
    sed -nE 's/^ *([0-9]+) states, stored.*/#   \1 states/p' "$scratch/log"
}

dials=('the sender dials' 'the receiver dials')
for program in 1 2 3; do
    for connector in 0 1; do
        tap "program $program, ${dials[connector]}: no two failures break a promise" \
            holds "-DPROGRAM=$program" "-DCONNECTOR=$connector"
        states
    done
done
if [[ ${RDMUX_TEST_LEVEL:-normal} == thorough ]]; then
    for program in 1 2 3; do
        for connector in 0 1; do
            tap "program $program, ${dials[connector]}: no three failures break a promise" \
                holds "-DPROGRAM=$program" "-DCONNECTOR=$connector" -DFAULTS=3
            states
        done
    done
else
    tap 'program 3, the receiver dials: no three failures break a promise' \
        holds -DPROGRAM=3 -DCONNECTOR=1 -DFAULTS=3
    states
fi

tap 'the search finds a late write if the cut is left out' breaks 'what>' -DWITHOUT_CUT
tap 'the search finds a repeated message if the counts are left out' breaks is_received -DPROGRAM=2 -DWITHOUT_COUNTS
tap 'the search finds a repeated write if the counts are left out' breaks 'what>latest' -DWITHOUT_COUNTS
tap 'the search finds a count lost with the channel if counts restart with each path' breaks is_received -DPROGRAM=2 -DCOUNTS_RESTART
tap 'the search finds a lost message if an acknowledgment of the device counts as receipt' breaks 'i==1' -DDEVICE_IS_TRUSTED
tap 'the search finds a late write if confirmed writes are repeated' breaks 'what>latest' -DWRITES_AGAIN
tap 'the search finds an atomic executed twice if atomics are repeated' breaks 'executed' -DATOMICS_AGAIN
tap 'the search finds a request that never ends if MOVE is not repeated on the next channel' \
    breaks 'works' -DMOVE_IS_SAID_ONCE
tap_end
