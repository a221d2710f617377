#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# Unmodified programs of libfabric and of MPI, over rdmux's provider or over what else they have.
# Prints what the programs of this folder print.
#
#   peer_programs fi_pingpong PROVIDER PATH msg|rdm SIZE SECONDS
#     half a round trip in us, or with a size of 64 KiB or more bytes/s of a ping-pong, by fi_pingpong.
#     PROVIDER is rdmux, or libfabric for that of the path's name
#   peer_programs mpi PROVIDER PATH RANKS OP SIZE SECONDS
#     peer_mpi, see mpi.c. PROVIDER is rdmux, or openmpi for Open MPI's own btls
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export FI_PROVIDER_PATH=${RDMUX_FI_PROVIDER:-$here/../../lib/libfabric}
unset FI_PROVIDER RDMUX_LOG
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# skip WHY: ends the program as the others do that cannot measure here.
skip() {
    printf 'peer_programs: skipped: %s\n' "$*" >&2
    exit 77
}

fi_pingpong_row() {
    local provider=$1 path=$2 kind=$3 size=$4 seconds=$5 bytes iterations arguments processors server
    command -v fi_pingpong >/dev/null || skip 'no fi_pingpong (Debian: libfabric-bin)'
    case $size in
    *K) bytes=$((${size%K} << 10)) ;;
    *M) bytes=$((${size%M} << 20)) ;;
    *) bytes=$size ;;
    esac
    # The first message of endpoints of ofi_rxm connects them, within the measured time: some 50 ms. The
    # measurement takes about eight times SECONDS, so that this is little.
    iterations=$(awk -v seconds="$seconds" -v bytes="$bytes" -v path="$path" \
        'BEGIN { printf "%d", 10 + 8 * seconds * (bytes >= 65536 ? 3e9 / bytes : path == "shm" ? 1e6 : 5e4) }')
    case $provider-$kind in
    rdmux-msg) arguments=(-p rdmux -e msg) ;;
    rdmux-rdm) arguments=(-p 'rdmux;ofi_rxm' -e rdm) ;;
    libfabric-msg) arguments=(-p "$path" -e msg) ;;
    libfabric-rdm) arguments=(-p "$path" -e rdm) ;;
    esac
    [[ $provider != rdmux ]] || export RDMUX_PATHS=$path
    arguments+=(-S "$bytes" -I "$iterations")
    mapfile -t processors < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
        awk -F- '{ last = $NF; for (cpu = $1; cpu <= last; cpu++) print cpu }')
    [[ -z $(ss -ltnH 'sport = :47592') ]] || skip 'the port of fi_pingpong, 47592, is in use'
    taskset -c "${processors[1]}" fi_pingpong "${arguments[@]}" >/dev/null 2>"$scratch/server" &
    server=$!
    until [[ -n $(ss -ltnH 'sport = :47592') ]]; do
        kill -0 "$server" 2>/dev/null || { tail -n 1 "$scratch/server" >&2 && exit 1; }
        read -r -t 0.02 _ < <(:) || true
    done
    taskset -c "${processors[0]}" fi_pingpong "${arguments[@]}" 127.0.0.1 >"$scratch/client"
    wait "$server"
    # bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec; a transfer is one way
    awk -v bytes="$bytes" '
        /^[0-9]/ { us = $7 }
        END {
            if (us == 0) exit 1
            printf "{\"value\":%.6g,\"cpu_seconds\":0,\"operations\":0,\"seconds\":0}\n",
                bytes < 65536 ? us : bytes / us * 1e6
        }' "$scratch/client"
}

mpi_row() {
    local provider=$1 path=$2 ranks=$3 arguments
    if ! command -v mpirun >/dev/null || [[ ! -x $here/peer_mpi ]]; then
        skip 'no Open MPI (Debian: openmpi-bin, libopenmpi-dev)'
    fi
    case $provider-$path in
    rdmux-*)
        export RDMUX_PATHS=$path
        arguments=(--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include rdmux)
        ;;
    openmpi-shm) arguments=(--mca pml ob1 --mca btl 'self,vader') ;;
    openmpi-tcp) arguments=(--mca pml ob1 --mca btl 'self,tcp' --mca btl_tcp_if_include lo) ;;
    esac
    TMPDIR=$scratch OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n "$ranks" --oversubscribe \
        "${arguments[@]}" --mca osc pt2pt "$here/peer_mpi" "${@:4}"
}

what=$1
shift
case $what in
fi_pingpong) fi_pingpong_row "$@" ;;
mpi) mpi_row "$@" ;;
esac
