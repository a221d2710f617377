# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# The cases of run.sh in guests: the arguments are a function of this file and its arguments. Of a
# case for two guests, guest a runs NAME_a, and b NAME_b.
set -euo pipefail
# shellcheck source=tests/soft_rdma/inside.sh
. /run/host/inside.sh

# Set by run.sh for cases that run programs of this tree.
: "${RDMUX_SOURCE:=}" "${RDMUX_BUILD:=}"
rdmux=$RDMUX_BUILD/bin/rdmux
examples=$RDMUX_BUILD/examples
traffic=$RDMUX_BUILD/tests/soft_rdma/traffic

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
    sleep 3600
}

computes_for_ever() {
    echo 'before the loop'
    while :; do :; done
}

sleeps_for_ever() {
    echo 'before the sleep'
    sleep 1000000 &
    notify started
    wait
}

forks_for_ever() {
    notify started
    while :; do
        /bin/true
    done
}

sleeps_a_moment() {
    notify started
    sleep 0.5
}

panics_under_the_other_a() {
    await ready
    echo c >/proc/sysrq-trigger
    sleep 3600
}

panics_under_the_other_b() {
    notify ready
    await never
}

# cannot_write FOLDER...: none of the host's files there can be written.
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
sleeps_an_hour() {
    local from=$SECONDS
    sleep 3600
    ((SECONDS - from >= 3600)) || fail "the clock went on by $((SECONDS - from)) s"
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

# With events: two polling programs share one processor badly.
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

# run_rping ROUNDS OPTION...: rping closes its event channel while its thread may be about to wait
# for the next event. The thread then ends the process with -1 although all is done (main() and
# cm_thread() in librdmacm/examples/rping.c, rdma-core 44). That is no failure if it reports every
# ping.
run_rping() {
    local rounds=$1 said status=0
    said=$(mktemp)
    rping -v -C "$@" >"$said" 2>&1 || status=$?
    grep -v 'ping data: ' "$said" || true
    if ((status == 255)) && grep -q '^rdma_get_cm_event: Bad file descriptor$' "$said" &&
        (($(grep -c 'ping data: ' "$said") == rounds)); then
        status=0
    fi
    return "$status"
}

# rping_server ADDRESS ROUNDS [SIZE], rping_client likewise: the client verifies the returned bytes.
rping_server() {
    in_background run_rping "$2" -s -a "$1" -S "${3:-64}"
    until_true rdma_listens "$1"
}

rping_client() {
    run_rping "$2" -c -V -a "$1" -S "${3:-64}"
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
        notify "a listens$family"
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
        notify "b listens$family"
        end_well
    done
}

# ------------------------------------------------------------------------- peers that are not rdmux

# rdmux-interop takes the place of the missing program (tests/interop/README.md).
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
    notify 'a listens'
    end_well
    await 'b listens'
    as_client rping-client "$(of "$1" PEER)" 7174
}

rdmux_and_rping_b() {
    await 'a listens'
    rping_client "$(of "$1" PEER)" 20
    rping_server "$(of "$1" ADDRESS)" 20
    notify 'b listens'
    end_well
}

# perftest ADAPTER TEST [ADDRESS]: TEST is send-lat or write-bw. Without -e: with events ib_send_lat
# takes the next message's event for that of its own send (tests/interop/README.md).
perftest() {
    "ib_${2//-/_}" -R -F -n 20 -d "$(of "$1" DEVICE)" "${@:3}"
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

# dropped NETDEV: the number of packets that its queue has dropped.
dropped() {
    tc -s qdisc show dev "$1" | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | sum
}

lose_packets() {
    tc qdisc add dev "$1" root netem loss "$2"
}

rxe_counter() {
    cat "/sys/class/infiniband/$RXE_DEVICE/ports/1/hw_counters/$1"
}

# tcp_counter NAME: the first of a protocol's two lines names the columns.
tcp_counter() {
    awk -v name="$1" '
        $1 != "Tcp:" { next }
        !at { for (at = NF; at > 1 && $at != name; at--) continue; next }
        { print $at }
    ' /proc/net/snmp
}

# The number of retransmissions by, and to, this guest's adapter.
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
    notify 'a listens'
    end_well
    notify 'lost at a' "$(dropped "$netdev")"
    notify 'repeats of a' "$(repeats "$adapter")"
}

