#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# The conformance suite against providers that are broken on purpose. A case of exactly the broken
# rule must catch each; the same wrapper around the same provider, unbroken, must pass everything.
# RDMUX_PREFIX is the installed rdmux. Arguments: names of mutants.def, to run only these.
set -euo pipefail
: "${RDMUX_PREFIX:?the folder rdmux is installed in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=scripts/lib.sh
. "$here/../../scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$here/../mutation.sh"

rdmux=$RDMUX_PREFIX/bin/rdmux
[[ -x $rdmux ]] || die "there is no command $rdmux"
# A case that usually takes well under a second and is not done by then hangs; many broken promises
# show as hangs. The suite ends most of them itself, after some 10 s, and two of them before this limit.
readonly case_limit=${MUTANT_CASE_LIMIT:-12}
readonly cases_at_once=16 # that one run of the suite takes by name
readonly jobs=${MUTANT_JOBS:-$(($(nproc) * 3))}
unset RDMUX_PROVIDER_DIR RDMUX_PATHS

mutation_scratch provider-mutants
plugin=$scratch/build/mutant.so

plugin_builds() {
    cmake -S "$here" -B "$scratch/build" -DCMAKE_PREFIX_PATH="$RDMUX_PREFIX" -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
        cmake --build "$scratch/build"
}

# cases_of RULE: the names of the cases that cite the rule.
cases_of() {
    "$rdmux" conformance --list --rules "$1" |
        sed -nE '/\(thorough\)$/! s/^[^:]*: (.*) \[rule [^]]*\].*$/\1/p'
}

# fails RULE LOG: a case that cites the rule failed, whether it checks the rule or tries to break
# it.
fails() {
    awk -v rule="$1" '/^not ok/ && match($0, / \[rule [^]]*\]/) {
        rules = ", " substr($0, RSTART + 7, RLENGTH - 8) ","
        found = found || index(rules, ", " rule ",") || index(rules, ", -" rule ",")
    } END { exit !found }' "$2"
}

# hunt NAME RULE: writes the verdict to NAME.verdict.
hunt() {
    judge "$@" >"$scratch/$1.verdict" || true
}

# judge NAME RULE: prints the verdict, with the case that catches the mutant.
judge() {
    local name=$1 rule=$2 test_case log=$scratch/$1.log limit=$((5 * case_limit)) rc cases=0
    while IFS= read -r test_case <&3; do
        cases=$((cases + 1))
        rc=0
        RDMUX_MUTANT=$name timeout --kill-after=2 "$limit" "$rdmux" conformance --plugin "$plugin" \
            --provider mutant --format tap --seed 1 --case "$test_case" >"$log" 2>&1 || rc=$?
        if fails "$rule" "$log"; then
            mutation_verdict caught "$test_case"
            return
        fi
        # The first check is always that two processes connect; then comes the requested case.
        if ((rc == 124 || rc == 137)) && grep -qE '^(not )?ok 1 ' "$log"; then
            mutation_verdict caught "$test_case: it $(mutation_verdict late "$limit s")"
            return
        fi
        if ! grep -q '^1\.\.' "$log"; then
            mutation_verdict astray "$test_case: the suite did not end"
            return
        fi
    done 3< <(cases_of "$rule")
    mutation_verdict survived "$cases cases of the rule"
}

# passes WRAPPER MUTANT...: the wrapper, which breaks nothing, passes the cases that have caught these mutants; with
# --thorough the whole suite, of which the cases of all mutants are a third.
passes() {
    local test_case
    local -a all which=()
    suite() {
        RDMUX_MUTANT=$1 "$rdmux" conformance --quick --patience 4 --plugin "$plugin" --provider mutant --format tap \
            --seed 1 "${@:2}"
    }
    if [[ ${RDMUX_TEST_LEVEL-} == thorough ]]; then
        suite "$1"
        return
    fi
    mapfile -t all < <(catching_cases "${@:2}")
    ((${#all[@]} > 0)) || { echo 'no case has caught a mutant' && return 1; }
    for test_case in "${all[@]}"; do
        which+=(--case "$test_case")
        ((${#which[@]} < 2 * cases_at_once)) || { suite "$1" "${which[@]}" && which=(); } || return
    done
    ((${#which[@]} == 0)) || suite "$1" "${which[@]}"
}

# queued_mutants: the names of the mutants that queue requests, as none_queued does.
queued_mutants() {
    sed -n '/^static const struct overtaking {/,/^};/p; /^bool mutant_uses_queue(/,/^}/p' "$here/requests.c" |
        sed -nE 's/.*MUTANT_([a-z0-9_]+).*/\1/p'
}

# catching_cases MUTANT...: the names of the cases in the verdicts.
catching_cases() {
    local name
    for name; do
        cat "$scratch/$name.verdict"
    done |
        sed -nE "/^${mutation_words[caught]} /{s///; s/: it ${mutation_words[late]}.*\$//; p}" | sort -u
}

tap 'the mutants build against the installed package' plugin_builds
if [[ ! -e $plugin ]]; then
    echo 'Bail out! the mutants do not build'
    exit 1
fi

mapfile -t mutants < <(sed -n 's/^MUTANT(\([a-z0-9_]*\), "\([^"]*\)", "\(.*\)")$/\1\t\2\t\3/p' "$here/mutants.def")
if (($# > 0)); then
    wanted=" $* "
    for i in "${!mutants[@]}"; do
        [[ $wanted == *" ${mutants[i]%%$'\t'*} "* ]] || unset "mutants[i]"
    done
fi

for mutant in "${mutants[@]}"; do
    IFS=$'\t' read -r name rule _ <<<"$mutant"
    mutation_slot "$jobs"
    mutation_start hunt "$name" "$rule"
done
mutation_wait

# Without the load of others: no case may fail here. Each wrapper passes what catches the mutants that are made of it.
plain=() queued=()
for mutant in "${mutants[@]}"; do
    name=${mutant%%$'\t'*}
    if grep -qx "$name" < <(queued_mutants); then
        queued+=("$name")
    else
        plain+=("$name")
    fi
done
((${#plain[@]} == 0)) ||
    tap 'the wrapper that breaks nothing passes what catches mutants' passes none "${plain[@]}"
((${#queued[@]} == 0)) ||
    tap 'and with its requests queued, as some mutants need them' passes none_queued "${queued[@]}"
# Of the whole list there are both kinds.
is_of_both_kinds() {
    ((${#plain[@]} >= 20 && ${#queued[@]} >= 15)) ||
        { echo "${#plain[@]} mutants without a queue, ${#queued[@]} with one" && return 1; }
}
(($# > 0)) || tap 'mutants of both kinds are known' is_of_both_kinds

caught_by_its_rule() {
    cat "$scratch/$1.verdict"
    mutation_is caught "$(<"$scratch/$1.verdict")" || {
        tail -n 20 "$scratch/$1.log"
        return 1
    }
}
for mutant in "${mutants[@]}"; do
    IFS=$'\t' read -r name rule text <<<"$mutant"
    verdict=$(<"$scratch/$name.verdict")
    tap "$name, which $text, is caught by rule $rule" caught_by_its_rule "$name"
    ! mutation_is caught "$verdict" || printf '#   %s\n' "$verdict"
done
status=0
tap_end || status=1
# Mutants planted in the library itself, with their own plan.
(($# > 0)) || [[ -z ${RDMUX_BUILD-} ]] || "$here/library.sh" || status=1
((status == 0))
