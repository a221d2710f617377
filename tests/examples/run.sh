#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Runs the examples over each path that every machine has, and checks their results.
#
#   run.sh               all cases, as TAP
#   run.sh CASE [PATH]   one case, say "run.sh rpc_serves_four_clients shm"
#
# RDMUX_EXAMPLES is the folder with the built programs. A case is its own process: the first failing
# command ends it, together with the processes it started.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
examples=${RDMUX_EXAMPLES:-${RDMUX_BUILD:-$root/build/dev}/examples}
# shellcheck source=tests/examples/cases.bash
. "$here/cases.bash"

# ------------------------------------------------------------------------------------- for the cases

# run PROGRAM ARGUMENT...: runs an example within the time limit.
bounded=(timeout --kill-after=5 "$limit")
run() {
    "${bounded[@]}" "$examples/$1" "${@:2}"
}

# start LOG PROGRAM ARGUMENT...: runs it in the background; its process is $pid.
start() {
    : >"$1" # here, not in the process to come: what an earlier one has left must not be read as its own
    "${bounded[@]}" "$examples/$2" "${@:3}" <&0 >"$1" 2>"$1.err" &
    pid=$!
}

# serve PROGRAM ARGUMENT...: starts a server; sets $server and $address.
serve() {
    start "$scratch/server" "$@"
    server=$pid
    wait_for_line "$scratch/server" '^listening on '
    address=127.0.0.1:$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$scratch/server")
}

# ------------------------------------------------------------------------------------------ the cases

every_example_says_how_it_is_used() {
    local name
    for name in allreduce event_loop file_copy hooks kv_store pingpong rpc shards stream_echo; do
        run "$name" --help >"$scratch/said"
        grep -q "^usage: $name " "$scratch/said" || fail "$name --help: $(<"$scratch/said")"
        fails_with 2 run "$name" nonsense
        same "$(<"$scratch/complaint")" "$(<"$scratch/said")" "what $name says to nonsense"
    done
    fails_with 2 run allreduce 0
    fails_with 2 run allreduce 4x
    fails_with 2 run hooks run 0
    fails_with 2 run hooks run 10k
    fails_with 2 run pingpong measure 127.0.0.1:1 1048577
    fails_with 2 run pingpong measure 127.0.0.1:1 8 0
    fails_with 2 run rpc call 127.0.0.1:1 many
    fails_with 2 run shards serve 127.0.0.1:0 0
    fails_with 2 run shards call 127.0.0.1:1 '' 1
}

pingpong_tells_half_a_round_trip() {
    local said size how
    while read -r size how; do
        serve pingpong ${how:+"$how"} serve 127.0.0.1:0
        said=$(run pingpong ${how:+"$how"} measure "$address" "$size" 100)
        [[ $said == "$size bytes over "*" us half round trip" ]] || fail "it said: $said"
        went_over_path "$said"
        ends_well "$server"
    done <<'END'
0
8
100000
1048576
8 --poll
END
}

pingpong_without_a_server_says_why() {
    serve pingpong serve 127.0.0.1:0
    run pingpong measure "$address" 8 1
    ends_well "$server"
    fails_with 1 run pingpong measure "$address" 8 1
    grep -Eq 'connect: .{10}' "$scratch/complaint"
}

file_copy_copies_files_of_any_size() {
    local size
    for size in 0 1 1048576 5254321; do
        head -c "$size" /dev/urandom >"$scratch/original"
        serve file_copy receive 127.0.0.1:0 "$scratch/copy.$size"
        same "$(run file_copy send "$address" "$scratch/original")" "sent $size bytes" sender
        ends_well "$server"
        same "$(tail -n 1 "$scratch/server")" "received $size bytes" receiver
        same "$(sha256sum <"$scratch/copy.$size")" "$(sha256sum <"$scratch/original")" sha256
    done
    fails_with 1 run file_copy receive 127.0.0.1:0 "$scratch/copy.1" # it is there already
    same "$(stat -c %s "$scratch/copy.1")" 1 'the size of a file that was there'
}

