#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# rdmux over another library's network: `rdmux perf` against a server of its own, as paths of an
# adapter exist on request only, and the library is loaded into no other server. Prints what `rdmux
# perf --json` prints.
#
#   over_adapter ucx OPTION...           over UCX, with options of rdmux perf
#   over_adapter ofi:PROVIDER OPTION...  over a provider of libfabric
set -euo pipefail
build=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
rdmux=$build/bin/rdmux

adapter=${1%%:*}
below=${1#"$adapter"}
shift
if [[ ! -e $build/lib/rdmux/rdmux-$adapter.so ]]; then
    printf 'over_adapter: skipped: %s has no lib/rdmux/rdmux-%s.so\n' "$build" "$adapter" >&2
    exit 77
fi
export RDMUX_PATHS=$adapter
case $adapter in
ofi) export FI_PROVIDER=${below#:} ;;
ucx) export UCX_HANDLE_ERRORS=none UCX_DEBUG_SIGNO=0 UCX_MEM_EVENTS=n UCX_NET_DEVICES=lo ;;
esac

scratch=$(mktemp -d)
server=
cleanup() {
    [[ -z $server ]] || kill "$server" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$scratch"
}
trap cleanup EXIT

# The first two processors that this shell may use, as in bench.c.
mapfile -t processors < <(taskset -cp $$ | sed 's/.*: //' | tr ',' '\n' |
    awk -F- '{ last = $NF; for (cpu = $1; cpu <= last; cpu++) print cpu }')
taskset -c "${processors[1]}" "$rdmux" serve 127.0.0.1:0 >"$scratch/serve" 2>&1 &
server=$!
until address=$(sed -n 's/^listening on //p' "$scratch/serve") && [[ -n $address ]]; do
    kill -0 "$server" 2>/dev/null || { cat "$scratch/serve" >&2 && exit 1; }
    read -r -t 0.02 _ < <(:) || true
done
taskset -c "${processors[0]}" "$rdmux" perf "$address" --json "$@" >"$scratch/out"
grep -q "\"provider\": *\"$adapter\"" "$scratch/out" || { cat "$scratch/out" >&2 && exit 1; }
cat "$scratch/out"
