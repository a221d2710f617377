#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# A long load with faults over each provider, one after the other; prints TAP. run.sh [--seconds N]
# [--seed N] [PROVIDER...]: N seconds in all; default 30, half an hour with --thorough. Also plants
# flaws, which must be found.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RDMUX_BUILD=${RDMUX_BUILD:-$here/../../build/dev}
seed=1 # the same run each time; --thorough looks for others
case ${RDMUX_TEST_LEVEL:-normal} in
quick) seconds=10 ;;
normal) seconds=30 ;;
*) seconds=1800 seed=$RANDOM ;;
esac
while (($# > 0)); do
    case $1 in
    --seconds | --seed)
        (($# > 1)) || {
            echo "$1 takes a number" >&2
            exit 2
        }
        [[ $1 == --seed ]] && seed=$2 || seconds=$2
        shift
        ;;
    -*)
        echo 'usage: tests/soak/run.sh [--seconds N] [--seed N] [PROVIDER...]' >&2
        exit 2
        ;;
    *) break ;;
    esac
    shift
done
providers=("$@")
((${#providers[@]} > 0)) || providers=(tcp shm ib roce iwarp)
soak=$RDMUX_BUILD/tests/soak/soak
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset SIM_VERBS RDMUX_PATHS RDMUX_LOG
number=0
status=0

# run_soak PROVIDER ARGUMENT...: over a simulated adapter where the provider needs one.
run_soak() {
    case $1 in
    tcp | shm) "$soak" "$@" ;;
    *)
        LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so SIM_VERBS="link=$1,net=soak$$" "$soak" "$@"
        ;;
    esac
}

# print_case PASSED NAME: prints the program's output if it failed.
print_case() {
    number=$((number + 1))
    if [[ $1 == yes ]]; then
        echo "ok $number - $2"
    else
        status=1
        echo "not ok $number - $2"
        sed -n 's/^#* */# /p' "$scratch/out"
    fi
}

each=$((seconds / ${#providers[@]}))
((each > 0)) || each=1
for provider in "${providers[@]}"; do
    if [[ $provider != tcp && $provider != shm && ! -e $RDMUX_BUILD/lib/libsimverbs.so ]]; then
        number=$((number + 1))
        echo "ok $number - $provider # SKIP the headers of libibverbs and librdmacm are not installed"
        continue
    fi
    good=no
    if run_soak "$provider" "$each" "$seed" >"$scratch/out" 2>&1; then
        good=yes
    fi
    print_case "$good" "$provider: each operation was done once, and no resource grew, for $each s, seed $seed"
    grep '^# figures: ' "$scratch/out" || true
done

# The soak's report of a planted flaw.
declare -A finds=(
    [memory]='the number of .* blocks grew by'
    [table]='blocks, in bytes, grew by'
    [mapping]='resident memory grew by'
    [descriptor]='descriptors have become'
    [thread]='threads have become'
    [byte]='came with other bytes'
    [entry]='an entry .* of no request'
)
for flaw in memory table mapping descriptor thread byte entry; do
    good=yes
    if run_soak tcp 3 1 "$flaw" >"$scratch/out" 2>&1 || ! grep -q "${finds[$flaw]}" "$scratch/out"; then
        good=no
    fi
    print_case "$good" "a planted flaw is found: $flaw"
done
echo "1..$number"
exit "$status"
