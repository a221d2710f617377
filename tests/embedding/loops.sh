#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# The loops of examples/loops: they lose no wake-up, sleep when nothing is to do, and end in order.
#
#   loops.sh                    all cases, as TAP
#   loops.sh CASE PATH [LOOP]   one case, say "loops.sh echoes_all_calls shm libuv"
# shellcheck source=tests/embedding/cases.bash
. "$(dirname "${BASH_SOURCE[0]}")/cases.bash"
loops=$examples/loops

says_how_it_is_used() {
    run "$loops/$1" --help >"$scratch/said"
    grep -q '^usage: ' "$scratch/said" || fail "--help: $(<"$scratch/said")"
    fails_with 2 run "$loops/$1" nonsense
    same "$(<"$scratch/complaint")" "$(<"$scratch/said")" 'what it says to nonsense'
    fails_with 2 run "$loops/$1" call 127.0.0.1:1 0 1
    fails_with 2 run "$loops/$1" call 127.0.0.1:1 1 many
    fails_with 2 run "$loops/$1" call 127.0.0.1:1 1 1 go
}

# A lost wake-up stops a client, which has one call under way at a time.
echoes_all_calls() {
    local i clients=16 callers=()
    ! over_adapter || clients=2
    serve "$loops/$1" serve 127.0.0.1:0
    for i in 1 2 3; do
        start "$scratch/caller.$i" run "$loops/$1" call "$address" "$clients" 200
        callers[i]=$pid
    done
    for i in 1 2 3; do
        ends_well "${callers[i]}" "$scratch/caller.$i.err"
        went_over_path "$(<"$scratch/caller.$i")"
        grep -q "^$((200 * clients)) calls of $clients clients echoed over " "$scratch/caller.$i"
    done
    stop_server
    same "$(tail -n 1 "$scratch/server")" "$((600 * clients)) calls echoed" server
}

outlives_killed_clients() {
    serve "$loops/$1" serve 127.0.0.1:0
    start "$scratch/caller" "$loops/$1" call "$address" 20 10 stay
    wait_for_line "$scratch/caller" ' echoed over '
    kill -KILL "$pid"
    wait "$pid" 2>/dev/null || true
    run "$loops/$1" call "$address" 5 100 >/dev/null
    stop_server
    same "$(tail -n 1 "$scratch/server")" '700 calls echoed' server
}

without_a_server_says_why() {
    serve "$loops/$1" serve 127.0.0.1:0
    stop_server
    fails_with 1 run "$loops/$1" call "$address" 3 1
    grep -Eq '^echo: connect: .{10}' "$scratch/complaint" || fail "it says: $(<"$scratch/complaint")"
}

# Both ends can end first; a server that goes is a failure for clients that have calls to make.
ends_in_order_at_both_sides() {
    local caller
    serve "$loops/$1" serve 127.0.0.1:0
    start "$scratch/caller" "$loops/$1" call "$address" 20 10 stay
    caller=$pid
    wait_for_line "$scratch/caller" ' echoed over '
    kill -TERM "$caller"
    ends_well "$caller" "$scratch/caller.err"
    start "$scratch/caller" "$loops/$1" call "$address" 20 10 stay
    caller=$pid
    wait_for_line "$scratch/caller" ' echoed over '
    stop_server
    ends_well "$caller" "$scratch/caller.err"
    serve "$loops/$1" serve 127.0.0.1:0
    start "$scratch/caller" "$loops/$1" call "$address" 20 1000000000
    caller=$pid
    run "$loops/$1" call "$address" 1 1 >/dev/null
    stop_server
    fails_with 1 wait "$caller"
    # A busy machine may not have connected them all.
    grep -Eq '^echo: (the server has gone|connect): ' "$scratch/caller.err" || fail "$(<"$scratch/caller.err")"
}

# ------------------------------------------------------------------------------------ while idle

readonly idle_clients=8 idle_heartbeats=4

# idle_trace LOOP: system calls of an idle server and its idle clients, until some heartbeats have
# arrived, in $scratch/trace. Sets $mains to the threads with the loops.
idle_trace() {
    local caller tracer
    serve "$1" serve 127.0.0.1:0
    start "$scratch/caller" "$1" call "$address" $idle_clients 10 stay
    caller=$pid
    wait_for_line "$scratch/caller" ' echoed over '
    start "$scratch/tracer" strace -f -o "$scratch/trace" -p "$server" -p "$caller"
    tracer=$pid
    wait_for_line "$scratch/tracer.err" ' attached' 2
    wait_for_line "$scratch/trace" "$heartbeat" $idle_heartbeats
    kill -INT "$tracer"
    wait "$tracer" || true
    kill -TERM "$caller"
    ends_well "$caller" "$scratch/caller.err"
    stop_server
    mains="$server $caller"
}

