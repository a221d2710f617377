#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# The simulated RDMA device's own tests, all programs one after the other, each with its own plan. Where the
# headers of rdma-core are missing they are not built, and that is a skip.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset SIM_VERBS
export CMOCKA_MESSAGE_OUTPUT=TAP

if ! grep -qs '^RDMUX_VERBS_INCLUDE:PATH=.*/' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP the headers of libibverbs and librdmacm are not installed'
    exit 77
fi
if ! grep -qs '^CMOCKA_FOUND:INTERNAL=1' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP cmocka is not installed'
    exit 77
fi
status=0
for source in "$here"/test_*.c; do
    "$RDMUX_BUILD/tests/sim_verbs/$(basename "$source" .c)" || status=1
done

# The conformance suite over the providers that call libibverbs: what they get are simulated adapters.
# conformance PROVIDER OPTIONS [ARGUMENT...]
conformance() {
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=link=$1$2 \
        "$RDMUX_BUILD/bin/rdmux" conformance --format tap --quick --patience 2 --provider "$1" \
        "${@:3}" || status=1
}

# tells NUMBER NAME OPTIONS PATTERN: does rdmux info say this of the adapter's path?
tells() {
    local line
    line=$(LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=$3 "$RDMUX_BUILD/bin/rdmux" info \
        --json | grep -oE '\{"provider":"(ib|roce)","device":"sim[^}]*') || line='no path'
    if [[ $line =~ $4 ]]; then
        echo "ok $1 - $2"
    else
        printf 'not ok %s - %s\n# %s\n' "$1" "$2" "$line"
        status=1
    fi
}

# What the trial of an adapter found is told.
told() {
    local native='"native":.*"fetch_add","compare_swap".*"emulated":\[\]'
    local emulated='"emulated":\["fetch_add","compare_swap"\]'
    local usable='"reason":"USABLE".*'
    echo '1..5'
    tells 1 'good atomics are native' link=roce,atomics=glob "$native"
    tells 2 'atomics with results in the other byte order are emulated' \
        link=roce,atomics=glob,swapped=yes \
        "without its atomics: their results come in the other byte order\".*$emulated"
    tells 3 'inline sends that lose bytes are named' link=ib,inline_right=no \
        "${usable}without its inline sends: other bytes arrive than were sent"
    tells 4 'a path without immediate numbers is not usable' link=ib,immediate=wrong \
        '"CAPABILITY_MISSING","text":"[^"]* no writes with immediate data that work'
    tells 5 'an adapter that does not hear itself is believed' link=roce,atomics=glob,loopback=no \
        "$usable$native"
}

if [[ -e $RDMUX_BUILD/lib/rdmux/rdmux-verbs.so ]]; then
    for provider in ib roce iwarp; do
        conformance "$provider" ''
    done
    # Adapters that take requests by ibv_wr_*(), or insist on rights to what a read brings, or take lists
    # of one piece.
    conformance ib ,like=hca
    conformance roce ,like=hca
    conformance iwarp ,wr_api=yes
    conformance iwarp ,like=hca
    conformance roce ,max_sge=1 --case 1.13
    conformance iwarp ,max_sge=2 --case 1.13
    # Adapters as small as they may be; over iWARP with a piece for the header, and as much for the
    # longest message.
    conformance ib ,limits=smallest
    conformance roce ,limits=smallest
    conformance iwarp ,limits=smallest,max_sge=2,max_msg=16m
    # Adapters that do not do all that they say: the trial finds out, and the library does it instead.
    conformance roce ,atomics=glob,swapped=yes,inline_right=no,nothing_needs_key=yes
    # Adapters whose refusals are lost: the peer's library knows.
    conformance ib ,mute_refusals=yes --case 'cross with'
    conformance roce ,mute_refusals=yes --case 'cross with'
    # An adapter that goes on answering reads whose region has been revoked.
    conformance iwarp ,latency=20us,late_read=100,late_read_time=1s,late_key=yes --rules 6.8
    told
    # What a wrong local key is to each device: soft RoCE does not say.
    for link in ib=PEER_GONE roce=PEER_GONE roce,like=hca=IO iwarp=IO:DENIED iwarp,like=hca=IO:IO; do
        read -r -a ends <<<"$(sed 's/[^:]*/RDMUX_&/g; s/:/ /' <<<"${link##*=}")"
        LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=link=${link%=*} \
            "$RDMUX_BUILD/tests/tools/dead_key" "${link%%[,=]*}" 127.0.0.1 "${ends[@]}" || status=1
    done
    # One endpoint keeps the cq busy while another's requests have nobody to tell of them.
    for provider in ib roce iwarp; do
        LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=link=$provider,time=virtual \
            "$RDMUX_BUILD/tests/tools/busy_neighbour" "$provider" 127.0.0.1 || status=1
    done
    LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS=link=iwarp,swallow=60s \
        "$RDMUX_BUILD/tests/tools/stalled_connect" iwarp 127.0.0.1 || status=1
fi

# Random requests against a model, then with a fault in the middle; the numbers count for each of the
# three.
if [[ -e $RDMUX_BUILD/lib/rdmux/rdmux-verbs.so ]]; then
    operations=1000000
    runs=500
    if [[ ${RDMUX_TEST_LEVEL:-normal} == thorough ]]; then
        operations=5000000
        runs=4000
    fi
    "$RDMUX_BUILD/tests/sim_verbs/random_model" --plugin "$RDMUX_BUILD/lib/rdmux/rdmux-verbs.so" \
        --operations "$operations" --jobs "${RDMUX_JOBS:-2}" || status=1
    "$RDMUX_BUILD/tests/sim_verbs/random_faults" "$RDMUX_BUILD/lib/rdmux/rdmux-verbs.so" "$runs" \
        "${RDMUX_JOBS:-2}" || status=1
fi
exit "$status"
