#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The adapter ucx: what UCX leaves as it was, when it is not loaded at all, the conformance suite,
# the examples, and what the command shows. Prints TAP.
#
#   ucx.sh [PATTERN]   the cases whose name matches the pattern (a bash regular expression)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
# shellcheck source=tests/adapters/conforms.bash
. "$here/conforms.bash"
rdmux=$build/bin/rdmux
wanted=${1:-}
patience=${RDMUX_PATIENCE:-4}
level=${RDMUX_TEST_LEVEL:-normal}
unset RDMUX_PATHS
for name in "${!UCX_@}"; do
    unset "$name"
done

if [[ ! -e $build/lib/rdmux/rdmux-ucx.so ]]; then
    echo '1..0 # SKIP the plug-in rdmux-ucx.so was not built: libucx-dev is not installed'
    exit 77
fi

scratch=$(mktemp -d)
server=
clean_up() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT

# The environment in which UCX leaves the process as it is.
safe=(UCX_HANDLE_ERRORS=none UCX_DEBUG_SIGNO=0 UCX_MEM_EVENTS=n)

# ucx_line: of `rdmux info`, the path of this provider.
ucx_line() {
    jq -ce '.paths[] | select(.provider == "ucx")'
}

# By the loader's own report, which LD_DEBUG has made of one command.
only_the_plug_in_was_loaded() {
    grep -h 'generating link map' "$scratch"/loads.* >"$scratch/loaded"
    rm "$scratch"/loads.*
    grep -q 'rdmux-ucx\.so' "$scratch/loaded" && ! grep 'libuc[pstm]\.so' "$scratch/loaded"
}

it_is_not_loaded_without() {
    local missing=$1 name line
    local -a environment=()
    for name in "${safe[@]}"; do
        [[ $name == "$missing="* ]] || environment+=("$name")
    done
    RDMUX_PATHS=ucx LD_DEBUG=files LD_DEBUG_OUTPUT=$scratch/loads env "${environment[@]}" \
        "$rdmux" info --json >"$scratch/info"
    line=$(ucx_line <"$scratch/info")
    echo "$line"
    jq -e --arg name "$missing" '.reason == "OPEN_FAILED" and (.text | contains($name)) and
        (.hint | contains("UCX_HANDLE_ERRORS=none UCX_DEBUG_SIGNO=0 UCX_MEM_EVENTS=n"))' <<<"$line" >/dev/null
    only_the_plug_in_was_loaded
}

info_names_the_library() {
    RDMUX_PATHS=ucx env "${safe[@]}" "$rdmux" info --json >"$scratch/info"
    ucx_line <"$scratch/info" | tee /dev/stderr |
        jq -e '.reason == "USABLE" and (.text | test("^UCX [0-9]+\\.[0-9]+\\.[0-9]+, active messages$"))' >/dev/null
}

without_a_request_it_is_left_alone() {
    LD_DEBUG=files LD_DEBUG_OUTPUT=$scratch/loads env "${safe[@]}" "$rdmux" info --json >"$scratch/info"
    ucx_line <"$scratch/info" | tee /dev/stderr | jq -e '.reason == "FILTERED"' >/dev/null
    only_the_plug_in_was_loaded
}

transports_that_end_processes_are_refused() {
    UCX_TLS=rc,tcp RDMUX_PATHS=ucx env "${safe[@]}" "$rdmux" info --json >"$scratch/info"
    ucx_line <"$scratch/info" | tee /dev/stderr | jq -e '(.text | test("^UCX_TLS lets UCX 1.13[.0-9]* use")) and
        .reason == "OPEN_FAILED" and (.hint | contains("UCX_TLS=rc_verbs,tcp"))' >/dev/null || return
    UCX_TLS=rc_verbs,tcp RDMUX_PATHS=ucx env "${safe[@]}" "$rdmux" info --json >"$scratch/info"
    ucx_line <"$scratch/info" | tee /dev/stderr | jq -e '.reason == "USABLE"' >/dev/null
}

# The library is hidden in a mount namespace of the command's own.
a_missing_library_is_named() {
    local library
    library=$(ldconfig -p | awk '$1 == "libucp.so.0" { print $NF; exit }')
    # shellcheck disable=SC2016
    RDMUX_PATHS=ucx env "${safe[@]}" unshare -rm sh -c 'mount --bind /dev/null "$1" && exec "$2" info --json' \
        sh "$(readlink -f "$library")" "$rdmux" >"$scratch/info"
    ucx_line <"$scratch/info" | tee /dev/stderr |
        jq -e '.reason == "NO_LIBRARY" and (.hint | contains("libucx0"))' >/dev/null
}

