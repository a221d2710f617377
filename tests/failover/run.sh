#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Faults under load, over simulated adapters and tcp. With failover every message must arrive once,
# whatever breaks. Without it both endpoints end, by the rules of docs/SEMANTICS.md, 7 and 8. Then
# the same with a library that lacks one part of failover, cut from a copy of its source; the
# campaign must notice it. Seeds are printed; FAILOVER_SEED sets the first one.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$root/tests/mutation.sh"
unset SIM_VERBS RDMUX_LOG RDMUX_PATHS

plugin=$RDMUX_BUILD/lib/rdmux/rdmux-verbs.so
campaign=$RDMUX_BUILD/tests/failover/campaign
level=${RDMUX_TEST_LEVEL:-normal}
jobs=${RDMUX_JOBS:-2}
seed=${FAILOVER_SEED:-1}
[[ -x $campaign && -e $plugin ]] || {
    echo '1..0 # SKIP the plug-in rdmux-verbs.so was not built: libibverbs-dev, librdmacm-dev'
    exit 77
}
mutation_scratch failover

readonly limit=600 # seconds of a run over a mutant; only one that hangs takes longer
runs=1 plain_runs=1
[[ $level != thorough ]] || runs=8 plain_runs=2
status=0

# Each fault of each path: two per run, a third one in every second scenario. Some faults pass, and
# failback returns to the path.
"$campaign" --plugin "$plugin" --runs "$runs" --jobs "$jobs" --seed "$seed" || status=1
"$campaign" --plugin "$plugin" --runs "$plain_runs" --jobs "$jobs" --seed "$seed" --plain || status=1

# ---------------------------------------------------------------------------- parts of it cut out

# cut_out FILE WHAT WITH: makes a library without WHAT, in $scratch/cut/lib. WHAT is a perl regular
# expression, WITH plain text.
cut_out() {
    rm -rf "$scratch/cut"
    mutation_build rdmux "$scratch/cut" "$scratch/cut/lib/librdmux.so.0" "$@"
}

# campaign_without ARGUMENT...: runs the campaign over the library of cut_out.
campaign_without() {
    mutation_run "$limit" env "LD_LIBRARY_PATH=$scratch/cut/lib" "$campaign" --plugin "$plugin" "$@"
}

# is_caught LINE CASE FILE WHAT WITH: with this cut one of four runs of the campaign must fail and print a line that
# matches LINE. The first that does is the last.
is_caught() {
    local status run
    cut_out "${@:3}" || return
    for run in 1 2 3 4; do
        status=0
        campaign_without --seed "$run" --jobs "$jobs" --case "$2" >"$scratch/log" 2>&1 || status=$?
        ! mutation_judge "$status" "$limit" "$scratch/log" "$1" "the campaign, $2, run $run" || return 0
    done
    return 1
}

# The edit changes a blank, so this also checks that an edited copy is compiled as the tree is.
whole_passes() {
    cut_out api/failover/failover.c 'static void cut_path\(' 'static void  cut_path(' || return
    campaign_without --case 'packets come late'
}

if missing=$(mutation_can_build); then
    tap 'nothing cut out, late packets change nothing' whole_passes
    tap 'without the cut, late bytes overwrite newer ones' is_caught '^# faults injected .*memory mismatches [1-9]' 'packets come late' \
        api/failover/failover.c 'if \(path->ops->ep_quiesce\(path, &counts\) == RDMUX_IN_PROGRESS\) \{\s+return;\s+\}(?s:.*?)rdmux_ep_close_path\(ep, path\);' \
        '(void)counts; ep->retention.dying = NULL; rdmux_replay_cut(ep); rdmux_read_drain_cut(ep); rdmux_remotes_cut(ep, rdmux_replay_remote_cut);'
    tap 'without the counts, messages come twice' is_caught '^# faults injected .*doubled [1-9]' 'roce: queue' api/failover/replay.c \
        'replay->acked = count;\s+mark_counted_messages\(ep, replay->given\);\s+if \(replay->marked_number != count\) \{\s+return false;\s+\}' ''
    tap "with the device's completions for the library's, messages are lost" is_caught '^# faults injected .*lost [1-9]' 'the device is removed' api/failover/replay.c \
        'reads \? request->done && request->status == RDMUX_OK\s+: at < \(is_message\(request\) \? replay->marked : replay->placed\)' \
        'request->done && request->status == RDMUX_OK'
    tap 'with atomics repeated, sums are wrong' is_caught '^# faults injected .*memory mismatches [1-9]' 'roce: queue' api/failover/replay.c \
        'is_atomic\(request\) \|\| ' ''
    tap 'without the wait, failback leaves outcomes unknown' is_caught '^# .* runs have failed; .*are in doubt by going back' \
        'the path is gone back to' api/failover/failback.c 'if \(is_atomic \? !request->done : [^{]*\{' 'if (is_atomic && false) {'
