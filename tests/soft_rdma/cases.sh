# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# What run.sh lets guests do: its arguments are a function of this file and that one's arguments. Of
# a case for two guests, guest a runs NAME_a, and b NAME_b.
set -euo pipefail
# shellcheck source=tests/soft_rdma/inside.sh
. /run/host/inside.sh

# Set by run.sh where programs of this tree are run.
: "${RDMUX_SOURCE:=}" "${RDMUX_BUILD:=}"
rdmux=$RDMUX_BUILD/bin/rdmux
conformance=$RDMUX_BUILD/bin/rdmux-conformance
examples=$RDMUX_BUILD/examples

# ---------------------------------------------------------------------------- the harness by itself

exits_with() {
    printf 'argument: %s\nvariable: %s\n' "$2" "${SOFT_RDMA_VARIABLE-}"
    exit "$1"
}

exits_with_a() {
    exit "$1"
}

exits_with_b() {
    exit "$2"
}

panics() {
    echo 'before the panic'
    sleep 1
    echo c >/proc/sysrq-trigger
    sleep 60
}

computes_for_ever() {
    echo 'before the loop'
    while :; do :; done
}

sleeps_for_ever() {
    echo 'before the sleep'
    sleep 1000000 &
    tell started
    wait
}

forks_for_ever() {
    tell started
    while :; do
        /bin/true
    done
}

sleeps_a_moment() {
    tell started
    sleep 0.5
}

panics_under_the_other_a() {
    await ready
    echo c >/proc/sysrq-trigger
    sleep 60
}

panics_under_the_other_b() {
    tell ready
    await never
}

# cannot_write FOLDER...: of the host's files nothing can be written.
cannot_write() {
    local folder file=rdmux-guest-was-here
    for folder; do
        if touch "$folder/$file" 2>/dev/null; then
            rm -f "$folder/$file"
            fail "$folder can be written"
        fi
    done
    touch "/tmp/$file" "/dev/shm/$file"
}

reads_back() {
    local path=$1 text=$2
    [[ $(<"$path") == "$text" ]] || fail "$path has another content"
    ! echo x 2>/dev/null >>"$path" || fail "$path can be written"
    "${path%/*}/program" || fail "the program beside $path does not run"
}

# A clock that skips idle time.
sleeps_a_minute() {
    local from=$SECONDS
    sleep 60
    ((SECONDS - from >= 60)) || fail "the clock went on by $((SECONDS - from)) s"
}

has_nothing_of_the_host() {
    [[ $(ls -A /tmp) == '' ]] || fail "/tmp has $(ls -A /tmp)"
    [[ $(ls -A /dev/shm) == '' ]] || fail "/dev/shm has $(ls -A /dev/shm)"
    local others
    others=$(ip -json link | jq -r '.[].ifname' | grep -vxE 'lo|dummy0|rxenet|siwnet' || true)
    [[ -z $others ]] || fail "there are more networks: $others"
}

# ------------------------------------------------------------------------------ the adapters, alone

# active DEVICE TRANSPORT
active() {
    ibv_devinfo -d "$1" >/tmp/devinfo
    grep -qE "transport:[[:space:]]+$2 " /tmp/devinfo || fail "$(cat /tmp/devinfo)"
    grep -q PORT_ACTIVE /tmp/devinfo || fail "$(cat /tmp/devinfo)"
}

both_adapters_are_active() {
    has_nothing_of_the_host
    active "$RXE_DEVICE" InfiniBand
    active "$SIW_DEVICE" iWARP
}

# With events: two programs that poll share one processor badly.
pingpong_on_rxe() {
    local gid=1 # the IPv4 address; the first one is link-local
    in_background ibv_rc_pingpong -e -d "$RXE_DEVICE" -g $gid
    until_true tcp_listens 18515
    ibv_rc_pingpong -e -d "$RXE_DEVICE" -g $gid "$RXE_ADDRESS"
    end_well
}

# of ADAPTER WHAT: the value of RXE_... or SIW_...
of() {
    local name=${1^^}_$2
    printf '%s\n' "${!name}"
}

# rping_server ADDRESS ROUNDS [SIZE], rping_client likewise: the client verifies what comes back.
rping_server() {
    in_background rping -s -a "$1" -C "$2" -S "${3:-64}"
    until_true rdma_listens "$1"
}

