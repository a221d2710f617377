# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# For parts of this group whose cases are functions.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/examples/cases.bash
. "$root/tests/examples/cases.bash"
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck disable=SC2034
examples=${RDMUX_EXAMPLES:-$build/examples}
part=$0
PATH=$PATH:/usr/sbin:/sbin # of mke2fs, e2fsck, debugfs

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

# serve COMMAND...: starts a server on a free port; sets $server and $address.
serve() {
    start "$scratch/server" "$@"
    server=$pid
    wait_for_line "$scratch/server" '^listening on '
    # shellcheck disable=SC2034
    address=$(sed -n 's/^listening on //p' "$scratch/server")
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
