#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The conformance suite as a product: its rules are those of docs/SEMANTICS.md, each rule has cases,
# and `rdmux conformance` reports results in every format. Prints TAP.
#
#   run.sh           all cases
#   run.sh PATTERN   cases whose name matches the pattern (a bash regular expression)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
rdmux=${RDMUX:-${RDMUX_BUILD:-$root/build/dev}/bin/rdmux}
liar=${RDMUX_BUILD:-$root/build/dev}/tests/conformance_command/libliar.so
wanted=${1:-}

[[ -x $rdmux ]] || die "there is no command $rdmux; build it, or name it in RDMUX"
have jq || die 'jq is not installed'

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-conformance.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
unset RDMUX_PATHS RDMUX_LOG
"$rdmux" conformance --list-rules >"$scratch/rules"
# A provider that this machine has no device for.
absent=$("$rdmux" info --json | jq -r '[.providers[] | select(IN(.name; "ib", "roce", "iwarp") and (.usable | not)) | .name][0]')

fail() {
    printf '%s\n' "$*"
    exit 1
}

# exits STATUS COMMAND...: its output goes to $scratch/out and $scratch/err.
exits() {
    local expected=$1 status=0
    shift
    "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
    ((status == expected)) ||
        fail "exit status $status, expected $expected: $(cat "$scratch/out" "$scratch/err")"
}

# none TEXT AWK-CONDITION: no rule meets the condition.
none() {
    local found
    found=$(awk -F'\t' "$2 { print \$1 }" "$scratch/rules")
    [[ -z $found ]] || fail "$1: $(tr '\n' ' ' <<<"$found")"
}

# start_server ADDRESS: serves on a free port; sets server (its process) and address.
start_server() {
    : >"$scratch/serves" # of the server before
    "$rdmux" serve "$1:0" >"$scratch/serves" 2>"$scratch/served" &
    server=$!
    # shellcheck disable=SC2064
    trap "kill -TERM $server 2>/dev/null; wait $server 2>/dev/null || true" EXIT
    until grep -q '^listening on ' "$scratch/serves"; do
        kill -0 "$server" 2>/dev/null || fail "the server has ended: $(cat "$scratch/served")"
    done
    address=$(sed -n 's/^listening on //p' "$scratch/serves")
}

# ------------------------------------------------------------------------------------- the rules

the_document_has_these_rules_and_titles() {
    # A title may continue on the next line.
    tr -s '\n ' '  ' <"$root/docs/SEMANTICS.md" |
        grep -oE -- '- \*\*[0-9FNS]+\.[0-9]+ [^*]*\.\*\*' |
        sed -E 's/^- \*\*([^ ]+) (.*)\.\*\*$/\1\t\2/' >"$scratch/document"
    cut -f1,2 "$scratch/rules" | diff "$scratch/document" - || fail 'SEMANTICS.md < > rules.def'
    (($(wc -l <"$scratch/document") >= 60)) || fail 'fewer than 60 rules'
    # Every number at the beginning of a rule was parsed.
    (($(grep -cE '^- \*\*[0-9FNS]+\.' "$root/docs/SEMANTICS.md") == $(wc -l <"$scratch/document"))) ||
        fail 'a rule of SEMANTICS.md has no title'
}

every_case_names_rules_that_exist() {
    none 'unknown rules are cited' '/\tunknown, cited by: /'
}

every_rule_has_a_case_that_observes_it() {
    # shellcheck disable=SC2016
    none 'rules without a positive case' '$5 == 0'
}

every_breakable_rule_has_a_case_that_tries() {
    # shellcheck disable=SC2016
    none 'rules without a negative case' '$4 == "breakable" && $6 == 0'
}

# A provider without atomics, for example, is judged by every rule that needs none.
every_rule_has_a_case_on_each_path_that_advertises_it() {
    # shellcheck disable=SC2016
    none 'rules with no case for a path that has only what they need' '$7 == 0'
}

# ---------------------------------------------------------------------------------- what it prints

readonly some='6.4,9.1,14' # two rules and a chapter, of few cases