else
    tap_skip 'parts of failover cut out are noticed' "$missing"
fi

# ------------------------------------------------------------------------------------ a real kernel

# percentiles: of lines "FROM TO NOTICED MOVED", in ms (MOVED counts from NOTICED), for each pair of
# paths.
percentiles() {
    local pair times
    while read -r pair; do
        times=$(grep -F "$pair " "$scratch/moves")
        printf '#   %s: %d moves; noticed after p50 %s ms, p99 %s ms; moved after another p50 %s ms, p99 %s ms\n' "$pair" \
            "$(wc -l <<<"$times")" "$(rank 4 50 <<<"$times")" "$(rank 4 99 <<<"$times")" \
            "$(rank 5 50 <<<"$times")" "$(rank 5 99 <<<"$times")"
    done < <(cut -d' ' -f1-3 "$scratch/moves" | sort -u)
}

# rank FIELD PERCENT
rank() {
    cut -d' ' -f"$1" | sort -n | awk -v percent="$2" '{ all[NR] = $1 } END { print all[1 + int((NR - 1) * percent / 100)] }'
}

# guests PROVIDER FAULTS: two guests break the connection between them; at the end nothing may be
# missing. Each epoch ends by a fault, or by silence: a guest that does not run for half the liveness
# time is silent, and its peer moves before the fault comes. The peer names the silence; the silent
# guest may see its path closed before it reads why.
guests() {
    "$root/tests/soft_rdma/two_guests" --linux "$linux" --seconds 900 --with "$RDMUX_BUILD/lib" \
        --with "$RDMUX_BUILD/tests/failover" --env "RDMUX_BUILD=$RDMUX_BUILD" "$here/guest.sh" "$here/guest.sh" \
        "$1" "$2" "$seed" >"$scratch/guests.$1" 2>&1 || {
        cat "$scratch/guests.$1"
        return 1
    }
    local epoch silence='does not answer|has not answered|was silent|timed out'
    for ((epoch = 1; epoch <= $2; epoch++)); do
        grep -qE "^[ab]: epoch $epoch: (a fault$|.*($silence))" "$scratch/guests.$1" || {
            cat "$scratch/guests.$1"
            echo "epoch $epoch has ended without a fault, and neither guest was silent"
            return 1
        }
    done
}

# Of the provider's path each guest cuts the wire once, and takes away the address once; by turns with
# them each shuts tcp's data socket twice.
kernel_faults=8
[[ $level != thorough ]] || kernel_faults=100
kernel_status=0
linux=$("$root/tests/soft_rdma/kernel" 2>"$scratch/kernel") || kernel_status=$?
for provider in roce iwarp tcp; do
    faults=$kernel_faults name="over $provider and tcp of a real kernel, $kernel_faults faults lose nothing"
    if [[ $provider == tcp ]]; then
        faults=$((kernel_faults / 2))
        name="over tcp of a real kernel and another address, $faults faults of the wire lose nothing"
    fi
    if ((kernel_status != 0)); then
        tap_skip "$name" "$(sed -n 's/^soft-RDMA kernel: //p' "$scratch/kernel" | tail -n 1)"
        continue
    fi
    tap "$name" guests "$provider" "$faults"
    sed -nE 's/^[ab]: (faults .*)/#   \1/p' "$scratch/guests.$provider"
    sed -nE 's/^[ab]: moved (.*)/\1/p' "$scratch/guests.$provider" >"$scratch/moves"
    percentiles
done
tap_end || status=1
((status == 0))
