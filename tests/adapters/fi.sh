#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# rdmux as a provider of libfabric: programs of libfabric and of Open MPI, which know nothing of
# rdmux, run over shm and over tcp. tests/soft_rdma runs cases over RDMA adapters in software.
#
#   fi.sh              all cases, as TAP
#   fi.sh CASE [PATH]  one case, say "fi.sh pingpong_msg tcp"
#
#   RDMUX_FI_ADDRESS   the address of this host for all cases (default: 127.0.0.1)
#
# fi_pingpong has a fixed port. It runs in a network namespace of its own, unless an address is given.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
provider=${RDMUX_FI_PROVIDER:-$build/lib/libfabric}
programs=$build/tests/adapters
level=${RDMUX_TEST_LEVEL:-normal}
export RDMUX_FI_ADDRESS=${RDMUX_FI_ADDRESS:-127.0.0.1}
limit=600 # seconds for one program

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export FI_PROVIDER_PATH=$provider
unset FI_PROVIDER
[[ ${1:-} == --both ]] || unset RDMUX_LOG

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

bounded=(timeout --kill-after=5 "$limit")

# ------------------------------------------------------------------------------------- fi_pingpong

# in_namespace COMMAND...: in a network namespace whose only interface is loopback, so that the port
# is free; as it stands if an address is given.
in_namespace() {
    if [[ $RDMUX_FI_ADDRESS != 127.0.0.1 ]]; then
        "${bounded[@]}" "$@"
        return
    fi
    # shellcheck disable=SC2016
    "${bounded[@]}" unshare -rn sh -c 'ip link set lo up && "$@"' sh "$@"
}

# Both sides of fi_pingpong, in one namespace. The client tries until the server listens.
pingpong_both() {
    local path=$1 status=0
    shift
    export RDMUX_PATHS=$path
    fi_pingpong "$@" >"$scratch/server" 2>&1 &
    local server=$!
    while [[ -z $(ss -ltnH 'sport = :47592') ]]; do
        kill -0 "$server" 2>/dev/null || { cat "$scratch/server" >&2; fail "the server has ended"; }
        sleep 0.05
    done
    fi_pingpong "$@" "$RDMUX_FI_ADDRESS" >"$scratch/client" 2>&1 || status=$?
    wait "$server" || status=$?
    cat "$scratch/client"
    ((status == 0)) || { cat "$scratch/server"; fail "fi_pingpong ended with $status"; }
}

# took_path PATH FILE: the log says which path each pair has, and why not the others.
took_path() {
    grep -qE "info negotiation: endpoint [0-9]+: $1 [^;]* to [^;]*; not .* [A-Z_]+" "$2" ||
        fail "the log does not say that the path is $1, and why: $(cat "$2")"
}

# pingpong PATH ARGUMENT...: all sizes, every byte checked.
pingpong() {
    local path=$1 count=20
    shift
    [[ $level == thorough ]] || count=5
    RDMUX_LOG=info:$scratch/log in_namespace bash "$here/fi.sh" --both "$scratch" "$path" "$@" -c \
        -S all -I "$count"
    (($(grep -cE '^[0-9]+[km]? ' "$scratch/client") >= 10)) || fail "fi_pingpong has no figures"
    took_path "$path" "$scratch/log"
}

pingpong_msg() {
    pingpong "$1" -p rdmux -e msg
}

pingpong_rdm() {
    pingpong "$1" -p 'rdmux;ofi_rxm' -e rdm
}

pingpong_tagged() {
    pingpong "$1" -p 'rdmux;ofi_rxm' -e rdm -m tagged
}

# ----------------------------------------------------------------------------------- bare programs

# peer PATH CASE [ARGUMENT]
peer() {
    RDMUX_PATHS=$1 "${bounded[@]}" "$programs/fi_peer" "${@:2}"
}

keys_reach_their_bytes_only() {
    peer "$1" keys
}

the_data_of_a_rejection_arrives() {
    peer "$1" reject
}

a_killed_peer_is_noticed() {
    peer "$1" dies
}

sleepers_are_woken() {
    peer "$1" waits
}

rdmux_explains_its_listeners() {
    peer "$1" explain "$build/bin/rdmux" >"$scratch/explained"
    jq -e --arg path "$1" '.chosen.provider == $path' "$scratch/explained" >/dev/null ||
        fail "rdmux explain: $(cat "$scratch/explained")"
}

# ------------------------------------------------------------------------------------------- Open MPI

