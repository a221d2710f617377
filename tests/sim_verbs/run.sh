#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
unset SIM_VERBS
export CMOCKA_MESSAGE_OUTPUT=TAP

usage() {
    cat <<'END_OF_USAGE'
usage: tests/sim_verbs/run.sh [--parts] [PART...]

The simulated RDMA device's own tests, and the library's providers over it; prints TAP, with a plan for each
program. All parts, one after the other, if none is named; --parts names them. Where the headers of rdma-core
are missing they are not built, and that is a skip.

  device          the device's own tests
  suite:OPTIONS   the conformance suite, shortened, over an adapter of these options; RDMUX_PATIENCE is
                  its --patience
  threads:OPTIONS the cases of it in which threads meet, for the thread sanitizer
  rules           the cases of single rules, over adapters that make them hard to keep
  trial           the report of rdmux info about an adapter that lacks what it claims
  ends            the end that a wrong local key causes on each device, and other ends
  model           random requests against a model
  faults          the same with a fault in the middle
END_OF_USAGE
}

# Adapters. Each pair of two of these three, a link, a kind of adapter (soft or hca) and a size of its limits, is
# in one of them, but for what tests a provider twice: InfiniBand is of the kind hca, with large limits, as no soft
# adapter has that link, and its provider differs from RoCE's in addresses only; so RoCE is soft here, with the
# smallest limits. Elsewhere are ibv_wr_*() with a soft adapter; adapters that require rights on a read's sink; the
# smallest limits over iWARP with a piece for the header, and as much for the longest message; and adapters that do
# not keep all their claims, where the device self-test finds that and the library emulates. With
# RDMUX_TEST_LEVEL=thorough also each alone, and the other pairs.
suites=(
    'ib,like=hca' 'iwarp,wr_api=yes'
    'iwarp,like=hca,limits=smallest,max_sge=2,max_msg=16m'
    'roce,limits=smallest,atomics=glob,swapped=yes,inline_right=no,nothing_needs_key=yes'
)
[[ ${RDMUX_TEST_LEVEL:-normal} != thorough ]] ||
    suites+=(ib roce iwarp 'roce,like=hca' 'iwarp,like=hca' 'ib,limits=smallest' 'ib,like=hca,limits=smallest'
        'roce,limits=smallest'
        'iwarp,limits=smallest,max_sge=2,max_msg=16m'
        'roce,atomics=glob,swapped=yes,inline_right=no,nothing_needs_key=yes')

parts=()
while (($# > 0)); do
    case $1 in
    --parts)
        printf '%s\n' device "${suites[@]/#/suite:}" rules trial ends model faults
        exit 0
        ;;
    --help | -h)
        usage
        exit 0
        ;;
    device | suite:* | threads:* | rules | trial | ends | model | faults) parts+=("$1") ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
    shift