json_stands_alone_and_has_each_rule() {
    exits 0 "$rdmux" conformance --patience 8 --provider tcp --rules "$some" --seed 7 --format json
    jq -e '.provider == "tcp" and .failed == 0 and .passed == (.rules | length) and
        (.rules[0] | .id == "6.4" and .status == "pass" and .cases > 0 and .seed == 7 and
            (.title | length > 0)) and
        ([.rules[].id] | index("9.1") != null and index("14.1") != null and index("2.1") == null)
    ' "$scratch/out" >/dev/null || fail "$(cat "$scratch/out")"
    [[ ! -s $scratch/err ]] || fail "standard error: $(cat "$scratch/err")"
}

several_providers_are_a_json_array() {
    exits 0 "$rdmux" conformance --patience 8 --provider tcp --provider shm --rules 12.2 --format json
    jq -e 'map(.provider) == ["tcp", "shm"]' "$scratch/out" >/dev/null || fail "$(cat "$scratch/out")"
}

a_provider_that_is_not_there_fails() {
    exits 1 "$rdmux" conformance --provider "$absent" --format json
    jq -e '.failed == 1 and .passed == 0 and .not_run > 100 and
        (.rules[] | select(.id == "N.1") | .status == "fail" and
            (.failures[0] | (.text | contains("rdmux_")) and (.replay | startswith("rdmux "))))
    ' "$scratch/out" >/dev/null || fail "$(cat "$scratch/out")"
}

a_failure_reports_both_sides_and_the_command_that_repeats_it() {
    exits 1 "$rdmux" conformance --provider "$absent" --rules N.1 --seed 5
    local word again
    for word in 'rule N.1' initiator: target: FAIL 'seed 5'; do
        grep -qF "$word" "$scratch/out" || fail "no '$word' in: $(cat "$scratch/out")"
    done
    again=$(sed -n '/^ *again: rdmux /{s///p;q}' "$scratch/out")
    exits 1 bash -c "'$rdmux' $again"
    grep -q 'rule N.1' "$scratch/out" || fail "$(cat "$scratch/out")"
}

the_matrix_has_a_row_for_each_rule() {
    exits 0 "$rdmux" conformance --patience 8 --provider tcp --provider shm --rules 12.4,2.12,14.2
    grep -qE '^14\.2 .* pass +pass$' "$scratch/out" || fail "$(cat "$scratch/out")"
    grep -qE '^12\.4 .* (native|emulated) +(native|emulated)$' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
    grep -qE '^2\.12 .* not advertised +not advertised$' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
}

a_rule_that_is_left_out_is_no_pass() {
    exits 0 "$rdmux" conformance --patience 8 --provider tcp --rules 8.5 --quick
    grep -qE '^8\.5 .* not run$' "$scratch/out" || fail "$(cat "$scratch/out")"
    grep -qF 'left out by --quick' "$scratch/out" || fail "$(cat "$scratch/out")"
}

# Each case of offsets beyond 4 GiB reports a skip, not a pass.
a_host_that_lacks_the_memory_is_no_pass() {
    local count
    # shellcheck disable=SC2016
    exits 0 bash -c 'ulimit -v 4000000 && exec "$0" "$@"' "$rdmux" conformance --patience 8 \
        --provider tcp --provider shm --case 'beyond 4 GiB' --format tap
    count=$(grep -c 'beyond 4 GiB' "$scratch/out") || fail "$(cat "$scratch/out")"
    (($(grep -c 'beyond 4 GiB.* # SKIP not applicable: .*more than 4 GiB' "$scratch/out") == count)) ||
        fail "$(cat "$scratch/out")"
}

tap_has_its_plan() {
    exits 0 "$rdmux" conformance --patience 8 --provider shm --rules "$some" --format tap
    local points
    points=$(grep -c '^ok ' "$scratch/out")
    [[ $(tail -n 1 "$scratch/out") == "1..$points" ]] || fail "$(cat "$scratch/out")"
    exits 1 "$rdmux" conformance --provider "$absent" --rules "$some" --format tap
    grep -q '^not ok 1 ' "$scratch/out" || fail "$(cat "$scratch/out")"
}