rping_client() {
    rping -c -V -a "$1" -C "$2" -S "${3:-64}"
}

rping_alone() {
    local address
    for address in "$(of "$1" ADDRESS)" "$(of "$1" ADDRESS6)"; do
        rping_server "$address" 20
        rping_client "$address" 20
        end_well
    done
}

rping_across_a() {
    local family
    for family in '' 6; do
        rping_server "$(of "$1" ADDRESS$family)" 20
        tell "a listens$family"
        end_well
        await "b listens$family"
        rping_client "$(of "$1" PEER$family)" 20
    done
}

rping_across_b() {
    local family
    for family in '' 6; do
        await "a listens$family"
        rping_client "$(of "$1" PEER$family)" 20
        rping_server "$(of "$1" ADDRESS$family)" 20
        tell "b listens$family"
        end_well
    done
}

# ------------------------------------------------------------------------- peers that are not rdmux

# rdmux-interop plays the program that is missing (tests/interop/README.md).
interop=$RDMUX_BUILD/bin/rdmux-interop

# plays PROGRAM ADDRESS PORT: in the background, until its peer ends; PROGRAM is a server.
plays() {
    local host=$2
    [[ $host != *:* ]] || host="[$host]"
    in_background "$interop" "$1" "rdma://$host:$3" 20
    until_true rdma_listens "$2"
}

# as_client PROGRAM ADDRESS PORT
as_client() {
    local host=$2
    [[ $host != *:* ]] || host="[$host]"
    "$interop" "$1" "rdma://$host:$3" 20
}

rdmux_serves_rping() {
    local address
    for address in "$(of "$1" ADDRESS)" "$(of "$1" ADDRESS6)"; do
        plays rping-server "$address" 7174
        rping_client "$address" 20
        end_well
    done
}

rdmux_is_served_by_rping() {
    local address
    for address in "$(of "$1" ADDRESS)" "$(of "$1" ADDRESS6)"; do
        rping_server "$address" 20
        as_client rping-client "$address" 7174
        end_well
    done
}

rdmux_and_rping_a() {
    plays rping-server "$(of "$1" ADDRESS)" 7174
    tell 'a listens'
    end_well
    await 'b listens'
    as_client rping-client "$(of "$1" PEER)" 7174
}

rdmux_and_rping_b() {
    await 'a listens'
    rping_client "$(of "$1" PEER)" 20
    rping_server "$(of "$1" ADDRESS)" 20
    tell 'b listens'
    end_well
}

# perftest ADAPTER TEST [ADDRESS]: TEST is send-lat or write-bw, which knows no events.
perftest() {
    local events=(-e)
    [[ $2 != write-bw ]] || events=()
    "ib_${2//-/_}" -R -F -n 20 -d "$(of "$1" DEVICE)" "${events[@]}" "${@:3}"
}

rdmux_serves_perftest() {
    local address
    address=$(of "$1" ADDRESS)
    plays "$2-server" "$address" 18515
    perftest "$1" "$2" "$address"
    end_well
}

rdmux_is_served_by_perftest() {
    local address
    address=$(of "$1" ADDRESS)
    in_background perftest "$1" "$2"
    until_true rdma_listens ''
    as_client "$2-client" "$address" 18515
    end_well
}

# ------------------------------------------------------------------------------ faults on the wire

sum() {
    awk '{ sum += $1 } END { print sum + 0 }'
}

# dropped NETDEV: how many packets its queue has thrown away.
dropped() {
    tc -s qdisc show dev "$1" | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | sum
}

lose_packets() {
    tc qdisc add dev "$1" root netem loss "$2"
}

rxe_counter() {
    cat "/sys/class/infiniband/$RXE_DEVICE/ports/1/hw_counters/$1"
}

# tcp_counter NAME: of the two lines of a protocol the first names the columns.
tcp_counter() {
    awk -v name="$1" '
        $1 != "Tcp:" { next }
        !at { for (at = NF; at > 1 && $at != name; at--) continue; next }
        { print $at }
    ' /proc/net/snmp
}

