#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Runs the examples over each path that every machine has, and checks what they did.
#
#   run.sh               all cases, as TAP
#   run.sh CASE [PATH]   one case, say "run.sh rpc_serves_four_clients shm"
#
# RDMUX_EXAMPLES is the folder with the built programs. A case is a process of its own: the first
# command that fails ends it, and it takes what it started with it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
examples=${RDMUX_EXAMPLES:-${RDMUX_BUILD:-$root/build/dev}/examples}
limit=60 # seconds for one program

# ------------------------------------------------------------------------------------- for the cases

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

# run PROGRAM ARGUMENT...: an example, for as long as the limit allows.
bounded=(timeout --kill-after=5 "$limit")
run() {
    "${bounded[@]}" "$examples/$1" "${@:2}"
}

# start LOG PROGRAM ARGUMENT...: the same in the background; its process is $pid.
start() {
    : >"$1" # here, not in the process to come: what an earlier one has left must not be read as its own
    "${bounded[@]}" "$examples/$2" "${@:3}" <&0 >"$1" 2>"$1.err" &
    pid=$!
}

# wait_for_line LOG PATTERN [COUNT]: until COUNT lines match, while process $pid lives.
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

# serve PROGRAM ARGUMENT...: starts a server; sets $server and $address.
serve() {
    start "$scratch/server" "$@"
    server=$pid
    wait_for_line "$scratch/server" '^listening on '
    address=127.0.0.1:$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' "$scratch/server")
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

# fails_with STATUS COMMAND...: the command must fail so; its messages are in $scratch/complaint.
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

# went_over_path TEXT: the program must say that it used the path of this case.
went_over_path() {
    local path=$RDMUX_PATHS
    [[ $path != auto ]] || path='[a-z]+'
    [[ $1 =~ over\ $path($|[^a-z]) ]] || fail "not over $RDMUX_PATHS: $1"
}

# ------------------------------------------------------------------------------------------ the cases

pingpong_tells_half_a_round_trip() {
    local said size
    for size in 0 8 100000; do
        serve pingpong 0
        said=$(run pingpong "$address" "$size" 100)
        [[ $said == "$size bytes over "*" us half round trip" ]] || fail "it said: $said"
        went_over_path "$said"
        ends_well "$server"
    done
}

pingpong_without_a_server_says_why() {
    serve pingpong 0
    run pingpong "$address" 8 1
    ends_well "$server"
    fails_with 1 run pingpong "$address" 8 1
    grep -Eq 'connect: .{10}' "$scratch/complaint"
}

file_copy_copies_files_of_any_size() {
    local size
    for size in 0 1 1048576 5254321; do
        head -c "$size" /dev/urandom >"$scratch/original"
        serve file_copy receive "$scratch/copy" 0
        same "$(run file_copy send "$scratch/original" "$address")" "sent $size bytes" sender
        ends_well "$server"
        same "$(tail -n 1 "$scratch/server")" "received $size bytes" receiver
        same "$(sha256sum <"$scratch/copy")" "$(sha256sum <"$scratch/original")" sha256
    done
}

file_copy_leaves_no_half_of_a_file() {
    serve file_copy receive "$scratch/copy" 0
    fails_with 1 run pingpong "$address" 64 1 # says more than the size that is expected
    fails_with 1 wait "$server"
    [[ ! -e $scratch/copy ]] || fail 'there is a file'
}

kv_store_keeps_what_was_put() {
    local i said
    serve kv_store 0
    for i in {1..20}; do
        run kv_store "$address" put "key $i" "value $i" 2>"$scratch/said"
    done
    said=$(<"$scratch/said")
    went_over_path "$said"
    run kv_store "$address" put 'key 7' 'another value'
    for i in {1..6} {8..20}; do
        same "$(run kv_store "$address" get "key $i")" "value $i" "key $i"
    done
    same "$(run kv_store "$address" get 'key 7')" 'another value' 'key 7'
    fails_with 1 run kv_store "$address" get 'no such key'
    fails_with 2 run kv_store "$address" get "$(printf '%0100d' 0)"
    stop_server
}

kv_store_loses_no_concurrent_increment() {
    local i adders=()
    serve kv_store 0
    for i in 1 2 3 4; do
        start "$scratch/adder.$i" kv_store "$address" add counter 100
        adders[i]=$pid
    done
    for i in 1 2 3 4; do
        ends_well "${adders[i]}" "$scratch/adder.$i.err"
    done
    same "$(run kv_store "$address" get counter)" 400 counter
    stop_server
}

kv_store_frees_the_locks_of_a_killed_client() {
    local adder count deadline=$((SECONDS + limit))
    serve kv_store 0
    "$examples/kv_store" "$address" add counter 1000000000 2>"$scratch/adder" &
    adder=$!
    until run kv_store "$address" get counter >"$scratch/count"; do
        ((SECONDS < deadline)) || fail 'nothing was added'
    done
    kill -KILL "$adder"
    wait "$adder" 2>/dev/null || true
    count=$(run kv_store "$address" get counter)
    run kv_store "$address" add counter 10
    same "$(run kv_store "$address" get counter)" "$((count + 10))" counter
    stop_server
}

rpc_serves_four_clients() {
    local i clients=()
    serve rpc 0 4
    for i in 1 2 3 4; do
        start "$scratch/client.$i" rpc "$address" 2000
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
    serve rpc 0
    "$examples/rpc" "$address" 1000000000 >"$scratch/client" 2>&1 &
    client=$!
    run rpc "$address" 1000
    kill -KILL "$client"
    wait "$client" 2>/dev/null || true
    run rpc "$address" 1000
    stop_server
}

# every_rank_is_right RANKS LOG...
every_rank_is_right() {
    local ranks=$1 line count=0
    shift
    while read -r line; do
        went_over_path "$line"
        count=$((count + 1))
    done < <(grep -h 'has the right sum' "$@")
    same "$count" "$ranks" 'ranks that are right'
}

allreduce_sums_on_every_rank() {
    local ranks length
    while read -r ranks length; do
        run allreduce "$ranks" "$length" >"$scratch/out"
        every_rank_is_right "$ranks" "$scratch/out"
    done <<'END'
4 100003
2 1000000
3 2
1 1000
END
}

allreduce_joins_ranks_started_one_by_one() {
    local rank ranks=()
    for rank in 0 1 2; do
        mkfifo "$scratch/in.$rank"
        start "$scratch/rank.$rank" allreduce 3 5000 "$rank" 127.0.0.1:0 <>"$scratch/in.$rank"
        ranks[rank]=$pid
        wait_for_line "$scratch/rank.$rank" '^listening on '
    done
    for rank in 0 1 2; do
        grep '^listening on ' "$scratch/rank.$(((rank + 1) % 3))" >"$scratch/in.$rank"
    done
    for rank in 0 1 2; do
        ends_well "${ranks[rank]}" "$scratch/rank.$rank.err"
    done
    every_rank_is_right 3 "$scratch"/rank.[012]
}

event_loop_tells_every_line_to_every_member() {
    local member members=()
    serve event_loop 0
    for member in 1 2 3; do
        mkfifo "$scratch/in.$member"
        start "$scratch/out.$member" event_loop "$address" 6 <>"$scratch/in.$member"
        members[member]=$pid
    done
    pid=$server
    wait_for_line "$scratch/server" ' joined over ' 3
    for member in 1 2 3; do
        printf '%s\n' "first of $member" "second of $member" >"$scratch/in.$member"
    done
    for member in 1 2 3; do
        ends_well "${members[member]}" "$scratch/out.$member.err"
        went_over_path "$(<"$scratch/out.$member.err")"
        same "$(sort "$scratch/out.$member")" \
            "$(printf '%s\n' 'first of '{1,2,3} 'second of '{1,2,3})" "what member $member heard"
    done
    stop_server
}

readme_program_compiles() {
    awk '/^```c$/ { on = 1; next } /^```$/ { on = 0 } on' "$root/README.md" >"$scratch/readme.c"
    [[ -s $scratch/readme.c ]] || fail 'README.md has no block of C'
    "${CC:-cc}" -fsyntax-only -I"$root/api/include" -std=c11 "${C_WARNINGS[@]}" -Werror \
        "$scratch/readme.c"
}

# ----------------------------------------------------------------------------------------------- main

cases=(
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
    allreduce_joins_ranks_started_one_by_one
    event_loop_tells_every_line_to_every_member
)

if (($# > 0)); then
    [[ " ${cases[*]} readme_program_compiles " == *" $1 "* ]] || die "no case '$1'"
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
tap 'the program in README.md compiles' bash "$here/run.sh" readme_program_compiles
tap_end