done
((${#parts[@]} > 0)) || parts=(device "${suites[@]/#/suite:}" rules trial ends model faults)

if ! grep -qs '^RDMUX_VERBS_INCLUDE:PATH=.*/' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP the headers of libibverbs and librdmacm are not installed'
    exit 77
fi
if ! grep -qs '^CMOCKA_FOUND:INTERNAL=1' "$RDMUX_BUILD/CMakeCache.txt"; then
    echo '1..0 # SKIP cmocka is not installed'
    exit 77
fi
if [[ ! -e $RDMUX_BUILD/lib/rdmux/rdmux-verbs.so && ${parts[*]} != device ]]; then
    echo '1..0 # SKIP the plug-in rdmux-verbs.so was not built'
    exit 77
fi
status=0
# A sanitizer's library must be the first preloaded one.
preload=$(ldd "$RDMUX_BUILD/bin/rdmux" | sed -nE 's|.*=> (/[^ ]*/lib[a-z]san\.so[^ ]*) .*|\1|p' | paste -sd ' ')
preload="$preload $RDMUX_BUILD/lib/libsimverbs.so"

# over OPTIONS COMMAND...: over a simulated adapter.
over() {
    LD_PRELOAD=$preload SIM_VERBS=link=$1 "${@:2}"
}

# conformance OPTIONS [ARGUMENT...]: the suite over the provider that calls libibverbs.
conformance() {
    over "$1" "$RDMUX_BUILD/bin/rdmux" conformance --format tap --quick --patience "${RDMUX_PATIENCE:-4}" --seed 1 \
        --provider "${1%%,*}" "${@:2}" || status=1
}

run_threads() {
    bash "$here/../conformance_command/threads.sh" "LD_PRELOAD=$preload" "SIM_VERBS=link=$1" --quick \
        --patience "${RDMUX_PATIENCE:-4}" --seed 1 --provider "${1%%,*}" || status=1
}

# reports NUMBER NAME OPTIONS PATTERN: rdmux info reports the pattern for the adapter's path.
reports() {
    local line
    line=$(over "$3" "$RDMUX_BUILD/bin/rdmux" info --json |
        grep -oE '\{"provider":"(ib|roce)","device":"sim[^}]*') || line='no path'
    if [[ $line =~ $4 ]]; then
        echo "ok $1 - $2"
    else
        printf 'not ok %s - %s\n# %s\n' "$1" "$2" "$line"
        status=1
    fi
}

run_device() {
    local source
    for source in "$here"/test_*.c; do
        "$RDMUX_BUILD/tests/sim_verbs/$(basename "$source" .c)" || status=1
    done
}

run_rules() {
    # Lists of one piece.
    conformance roce,max_sge=1 --case 1.13
    conformance iwarp,max_sge=2 --case 1.13
    # Adapters whose refusals are lost: the peer's library knows the cause.
    conformance ib,mute_refusals=yes --case 'cross with'
    conformance roce,mute_refusals=yes --case 'cross with'
    # An adapter that continues to answer reads whose region has been revoked.
    conformance iwarp,latency=20us,late_read=100,late_read_time=1s,late_key=yes --rules 6.8
}

# The result of an adapter's self-test is reported.
run_trial() {
    local native='"native":.*"fetch_add","compare_swap".*"emulated":\[\]'
    local emulated='"emulated":\["fetch_add","compare_swap"\]'
    local usable='"reason":"USABLE".*'
    echo '1..5'
    reports 1 'good atomics are native' roce,atomics=glob "$native"
    reports 2 'atomics with results in the other byte order are emulated' roce,atomics=glob,swapped=yes \
        "without its atomics: their results come in the other byte order\".*$emulated"
    reports 3 'inline sends that lose bytes are named' ib,inline_right=no \
        "${usable}without its inline sends: other bytes arrive than were sent"
    reports 4 'a path without immediate numbers is not usable' ib,immediate=wrong \
        '"CAPABILITY_MISSING","text":"[^"]* no writes with immediate data that work'
    reports 5 'an adapter that does not hear itself is believed' roce,atomics=glob,loopback=no \
        "$usable$native"
}

run_ends() {
    local link provider
    local -a ends
    # Error of a wrong local key on each device: soft RoCE reports no cause.
    for link in ib=PEER_GONE roce=PEER_GONE roce,like=hca=IO iwarp=IO:DENIED iwarp,like=hca=IO:IO; do
        read -r -a ends <<<"$(sed 's/[^:]*/RDMUX_&/g; s/:/ /' <<<"${link##*=}")"
        over "${link%=*}" "$RDMUX_BUILD/tests/tools/dead_key" "${link%%[,=]*}" 127.0.0.1 "${ends[@]}" || status=1
    done
    # One endpoint keeps the cq busy while no completion reports another's requests.
    for provider in ib roce iwarp; do
        over "$provider,time=virtual" "$RDMUX_BUILD/tests/tools/busy_neighbour" "$provider" 127.0.0.1 || status=1
    done
    over iwarp,swallow=60s "$RDMUX_BUILD/tests/tools/stalled_connect" iwarp 127.0.0.1 || status=1
}

# The numbers apply to each of the three links; seeds begin at 1. With fewer runs than
# ENOUGH_FOR_ALL, random_faults.c leaves out the case that each fault has been met.
operations=300000 runs=500
if [[ ${RDMUX_TEST_LEVEL:-normal} == thorough ]]; then
    operations=5000000 runs=4000
fi

run_model() {
    "$RDMUX_BUILD/tests/sim_verbs/random_model" --plugin "$RDMUX_BUILD/lib/rdmux/rdmux-verbs.so" \
        --operations "$operations" --jobs "${RDMUX_JOBS:-2}" || status=1
}

run_faults() {
    "$RDMUX_BUILD/tests/sim_verbs/random_faults" "$RDMUX_BUILD/lib/rdmux/rdmux-verbs.so" "$runs" \
        "${RDMUX_JOBS:-2}" || status=1
}

for part in "${parts[@]}"; do
    case $part in
    device) run_device ;;
    suite:*) conformance "${part#suite:}" ;;
    threads:*) run_threads "${part#threads:}" ;;
    rules) run_rules ;;
    trial) run_trial ;;
    ends) run_ends ;;
    model) run_model ;;
    faults) run_faults ;;
    esac
done
exit "$status"