# How often this guest's adapter sent something again or was sent something again.
repeats() {
    case $1 in
    rxe)
        echo $(($(rxe_counter completer_retry_err) + $(rxe_counter rcvd_seq_err) +
            $(rxe_counter duplicate_request) + $(rxe_counter out_of_seq_request)))
        ;;
    siw) tcp_counter RetransSegs ;;
    esac
}

readonly lossy_rounds=8 lossy_size=60000 loss=1%

loss_is_made_good_a() {
    local adapter=$1 netdev
    netdev=$(of "$adapter" NETDEV)
    rping_server "$(of "$adapter" ADDRESS)" $lossy_rounds $lossy_size
    lose_packets "$netdev" $loss
    tell 'a listens'
    end_well
    tell 'lost at a' "$(dropped "$netdev")"
    tell 'repeats of a' "$(repeats "$adapter")"
}

# About 500 packets go either way.
loss_is_made_good_b() {
    local adapter=$1 netdev lost repeats
    netdev=$(of "$adapter" NETDEV)
    await 'a listens'
    (($(repeats "$adapter") == 0)) || fail 'something is repeated without any loss'
    lose_packets "$netdev" $loss
    rping_client "$(of "$adapter" PEER)" $lossy_rounds $lossy_size
    lost=$(($(dropped "$netdev") + $(await 'lost at a')))
    repeats=$(($(repeats "$adapter") + $(await 'repeats of a')))
    echo "lost: $lost, repeated: $repeats"
    ((lost > 0)) || fail 'nothing was lost on the way'
    ((repeats > 0)) || fail 'what was lost came without being sent again'
}

# count_traffic_class NETDEV CLASS, packets_of_class NETDEV: packets that come in with exactly it.
count_traffic_class() {
    tc qdisc add dev "$1" clsact
    tc filter add dev "$1" ingress protocol ip u32 match ip tos "$2" 0xff action pass
}

packets_of_class() {
    tc -s filter show dev "$1" ingress |
        sed -n 's/.*Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p' | sum
}

# 106: DSCP 26 and ECT(0). The second GID is the IPv4 address.
readonly marked_class=106 marked_rounds=20

marked_latency_test() {
    ib_send_lat -e -d "$RXE_DEVICE" -x 1 -n "$marked_rounds" --tclass="$1" "${@:2}"
}

traffic_class_is_on_the_wire_a() {
    local class
    count_traffic_class "$RXE_NETDEV" "$marked_class"
    for class in 0 "$marked_class"; do
        in_background marked_latency_test "$class"
        until_true tcp_listens 18515
        tell "a listens $class"
        end_well
        if ((class == 0)); then
            (($(packets_of_class "$RXE_NETDEV") == 0)) || fail 'a got marks that nobody made'
        fi
    done
    (($(packets_of_class "$RXE_NETDEV") >= marked_rounds)) ||
        fail "a got $(packets_of_class "$RXE_NETDEV") marked packets"
}

traffic_class_is_on_the_wire_b() {
    local class
    count_traffic_class "$RXE_NETDEV" "$marked_class"
    for class in 0 "$marked_class"; do
        await "a listens $class"
        marked_latency_test "$class" "$RXE_PEER"
        if ((class == 0)); then
            (($(packets_of_class "$RXE_NETDEV") == 0)) || fail 'b got marks that nobody made'
        fi
    done
    (($(packets_of_class "$RXE_NETDEV") >= marked_rounds)) ||
        fail "b got $(packets_of_class "$RXE_NETDEV") marked packets"
}

# ------------------------------------------------------------------------- programs of this tree

# adapter_of PROVIDER: whose addresses a provider's peers are named by.
adapter_of() {
    case $1 in
    iwarp) echo siw ;;
    *) echo rxe ;;
    esac
}

# rdmux_conformance PROVIDER [OPTION...]: with one processor, waiting sleeps.
rdmux_conformance() {
    # A guest has one processor, of which the host has other uses: its steps may take longer.
    "$conformance" --wait sleep --patience 4 --provider "$@"
}