# About 500 packets go each way.
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

# count_traffic_class NETDEV CLASS, packets_of_class NETDEV: incoming packets with exactly this
# class.
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

# Uses writes: sends with events overrun their completion queue in a slow guest, and hang.
marked_latency_test() {
    ib_write_lat -d "$RXE_DEVICE" -x 1 -n "$marked_rounds" --tclass="$1" "${@:2}"
}

traffic_class_is_on_the_wire_a() {
    local class
    count_traffic_class "$RXE_NETDEV" "$marked_class"
    for class in 0 "$marked_class"; do
        in_background marked_latency_test "$class"
        until_true tcp_listens 18515
        notify "a listens $class"
        end_well
        if ((class == 0)); then
            (($(packets_of_class "$RXE_NETDEV") == 0)) || fail 'a got marks that b did not set'
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
            (($(packets_of_class "$RXE_NETDEV") == 0)) || fail 'b got marks that a did not set'
        fi
    done
    (($(packets_of_class "$RXE_NETDEV") >= marked_rounds)) ||
        fail "b got $(packets_of_class "$RXE_NETDEV") marked packets"
}

# ------------------------------------------------------------------------- programs of this tree

# adapter_of PROVIDER: the adapter whose addresses name a provider's peers.
adapter_of() {
    case $1 in
    iwarp) echo siw ;;
    *) echo rxe ;;
    esac
}

# rdmux_conformance PROVIDER [OPTION...]: sleeps while waiting, as there is one processor.
rdmux_conformance() {
    "$rdmux" conformance --format tap --seed 1 --patience 8 --wait sleep --provider "$@"
}

# rdmux_conformance_between_hosts PROVIDER [OPTION...]: guest a serves the target's side.
rdmux_conformance_between_hosts_a() {
    local address patience=840
    "$rdmux" serve "$(of "$(adapter_of "$1")" ADDRESS):0" >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    read -r _ _ address </tmp/serve
    notify 'a serves' "$address"
    await 'b is done'
    kill -TERM "$started"
    end_well
}

rdmux_conformance_between_hosts_b() {
    local status=0
    "$rdmux" conformance --format tap --seed 1 --patience 8 --wait sleep --peer "$(await 'a serves')" --provider "$@" ||
        status=$?
    notify 'b is done'
    return "$status"
}