junit_is_valid() {
    local schema=$here/junit.xsd
    exits 0 "$rdmux" conformance --patience 8 --provider tcp --rules "$some",2.12 --format junit
    xmllint --noout --schema "$schema" "$scratch/out" || fail 'of a run without a failure'
    exits 1 "$rdmux" conformance --provider "$absent" --provider shm --rules "$some",N.1 --format junit
    xmllint --noout --schema "$schema" "$scratch/out" || fail 'of a run with a failure'
    [[ $(xmllint --xpath 'count(//failure)' "$scratch/out") == 1 ]] || fail "$(cat "$scratch/out")"
    [[ $(xmllint --xpath 'string(//testsuite[1]/@failures)' "$scratch/out") == 1 ]] ||
        fail "$(cat "$scratch/out")"
}

html_is_one_file() {
    exits 1 "$rdmux" conformance --provider "$absent" --provider shm --rules "$some",N.1 --format html
    xmllint --noout --html "$scratch/out" 2>"$scratch/said" || fail "$(cat "$scratch/said")"
    [[ ! -s $scratch/said ]] || fail "$(cat "$scratch/said")"
    ! grep -qE '<(link|script|img)|(src|href)=' "$scratch/out" || fail 'it names other files'
    [[ $(xmllint --html --xpath 'count(//tr[td="6.4"])' "$scratch/out") == 1 ]] ||
        fail "$(cat "$scratch/out")"
    grep -q 'class="fail"' "$scratch/out" || fail "$(cat "$scratch/out")"
}

# A library that drops the last byte of long writes with PLACED: one such write is enough.
the_shortest_sequence_is_found_and_runs_again() {
    local again
    [[ -e $liar ]] || fail "$liar is not built"
    exits 1 env LD_PRELOAD="$liar" "$rdmux" conformance --provider tcp --quick --seed 11 \
        --case 'random operations'
    grep -qE '^ *the shortest sequence found that fails, 1 of [0-9]+ operations:$' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
    grep -qE '^ *(initiator|target) [0-9]+: write of [0-9]{4,} bytes at [0-9]+.*, PLACED' \
        "$scratch/out" || fail "$(cat "$scratch/out")"
    again=$(sed -n 's/^ *again: rdmux //p' "$scratch/out")
    [[ $again == *' --sequence '[it]* ]] || fail "$again"
    exits 1 env LD_PRELOAD="$liar" bash -c "'$rdmux' $again"
    exits 0 bash -c "'$rdmux' $again"
}

# The same library: a generated row finds it, in its simplest form, and names only the one rule that
# it breaks.
the_simplest_row_is_found_and_names_one_rule() {
    local again
    [[ -e $liar ]] || fail "$liar is not built"
    exits 1 env LD_PRELOAD="$liar" "$rdmux" conformance --provider tcp --seed 11 \
        --case 'writes in every combination'
    grep -qE '^ *the simplest rows found that fail, 1 of [0-9]+:$' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
    grep -qE '^ *write, PLACED, [0-9,]+ bytes, a registered region, its first byte$' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
    [[ $(grep -cE '^ +rule [0-9N]' "$scratch/out") == 1 ]] || fail "$(cat "$scratch/out")"
    grep -qE '^ *breaks rule 1\.16: A completion names' "$scratch/out" || fail "$(cat "$scratch/out")"
    ! grep -qE '[a-z_]\.[ch]\b' "$scratch/out" || fail "it names a source file: $(cat "$scratch/out")"
    again=$(sed -n 's/^ *again: rdmux //p' "$scratch/out")
    [[ $again == *' --sequence r2.1.'* ]] || fail "$again"
    exits 1 env LD_PRELOAD="$liar" bash -c "'$rdmux' $again"
    exits 0 bash -c "'$rdmux' $again"
}

one_side_may_run_on_another_host() {
    start_server 127.0.0.1
    exits 0 "$rdmux" conformance --patience 8 --peer "$address" --rules N.15,N.16,9.1,9.11 --format json
    jq -e --arg peer "$address" '.provider == "tcp" and .peer == $peer and .failed == 0 and
        .passed == 4' "$scratch/out" >/dev/null || fail "$(cat "$scratch/out")"
    exits 0 "$rdmux" conformance --patience 8 --peer "$address" --case 'IPv6 works' --provider tcp
    grep -qE '^N\.15 .* not run$' "$scratch/out" || fail "$(cat "$scratch/out")"
    grep -qF 'needs both processes on one host' "$scratch/out" || fail "$(cat "$scratch/out")"
}