# A received frame HEARTBEAT of docs/WIRE.md.
heartbeat='recvfrom.*" [\\]0[\\]0[\\]0[\\]0[\\]0[\\]0[\\]0"'

# only_heartbeats TRACE MAINS: fails if there are more system calls than heartbeats explain. A
# heartbeat that arrives wakes the loop, which takes a turn and sleeps again; over tcp a turn looks
# at each endpoint's socket. The service thread has a timer for the heartbeats of each endpoint. A
# loop that does not sleep makes thousands between two heartbeats.
only_heartbeats() {
    HEARTBEAT=$heartbeat awk -v mains="$2" -v clients=$idle_clients '
        BEGIN { split(mains, list, " "); for (i in list) is_main[list[i]] = 1 }
        $0 ~ ENVIRON["HEARTBEAT"] { arrived++ }
        / resumed>/ || /^[0-9]+ +(---|[+][+][+])/ { next }
        { calls[$1 in is_main]++ }
        END {
            printf "%d calls by the loops, %d by service threads, %d heartbeats arrived\n",
                calls[1], calls[0], arrived
            exit !(arrived > 0 && calls[1] <= (arrived + 2) * (16 + 4 * clients) &&
                   calls[0] <= (arrived + 2) * 24 * (clients + 1))
        }' "$1"
}

only_heartbeats_while_idle() {
    idle_trace "$loops/$1"
    only_heartbeats "$scratch/trace" "$mains" || fail 'there are more'
}

# flawed NAME FILE EDIT: builds the epoll program with an edit of one of its files.
flawed() {
    local file source=$root/examples/loops
    mkdir "$scratch/$1"
    for file in echo.h echo.c epoll.c; do
        cp "$source/$file" "$scratch/$1"
    done
    sed -i "$3" "$scratch/$1/$2"
    ! cmp -s "$source/$2" "$scratch/$1/$2" || fail "the edit no longer applies to $2"
    "${CC:-cc}" -D_GNU_SOURCE -std=c11 -I"$root/api/include" "$scratch/$1/echo.c" \
        "$scratch/$1/epoll.c" -o "$scratch/$1/epoll" -L"$build/lib" -Wl,-rpath,"$build/lib" -lrdmux
}

a_loop_that_does_not_sleep_is_found() {
    flawed busy epoll.c 's/next == ECHO_SLEEP ? -1 : 0/0/'
    idle_trace "$scratch/busy/epoll"
    ! only_heartbeats "$scratch/trace" "$mains" || fail 'it passes for idle'
}

a_loop_that_does_not_arm_is_found() {
    flawed unarmed echo.c 's/ || rdmux_cq_arm(cq) != RDMUX_OK//'
    serve "$scratch/unarmed/epoll" serve 127.0.0.1:0
    fails_with 124 timeout 5 "$loops/epoll" call "$address" 16 200
    kill -KILL "$server"
}

# ------------------------------------------------------------------------------------------- main

(($# == 0)) || case_main "$@"

can_trace() {
    have strace && strace -o /dev/null true 2>/dev/null
}

readonly untraced='strace is not installed, or may not trace here; scripts/setup --examples installs it'
declare -A packages=([libuv]=libuv1-dev [libevent]=libevent-dev) # epoll needs none
cases=(says_how_it_is_used echoes_all_calls outlives_killed_clients without_a_server_says_why
    ends_in_order_at_both_sides only_heartbeats_while_idle)
for loop in epoll libuv libevent; do
    for path in tcp shm; do
        for name in "${cases[@]}"; do
            title="$loop ${name//_/ } ($path)"
            # No path is connected there.
            [[ $path != shm || ($name != says_* && $name != without_*) ]] || continue
            if [[ -v packages[$loop] && ! -x $loops/$loop ]]; then
                tap_skip "$title" "${packages[$loop]} is not installed; scripts/setup --examples installs it"
            elif [[ $name == *while_idle ]] && ! can_trace; then
                tap_skip "$title" "$untraced"
            else
                tap_case "$title" "$name" "$path" "$loop"
            fi
        done
    done
done
if can_trace; then
    tap_case 'a loop that does not sleep is found' a_loop_that_does_not_sleep_is_found shm
else
    tap_skip 'a loop that does not sleep is found' "$untraced"
fi
tap_case 'a loop that does not arm is found' a_loop_that_does_not_arm_is_found shm
tap_end