# rdmux_examples PROVIDER [CASE...]: these cases of tests/examples for one path, or all.
rdmux_examples() {
    local cases case run=$RDMUX_SOURCE/tests/examples/run.sh
    export RDMUX_EXAMPLES=$examples
    mapfile -t cases < <(sed -n '/^cases=(/,/^)/{s/^ *\([a-z_]*\)$/\1/p}' "$run")
    ((${#cases[@]} > 5)) || fail "$run has no list of cases"
    (($# == 1)) || cases=("${@:2}")
    for case in "${cases[@]}"; do
        bash "$run" "$case" "$1" || fail "$case failed over $1"
        echo "$case"
    done
}

# rdmux_real_code PROVIDER: a loop of examples/loops, and the programs of examples/embedding, unchanged.
rdmux_real_code() {
    local tests=$RDMUX_SOURCE/tests/embedding
    export RDMUX_EXAMPLES=$examples
    bash "$tests/loops.sh" echoes_all_calls "$1" epoll || fail "the loop of epoll failed over $1"
    bash "$tests/real_code.sh" --streams "$1" | tee /tmp/real_code
    ! grep -q '# SKIP' /tmp/real_code || fail 'something was left out'
}

# libfabric_over PROVIDER CASE...: cases of tests/adapters/fi.sh, programs of libfabric and of MPI.
libfabric_over() {
    local case
    RDMUX_FI_ADDRESS=$(of "$(adapter_of "$1")" ADDRESS)
    export RDMUX_FI_ADDRESS
    echo guest >/proc/sys/kernel/hostname # mpirun takes no host without a name
    for case in "${@:2}"; do
        bash "$RDMUX_SOURCE/tests/adapters/fi.sh" "$case" "$1" || fail "$case failed over $1"
        echo "$case"
    done
}

# rdmux_stalls WHAT...: the address of soft iWARP drops packets that match a filter; the other
# adapter's address names the peers.
rdmux_stalls() {
    local end_ms=$1
    shift
    tc qdisc add dev lo clsact
    tc filter add dev lo ingress protocol ip u32 match ip dst "$SIW_ADDRESS" "$@" action drop
    "$RDMUX_BUILD/tests/tools/stalled_connect" iwarp "$RXE_ADDRESS" "$end_ms"
    [[ $(tc -s filter show dev lo ingress) == *'dropped '[1-9]* ]] || fail 'no packet was dropped'
}

# rdmux_dead_keys PROVIDER: requests with keys that the device does not know.
rdmux_dead_keys() {
    "$RDMUX_BUILD/tests/tools/dead_key" "$1" "$(of "$(adapter_of "$1")" ADDRESS)"
}

# rdmux_dmabufs PROVIDER: regions over dma-bufs of the kernel.
rdmux_dmabufs() {
    "$RDMUX_BUILD/tests/soft_rdma/dmabuf" "$1" "$(of "$(adapter_of "$1")" ADDRESS)"
}

# rdmux_demo PROVIDER: explain, copy and perf between two processes.
rdmux_demo() {
    head -c 3000000 /dev/urandom >/tmp/file
    RDMUX_PATHS=$1 "$rdmux" demo /tmp/file --json >/tmp/demo
    jq -e --arg provider "$1" '.explanation.chosen.provider == $provider and .copy.verified and
        .bandwidth.bytes_per_second > 0' /tmp/demo >/dev/null || fail "$(cat /tmp/demo)"
}

# rdmux_between_hosts PROVIDER: guest a serves, b runs one command after the other.
rdmux_between_hosts_a() {
    local address
    mkdir /tmp/received
    "$rdmux" serve "$(of "$(adapter_of "$1")" ADDRESS):0" --receive /tmp/received >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    read -r _ _ address </tmp/serve
    notify 'a serves' "$address"
    await 'b has copied'
    notify 'sum at a' "$(sha256sum </tmp/received/file)"
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
    notify 'b has copied'
    [[ $(await 'sum at a') == "$(sha256sum </tmp/file)" ]] || fail 'the copy is another file'
    for op in send send_imm write write_imm read fetch_add compare_swap; do
        "$rdmux" perf "$address" --op "$op" --test latency --iterations 200 --wait sleep --verify \
            --paths "$provider"
    done
    for op in send write read; do
        "$rdmux" perf "$address" --op "$op" --test bandwidth --size 64K --iterations 200 \
            --wait sleep --verify --paths "$provider"
    done
    notify 'b is done'
}

# measured_beats_constants: the wire between the iWARP adapters is slow, that between the RoCE
# adapters is not; by constants both paths are equal, and iwarp ranks first by its name. By measuring
# the one that cost least is chosen, which is roce.
measured_beats_constants_a() {
    local address
    slow_down "$(of siw NETDEV)"
    "$rdmux" serve "$(of rxe ADDRESS):0" >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    read -r _ _ address </tmp/serve
    notify 'a serves' "$address"
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
    # A path is measured for 25 ms at most. The slow wire cannot cost less, and on a host that is so busy
    # that nothing came back in time the other one costs as much: then either may have cost least.
    jq -e '[.candidates[] | select(.rank > 0)] | sort_by(.rank) | length == 2 and all(.measured)
        and .[0].reason == "CHOSEN" and .[0].cost_ns <= .[1].cost_ns
        and all(.provider != "iwarp" or .cost_ns >= 25000000)' /tmp/measured >/dev/null ||
        fail "measured: $(</tmp/measured)"
    jq -r '.candidates[] | select(.rank > 0) | .provider + ": " + .text' /tmp/constants /tmp/measured
    notify 'b is done'
}

# slow_down INTERFACE: limits the line to 1 MB a second, with a delay of 50 ms.
slow_down() {
    tc qdisc add dev "$1" root handle 1: tbf rate 8mbit burst 3000 latency 400ms
    tc qdisc add dev "$1" parent 1: handle 2: netem delay 50ms
}

# libfabric_between_hosts PROVIDER: fi_pingpong, every byte checked, with the server in guest a.
fi_pingpong_of() {
    export FI_PROVIDER_PATH=$RDMUX_BUILD/lib/libfabric RDMUX_PATHS=$1
    RDMUX_LOG=info:/tmp/log fi_pingpong -p 'rdmux;ofi_rxm' -e rdm -m tagged -c -S all -I 2 "${@:2}"
    grep -qE "info negotiation: endpoint [0-9]+: $1 [^;]* to [^;]*; not .* [A-Z_]+" /tmp/log ||
        fail "the log does not say that the path is $1, and why: $(</tmp/log)"
}

libfabric_between_hosts_a() {
    in_background fi_pingpong_of "$1"
    until_true tcp_listens 47592
    notify 'a serves'
    end_well
}

libfabric_between_hosts_b() {
    await 'a serves'
    fi_pingpong_of "$1" "$(of "$(adapter_of "$1")" PEER)"
}

# rdmux_examples_between_hosts PROVIDER: each example that takes an address, with its server in
# guest a.

# serve_example EXAMPLE ARGUMENT...: starts it in guest a and notifies b of its address.
serve_example() {
    : >/tmp/server
    in_background "$examples/$1" serve '*:0' "${@:2}" >/tmp/server
    notify_address "$1"
}

# notify_address EXAMPLE: notifies b of the address of the example just started.
notify_address() {
    local port
    until_true grep -q '^listening on ' /tmp/server
    port=$(sed -n 's/^listening on .*:\([0-9]*\)$/\1/p' /tmp/server)
    notify "$1 serves" "$(of "$(adapter_of "$RDMUX_PATHS")" ADDRESS):$port"
}

# went_over FILE: the program that wrote it must report that it used this case's path.
went_over() {
    grep -qE "over $RDMUX_PATHS([^a-z]|\$)" "$1" || fail "not over $RDMUX_PATHS: $(<"$1")"
}

rdmux_examples_between_hosts_a() {
    export RDMUX_PATHS=$1
    serve_example pingpong
    end_well

    : >/tmp/server
    in_background "$examples/file_copy" receive '*:0' /tmp/copy >/tmp/server
    notify_address file_copy
    end_well
    [[ $(await 'sum at b') == "$(sha256sum </tmp/copy)" ]] || fail 'the copy is another file'

    serve_example kv_store 4
    end_well

    serve_example rpc 1
    end_well

    : >/tmp/server
    in_background "$examples/embedding/rpc_stream" serve '*:0' 1 >/tmp/server
    notify_address embedding_rpc
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
    notify 'sum at b' "$(sha256sum </tmp/original)"

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

    address=$(await 'embedding_rpc serves')
    "$examples/embedding/rpc_stream" call "$address" /tmp/original 2>/tmp/said >/tmp/answer
    went_over /tmp/said
    tr '[:lower:]' '[:upper:]' </tmp/original | cmp - /tmp/answer

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
    notify 'event_loop is done'
}

# ------------------------------------------------------------- a network and devices that fail

# net_of PROVIDER, other_net_of PROVIDER: the interface that carries its data, and the other one.
net_of() {
    adapter_of "$1"
}

other_net_of() {
    case $1 in
    iwarp) echo rxe ;;
    *) echo siw ;;
    esac
}

# serve_traffic NAME ADDRESS OPTION...: starts the server, and notifies NAME with its address.
serve_traffic() {
    local name=$1 address=$2
    : >/tmp/traffic
    "$traffic" serve "$address" "${@:3}" >>/tmp/traffic 2>&1 &
    started=$!
    until_true grep -q '^listening on ' /tmp/traffic
    notify "$name" "$(sed -n 's/^listening on //p' /tmp/traffic)"
}

# traffic_ends: the server has ended successfully.
traffic_ends() {
    local status=0
    wait "$started" || status=$?
    cat /tmp/traffic
    ((status == 0)) || fail "the server of guest $GUEST ended with status $status"
}

# drive_traffic OPTION...: its output also goes to /tmp/driven.
drive_traffic() {
    local status=0
    "$traffic" drive "$@" >/tmp/driven 2>&1 || status=$?
    cat /tmp/driven
    ((status == 0)) || fail "the driver of guest $GUEST ended with status $status"
}

# begin_driving OPTION..., driving_ends: the same in the background; begins with an endpoint.
begin_driving() {
    "$traffic" drive "$@" >/tmp/driven 2>&1 &
    started=$!
    until_true grep -qs '^over ' /tmp/driven
}

driving_ends() {
    local status=0
    wait "$started" || status=$?
    cat /tmp/driven
    ((status == 0)) || fail "the driver of guest $GUEST ended with status $status"
}

# Delay, reordering and loss: all bytes arrive correctly. Over soft RoCE the answer to each read is
# one packet: longer ones break connections there, see the next case.
traffic_in_bad_weather_a() {
    local adapter netdev
    adapter=$(net_of "$1")
    netdev=$(of "$adapter" NETDEV)
    tc qdisc add dev "$netdev" root netem delay 3ms reorder 2% loss $loss
    serve_traffic 'a serves' "$(of "$adapter" ADDRESS):0"
    traffic_ends
    notify 'lost at a' "$(dropped "$netdev")"
    notify 'repeats of a' "$(repeats "$adapter")"
}

traffic_in_bad_weather_b() {
    local adapter netdev lost repeats reads=()
    adapter=$(net_of "$1")
    netdev=$(of "$adapter" NETDEV)
    [[ $1 != roce ]] || reads=(--read 1024)
    tc qdisc add dev "$netdev" root netem delay 3ms reorder 2% loss $loss
    drive_traffic "$(await 'a serves')" --paths "$1" --rounds 60 "${reads[@]}"
    lost=$(($(dropped "$netdev") + $(await 'lost at a')))
    repeats=$(($(repeats "$adapter") + $(await 'repeats of a')))
    echo "lost: $lost, repeated: $repeats"
    ((lost > 0)) || fail 'nothing was lost on the way'
    ((repeats > 0)) || fail 'what was lost came without being sent again'
}

# doubtful_reads PROVIDER: packets overtake each other so often that soft RoCE sooner or later fails
# a read of several packets but reports it as done (verbs_domain.c), before it ends the connection.
# No read that rdmux reports as done has wrong bytes.
doubtful_reads_a() {
    local adapter
    adapter=$(net_of "$1")
    serve_traffic 'a serves' "$(of "$adapter" ADDRESS):0" --liveness 10000 --expect PEER_GONE
    await 'b is under way'
    tc qdisc add dev "$(of "$adapter" NETDEV)" root netem delay 3ms reorder 20%
    traffic_ends
}

doubtful_reads_b() {
    begin_driving "$(await 'a serves')" --paths "$1" --liveness 10000 --expect PEER_GONE
    tc qdisc add dev "$(of "$(net_of "$1")" NETDEV)" root netem delay 3ms reorder 20%
    notify 'b is under way'
    driving_ends
}

# break_it HOW PROVIDER: breaks the connection at this guest.
break_it() {
    local adapter
    adapter=$(net_of "$2")
    case $1 in
    wire) tc qdisc add dev "$(of "$adapter" NETDEV)" root netem loss 100% ;;
    link) ip link set "$(of "$adapter" NETDEV)" down ;;
    peer) kill -KILL "$started" ;;
    esac
}

