# SPDX-License-Identifier: BSD-2-Clause-Patent
# shellcheck shell=bash
#
# Environment of a guest's script: the folder /run/host/shared, and these variables:
#   GUEST                        its name: a, or b
#   RXE_DEVICE, SIW_DEVICE       the adapters of soft RoCE and soft iWARP
#   RXE_NETDEV, SIW_NETDEV       the network devices under them
#   RXE_ADDRESS, SIW_ADDRESS     their IPv4 addresses, with 6 behind the name the IPv6 ones
#   RXE_PEER, SIW_PEER           the other guest's addresses, likewise; one's own in a single guest

case ${GUEST:?} in
a) guest_number=1 ;;
b) guest_number=2 ;;
esac
if [[ -e /run/host/two ]]; then
    peer_number=$((3 - guest_number))
else
    peer_number=$guest_number
fi
# shellcheck disable=SC2034
RXE_DEVICE=rxe0 RXE_NETDEV=rxenet RXE_ADDRESS=10.9.0.$guest_number RXE_PEER=10.9.0.$peer_number
# shellcheck disable=SC2034
SIW_DEVICE=siw0 SIW_NETDEV=siwnet SIW_ADDRESS=10.9.1.$guest_number SIW_PEER=10.9.1.$peer_number
# shellcheck disable=SC2034
RXE_ADDRESS6=fd09::$guest_number RXE_PEER6=fd09::$peer_number
# shellcheck disable=SC2034
SIW_ADDRESS6=fd09:1::$guest_number SIW_PEER6=fd09:1::$peer_number
patience=200 # seconds that a wait may take

# pause: some milliseconds. Beginning a process, say sleep, takes a guest's processor as long as that.
exec {quiet}<> <(:)
pause() {
    read -rt 0.02 -u "$quiet" || true
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# until_true COMMAND...: runs it until it succeeds.
until_true() {
    local deadline=$((SECONDS + patience))
    until "$@"; do
        ((SECONDS < deadline)) || fail "guest $GUEST: did not succeed in $patience s: $*"
        pause
    done
}

# notify NAME [TEXT]: ends the wait of await NAME, here or in the other guest.
notify() {
    printf '%s\n' "${2-}" >"/run/host/shared/$1.part"
    mv "/run/host/shared/$1.part" "/run/host/shared/$1"
}

# await NAME: waits for notify NAME, and prints its text. Fails at once if the other guest has ended
# without it.
await() {
    local ended peer=a
    [[ $GUEST != a ]] || peer=b
    local deadline=$((SECONDS + patience))
    while :; do
        ended=no
        [[ ! -e /run/host/$peer/status && ! -e /run/host/$peer/gone ]] || ended=yes
        [[ ! -e /run/host/shared/$1 ]] || break
        [[ $ended == no ]] || fail "guest $GUEST: guest $peer has ended without notifying '$1'"
        ((SECONDS < deadline)) || fail "guest $GUEST: no notification '$1' in $patience s"
        pause
    done
    printf '%s\n' "$(<"/run/host/shared/$1")"
}

# An RDMA listener at an address and a TCP listener at a port of this guest, for until_true.
rdma_listens() {
    local listeners
    listeners=$(rdma resource show cm_id | grep -F 'state LISTEN') && [[ $listeners == *"src-addr $1"* ]]
}

tcp_listens() {
    [[ -n $(ss -Htln "sport = :$1") ]]
}

# in_background COMMAND...: starts it; end_well waits for it, and its status must be 0.
in_background() {
    "$@" &
    started=$!
}

end_well() {
    local status=0
    wait "$started" || status=$?
    ((status == 0)) || fail "guest $GUEST: a background process ended with status $status"
}
