#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Measures coverage: builds with gcov, runs the unit tests, tests/fault, and the conformance suite
# over every provider and simulated link layer, and prints lines and branches of each part.
# docs/COVERAGE.md explains the uncovered rest. Other groups judge whether the tests pass. Prints
# TAP; the figures are in its comments. `run.sh FILE...` lists the lines of these files that no test
# reached.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=$root/build/coverage

for program in gcov jq; do
    have "$program" || {
        echo "1..0 # SKIP $program is not installed"
        exit 77
    }
done

# Part, minimum share of lines and of branches, in percent; 0: no goal. docs/COVERAGE.md has the
# goals.
readonly floors='
api           95 85
negotiation   95 85
providers     0 0
tcp_fallback  95 85
shm           0 0
verbs         0 0
roce          0 0
iwarp         0 0'

# Assertions are no branches for tests; threads share the counters. Code that is inlined several
# times has its branches once.
builds() {
    cmake -S "$root" -B "$build" -DCMAKE_BUILD_TYPE=Debug -DRDMUX_EXAMPLES=OFF -DCMAKE_C_FLAGS_DEBUG='-O0 -g' \
        -DCMAKE_C_FLAGS='--coverage -fprofile-update=atomic -DNDEBUG -DRDMUX_COVERAGE "-DRDMUX_HOT=static inline" "-DSHM_HOT=static inline"' && cmake --build "$build" --parallel "$(nproc)"
}

# Most programs wait most of the time, so twice as many run in parallel as there are processors,
# longest first. A program that does not end normally writes no counters.
run_tests() {
    local test
    find "$build" -name '*.gcda' -delete
    {
        echo "$build/tests/fault/fault --points 1"
        find "$build/tests/unit" "$build/tests/sim_verbs" -maxdepth 1 -name 'test_*' -type f -perm -u+x
        echo "$build/bin/rdmux conformance --format tap --seed 1 --patience 3 --provider tcp"
        echo "$build/bin/rdmux conformance --format tap --seed 1 --patience 3 --provider shm"
        for test in ib roce iwarp; do
            echo "env LD_PRELOAD=$build/lib/libsimverbs.so SIM_VERBS=link=$test,freedoms=all $build/bin/rdmux conformance" \
                "--quick --format tap --seed 1 --patience 3 --provider $test"
            echo "env LD_PRELOAD=$build/lib/libsimverbs.so SIM_VERBS=net=coverage-$$-$test,link=$test" \
                "$build/tests/interop/test_rdmacm"
        done
    } | xargs -P "$((2 * $(nproc)))" -I{} timeout 900 bash -c '{} >/dev/null 2>&1 || echo "# not all passed: {}"'
}

# Lines and branches of a source, over all objects that it was compiled into: FILE, LINE, times,
# branches, branches taken.
measure() {
    local objects
    mapfile -t objects < <(find "$build" -name '*.gcda')
    (cd "$scratch" && gcov --json-format --branch-probabilities --stdout "${objects[@]}" 2>/dev/null) |
        jq -r --arg root "$root/" '.files[] | (.file | sub($root; "")) as $file
            | select($file | test("^(api|negotiation|providers|tcp_fallback|shm|verbs|roce|iwarp)/.*[.]c$"))
            | .lines[] | [$file, .line_number, .count, (.branches | length), ([.branches[] | select(.count > 0)] | length)]
            | @tsv' >"$scratch/lines"
    [[ -s $scratch/lines ]] || { echo 'gcov has measured nothing' && return 1; }
    # A source in two objects, or a function inlined twice: the highest count of each line.
    sort -k1,1 -k2,2n "$scratch/lines" | awk -F'\t' -v OFS='\t' '
        $1 "\t" $2 != at { if (at != "") print at, count, branches, taken; at = $1 "\t" $2; count = branches = taken = 0 }
        { if ($3 > count) count = $3; if ($4 > branches) branches = $4; if ($5 > taken) taken = $5 }
        END { print at, count, branches, taken }' >"$build/lines.tsv"
}

# share PART: percent of lines and of branches.
share() {
    awk -F'\t' -v part="$1/" 'index($1, part) == 1 { lines++; hit += $3 > 0; branches += $4; taken += $5 }
        END { printf "%.1f %.1f %d %d\n", 100 * hit / lines, 100 * taken / branches, lines, branches }' "$build/lines.tsv"
}

suffices() {
    awk -v lines="$1" -v branches="$2" -v least_lines="$3" -v least_branches="$4" 'BEGIN {
        exit !(lines >= least_lines && branches >= least_branches) }' ||
        { echo "lines $1 %, at least $3 % wanted; branches $2 %, at least $4 % wanted" && return 1; }
}

if (($# > 0)); then
    for file; do
        awk -F'\t' -v file="$file" '$1 == file && ($3 == 0 || $5 < $4) {
            printf "%d\t%s\n", $2, $3 == 0 ? "never" : $5 " of " $4 " branches" }' "$build/lines.tsv" |
            while IFS=$'\t' read -r line what; do
                printf '%s:%d: %s: %s\n' "$file" "$line" "$what" "$(sed -n "${line}s/^ *//p" "$root/$file")"
            done
    done
    exit 0
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tap 'rdmux builds with counters' builds
run_tests
tap 'the counters can be read' measure
[[ -s $build/lines.tsv ]] || exit 1
while read -r part least_lines least_branches; do
    [[ -n $part ]] || continue
    read -r lines branches line_count branch_count <<<"$(share "$part")"
    printf '# figures: %-13s lines %5.1f %% of %5d, branches %5.1f %% of %5d\n' "$part" "$lines" "$line_count" "$branches" \
        "$branch_count"
    [[ $least_lines == 0 ]] ||
        tap "$part: at least $least_lines % of the lines and $least_branches % of the branches are reached" \
            suffices "$lines" "$branches" "$least_lines" "$least_branches"
done <<<"$floors"
tap_end