# breaks_under_traffic PROVIDER HOW: a break at guest a under traffic ends both endpoints, with a
# reason, within the liveness time. Then the same programs continue over tcp. The control channel
# avoids the fault, so that the end of the path is noticed as such.
breaks_under_traffic_a() {
    local provider=$1 how=$2 net address
    net=$(other_net_of "$provider")
    [[ $how != peer ]] || net=$(net_of "$provider")
    address=$(of "$net" ADDRESS)
    serve_traffic 'a serves' "$address:0" --endpoints 2 --expect "$3|OK"
    await 'b is under way'
    break_it "$how" "$provider"
    if [[ $how == peer ]]; then
        wait "$started" || true
        cat /tmp/traffic
        serve_traffic 'a serves again' "$address:0"
    fi
    traffic_ends
}

breaks_under_traffic_b() {
    local provider=$1 how=$2 again=()
    [[ $how == peer ]] || again=(--again auto)
    begin_driving "$(await 'a serves')" --paths "$provider" --expect "$3" "${again[@]}"
    sleep 0.3 # of traffic
    # A link is down at both ends. If it were up here, sent packets would fill the socket that is
    # the wire, and this kernel would only retry: vector_poll() in arch/um/drivers/vector_kern.c.
    [[ $how != link ]] || break_it link "$provider"
    notify 'b is under way'
    driving_ends
    cp /tmp/driven /tmp/before
    if [[ $how == peer ]]; then
        drive_traffic "$(await 'a serves again')" --rounds 30
        cat /tmp/driven >>/tmp/before
    fi
    [[ $(grep '^over ' /tmp/before) == "over $provider"$'\n''over tcp' ]] ||
        fail 'other paths than these'
}