file_copy_leaves_no_half_of_a_file() {
    local sender deadline=$((SECONDS + limit))
    serve file_copy receive 127.0.0.1:0 "$scratch/copy"
    fails_with 1 run pingpong measure "$address" 64 1 # does not know how a copy ends
    fails_with 1 wait "$server"
    [[ ! -e $scratch/copy ]] || fail 'there is a file'

    mkfifo "$scratch/endless"
    exec {feed}<>"$scratch/endless"
    head -c 3000000 /dev/zero >&"$feed" &
    serve file_copy receive 127.0.0.1:0 "$scratch/copy"
    "$examples/file_copy" send "$address" "$scratch/endless" &
    sender=$!
    until (($(stat -c %s "$scratch/copy") >= 1048576)); do
        ((SECONDS < deadline)) || fail 'nothing has come'
        sleep 0.02
    done
    kill -KILL "$sender"
    wait "$sender" 2>/dev/null || true
    fails_with 1 wait "$server"
    [[ ! -e $scratch/copy ]] || fail 'there is half of a file'
}

kv_store_keeps_what_was_put() {
    local i said
    serve kv_store serve 127.0.0.1:0 42
    for i in {1..20}; do
        run kv_store put "$address" "key $i" $((i * 1000)) 2>"$scratch/said"
    done
    said=$(<"$scratch/said")
    went_over_path "$said"
    run kv_store put "$address" 'key 7' 4711
    for i in {1..6} {8..20}; do
        same "$(run kv_store get "$address" "key $i")" $((i * 1000)) "key $i"
    done
    same "$(run kv_store get "$address" 'key 7')" 4711 'key 7'
    fails_with 1 run kv_store get "$address" 'no such key'
    grep -q 'no such key: not in the table' "$scratch/complaint"
    fails_with 2 run kv_store get "$address" "$(printf '%0100d' 0)"
    fails_with 2 run kv_store put "$address" key 'no number'
    ends_well "$server"
}

kv_store_loses_no_concurrent_increment() {
    local i adders=()
    serve kv_store serve 127.0.0.1:0 5
    for i in 1 2 3 4; do
        start "$scratch/adder.$i" kv_store add "$address" counter 100
        adders[i]=$pid
    done
    for i in 1 2 3 4; do
        ends_well "${adders[i]}" "$scratch/adder.$i.err"
    done
    same "$(run kv_store get "$address" counter)" 400 counter
    ends_well "$server"
}

kv_store_frees_the_locks_of_a_killed_client() {
    local adder count clients=50 deadline=$((SECONDS + limit))
    serve kv_store serve 127.0.0.1:0 "$clients"
    "$examples/kv_store" add "$address" counter 1000000000 2>"$scratch/adder" &
    adder=$!
    until run kv_store get "$address" counter >"$scratch/count"; do
        clients=$((clients - 1))
        ((SECONDS < deadline)) || fail 'nothing was added'
    done
    kill -KILL "$adder"
    wait "$adder" 2>/dev/null || true
    count=$(run kv_store get "$address" counter)
    run kv_store add "$address" counter 10
    same "$(run kv_store get "$address" counter)" "$((count + 10))" counter
    for ((; clients > 5; clients--)); do # so many are left until the server's end
        run kv_store get "$address" counter
    done
    ends_well "$server"
}

rpc_serves_four_clients() {
    local i clients=()
    serve rpc serve 127.0.0.1:0 4
    for i in 1 2 3 4; do
        start "$scratch/client.$i" rpc call "$address" 2000
        clients[i]=$pid
    done
    for i in 1 2 3 4; do
        ends_well "${clients[i]}" "$scratch/client.$i.err"
        grep -q '^2000 calls answered' "$scratch/client.$i"
        went_over_path "$(<"$scratch/client.$i")"
    done
    ends_well "$server"
    same "$(tail -n 1 "$scratch/server")" 'answered 8000 calls of 4 clients' server
}

