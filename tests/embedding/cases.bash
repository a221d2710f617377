# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# For parts of this group whose cases are functions. A case is its own process: the first failing
# command ends it, together with the processes that it started.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck disable=SC2034
examples=${RDMUX_EXAMPLES:-$build/examples}
part=$0
PATH=$PATH:/usr/sbin:/sbin # of mke2fs, e2fsck, debugfs
limit=240 # seconds for one program
scratch=

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

# run COMMAND...: within the time limit.
run() {
    timeout --kill-after=5 "$limit" "$@"
}

# start LOG COMMAND...: runs it in the background; its process is $pid, of which it is the program
# itself, not a shell or timeout(1).
start() {
    : >"$1" # here, not in the process to come: what an earlier one has left must not be read as its own
    "${@:2}" <&0 >"$1" 2>"$1.err" &
    pid=$!
}

# wait_for_line LOG PATTERN [COUNT]: waits until COUNT lines match, while process $pid lives.
wait_for_line() {
    local deadline=$((SECONDS + limit))
    until (($(grep -c -- "$2" "$1" || true) >= ${3:-1})); do
        if ((SECONDS >= deadline)) || ! kill -0 "$pid" 2>/dev/null; then
            tail -n 20 "$1" "$1.err" >&2 || true
            fail "'$2' did not appear in $1"
        fi
        sleep 0.02
    done
}

# serve COMMAND...: starts a server on a free port; sets $server and $address.
serve() {
    start "$scratch/server" "$@"
    server=$pid
    wait_for_line "$scratch/server" '^listening on '
    # shellcheck disable=SC2034
    address=$(sed -n 's/^listening on //p' "$scratch/server")
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

# over_adapter: the path is one of an adapter, so that the case runs in a guest, whose memory is short and whose
# processor opens few paths at a time within their time limit.
over_adapter() {
    [[ $RDMUX_PATHS == ib || $RDMUX_PATHS == roce || $RDMUX_PATHS == iwarp ]]
}

# case_main CASE PATH [ARGUMENT...]: runs the function CASE, as a process of its own, over PATH.
case_main() {
    declare -F "$1" >/dev/null || die "no case '$1'"
    export RDMUX_PATHS=$2
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-embedding.XXXXXX")
    trap clean_up EXIT
    trap 'exit 143' TERM INT HUP
    "$1" "${@:3}"
    exit 0
}

# tap_case NAME CASE PATH [ARGUMENT...]
tap_case() {
    tap "$1" bash "$part" "${@:2}"
}