# loses_its_device PROVIDER: under traffic. The kernel removes a software adapter when no process
# has it open (ib_uverbs_remove_one() in uverbs_main.c), and reports the wait to no program. So the
# endpoint lives on; the next one has tcp.
loses_its_device_a() {
    local adapter removal
    adapter=$(net_of "$1")
    serve_traffic 'a serves' "$(of "$adapter" ADDRESS):0"
    await 'b is under way'
    rdma link del "$(of "$adapter" DEVICE)" &
    removal=$!
    notify 'a removes'
    traffic_ends
    wait "$removal" || fail 'the device was not removed'
    [[ $(rdma link show) != *"$(of "$adapter" DEVICE)"* ]] || fail 'the device is still there'
    serve_traffic 'a serves again' "$(of "$adapter" ADDRESS):0"
    traffic_ends
}

loses_its_device_b() {
    begin_driving "$(await 'a serves')" --paths "$1" --rounds 400
    notify 'b is under way'
    await 'a removes'
    driving_ends
    drive_traffic "$(await 'a serves again')" --rounds 30
    grep -q '^over tcp$' /tmp/driven || fail 'not over tcp'
}

# goes_dark PROVIDER: no packet of data or of the control channel comes through any more.
goes_dark_a() {
    serve_traffic 'a serves' "$(of "$(net_of "$1")" ADDRESS):0" --expect PEER_GONE
    await 'b is under way'
    break_it wire "$1"
    traffic_ends
}