rpc_server_outlives_a_killed_client() {
    local client
    serve rpc serve 127.0.0.1:0 3
    "$examples/rpc" call "$address" 1000000000 >"$scratch/client" 2>&1 &
    client=$!
    wait_for_line "$scratch/server" '^client 1 connected$' # else it may be killed before it connects
    run rpc call "$address" 1000
    kill -KILL "$client"
    wait "$client" 2>/dev/null || true
    run rpc call "$address" 1000
    ends_well "$server"
    grep -q '^answered [0-9]* calls of 3 clients$' "$scratch/server"
}

allreduce_sums_on_every_rank() {
    local ranks length line count
    while read -r ranks length; do
        run allreduce "$ranks" "$length" >"$scratch/out"
        count=0
        while read -r line; do
            went_over_path "$line"
            count=$((count + 1))
        done < <(grep 'has the right sum' "$scratch/out")
        same "$count" "$ranks" 'ranks that are right'
    done <<'END'
4 100003
2 1000000
3 2
1 1000
END
}

allreduce_without_a_path_says_why() {
    local rank filter='!tcp,!shm,!ib,!roce,!iwarp'
    RDMUX_PATHS=$filter fails_with 1 run allreduce 3 5000
    for rank in 0 1 2; do
        grep -q "^allreduce: rank $rank: " "$scratch/complaint" || fail "rank $rank is silent"
    done
    # A late member only sees that its neighbour is gone.
    grep -Eq '^allreduce: rank .: no (left|right) neighbour: .*FILTERED' "$scratch/complaint" ||
        fail "nobody says why: $(<"$scratch/complaint")"
}

event_loop_tells_every_line_to_every_member() {
    local member members=()
    serve event_loop serve 127.0.0.1:0
    for member in 1 2 3; do
        mkfifo "$scratch/in.$member"
        start "$scratch/out.$member" event_loop join "$address" <>"$scratch/in.$member"
        members[member]=$pid
    done
    pid=$server
    wait_for_line "$scratch/server.err" ' joined over ' 3
    for member in 1 2 3; do
        printf '%s\n' "first of $member" "second of $member" >"$scratch/in.$member"
    done
    for member in 1 2 3; do
        pid=${members[member]}
        wait_for_line "$scratch/out.$member" ' of ' 6
        went_over_path "$(<"$scratch/out.$member.err")"
        same "$(sort "$scratch/out.$member")" \
            "$(printf '%s\n' 'first of '{1,2,3} 'second of '{1,2,3})" "what member $member heard"
    done
    kill -TERM "${members[1]}"
    ends_well "${members[1]}" "$scratch/out.1.err"
    # A member whose stdin ends also leaves.
    mkfifo "$scratch/in.4"
    exec {feed}<>"$scratch/in.4"
    start "$scratch/out.4" event_loop join "$address" {feed}<&- <"$scratch/in.4"
    members[4]=$pid
    echo 'said last' >&"$feed"
    wait_for_line "$scratch/out.4" '^said last$'
    exec {feed}<&-
    ends_well "${members[4]}" "$scratch/out.4.err"
    stop_server # says goodbye to those who are left
    ends_well "${members[2]}" "$scratch/out.2.err"
    ends_well "${members[3]}" "$scratch/out.3.err"
}