# rdmux_examples PROVIDER: all that tests/examples has for one path.
rdmux_examples() {
    local cases case run=$RDMUX_SOURCE/tests/examples/run.sh
    export RDMUX_EXAMPLES=$examples
    mapfile -t cases < <(sed -n '/^cases=(/,/^)/{s/^ *\([a-z_]*\)$/\1/p}' "$run")
    ((${#cases[@]} > 5)) || fail "$run has no list of cases"
    for case in "${cases[@]}"; do
        bash "$run" "$case" "$1" || fail "$case failed over $1"
        echo "$case"
    done
}

# rdmux_stalls WHAT...: the address of soft iWARP swallows what a filter matches; peers are named by
# the other adapter's address.
rdmux_stalls() {
    local end_ms=$1
    shift
    tc qdisc add dev lo clsact
    tc filter add dev lo ingress protocol ip u32 match ip dst "$SIW_ADDRESS" "$@" action drop
    "$RDMUX_BUILD/tests/tools/stalled_connect" iwarp "$RXE_ADDRESS" "$end_ms"
    tc -s filter show dev lo ingress | grep -q 'dropped [1-9]' || fail 'nothing was swallowed'
}

# rdmux_dead_keys PROVIDER: requests with keys that the device does not know.
rdmux_dead_keys() {
    "$RDMUX_BUILD/tests/tools/dead_key" "$1" "$(of "$(adapter_of "$1")" ADDRESS)"
}

# rdmux_demo PROVIDER: explain, copy and perf between two processes.
rdmux_demo() {
    head -c 3000000 /dev/urandom >/tmp/file
    RDMUX_PATHS=$1 "$rdmux" demo /tmp/file --json >/tmp/demo
    jq -e --arg provider "$1" '.explanation.chosen.provider == $provider and .copy.verified and
        .bandwidth.bytes_per_second > 0' /tmp/demo >/dev/null || fail "$(cat /tmp/demo)"
}

# rdmux_between_hosts PROVIDER: guest a serves, b asks for one thing after the other.
rdmux_between_hosts_a() {
    local address
    mkdir /tmp/received
    "$rdmux" serve "$(of "$(adapter_of "$1")" ADDRESS):0" --receive /tmp/received >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    read -r _ _ address </tmp/serve
    tell 'a serves' "$address"
    await 'b has copied'
    tell 'sum at a' "$(sha256sum </tmp/received/file)"
    await 'b is done'
    kill -TERM "$started"
    end_well
}

rdmux_between_hosts_b() {
    local provider=$1 address op
    address=$(await 'a serves')
    "$rdmux" explain "$address" --json >/tmp/explain
    jq -e 'all(.candidates[]; .provider != "shm" or .reason != "CHOSEN")' /tmp/explain >/dev/null ||
        fail "shared memory between two hosts: $(cat /tmp/explain)"
    head -c 3000000 /dev/urandom >/tmp/file
    "$rdmux" copy /tmp/file "$address" --paths "$provider" --json >/tmp/copy
    jq -e --arg provider "$provider" '.path.provider == $provider and .verified' /tmp/copy \
        >/dev/null || fail "$(cat /tmp/copy)"
    tell 'b has copied'
    [[ $(await 'sum at a') == "$(sha256sum </tmp/file)" ]] || fail 'the copy is another file'
    for op in send write read fetch_add compare_swap; do
        "$rdmux" perf "$address" --op "$op" --test latency --iterations 200 --wait sleep --verify \
            --paths "$provider"
    done
    for op in send write read; do
        "$rdmux" perf "$address" --op "$op" --test bandwidth --size 64K --iterations 200 \
            --wait sleep --verify --paths "$provider"
    done
    tell 'b is done'
}

# measured_beats_constants: the wire between the iWARP adapters is slow, that between the RoCE ones is
# not; by their constants both are alike, and iwarp comes first by its name.
measured_beats_constants_a() {
    local address
    slow_down "$(of siw NETDEV)"
    "$rdmux" serve "$(of rxe ADDRESS):0" >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    read -r _ _ address </tmp/serve
    tell 'a serves' "$address"
    await 'b is done'
    kill -TERM "$started"
    end_well
}

measured_beats_constants_b() {
    local address chosen='.candidates[] | select(.reason == "CHOSEN") | .provider'
    slow_down "$(of siw NETDEV)"
    address=$(await 'a serves')
    "$rdmux" explain "$address" --paths roce,iwarp --json >/tmp/constants
    [[ $(jq -r "$chosen" /tmp/constants) == iwarp ]] || fail "by constants: $(</tmp/constants)"
    "$rdmux" explain "$address" --paths roce,iwarp --probe --json >/tmp/measured
    [[ $(jq -r "$chosen" /tmp/measured) == roce ]] || fail "measured: $(</tmp/measured)"
    jq -r '.candidates[] | select(.rank > 0) | .provider + ": " + .text' /tmp/constants /tmp/measured
    tell 'b is done'
}

# slow_down INTERFACE: a line to far away, of 1 MB a second.
slow_down() {
    tc qdisc add dev "$1" root handle 1: tbf rate 8mbit burst 3000 latency 400ms
    tc qdisc add dev "$1" parent 1: handle 2: netem delay 50ms
}

# rdmux_examples_between_hosts PROVIDER: each example that takes an address, with its server in
# guest a.

# serve_example EXAMPLE ARGUMENT...: starts it in guest a and tells b its address.
serve_example() {
    : >/tmp/server
    in_background "$examples/$1" serve '*:0' "${@:2}" >/tmp/server
    tell_address "$1"
}

# tell_address EXAMPLE: of the one just started.
tell_address() {
    local port
    until_true grep -q '^listening on ' /tmp/server
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' /tmp/server)
    tell "$1 serves" "$(of "$(adapter_of "$RDMUX_PATHS")" ADDRESS):$port"
}

# went_over FILE: the program that wrote it must say that it used this case's path.
went_over() {
    grep -qE "over $RDMUX_PATHS([^a-z]|\$)" "$1" || fail "not over $RDMUX_PATHS: $(<"$1")"
}

rdmux_examples_between_hosts_a() {
    export RDMUX_PATHS=$1
    serve_example pingpong
    end_well

    : >/tmp/server
    in_background "$examples/file_copy" receive '*:0' /tmp/copy >/tmp/server
    tell_address file_copy
    end_well
    [[ $(await 'sum at b') == "$(sha256sum </tmp/copy)" ]] || fail 'the copy is another file'

    serve_example kv_store 4
    end_well

    serve_example rpc 1
    end_well

    serve_example event_loop
    await 'event_loop is done'
    kill -TERM "$started"
    end_well
}

rdmux_examples_between_hosts_b() {
    export RDMUX_PATHS=$1
    local address feed
    address=$(await 'pingpong serves')
    "$examples/pingpong" measure "$address" 4096 200 | tee /tmp/said
    went_over /tmp/said

    head -c 5254321 /dev/urandom >/tmp/original
    address=$(await 'file_copy serves')
    "$examples/file_copy" send "$address" /tmp/original
    tell 'sum at b' "$(sha256sum </tmp/original)"

    address=$(await 'kv_store serves')
    "$examples/kv_store" put "$address" 'a key' 17
    [[ $("$examples/kv_store" get "$address" 'a key') == 17 ]] || fail 'another value'
    "$examples/kv_store" add "$address" counter 50 2>/tmp/said
    went_over /tmp/said
    [[ $("$examples/kv_store" get "$address" counter) == 50 ]] || fail 'another count'

    address=$(await 'rpc serves')
    "$examples/rpc" call "$address" 1000 | tee /tmp/said
    grep -q '^1000 calls answered' /tmp/said || fail 'not every call was answered'
    went_over /tmp/said

    address=$(await 'event_loop serves')
    mkfifo /tmp/lines
    exec {feed}<>/tmp/lines
    "$examples/event_loop" join "$address" {feed}<&- </tmp/lines >/tmp/heard 2>/tmp/said &
    started=$!
    printf 'first\nsecond\n' >&"$feed"
    until_true grep -q '^second$' /tmp/heard
    exec {feed}<&-
    end_well
    [[ $(</tmp/heard) == $'first\nsecond' ]] || fail "event_loop heard: $(</tmp/heard)"
    went_over /tmp/said
    tell 'event_loop is done'
}

# --------------------------------------------------------------------------------------------------

name=$1
shift
if [[ -e /run/host/two ]]; then
    name+=_$GUEST
fi
declare -F "$name" >/dev/null || fail "cases.sh has no $name"
"$name" "$@"