goes_dark_b() {
    begin_driving "$(await 'a serves')" --paths "$1" --expect PEER_GONE
    sleep 0.3 # of traffic
    notify 'b is under way'
    driving_ends
}

# host_goes PROVIDER: the other host vanishes at once, as after a power loss: it sends no notice.
host_goes_a() {
    serve_traffic 'a serves' "$(of "$(net_of "$1")" ADDRESS):0" --expect PEER_GONE
    await 'b is under way'
    traffic_ends
    echo 'a has noticed'
}

host_goes_b() {
    begin_driving "$(await 'a serves')" --paths "$1"
    sleep 0.3 # of traffic
    notify 'b is under way'
    echo c >/proc/sysrq-trigger
    sleep 60
}

# revoked_far_away PROVIDER write|read: the importer learns of the revocation when its requests have
# been refused, as the control channel takes longer than the 100 ms that rdmux_mr_revoke() waits.
revoked_far_away_a() {
    local control
    control=$(other_net_of "$1")
    serve_traffic 'a serves' "$(of "$control" ADDRESS):0" --revoke /tmp/revoke --expect DENIED
    await 'b is under way'
    tc qdisc add dev "$(of "$control" NETDEV)" root netem delay 500ms limit 10000
    : >/tmp/revoke
    traffic_ends
    notify landed "$(sed -n 's/^landed: //p' /tmp/traffic)"
}

