#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Peers that stop, end, go deaf, are cut off, or are forgotten by their host, on every provider:
# measures the time until they are noticed, idle and busy. A peer that reads nothing must cost no
# memory. The adapters are simulated. Cases that need a network get one of this test's own. Prints
# TAP; lines "# figures:" have the times.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
peers=$build/tests/peers/peers
simulation=$build/lib/libsimverbs.so
# A busy machine may leave a process without a processor for a second, and its peer calls it gone if
# that is the liveness time.
liveness=3000 # ms
rounds=1
[[ ${RDMUX_TEST_LEVEL:-normal} != thorough ]] || rounds=10
PATH=$PATH:/usr/sbin:/sbin
unset RDMUX_PATHS RDMUX_LOG SIM_VERBS

[[ -x $peers ]] || die "there is no $peers; build it"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-peers.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
: >"$scratch/figures"

# ------------------------------------------------------------------------------------- a network

# alone COMMAND...: with a network of its own that leads nowhere. The second device's address is for
# iWARP, which cannot use one of the first; packets to it go through the first device like all
# others. The kernel calls a device running some time after its peer is up.
alone() {
    # shellcheck disable=SC2016
    unshare "${unshare[@]}" -n bash -c 'ip -batch - <<END_OF_BATCH || exit
link set lo up
link add out0 type veth peer name out1
addr add 10.9.9.1/24 dev out0
link set out0 up
link set out1 up
END_OF_BATCH
until [[ $(ip link show out0) == *" state UP "* ]]; do sleep 0.01; done
"$@"' alone "$@"
}

nft_swallow='nft "add table inet rdmux; \
add chain inet rdmux in { type filter hook input priority 0; policy drop; }"'
nft_mend='nft delete table inet rdmux'
# A queue too short for any packet.
tc_swallow='tc qdisc add dev lo root bfifo limit 1'
tc_mend='tc qdisc del dev lo root'

# Chooses a way to swallow packets: sets swallow, mend, or why_not. The program itself checks that no
# packet arrives then, and that all do afterwards.
choose_network() {
    unshare=(-Ur)
    unshare -Ur -n true 2>/dev/null || unshare=()
    swallow='' mend='' why_not=''
    if ! alone true >"$scratch/why" 2>&1; then
        why_not="no network namespace: $(head -n 1 "$scratch/why")"
    elif alone bash -c "$nft_swallow && $nft_mend" >"$scratch/why" 2>&1; then
        swallow=$nft_swallow mend=$nft_mend
        echo '# packets are dropped by nftables'
    elif alone bash -c "$tc_swallow && $tc_mend" >"$scratch/why_tc" 2>&1; then
        swallow=$tc_swallow mend=$tc_mend
        echo "# packets are dropped by a queue that is too short: $(head -n 1 "$scratch/why")"
    else
        why_not="nothing swallows packets: $(head -n 1 "$scratch/why"), $(head -n 1 "$scratch/why_tc")"
    fi
}

# ------------------------------------------------------------------------------------- the cases

# over PROVIDER COMMAND...: runs it with the adapter that it needs.
over() {
    case $1 in
    roce | ib | iwarp) LD_PRELOAD=$simulation SIM_VERBS=link=$1 "${@:2}" ;;
    *) "${@:2}" ;;
    esac
}

# keep_figure COMMAND...: runs the command, whose last line is a figure.
keep_figure() {
    local output status=0
    output=$("$@" 2>&1) || status=$?
    if ((status != 0)); then
        printf 'status %d: %s\n' "$status" "$output"
        return 1
    fi
    printf '%s\n' "$output" | tail -n 1 >>"$scratch/figures"
}

# notices PROVIDER FAULT STATE [OPTION...]
notices() {
    keep_figure over "$1" "$peers" notice --paths "$1" --fault "$2" --state "$3" --rounds "$rounds" \
        --liveness "$liveness" "${@:4}"
}

notices_alone() {
    keep_figure over "$1" alone "$peers" notice --paths "$1" --fault "$2" --state "$3" --rounds "$rounds" \
        --liveness "$liveness" --swallow "$swallow" --mend "$mend" "${@:4}"
}

# case_alone NAME PROVIDER FAULT STATE [OPTION...]
case_alone() {
    if [[ -n $why_not ]]; then
        tap_skip "$1" "$why_not"
    else
        tap "$1" notices_alone "${@:2}"
    fi
}

of_provider() {
    local on="over $1" state
    for state in idle busy; do
        tap "a stopped peer is noticed in time $on, $state" notices "$1" stop "$state"
        tap "a killed peer is noticed at once $on, $state" notices "$1" kill "$state"
        tap "a peer without service thread that makes no more calls is noticed in time $on, $state" \
            notices "$1" deaf "$state" --manual peer
        case_alone "silence of the network is noticed in time $on, $state" "$1" swallow "$state"
    done
    tap "a stopped peer is noticed in time by a peer without service thread $on" \
        notices "$1" stop busy --manual us
    # Heartbeats so far apart that the peer's host answers one before the silence is long enough.
    case_alone "a connection that the peer's host has forgotten is noticed $on" "$1" half-open idle \
        --liveness 4000
    tap "a peer that takes nothing costs no memory $on" keep_figure over "$1" "$peers" flood --paths "$1"
}

choose_network
providers=(tcp shm)
if [[ -e $build/lib/rdmux/rdmux-verbs.so && -e $simulation ]]; then
    providers+=(roce iwarp ib)
else
    tap_skip 'roce, iwarp and ib' "$simulation is not built: libibverbs-dev, librdmacm-dev"
fi
for provider in "${providers[@]}"; do
    of_provider "$provider"
done
sed 's/^/# figures: /' "$scratch/figures"
tap_end