# serve PATHS NAME=VALUE...: starts a server with these paths and this environment.
serve() {
    RDMUX_PATHS=$1 env "${@:2}" "$rdmux" serve 127.0.0.1:0 >"$scratch/server" 2>"$scratch/server.err" &
    server=$!
    until grep -q '^listening on ' "$scratch/server"; do
        kill -0 "$server" || { cat "$scratch/server.err"; return 1; }
        sleep 0.02
    done
    address=$(sed -n 's/^listening on //p' "$scratch/server")
}

end_server() {
    kill "$server"
    wait "$server" || true
    server=
}

explain_chooses_it_where_both_sides_ask() {
    serve ucx "${safe[@]}"
    env "${safe[@]}" "$rdmux" explain "$address" --paths ucx --json | tee "$scratch/why"
    end_server
    jq -e '.chosen.provider == "ucx"' "$scratch/why" >/dev/null
}

explain_gives_the_reason_of_the_other_side() {
    serve ucx,tcp
    env "${safe[@]}" "$rdmux" explain "$address" --paths ucx,tcp --json | tee "$scratch/why"
    end_server
    jq -e '.chosen.provider == "tcp" and any(.candidates[]; .provider == "ucx" and
           .reason == "OPEN_FAILED" and (.text | startswith("acceptor: UCX is not loaded")))' "$scratch/why" >/dev/null
}

# conforms poll|sleep: normal runs have the cases in which the network below matters.
conforms() {
    local how=$1 suites=() selection=(--quick) suite
    case $level-$how in
    thorough-*) selection=() ;;
    *-poll) suites=(transfer failure revoke srq passive) ;;
    *-sleep) suites=(wakeup asleep) ;;
    esac
    for suite in "${suites[@]}"; do
        selection+=(--case "$suite")
    done
    judge "ucx-tcp-$how" env "${safe[@]}" timeout 1800 "$rdmux" conformance --provider ucx \
        --patience "$patience" --seed 1 --wait "$how" "${selection[@]}"
}

# UCX's rc on soft RoCE. The first program ends one connection, at which UCX could end the process. A
# guest has one processor, so processes wait asleep.
conforms_on_soft_roce() {
    local name
    local -a environment=()
    for name in "${safe[@]}"; do
        environment+=(--env "$name")
    done
    cat >"$scratch/guest" <<'END'
. /run/host/inside.sh
export RDMUX_PATHS=ucx UCX_TLS=rc_verbs,tcp UCX_NET_DEVICES=$RXE_DEVICE:1,$RXE_NETDEV,lo
ulimit -l unlimited
packets() { cat "/sys/class/infiniband/$RXE_DEVICE/ports/1/hw_counters/sent_pkts"; }
before=$(packets)
"$RDMUX_BUILD/tests/adapters/unchanged" ucx || exit
"$RDMUX_BUILD/bin/rdmux" conformance --provider ucx --patience 8 --seed 1 --wait sleep "$@" || exit
echo "$(($(packets) - before)) packets of $RXE_DEVICE"
(($(packets) - before > 100))
END
    "$root/tests/soft_rdma/guest" --linux "$linux" --seconds 1500 --with "$build/bin" --with "$build/lib" \
        --with "$build/tests/adapters" --env "RDMUX_BUILD=$build" "${environment[@]}" "$scratch/guest" "$@"
}

when_wanted 'UCX at work changes nothing in the process' env "${safe[@]}" "$build/tests/adapters/unchanged" ucx
for name in "${safe[@]}"; do
    when_wanted "without $name it is not loaded" it_is_not_loaded_without "${name%%=*}"
done
when_wanted 'transports that end processes are refused' transports_that_end_processes_are_refused
when_wanted 'without a request UCX is left alone' without_a_request_it_is_left_alone
when_wanted 'rdmux info names the version of UCX' info_names_the_library
if unshare -rm true 2>/dev/null; then
    when_wanted 'rdmux info names a missing library' a_missing_library_is_named
else
    tap_skip 'rdmux info names a missing library' 'no mount namespaces for this user'
fi
when_wanted 'explain chooses ucx where both sides ask for it' explain_chooses_it_where_both_sides_ask
when_wanted 'explain gives the reason of the other side' explain_gives_the_reason_of_the_other_side
for how in poll sleep; do
    when_wanted "ucx keeps the rules ($how)" conforms "$how"
done
# The whole suite takes a guest a quarter of an hour.
soft_roce=(--case 'two processes connect through this provider')
[[ $level != thorough ]] || soft_roce=(--quick)
in_guest 'ucx keeps the rules over rc on soft RoCE' conforms_on_soft_roce "${soft_roce[@]}"
for name in pingpong_tells_half_a_round_trip file_copy_copies_files_of_any_size \
    kv_store_keeps_what_was_put rpc_serves_four_clients allreduce_sums_on_every_rank \
    event_loop_tells_every_line_to_every_member; do
    when_wanted "${name//_/ } (ucx)" env "${safe[@]}" bash "$root/tests/examples/run.sh" "$name" ucx
done
tap_end
