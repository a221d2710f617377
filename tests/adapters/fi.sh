#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# rdmux as a provider of libfabric: programs of libfabric and of Open MPI, which know nothing of
# rdmux, run over shm and over tcp.
#
#   fi.sh              all cases, as TAP
#   fi.sh CASE [PATH]  one case, say "fi.sh pingpong_msg tcp"
#
# fi_pingpong has a fixed port: it runs in a network namespace of its own.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
provider=${RDMUX_FI_PROVIDER:-$build/lib/libfabric}
level=${RDMUX_TEST_LEVEL:-normal}
limit=240 # seconds for one program

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export FI_PROVIDER_PATH=$provider
unset FI_PROVIDER RDMUX_LOG

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

bounded=(timeout --kill-after=5 "$limit")

# ------------------------------------------------------------------------------------- fi_pingpong

# in_namespace COMMAND...: in a network namespace whose only interface is loopback.
in_namespace() {
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
    while ! ss -ltnH 'sport = :47592' | grep -q .; do
        kill -0 "$server" 2>/dev/null || { cat "$scratch/server" >&2; fail "the server has ended"; }
        sleep 0.05
    done
    fi_pingpong "$@" 127.0.0.1 >"$scratch/client" 2>&1 || status=$?
    wait "$server" || status=$?
    cat "$scratch/client"
    ((status == 0)) || { cat "$scratch/server"; fail "fi_pingpong ended with $status"; }
}

# pingpong PATH ARGUMENT...: all sizes, every byte checked; the log shows the path.
pingpong() {
    local path=$1
    shift
    RDMUX_LOG=info:$scratch/log in_namespace bash "$here/fi.sh" --both "$scratch" "$path" "$@" -c \
        -S all -I 20
    (($(grep -cE '^[0-9]+[km]? ' "$scratch/client") >= 10)) || fail "fi_pingpong has no figures"
    grep -q "$path .* to " "$scratch/log" || fail "the log does not name the path $path: $(cat "$scratch/log")"
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

peer() {
    local name=$1 path=$2
    [[ -x $scratch/fi_peer ]] || cc -std=gnu11 -O1 -g -o "$scratch/fi_peer" "$here/fi_peer.c" -lfabric
    RDMUX_PATHS=$path "${bounded[@]}" "$scratch/fi_peer" "$name"
}

keys_reach_their_bytes_only() {
    peer keys "$1"
}

the_data_of_a_rejection_arrives() {
    peer reject "$1"
}

a_killed_peer_is_noticed() {
    peer dies "$1"
}

sleepers_are_woken() {
    peer waits "$1"
}

# ------------------------------------------------------------------------------------------- Open MPI

# mpi RANKS PATH
mpi() {
    local ranks=$1 path=$2
    [[ -x $scratch/fi_mpi ]] || mpicc -O1 -g -o "$scratch/fi_mpi" "$here/fi_mpi.c"
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 RDMUX_PATHS=$path \
        RDMUX_LOG=info:$scratch/mpi.log "${bounded[@]}" mpirun -n "$ranks" --oversubscribe \
        --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include rdmux --mca osc pt2pt \
        --mca btl_base_warn_component_unused 0 "$scratch/fi_mpi" >"$scratch/out" || {
        cat "$scratch/out"
        fail "mpirun failed"
    }
    local name
    for name in ring 'fresh buffers' many collectives windows; do
        grep -qx "ok $name" "$scratch/out" || fail "'$name' did not pass"
    done
    grep -q "$path .* to " "$scratch/mpi.log" || fail "no pair of ranks went over $path"
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
    grep -q 'provider: rdmux$' "$scratch/info" && grep -q 'FI_EP_MSG' "$scratch/info" ||
        fail "fi_info does not list rdmux: $(cat "$scratch/info")"
    fi_info -p 'rdmux;ofi_rxm' -t FI_EP_RDM >"$scratch/info"
    grep -q 'provider: rdmux;ofi_rxm$' "$scratch/info" || fail "fi_info has no rdmux;ofi_rxm"
}

only_the_entry_is_exported() {
    local symbols
    symbols=$(nm -D --defined-only "$provider/librdmux-fi.so" | awk '{ print $3 }')
    [[ $symbols == fi_prov_ini ]] || fail "exported: $symbols"
    readelf -d "$provider/librdmux-fi.so" | grep -q NODELETE || fail "not linked with -z nodelete"
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
for path in shm tcp; do
    for name in keys_reach_their_bytes_only the_data_of_a_rejection_arrives \
        a_killed_peer_is_noticed sleepers_are_woken; do
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
        if ! have mpirun || ! have mpicc; then
            tap_skip "${name//_/ } over $path" "no Open MPI (Debian: openmpi-bin, libopenmpi-dev)"
        elif [[ $level == quick && $name == mpi_with_4_ranks ]]; then
            tap_skip "${name//_/ } over $path" "the level is quick"
        else
            one "$name" "$path"
        fi
    done
done
tap_end
