# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# What each of two guests runs: guest.sh PROVIDER FAULTS SEED. The control channel and tcp are on the wire beside the one
# that carries the provider's data, so what breaks there breaks the path alone.
set -euo pipefail
# shellcheck source=tests/soft_rdma/inside.sh
. /run/host/inside.sh

provider=$1 faults=$2 seed=$3
pair=${RDMUX_BUILD:?}/tests/failover/pair
case $provider in
roce) net=$RXE_NETDEV own=$RXE_ADDRESS control=$SIW_ADDRESS ;;
iwarp) net=$SIW_NETDEV own=$SIW_ADDRESS control=$RXE_ADDRESS ;;
esac
options=(--paths "$provider,tcp" --faults "$faults" --seed "$seed" --liveness 1500
    --cut "wire cut=tc qdisc add dev $net root netem loss 100%"
    --cut "address gone=ip addr del $own/24 dev $net"
    --mend "tc qdisc del dev $net root 2>/dev/null; ip addr replace $own/24 dev $net")
if [[ $GUEST == a ]]; then
    "$pair" serve "$control:0" "${options[@]}" >/tmp/out 2>&1 &
    started=$!
    until_true grep -q '^listening on ' /tmp/out
    tell address "$(sed -n 's/^listening on //p' /tmp/out)"
    status=0
    wait "$started" || status=$?
    cat /tmp/out
    exit "$status"
fi
"$pair" drive "$(await address)" "${options[@]}"
