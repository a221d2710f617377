#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
#
# A fast adapter on a slow line: by its own figures it ranks first, by measurement it does not.
#
#   slow_line.sh         uses the path chosen by constants, then the one chosen by measuring; prints
#                        what each carried, and fails if it was not the right one
#   slow_line.sh --can   reports why this machine cannot do that, with status 77, or nothing
#
# Two hosts, which are network namespaces of this test, with two wires between them. tcp uses the
# unthrottled wire; the other wire, of the path "line" (line.c), is a veth of 8 Mbit/s (tc-tbf) on which
# each packet takes 100 ms. Its processes have the highest priority, as a process that waits for a
# processor would measure that. Needs root.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
build=${RDMUX_BUILD:-$root/build/dev}
rdmux=${RDMUX:-$build/bin/rdmux}
plugins=${RDMUX_TOOLS_BUILD:-$build/tests/tools}/line
limit=60 # seconds for one command
PATH=$PATH:/usr/sbin:/sbin # tc is there, and may be used in a namespace of one's own

cannot() {
    printf 'slow_line: %s\n' "$*" >&2
    exit 77
}

for tool in ip tc unshare jq; do
    have "$tool" || cannot "$tool is not installed"
done
[[ -e $plugins/line.so ]] || cannot "there is no $plugins/line.so"

# The other host is a process in a namespace of its own; it gets its wires, then the command to
# serve.
if [[ ${1:-} == other-host ]]; then
    echo "is there"
    read -r _
    for wire in wire line; do
        ip link set "$wire" up
    done
    ip address add 10.77.0.1/24 dev wire
    ip address add 10.78.0.1/24 dev line
    tc qdisc add dev line root tbf rate 8mbit burst 3000 latency 400ms
    RDMUX_LINE=10.78.0.1 exec "$rdmux" serve 10.77.0.1:0 --receive "$2"
fi

if [[ ${SLOW_LINE_NAMESPACE:-} != own ]]; then
    [[ $(nice -n -20 nice 2>/dev/null) == -20 ]] || cannot "the highest priority (nice -20) is root's"
    renice -n -20 $$ >/dev/null
    for way in "unshare --net" "unshare --user --map-root-user --net"; do
        # shellcheck disable=SC2086
        if $way sh -c 'ip link add wire type veth peer name wire-b && ip link set wire up &&
                tc qdisc add dev wire root tbf rate 8mbit burst 3000 latency 400ms &&
                unshare --net true' 2>/dev/null; then
            [[ ${1:-} != --can ]] || exit 0
            SLOW_LINE_NAMESPACE=own exec $way "${BASH_SOURCE[0]}" "$@"
        fi
    done
    cannot "no network namespace of its own, or no veth with tbf in it"
fi

scratch=$(mktemp -d "${TMPDIR:-/tmp}/rdmux-line.XXXXXX")
server=
clean_up() {
    [[ -z $server ]] || { kill -KILL "$server" && wait "$server"; } 2>/dev/null || true
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() {
    printf 'slow_line: %s\n' "$*"
    exit 1
}

lay_wires() {
    local wire network=77
    for wire in wire line; do
        ip link add "$wire" type veth peer name "$wire" netns "$server"
        ip link set "$wire" up
        ip address add "10.$network.0.2/24" dev "$wire"
        network=$((network + 1))
    done
    tc qdisc add dev line root tbf rate 8mbit burst 3000 latency 400ms
}

# The hosts communicate by a pipe in each direction.
export RDMUX_PROVIDER_DIR=$plugins RDMUX_LINE_DELAY_MS=100
unset RDMUX_PATHS
mkfifo "$scratch/to" "$scratch/from"
unshare --net "${BASH_SOURCE[0]}" other-host "$scratch" <"$scratch/to" >"$scratch/from" 2>&1 &
server=$!
exec 5>"$scratch/to" 6<"$scratch/from"
read -r -t "$limit" word <&6 || fail 'the other host is not there'
[[ $word == 'is there' ]] || fail "the other host says: $word"
lay_wires
echo 'your wires are laid' >&5
read -r -t "$limit" _ _ address <&6 || fail 'the other host does not serve'
[[ $address == 10.77.0.1:* ]] || fail "the other host serves at $address"
export RDMUX_LINE=10.78.0.2

run() {
    timeout --kill-after=5 "$limit" "$rdmux" "$@" >"$scratch/out" 2>"$scratch/err" ||
        fail "rdmux $*: status $?: $(cat "$scratch/out" "$scratch/err")"
}

# goes_over PATH FILTER COMMAND...: the command's JSON names the path by the filter.
goes_over() {
    local wanted=$1 filter=$2 got
    shift 2
    run "$@" --json
    got=$(jq -r "$filter" "$scratch/out")
    [[ $got == "$wanted" ]] || fail "rdmux $1 goes over $got instead of $wanted: $(<"$scratch/out")"
}

# Few bytes in flight, so that the slow line does not need a minute for posted requests.
perf=(perf "$address" --op write --test bandwidth --size 16K --depth 4)
head -c 100000 /dev/zero >"$scratch/file"

goes_over line .chosen.provider explain "$address"
goes_over line .path.provider "${perf[@]}" --seconds 0.5
slow=$(jq .bytes_per_second "$scratch/out")
goes_over tcp .path.provider "${perf[@]}" --seconds 0.5 --probe
quick=$(jq .bytes_per_second "$scratch/out")
goes_over tcp .chosen.provider explain "$address" --probe
jq -e '.candidates[] | select(.provider == "line")
       | .reason == "SLOWER" and (.text | test("measured; before it comes tcp"))' "$scratch/out" >/dev/null ||
    fail "the explanation does not say that it was measured: $(<"$scratch/out")"
costs=$(jq -r '[.candidates[] | select(.rank > 0) | "\(.provider) \(.cost_ns / 1000 | round) us"] | join(", ")' \
    "$scratch/out")
goes_over tcp .path.provider copy "$scratch/file" "$address" --as copied --probe
cmp "$scratch/file" "$scratch/copied" || fail 'the copy is another file'

kill -TERM "$server"
wait "$server" || fail "the other host ended with status $?"
server=

jq -nr --argjson slow "$slow" --argjson quick "$quick" --arg costs "$costs" \
    '"by constants: line, \($slow / 1e6 * 100 | round / 100) MB/s",
     "measured:     tcp, \($quick / 1e6 | round) MB/s (\($costs))"'
jq -en --argjson slow "$slow" --argjson quick "$quick" '$slow < 2e6 and $quick > 10 * $slow' >/dev/null ||
    fail 'what was measured is not the faster path'
