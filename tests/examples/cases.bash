# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# For tests whose cases are functions, each in a process of its own: the first failing command ends
# it, together with the processes that it started. tests/embedding has it, too. The script calls
# clean_up in a trap, and starts its programs by a start of its own, which sets pid.
limit=240 # seconds for one program
scratch=
server= # the process that serve has started

clean_up() {
    local pid
    for pid in $(jobs -pr); do
        kill -TERM "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    rm -rf "$scratch"
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# wait_for_line LOG PATTERN [COUNT]: waits until COUNT lines match, while process $pid lives.
wait_for_line() {
    local deadline=$((SECONDS + limit))
    until (($(grep -c -- "$2" "$1" || true) >= ${3:-1})); do
        if ((SECONDS >= deadline)) || ! kill -0 "$pid" 2>/dev/null; then
            cat "$1" "$1.err" >&2
            fail "'$2' did not appear in $1"
        fi
        sleep 0.02
    done
}

# ends_well PID [LOG]: waits for a process, which must exit with 0.
ends_well() {
    local status=0
    wait "$1" || status=$?
    if ((status != 0)); then
        cat "${2:-$scratch/server.err}" >&2
        fail "a program ended with status $status"
    fi
}

stop_server() {
    kill -TERM "$server"
    ends_well "$server"
}

# fails_with STATUS COMMAND...: the command must exit with STATUS; its messages are in
# $scratch/complaint.
fails_with() {
    local expected=$1 status=0
    shift
    "$@" >"$scratch/complaint" 2>&1 || status=$?
    ((status == expected)) || fail "status $status, not $expected: $* ($(<"$scratch/complaint"))"
}

# same ACTUAL EXPECTED WHAT
same() {
    [[ $1 == "$2" ]] || fail "$3: '$1', not '$2'"
}

# went_over_path TEXT: the program must report that it used the path of this case.
went_over_path() {
    local path=$RDMUX_PATHS
    [[ $path != auto ]] || path='[a-z]+'
    [[ $1 =~ over\ $path($|[^a-z]) ]] || fail "not over $RDMUX_PATHS: $1"
}