# Clocks of two hosts start at different times: here the clock of one is a day ahead. root has time
# namespaces, other users only if user.max_user_namespaces allows it; without them both clocks are
# one.
the_other_host_may_have_another_clock() {
    local way ahead=()
    for way in '' '--user --map-root-user'; do
        # shellcheck disable=SC2086
        if unshare $way --time --monotonic 86400 true 2>/dev/null; then
            read -r -a ahead <<<"unshare $way --time --monotonic 86400"
            break
        fi
    done
    ((${#ahead[@]} > 0)) || echo '# no time namespaces here'
    start_server 127.0.0.1
    exits 0 "${ahead[@]}" "$rdmux" conformance --patience 8 --peer "$address" --provider tcp --quick --rules 8.1,8.3
    grep -qE '^8\.1 .* pass$' "$scratch/out" || fail "$(cat "$scratch/out")"
}

a_failure_reports_the_side_of_the_other_host() {
    start_server 127.0.0.1
    exits 1 "$rdmux" conformance --peer "$address" --provider "$absent" --rules N.1
    grep -qE '^ *initiator: .*rdmux_connect' "$scratch/out" || fail "$(cat "$scratch/out")"
    grep -qE '^ *target: .*rdmux_accept' "$scratch/out" || fail "$(cat "$scratch/out")"
    grep -qF -- "--peer $address" "$scratch/out" || fail 'the peer is not in the command'
}

a_session_that_dies_is_a_failure() {
    local session run
    start_server 127.0.0.1
    "$rdmux" conformance --patience 8 --peer "$address" --format tap >"$scratch/out" 2>&1 &
    run=$!
    until grep -q '^ok 3 ' "$scratch/out"; do
        kill -0 "$run" || fail "$(cat "$scratch/out")"
    done
    session=$(pgrep -P "$server")
    kill -KILL "$session"
    ! wait "$run" || fail 'the run has passed'
    grep -q 'session.* is lost' "$scratch/out" || fail "$(cat "$scratch/out")"
}

a_case_that_hangs_reports_where_its_threads_wait() {
    local suite side stopped='' stat
    "$rdmux" conformance --provider tcp --case 'an idle cq that is armed' >"$scratch/out" 2>&1 &
    suite=$!
    # A side leads a process group; the child that lists the providers does not. One may end meanwhile.
    until [[ -n $stopped ]]; do
        kill -0 "$suite" 2>/dev/null || fail "the suite has ended: $(cat "$scratch/out")"
        for side in $(<"/proc/$suite/task/$suite/children"); do
            if read -ra stat 2>/dev/null <"/proc/$side/stat" && [[ ${stat[4]} == "$side" ]] &&
                kill -STOP "$side" 2>/dev/null; then
                stopped=$side
            fi
        done
    done
    ! wait "$suite" || fail 'a case that stands still passes'
    grep -qE '^ *(initiator|target): its threads: rdmux.* in [a-z_0-9]+, system call ' "$scratch/out" ||
        fail "$(cat "$scratch/out")"
}

without_a_server_it_says_so() {
    exits 1 "$rdmux" conformance --peer 127.0.0.1:1
    grep -qF 'rdmux serve' "$scratch/err" || fail "$(cat "$scratch/err")"
}

wrong_arguments_are_2_and_named() {
    exits 2 "$rdmux" conformance --rules 1.1,99.1
    grep -qF '99.1' "$scratch/err" || fail "$(cat "$scratch/err")"
    exits 2 "$rdmux" conformance --nosuch
    exits 2 "$rdmux" conformance --format yaml
    exits 2 "$rdmux" conformance --patience 0
    exits 2 "$rdmux" conformance --seed many
    exits 2 "$rdmux" conformance --sequence i1,x2
    exits 2 "$rdmux" conformance --sequence r1.2.3
    exits 2 "$rdmux" conformance --provider tcp,shm
    grep -qF '"tcp,shm"' "$scratch/err" || fail "$(cat "$scratch/err")"
    exits 2 "$rdmux" conformance --quick --thorough
}

each_case_that_is_named_runs() {
    exits 0 "$rdmux" conformance --list --case atomic --case revoke
    cp "$scratch/out" "$scratch/both"
    exits 0 "$rdmux" conformance --list --case atomic
    cp "$scratch/out" "$scratch/either"
    exits 0 "$rdmux" conformance --list --case revoke
    cat "$scratch/out" >>"$scratch/either"
    [[ -s $scratch/out ]] || fail 'no case of that name'
    diff <(sort -u "$scratch/either") <(sort "$scratch/both") || fail 'not those of both'
}

a_run_of_no_case_is_no_pass() {
    exits 2 "$rdmux" conformance --case 'no case is called so'
    grep -qF -- '--list' "$scratch/err" || fail "$(cat "$scratch/err")"
    exits 2 "$rdmux" conformance --case 'random operations' --case 'no case is called so'
    grep -qF -- '"no case is called so"' "$scratch/err" || fail "$(cat "$scratch/err")"
    exits 2 "$rdmux" conformance --rules ''
    exits 2 "$rdmux" conformance --rules N.15 --case 'random operations'
}

# With and without a named provider: the provider to test is missing.
a_file_that_is_no_plug_in_is_refused_with_the_reason() {
    local named
    printf '%0200d' 0 >"$scratch/text.so"
    for named in '' --provider=tcp; do
        exits 1 "$rdmux" conformance --plugin "$scratch/text.so" ${named:+"$named"}
        grep -qE 'text\.so: BAD_PLUGIN: .*ELF' "$scratch/err" || fail "$(cat "$scratch/err")"
        exits 1 "$rdmux" conformance --plugin "$scratch/nowhere.so" ${named:+"$named"}
        grep -qE 'nowhere\.so: NO_LIBRARY: .*cannot open' "$scratch/err" || fail "$(cat "$scratch/err")"
        [[ ! -s $scratch/out ]] || fail "it ran a case: $(cat "$scratch/out")"
    done
}

every_option_is_in_help_and_manual() {
    local option
    exits 0 "$rdmux" conformance --help
    grep -oE '^  --[a-z-]+' "$scratch/out" | tr -d ' ' >"$scratch/options"
    for option in provider plugin peer rules seed thorough format; do
        grep -qx -- "--$option" "$scratch/options" || fail "--help has no --$option"
    done
    sed -n '/^\.SH OPTIONS/,/^\.SH OUTPUT/p' "$RDMUX_BUILD/man/man1/rdmux-conformance.1" |
        sed 's/\\-/-/g' >"$scratch/manual"
    while IFS= read -r option; do
        [[ $option == --help ]] || grep -qF -- "$option" "$scratch/manual" ||
            fail "the manual page has no $option"
    done <"$scratch/options"
}

# ----------------------------------------------------------------------------------------------------

cases=(
    the_document_has_these_rules_and_titles
    every_case_names_rules_that_exist
    every_rule_has_a_case_that_observes_it
    every_breakable_rule_has_a_case_that_tries
    every_rule_has_a_case_on_each_path_that_advertises_it
    json_stands_alone_and_has_each_rule
    several_providers_are_a_json_array
    a_provider_that_is_not_there_fails
    a_failure_reports_both_sides_and_the_command_that_repeats_it
    the_matrix_has_a_row_for_each_rule
    a_rule_that_is_left_out_is_no_pass
    a_host_that_lacks_the_memory_is_no_pass
    tap_has_its_plan
    junit_is_valid
    html_is_one_file
    the_shortest_sequence_is_found_and_runs_again
    the_simplest_row_is_found_and_names_one_rule
    one_side_may_run_on_another_host
    the_other_host_may_have_another_clock
    a_failure_reports_the_side_of_the_other_host
    a_session_that_dies_is_a_failure
    a_case_that_hangs_reports_where_its_threads_wait
    without_a_server_it_says_so
    wrong_arguments_are_2_and_named
    each_case_that_is_named_runs
    a_run_of_no_case_is_no_pass
    a_file_that_is_no_plug_in_is_refused_with_the_reason
    every_option_is_in_help_and_manual
)

for case in "${cases[@]}"; do
    [[ ${case//_/ } =~ $wanted || $case =~ $wanted ]] || continue
    if [[ $case == @(junit|html)_* ]] && ! have xmllint; then
        tap_skip "${case//_/ }" 'xmllint is not installed'
        continue
    fi
    tap "${case//_/ }" "$case"
done
tap_end
