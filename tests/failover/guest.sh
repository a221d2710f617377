# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# Runs in each of two guests: guest.sh PROVIDER FAULTS SEED. The control channel and tcp use another
# wire than the provider's data, so a fault there breaks only the path. For tcp the peer has a name
# with an address on each wire. The liveness times are long, as a guest that does not run for that
# time ends the connection.
set -euo pipefail
# shellcheck source=tests/soft_rdma/inside.sh
. /run/host/inside.sh

provider=$1 faults=$2 seed=$3
pair=${RDMUX_BUILD:?}/tests/failover/pair
case $provider in
tcp) # over both wires, one at a time: control channel and data are on the one that is cut. The control channel
    # has to be dialled again within the liveness time.
    printf '%s two-wires\n' "$RXE_PEER" "$SIW_PEER" >/tmp/hosts
    mount --bind /tmp/hosts /etc/hosts
    cat >/tmp/cut <<END_OF_CUT
for wire in "$RXE_NETDEV $RXE_ADDRESS" "$SIW_NETDEV $SIW_ADDRESS"; do
    [[ -z \$(ss -Htn state established src "\${wire#* }") ]] || tc qdisc add dev "\${wire% *}" root netem loss 100%
done
END_OF_CUT
    control=0.0.0.0
    options=(--paths tcp --faults "$faults" --seed "$seed" --liveness 10000 --cut "wire cut=bash /tmp/cut"
        --mend "tc qdisc del dev $RXE_NETDEV root 2>/dev/null; tc qdisc del dev $SIW_NETDEV root 2>/dev/null; true")
    ;;
roce) net=$RXE_NETDEV own=$RXE_ADDRESS control=$SIW_ADDRESS ;;
iwarp) net=$SIW_NETDEV own=$SIW_ADDRESS control=$RXE_ADDRESS ;;
esac
[[ $provider == tcp ]] || options=(--paths "$provider,tcp" --faults "$faults" --seed "$seed" --liveness 6000
    --cut "wire cut=tc qdisc add dev $net root netem loss 100%"
    --cut "address gone=ip addr del $own/24 dev $net"
    --mend "tc qdisc del dev $net root 2>/dev/null; ip addr replace $own/24 dev $net")
if [[ $GUEST == a ]]; then
    "$pair" serve "$control:0" "${options[@]}" >/tmp/out 2>&1 &
    started=$!
    until_true grep -q '^listening on ' /tmp/out
    notify address "$(sed -n 's/^listening on //p' /tmp/out | sed 's/^0\.0\.0\.0:/two-wires:/')"
    status=0
    wait "$started" || status=$?
    cat /tmp/out
    exit "$status"
fi
"$pair" drive "$(await address)" "${options[@]}"