revoked_far_away_b() {
    local placed landed
    begin_driving "$(await 'a serves')" --paths "$1" --stream "$2" --expect DENIED
    until_true grep -qs '^streams$' /tmp/driven
    notify 'b is under way'
    driving_ends
    grep -qE 'first failure: RDMUX_(DENIED|OUTCOME_UNKNOWN);' /tmp/driven ||
        fail 'the request in doubt has another status'
    landed=$(await landed)
    [[ $2 == write ]] || return 0
    placed=$(sed -n 's/^placed: //p' /tmp/driven)
    echo "reported as placed: $placed, in memory: $landed"
    ((placed > 0 && placed <= landed)) || fail 'a write completed as placed and was not'
}

# too_long_far_away PROVIDER: the sender's request may have completed by then.
too_long_far_away_a() {
    lag "$1"
    serve_traffic 'a serves' "$(of "$(net_of "$1")" ADDRESS):0" --expect LENGTH
    traffic_ends
}

too_long_far_away_b() {
    lag "$1"
    drive_traffic "$(await 'a serves')" --paths "$1" --rounds 10 --message 100000 --expect LENGTH
}

lag() {
    tc qdisc add dev "$(of "$(net_of "$1")" NETDEV)" root netem delay 20ms limit 10000
}

# late_receives PROVIDER: the peer has no receive for longer than a device retries by itself.
late_receives_a() {
    serve_traffic 'a serves' "$(of "$(net_of "$1")" ADDRESS):0" --late 4000
    traffic_ends
}

late_receives_b() {
    local from=$EPOCHREALTIME
    drive_traffic "$(await 'a serves')" --paths "$1" --rounds 20
    awk -v from="$from" -v to="$EPOCHREALTIME" 'BEGIN { exit !(to - from >= 3.9) }' ||
        fail 'messages arrived without receives'
}

# many_share_receives PROVIDER ENDPOINTS: with their own receives the endpoints would need 4 MiB
# each; with an SRQ they have 16 MiB in all. Other pinned memory of one more endpoint is less than
# one receive.
readonly shared_receives=64 shared_size=262144

many_share_receives_a() {
    serve_traffic 'a serves' "$(of "$(net_of "$1")" ADDRESS):0" --endpoints "$2" \
        --srq $shared_receives --receive $shared_size
    traffic_ends
    awk -v endpoints="$2" -v size=$((shared_size / 1024)) '
        /^memory:/ { at[$2] = $8; last = $2; if (!first) first = $2; receives[$11] }
        END {
            grown = (at[last] - at[first]) / (last - first)
            printf "each endpoint more pins %.1f KiB more\n", grown
            exit !(last == endpoints && length(receives) == 1 && grown < size)
        }' /tmp/traffic || fail 'memory for receives grows with the endpoints'
}

many_share_receives_b() {
    drive_traffic "$(await 'a serves')" --paths "$1" --endpoints "$2" --rounds 4
}

# ---------------------------------------------------------------------------------- who is chosen

# is_explained PROVIDER REASONS TEXT: a candidate of the explanation in /tmp/explain; REASONS and
# TEXT are regular expressions.
is_explained() {
    jq -e --arg provider "$1" --arg reasons "$2" --arg text "$3" 'any(.candidates[];
        .provider == $provider and (.reason | test($reasons)) and (.text | test($text)))' \
        /tmp/explain >/dev/null || fail "no '$3' about $1: $(cat /tmp/explain)"
}

# explained ADDRESS PATHS PROVIDER: this path is chosen.
explained() {
    "$rdmux" explain "$1" --paths "$2" --json >/tmp/explain || true
    jq -e --arg provider "$3" '.chosen.provider == $provider' /tmp/explain >/dev/null ||
        fail "not $3 of '$2': $(cat /tmp/explain)"
}

# serve_until PROVIDER: runs rdmux serve at its adapter's address until b is done.
serve_until() {
    "$rdmux" serve "$(of "$(adapter_of "$1")" ADDRESS):0" >/tmp/serve &
    started=$!
    until_true test -s /tmp/serve
    notify 'a serves' "$(sed 's/.* //' /tmp/serve)"
    await 'b is done' >/dev/null
    kill -TERM "$started"
    end_well
}