# mpi RANKS PATH: the program checks every byte. What the endpoints of rdmux have counted is at least
# what the ranks have received, so nothing went another way: not by btl/vader, not by osc/sm.
mpi() {
    local ranks=$1 path=$2 name expected counted arguments=()
    [[ $level == thorough ]] || arguments=(quick)
    TMPDIR=$scratch OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RDMUX_PATHS=$path \
        FI_LOG_LEVEL=info FI_LOG_PROV=rdmux RDMUX_LOG=info:$scratch/log "${bounded[@]}" \
        mpirun -n "$ranks" --oversubscribe --mca pml cm --mca mtl ofi \
        --mca mtl_ofi_provider_include rdmux --mca osc pt2pt --mca btl_base_warn_component_unused 0 \
        "$programs/fi_mpi" "${arguments[@]}" >"$scratch/out" 2>"$scratch/errors" || {
        cat "$scratch/out" "$scratch/errors"
        fail "mpirun failed"
    }
    for name in ring 'fresh buffers' many collectives windows; do
        grep -qx "ok $name" "$scratch/out" || fail "'$name' did not pass"
    done
    took_path "$path" "$scratch/log"
    expected=$(sed -n 's/^bytes //p' "$scratch/out")
    counted=$(sed -n "s/.* $path to .* bytes sent, \([0-9]*\) bytes received\$/\1/p" "$scratch/errors" |
        awk '{ sum += $1 } END { printf "%.0f", sum }')
    echo "received $expected bytes, over rdmux $counted"
    ((expected > 0 && counted >= expected)) || fail "bytes went past rdmux"
}

mpi_with_2_ranks() {
    mpi 2 "$1"
}

mpi_with_4_ranks() {
    mpi 4 "$1"
}

# -------------------------------------------------------------------------------------- the library

fi_info_lists_the_provider() {
    fi_info -p rdmux >"$scratch/info"
    if ! grep -q 'provider: rdmux$' "$scratch/info" || ! grep -q 'FI_EP_MSG' "$scratch/info"; then
        fail "fi_info does not list rdmux: $(cat "$scratch/info")"
    fi
    fi_info -p 'rdmux;ofi_rxm' -t FI_EP_RDM >"$scratch/info"
    grep -q 'provider: rdmux;ofi_rxm$' "$scratch/info" || fail "fi_info has no rdmux;ofi_rxm"
}

only_the_entry_is_exported() {
    local symbols
    symbols=$(nm -D --defined-only "$provider/librdmux-fi.so" | awk '{ print $3 }')
    [[ $symbols == fi_prov_ini ]] || fail "exported: $symbols"
    [[ $(readelf -d "$provider/librdmux-fi.so") == *NODELETE* ]] || fail "not linked with -z nodelete"
}

the_process_stays_as_it_was() {
    "${bounded[@]}" "$programs/fi_peer" unchanged
}

# --------------------------------------------------------------------------------------------- all

if [[ ${1:-} == --both ]]; then
    scratch=$2
    trap - EXIT
    pingpong_both "${@:3}"
    exit
fi
if (($# > 0)); then
    "$@"
    exit
fi
if [[ ! -e $provider/librdmux-fi.so ]]; then
    printf '1..0 # SKIP rdmux was built without libfabric (Debian: libfabric-dev)\n'
    exit 77
fi

one() {
    tap "${1//_/ }${2:+ over $2}" bash "$here/fi.sh" "$@"
}

if have fi_info; then
    one fi_info_lists_the_provider
else
    tap_skip "fi_info lists the provider" "no fi_info (Debian: libfabric-bin)"
fi
one only_the_entry_is_exported
one the_process_stays_as_it_was
for path in shm tcp; do
    for name in keys_reach_their_bytes_only the_data_of_a_rejection_arrives \
        a_killed_peer_is_noticed sleepers_are_woken rdmux_explains_its_listeners; do
        one "$name" "$path"
    done
    for name in pingpong_msg pingpong_rdm pingpong_tagged; do
        if ! have fi_pingpong; then
            tap_skip "${name//_/ } over $path" "no fi_pingpong (Debian: libfabric-bin)"
        elif ! unshare -rn true 2>/dev/null; then
            tap_skip "${name//_/ } over $path" "no network namespaces for this user"
        else
            one "$name" "$path"
        fi
    done
    for name in mpi_with_2_ranks mpi_with_4_ranks; do
        if ! have mpirun || [[ ! -x $programs/fi_mpi ]]; then
            tap_skip "${name//_/ } over $path" "no Open MPI (Debian: openmpi-bin, libopenmpi-dev)"
        else
            one "$name" "$path"
        fi
    done
done
tap_end
