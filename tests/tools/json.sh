# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# What every command with --json prints, above all when it fails; run.sh sources it, and has the
# helpers and the server.
#
# Variables set by run.sh.
# shellcheck disable=SC2154

samples=$scratch/samples # what the commands of all cases printed with --json: COMMAND/*.json
schemas=$root/docs/schemas
validator=/usr/bin/jsonschema # Debian's; another one of that name may have other options

# keep_sample COMMAND ARGUMENT...: keeps the output in $scratch/out if it was asked for as JSON. It is
# that of a command only if there is one of the name.
keep_sample() {
    local argument
    [[ $# -gt 0 && -e $schemas/$1.json ]] || return 0
    for argument in "${@:2}"; do
        if [[ $argument == --json ]]; then
            mkdir -p "$samples/$1"
            cp "$scratch/out" "$(mktemp "$samples/$1/XXXXXX.json")"
            return 0
        fi
    done
}

# An error with --json: exit status, status in the object, part of the text, arguments.
each_error_is_one_json_object() {
    local code status text arguments
    start_server
    address_of_nobody=$address
    stop_server
    start_server
    mkdir -p "$scratch/no-sys"
    while IFS='|' read -r code status text arguments; do
        arguments=${arguments//ADDRESS/$address}
        # shellcheck disable=SC2086
        expect "$code" ${arguments//NOBODY/$address_of_nobody}
        jq -e -s --arg status "$status" --arg text "$text" 'length == 1 and (.[0] | .status == $status
            and (.text | test($text)) and (.hint | type == "string" and length > 0))' \
            "$scratch/out" >/dev/null || fail "rdmux $arguments: not $status, $text: $(cat "$scratch/out")"
        [[ -s $scratch/err ]] || fail "rdmux $arguments: nothing on standard error"
    done <<END
2|USAGE|no command "--json"|--json
2|USAGE|no command "nonsense"|nonsense --json
2|USAGE|one argument too many|info extra --json
2|USAGE|no option "--nonsense"|info --json --nonsense
2|USAGE|argument is missing|perf --json
2|USAGE|--op: "sned"|perf ADDRESS --op sned --json
2|USAGE|exclude each other|perf ADDRESS --json --csv
2|USAGE|--plot|perf ADDRESS --plot x.gif --json
2|USAGE|argument is missing|copy one --json
2|USAGE|exclude each other|copy $here/run.sh ADDRESS:/x --as y --json
2|USAGE|one argument too many|top extra --json
2|USAGE|no folder sys|doctor --sysfs $scratch/no-sys --json
2|USAGE|one argument too many|demo one two --json
2|USAGE|one argument too many|serve one two --json
2|USAGE|rdma://|serve rdma://127.0.0.1:1 --json
2|USAGE|--provider: there is no "nosuch"|conformance --provider nosuch --json
2|USAGE|there is no rule 99.1|conformance --rules 99.1 --json
2|USAGE|exclude each other|conformance --format tap --json
2|RDMUX_INVALID|--paths "shmm" names an unknown provider "shmm"|explain ADDRESS --paths shmm --json
2|RDMUX_INVALID|--paths "shmm"|perf ADDRESS --paths shmm --json
2|RDMUX_INVALID|--paths "shmm"|copy $here/run.sh ADDRESS --paths shmm --json
2|RDMUX_INVALID|cannot be resolved|explain no-such-host.invalid --json
3|RDMUX_NO_PATH|no path|explain ADDRESS --paths iwarp --json
3|RDMUX_NO_PATH|no path|explain ADDRESS --paths iwarp --probe --json
3|RDMUX_NO_PATH|no path|perf ADDRESS --paths iwarp --json
3|RDMUX_NO_PATH|no path|copy $here/run.sh ADDRESS --paths iwarp --json
1|RDMUX_REFUSED|nothing listens on port ${address_of_nobody##*:}|explain NOBODY --json
1|RDMUX_REFUSED|nothing listens on port|perf NOBODY --json
1|RDMUX_REFUSED|nothing listens on port|perf NOBODY --paths all --json
1|RDMUX_REFUSED|nothing listens on port|copy $here/run.sh NOBODY --json
1|RDMUX_REFUSED|nothing listens on port|conformance --peer NOBODY --json
1|RDMUX_IO|cannot listen on $address|serve ADDRESS --json
1|FAILED|cannot open the directory|serve 127.0.0.1:0 --receive $scratch/nowhere --json
1|FAILED|nowhere|copy $scratch/nowhere ADDRESS --json
1|FAILED|the server says|copy $here/run.sh ADDRESS --json
1|FAILED|nowhere.json|perf --compare $scratch/nowhere.json $scratch/nowhere.json --json
END
    expect 1 conformance --provider iwarp --rules N.1 --json
    json '.status == "FAILED" and (.text | test("^iwarp breaks rule N.1: ")) and .providers[0].failed == 1
          and .hint == (.providers[0].rules[] | select(.id == "N.1") | .failures[0].replay)'
    RDMUX_PATHS=iwarp expect 3 perf "$address" --paths all --json
    json '.status == "RDMUX_NO_PATH" and .runs == []'
    RDMUX_PATHS=iwarp expect 3 demo "$here/run.sh" --json
    json '.status == "RDMUX_NO_PATH" and .explanation.chosen == null and .copy == null'
    TMPDIR=$scratch/nowhere expect 1 demo --json
    json '.status == "FAILED" and (.text | test("nowhere")) and (.hint | test("TMPDIR"))'
    RDMUX_PATHS=shm,,tcp expect 2 info --json
    json '.status == "RDMUX_INVALID" and (.text | test("RDMUX_PATHS \"shm,,tcp\" is no filter"))'
    stop_server
}

# What was mistyped is refused with what there is.
mistakes_are_told_with_what_there_is() {
    local arguments
    for arguments in "explain $address --paths shmm" "perf $address --paths !shmm" \
        "copy $here/run.sh $address --paths shmm,tcp" 'conformance --provider shmm'; do
        # shellcheck disable=SC2086
        expect 2 $arguments
        says err '"!?shmm"'
        says err 'there are: .*\bshm\b.*\btcp\b'
        ! grep -q 'attr\.' "$scratch/err" || fail "$(cat "$scratch/err")"
    done
    RDMUX_PATHS=tpc expect 2 explain "$address"
    says err 'RDMUX_PATHS "tpc" names an unknown provider "tpc"; there are: .*\bshm\b.*\btcp\b'
    expect 2 perf "$address" --op sned
    says err '"sned" is not known; it is one of: send, write, read, fetch_add, compare_swap, send_imm, write_imm$'
    expect 2 conformance --format jsn
    says err 'one of: text, tap, junit, json, html$'
}

# What a command has reported before it failed is not lost.
reports_of_failed_commands_have_the_error() {
    mkdir -p "$scratch/machine/sys" "$scratch/machine/proc"
    start_server # the log of the other one has tests of earlier cases
    run perf "$address" --op write --test rate --size 8:16M --seconds 1 --json \
        >"$scratch/out" 2>"$scratch/err" &
    local client=$!
    started+=("$client")
    # The next size is measured once the first one is.
    wait_until grep -q 'perf write rate, 16 bytes$' "$log.err"
    pkill -INT -P "$client"
    ends "$client" "$end_limit"
    [[ $status == 130 ]] || fail "status $status: $(cat "$scratch/err")"
    keep_sample perf --json
    json '.status == "INTERRUPTED" and (.text | test("interrupted")) and (.runs | length > 0)'
    stop_server
    expect 1 doctor --sysfs "$scratch/machine" --json
    # shellcheck disable=SC2016
    json '.errors > 0 and .status == "FAILED" and ([.findings[] | select(.severity == "error")][0] as $first
          | .text == $first.text and .hint == $first.remedy)'
}

# A server prints its address once, when it is ready.
serve_prints_its_address_as_json() {
    local way at
    for way in 127.0.0.1:0 0.0.0.0:0; do
        : >"$scratch/out" # else what is there may be taken for what the server says
        "$rdmux" serve "$way" --json >"$scratch/out" 2>"$scratch/err" &
        server=$!
        started+=("$server")
        wait_until test -s "$scratch/out"
        keep_sample serve --json
        json "(.listening | test(\"^${way%:0}:[0-9]+\$\")) and .loopback_only == (\"$way\" == \"127.0.0.1:0\")"
        json "(.hint == \"\") == (\"$way\" == \"0.0.0.0:0\")"
        at=$(jq -r .listening "$scratch/out")
        expect 0 explain "127.0.0.1:${at##*:}"
        stop_server
    done
}

# One report of each command, beside those that the other cases have left.
make_samples() {
    expect 0 info --json
    expect 0 explain "$address" --probe --json
    expect 0 perf "$address" --test latency --iterations 10 --json
    expect 0 perf "$address" --test rate --both --seconds 0.2 --interval 0.05 --json
    expect 0 perf "$address" --paths all --seconds 0.02 --json
    cp "$scratch/out" "$scratch/before.json"
    jq '.runs |= (.[0].size = 4096)' "$scratch/before.json" >"$scratch/after.json"
    expect 0 perf --compare "$scratch/before.json" "$scratch/after.json" --json
    expect 0 copy "$here/run.sh" "$address" --json
    expect 0 copy "$scratch/tree" "$address" --as sampled --json
    start_shared 60
    wait_until in_top '.endpoints | length == 2'
    expect 0 conformance --provider tcp --provider shm --case 'two processes connect' --json
    TMPDIR=$scratch expect 0 demo "$here/run.sh" --json
    split_demos
}

# A demo's members are reports of other commands.
split_demos() {
    local file member of
    for file in "$samples/demo/"*.json; do
        while read -r member of; do
            if jq -e --arg member "$member" '.[$member] != null' "$file" >/dev/null; then
                mkdir -p "$samples/$of"
                jq --arg member "$member" '.[$member]' "$file" >"$(mktemp "$samples/$of/XXXXXX.json")"
            fi
        done <<'END'
explanation explain
copy copy
latency perf
bandwidth perf
END
    done
}

# validate SCHEMA FILE...: prints the files that fit, and why the others do not.
validate() {
    local file instances=()
    for file in "${@:2}"; do
        instances+=(-i "$file")
    done
    "$validator" --output pretty "${instances[@]}" "$schemas/$1.json" 2>&1 || true
}

all_json_fits_its_schema() {
    local command file good
    serve_prints_its_address_as_json
    make_samples
    for file in "$schemas/"*.json; do
        command=${file##*/}
        command=${command%.json}
        [[ -d $samples/$command ]] || fail "there is no output of rdmux $command"
        validate "$command" "$samples/$command/"*.json >"$scratch/verdicts"
        good=$(grep -c '^===\[SUCCESS\]===' "$scratch/verdicts" || true)
        [[ $good == $(find "$samples/$command" -name '*.json' | wc -l) ]] ||
            fail "$command: only $good fit: $(grep -v '^===\[SUCCESS\]===' "$scratch/verdicts" | head -n 40)"
        printf '# %s: %d outputs\n' "$command" "$good"
    done
    for command in $("$rdmux" --help | awk '/^$/ { blocks++ } blocks == 2 && NF { print $1 }'); do
        [[ -e $schemas/$command.json ]] || fail "rdmux $command has no schema"
    done
}

# Without a member, or with one more, no report fits: a member that is new or left out is noticed.
schemas_are_strict() {
    local command schema file key odd=$scratch/odd
    for schema in "$schemas/"*.json; do
        command=${schema##*/}
        command=${command%.json}
        for file in "$samples/$command/"*.json; do
            ! jq -e '(.status // "RDMUX_OK") == "RDMUX_OK"' "$file" >/dev/null || break
        done
        rm -rf "$odd"
        mkdir "$odd"
        for key in $(jq -r 'keys[]' "$file"); do
            jq --arg key "$key" 'del(.[$key])' "$file" >"$odd/without-$key.json"
        done
        jq '.odd = 1' "$file" >"$odd/more.json"
        jq '.status = "FAILED" | del(.text, .hint)' "$file" >"$odd/half.json"
        [[ $command != explain ]] || rm "$odd/half.json" # its status is its own
        validate "$command" "$odd/"*.json >"$scratch/verdicts"
        ! grep '^===\[SUCCESS\]===' "$scratch/verdicts" || fail "$command: these should not fit"
    done
}

json_cases() {
    check 'each error with --json is one object with status, text and hint' each_error_is_one_json_object
    check 'a mistyped provider, filter or choice is refused with what there is' \
        mistakes_are_told_with_what_there_is
    check 'the report of a command that failed has the error, too' reports_of_failed_commands_have_the_error
}

# After all other cases, whose outputs it validates.
schema_cases() {
    local all='all that commands print with --json fits docs/schemas'
    local strict='the schemas refuse a report with a member more or less'
    if [[ -x $validator ]]; then
        check "$all" all_json_fits_its_schema
        check "$strict" schemas_are_strict
    else
        tap_skip "$all" "$validator (Debian: python3-jsonschema) is not installed"
        tap_skip "$strict" "$validator (Debian: python3-jsonschema) is not installed"
    fi
}