# software_only_if_asked PROVIDER: both hosts have it.
software_only_if_asked_a() {
    serve_until "$1"
}

software_only_if_asked_b() {
    local address
    address=$(await 'a serves')
    explained "$address" auto tcp
    is_explained "$1" '^SOFTWARE_DEVICE$' 'emulated in software'
    explained "$address" "$1,tcp" tcp
    explained "$address" "$1" "$1"
    "$rdmux" explain "$address"
    notify 'b is done'
}

# only_one_side_has_it PROVIDER GUEST: removes this guest's device.
only_one_side_has_it_a() {
    [[ $2 == b ]] || rdma link del "$(of "$(adapter_of "$1")" DEVICE)"
    serve_until "$1"
}

only_one_side_has_it_b() {
    local provider=$1 address lacks=acceptor
    if [[ $2 == b ]]; then
        rdma link del "$(of "$(adapter_of "$1")" DEVICE)"
        lacks=connector
    fi
    address=$(await 'a serves')
    explained "$address" auto tcp
    is_explained "$provider" '^(PEER_HAS_NONE|NO_DEVICE)$' $lacks
    "$rdmux" explain "$address"
    ! "$rdmux" explain "$address" --paths "$provider" >/tmp/none 2>&1 || fail 'there is a path'
    cat /tmp/none
    grep -q "$lacks" /tmp/none || fail 'the explanation does not name the side that lacks it'
    notify 'b is done'
}

# ----------------------------------------------------------------------------- marks on the wire

# count_classes NETDEV CLASS..., packets_marked NETDEV CLASS: incoming packets by their type of
# service.
count_classes() {
    local netdev=$1 class
    tc qdisc add dev "$netdev" clsact
    for class in "${@:2}"; do
        tc filter add dev "$netdev" ingress protocol ip prio "$((class + 1))" u32 \
            match ip tos "$class" 0xff action pass
    done
}

packets_marked() {
    tc -s filter show dev "$1" ingress prio "$(($2 + 1))" |
        sed -n 's/.*Sent [0-9]* bytes \([0-9]*\) pkt.*/\1/p' | sum
}

# congest NETDEV: a slow queue that marks packets that can be marked, and drops the rest.
congest() {
    tc qdisc add dev "$1" root handle 1: tbf rate 30mbit burst 4kb limit 400kb
    tc qdisc add dev "$1" parent 1:1 handle 2: red limit 400kb min 6kb max 18kb avpkt 1000 \
        burst 8 probability 0.2 ecn
}

# traffic_is_marked PROVIDER: congested queues can mark rdmux's packets (106: DSCP 26 and ECT(0)),
# and do (107: CE). Soft iWARP cannot request that: its packets have class 0.
traffic_is_marked_a() {
    local netdev
    netdev=$(of "$(net_of "$1")" NETDEV)
    count_classes "$netdev" 0 106 107
    serve_traffic 'a serves' "$(of "$(other_net_of "$1")" ADDRESS):0"
    traffic_ends
    notify 'seen by a' "$(packets_marked "$netdev" 0) $(packets_marked "$netdev" 106) \
$(packets_marked "$netdev" 107)"
}

traffic_is_marked_b() {
    local plain capable marked
    congest "$(of "$(net_of "$1")" NETDEV)"
    drive_traffic "$(await 'a serves')" --paths "$1" --rounds 100
    read -r plain capable marked <<<"$(await 'seen by a')"
    echo "packets at a: $plain of class 0, $capable with ECT(0), $marked with CE"
    case $1 in
    roce)
        ((capable > 100 && marked > 0)) || fail 'no marks on the wire'
        ;;
    iwarp)
        ((plain > 100 && capable == 0 && marked == 0)) || fail 'marks that soft iWARP cannot make'
        ;;
    esac
}

# --------------------------------------------------------------------------------------------------

name=$1
shift
if [[ -e /run/host/two ]]; then
    name+=_$GUEST
fi
declare -F "$name" >/dev/null || fail "cases.sh has no $name"
"$name" "$@"