# Each client has its name's thread, at every call and again after a reconnect. Where a path keeps an
# endpoint on its queue, the thread that accepts it has it.
shards_keep_a_client_on_its_thread() {
    local i name clients=() homes=() total count=12
    case $RDMUX_PATHS in
    ib | roce | iwarp) count=3 ;; # a guest's processor opens few paths at a time within their time limit
    esac
    serve shards serve 127.0.0.1:0 4 $((2 * count))
    for ((i = 0; i < count; i++)); do
        start "$scratch/client.$i" shards call "$address" "client $i" 200
        clients[i]=$pid
    done
    for ((i = 0; i < count; i++)); do
        ends_well "${clients[i]}" "$scratch/client.$i.err"
        went_over_path "$(<"$scratch/client.$i")"
        homes[i]=$(sed -n 's/^200 calls answered by thread \([0-3]\) over .*/\1/p' "$scratch/client.$i")
        [[ -n ${homes[i]} ]] || fail "client $i says: $(<"$scratch/client.$i")"
    done
    total=$(printf '%s\n' "${homes[@]}" | sort -u | wc -l)
    case $RDMUX_PATHS in
    ib | roce | iwarp) same "$total ${homes[0]}" '1 0' 'threads, and the first one' ;;
    *) ((total >= 2)) || fail "all are on thread ${homes[0]}" ;;
    esac
    for ((i = 0; i < count; i++)); do
        name=$(run shards call "$address" "client $i" 1)
        [[ $name == "1 calls answered by thread ${homes[i]} over "* ]] || fail "client $i: $name"
    done
    ends_well "$server"
    total=$(awk '/^thread [0-3] answered / { sum += $4 } END { print sum }' "$scratch/server")
    same "$total" $((201 * count)) 'answered calls'
}

stream_echo_returns_every_byte() {
    local size
    serve stream_echo serve 127.0.0.1:0 3
    for size in 0 1 3000001; do # more than both rings hold
        head -c "$size" /dev/urandom >"$scratch/said"
        run stream_echo send "$address" <"$scratch/said" >"$scratch/echoed"
        cmp "$scratch/said" "$scratch/echoed"
    done
    ends_well "$server"
    same "$(grep -c ' came over ' "$scratch/server.err")" 3 'clients'
    went_over_path "$(head -n 1 "$scratch/server.err")"
}

hooks_see_all_that_the_library_uses() {
    run hooks run >"$scratch/out" 2>"$scratch/err"
    went_over_path "$(head -n 1 "$scratch/out")"
    grep -qE '^[1-9][0-9]* allocations, 0 bytes left$' "$scratch/out" || fail "$(<"$scratch/out")"
    grep -qE '^[1-9][0-9]* threads, [1-9][0-9]* reads of the clock, [1-9][0-9]* random bytes, [1-9][0-9]* lines of log$' \
        "$scratch/out" || fail "$(<"$scratch/out")"
    same "$(grep -c '^hooks: log: ' "$scratch/err")" "$(sed -n 's/.* \([0-9]*\) lines of log$/\1/p' "$scratch/out")" 'lines of log'
    grep -q '^hooks: thread rdmux-service starts$' "$scratch/err" || fail "$(<"$scratch/err")"
}

hooks_that_give_too_little_memory_end_with_an_error() {
    fails_with 1 run hooks run 1000
    grep -q 'RDMUX_NO_MEMORY rdmux_fabric_open: out of memory' "$scratch/complaint" || fail "$(<"$scratch/complaint")"
}

# ----------------------------------------------------------------------------------------------- main

cases=(
    every_example_says_how_it_is_used
    pingpong_tells_half_a_round_trip
    pingpong_without_a_server_says_why
    file_copy_copies_files_of_any_size
    file_copy_leaves_no_half_of_a_file
    kv_store_keeps_what_was_put
    kv_store_loses_no_concurrent_increment
    kv_store_frees_the_locks_of_a_killed_client
    rpc_serves_four_clients
    rpc_server_outlives_a_killed_client
    allreduce_sums_on_every_rank
    allreduce_without_a_path_says_why
    event_loop_tells_every_line_to_every_member
    shards_keep_a_client_on_its_thread
    stream_echo_returns_every_byte
    hooks_see_all_that_the_library_uses
    hooks_that_give_too_little_memory_end_with_an_error
)

if (($# > 0)); then
    [[ " ${cases[*]} " == *" $1 "* ]] || die "no case '$1'"
    export RDMUX_PATHS=${2:-auto}
    scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-examples.XXXXXX")
    trap clean_up EXIT
    trap 'exit 143' TERM INT HUP
    "$1"
    exit 0
fi

for path in tcp shm auto; do
    for name in "${cases[@]}"; do
        tap "${name//_/ } ($path)" bash "$here/run.sh" "$name" "$path"
    done
done
tap_end
