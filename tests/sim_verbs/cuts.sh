#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-2-Clause-Patent
# Removes one safeguard at a time from a copy of the RDMA plug-in and runs the random programs over
# it. Each cut must make them fail; otherwise no test would find the loss of the safeguard. A cut
# that no longer applies to the source also fails. The unchanged plug-in must pass the same runs.
set -euo pipefail
: "${RDMUX_BUILD:?the folder the tests were built in}"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RDMUX_SOURCE:-$(cd "$here/../.." && pwd)}
# shellcheck source=scripts/lib.sh
. "$root/scripts/lib.sh"
# shellcheck source=tests/mutation.sh
. "$root/tests/mutation.sh"

jobs=${RDMUX_JOBS:-$(nproc 2>/dev/null || echo 2)}
wanted=${1:-} # cuts whose name has this in it
readonly limit=600 # seconds of a run; only one that hangs takes longer
[[ -e $RDMUX_BUILD/lib/rdmux/rdmux-verbs.so ]] || {
    echo '1..0 # SKIP the plug-in rdmux-verbs.so was not built'
    exit 77
}
missing=$(mutation_can_build) || {
    echo "1..0 # SKIP $missing"
    exit 77
}
mutation_scratch cuts
unset SIM_VERBS

# --------------------------------------------------------------------------------------------- cuts

# model PLUGIN LINK [OPTION...]
model() {
    mutation_run "$limit" "$RDMUX_BUILD/tests/sim_verbs/random_model" --plugin "$1" --link "$2" \
        --brief --jobs "$jobs" "${@:3}"
}

# The first runs catch most cuts, all of these runs catch every cut.
# by_model PLUGIN LINK LOG: prints the verdict of these runs. They must not fail because no
# connection works.
by_model() {
    local status=0
    model "$1" "$2" --seeds 512 >"$3" 2>&1 || status=$?
    if grep -q 'were not connected' "$3"; then
        cat "$3"
        mutation_verdict astray 'no connection works'
    else
        mutation_judge "$status" "$limit" "$3" '^not ok 1 .* agree with the model' 'the model'
    fi
}

# Cuts that only show in real time, by the conformance suite.
# suite PLUGIN LINK RULES OPTIONS
suite() {
    mkdir -p "$scratch/lib/rdmux"
    cp "$RDMUX_BUILD"/lib/librdmux.so.* "$scratch/lib" # which looks for plug-ins beside itself first
    cp "$1" "$scratch/lib/rdmux/rdmux-verbs.so"
    mutation_run "$limit" env "LD_LIBRARY_PATH=$scratch/lib" \
        "LD_PRELOAD=$RDMUX_BUILD/lib/libsimverbs.so" "SIM_VERBS=link=$2,$4" \
        "$RDMUX_BUILD/bin/rdmux" conformance --provider "$2" --quick --patience 4 --seed 1 --rules "$3"
}

# Rules about messages that came before the end, on an adapter that reports them much later.
end_rules() {
    suite "$1" "$2" 7.3,9.2,9.11 receipt=15ms
}

# The rule about reads that a revoke crosses, on an adapter that continues to answer them. The last of the
# case's 16 reads is a second late, so that it is still to be answered when a slow machine has revoked.
read_rules() {
    suite "$1" "$2" 6.8 latency=20us,late_read=100,late_read_time=1s,late_read_behind=15,late_key=yes
}

# The rule about paused endpoints.
pause_rules() {
    suite "$1" "$2" 2.17 latency=20us
}

# by_suite CASES RULES PLUGIN LINK LOG: prints the verdict of the suite: one of those cases fails.
by_suite() {
    local status=0
    "$2" "$3" "$4" >"$5" 2>&1 || status=$?
    mutation_judge "$status" "$limit" "$5" "FAIL: .*($1)" 'the conformance suite'
}

by_end_rules() {
    by_suite 'received first|messages first|shutdown' end_rules "$@"
}

by_pause_rules() {
    by_suite 'paused endpoint' pause_rules "$@"
}

by_read_rules() {
    by_suite 'cross with a revoke' read_rules "$@"
}

# cut_one LINK FILE WHAT WITH
cut_one() {
    rm -rf "$scratch/cut"
    mutation_build rdmux_verbs "$scratch/cut" "$scratch/cut/rdmux-verbs.so" "${@:2}" &&
        "${JUDGE:-by_model}" "$scratch/cut/rdmux-verbs.so" "$1" "$scratch/log"
}

# cut NAME LINK FILE WHAT WITH: WHAT is a perl regular expression, WITH plain text. JUDGE: the
# function that prints the verdict, by default that of the model.
cut() {
    local before=$tap_failed
    [[ $1 == *"$wanted"* ]] || return 0
    tap "without $1 over $2 the tests fail" cut_one "${@:2}"
    [[ $tap_failed != "$before" ]] || sed -n 's/^# seed/#   seed/p' "$scratch/log"
}

whole=$scratch/whole/rdmux-verbs.so
whole_passes() {
    [[ -e $whole ]] || mutation_build rdmux_verbs "$scratch/whole" "$whole" || return 1
    model "$whole" "$1" --seeds 128
}

for link in ib roce iwarp; do
    tap "nothing cut, the model passes over $link" whole_passes "$link"
done
tap 'nothing cut, messages come before the end' end_rules "$whole" iwarp
tap 'nothing cut, no read returns bytes after a revoke' read_rules "$whole" iwarp
tap 'nothing cut, messages of a paused endpoint wait' pause_rules "$whole" iwarp

# Fences and order.
cut 'the fence of the device' roce verbs/verbs_send.c \
    'flags = is_fenced \? \(uint32_t\)IBV_SEND_FENCE : 0' 'flags = 0'
cut 'the fence where the device has none' roce verbs/verbs_send.c \
    ' is_fenced_by_device\(ep, request\)\) \{' ' 1) {'
cut 'the fence flag of ibv_wr_*()' ib verbs/verbs_chain.c \
    'work->send_flags & ~\(unsigned int\)IBV_SEND_INLINE;' \
    'work->send_flags & ~(unsigned int)(IBV_SEND_INLINE | IBV_SEND_FENCE);'
cut 'the fence in front of atomics of the side channel' ib verbs/verbs_send.c \
    '\(request->op <= RDMUX_OP_READ \|\| is_native_atomic\(request\)\)' '1'
cut 'the fence before atomics of the side channel' roce verbs/verbs_side.c \
    'flush_is_silent \|\| fence_is_under_way' 'flush_is_silent'
cut 'the flush in front of atomics of the side channel' ib verbs/verbs_side.c \
    'ep->is_unflushed \|\| flush_is_silent' 'flush_is_silent'
cut 'the wait of reads behind atomics of the side channel' roce verbs/verbs_send.c \
    'return ep->side.atomic_count != 0 &&' 'return 0 &&'

# PLACED.
cut 'the flush read behind a write' roce verbs/verbs_send.c \
    'bool is_placed = \(request->flags & RDMUX_PLACED\) != 0;' \
    'bool is_placed = request->internal && (request->flags & RDMUX_PLACED) != 0;'
cut 'the flush read behind a write' iwarp verbs/verbs_send.c \
    'bool is_placed = \(request->flags & RDMUX_PLACED\) != 0;' \
    'bool is_placed = request->internal && (request->flags & RDMUX_PLACED) != 0;'
cut 'the flush read behind a message' iwarp iwarp/iwarp_send.c \
    'return \(request->flags & RDMUX_PLACED\) != 0;' 'return false;'

# Room, depths, limits.
cut 'the peer'"'"'s read depth' roce verbs/verbs_queue.c \
    'smaller\(ep->ours.asks, ep->theirs.answers\)' 'ep->ours.asks'
cut 'the limit of inline bytes' ib verbs/verbs_send.c \
    'before \+ request->length <= queue->max_inline' 'before + request->length <= 300'
cut 'the copy of inline bytes that the device does not inline' roce verbs/verbs_send.c \
    '\} else if \(\(request->flags & RDMUX_INLINE\) != 0\) \{' '} else if (0) {'
cut 'the word where a request without bytes has them' ib verbs/verbs_chain.c \
    'else \{\s+ibv_wr_set_sge_list' 'else if (work->num_sge > 0) { ibv_wr_set_sge_list'
cut 'the limit of lists in reads' roce verbs/verbs_send.c \
    'left < ep->max_read_sge \? left : ep->max_read_sge' 'left'
# Notifications.
cut 'the signal for a queue that is silent' ib verbs/verbs_ring.h \
    '\(!verbs_send_ring_awaits\(ring\) \|\|\s+ring->head - ring->signaled >= ring->signal_every\)' '0'
cut 'the signaled request behind silent ones' roce verbs/verbs_completion.c \
    'cq->silent != NULL && verbs_silent_is_long\(cq\)' '0 && verbs_silent_is_long(cq)'
cut 'the signal of each read' iwarp verbs/verbs_chain.c \
    'work->send_flags \|= IBV_SEND_SIGNALED;\s+verbs_send_ring_signal\(ring, slot\);' ''
cut 'the order of reads among the rest' iwarp iwarp/iwarp_order.h \
    '\(!is_read && iwarp_order_is_behind\(order->write_end, slot\)\)' \
    'iwarp_order_is_behind(order->write_end, slot)'
cut 'the report that the queue has room again' roce verbs/verbs_send.c \
    'rdmux_verbs_resume\(ep\);\s+verbs_silent_watch\(ep\);' 'verbs_silent_watch(ep);'

# Receives.
cut 'the timer of a message without receive' roce verbs/verbs_queue.c \
    '\.min_rnr_timer = \(uint8_t\)rdmux_verbs_rnr_code\(liveness_ms\)' '.min_rnr_timer = 0'
cut 'the credit of a message' iwarp iwarp/iwarp_credit.h \
    'if \(iwarp_credit_left\(credit\) == 0\) \{\s+return false;\s+\}' ''
cut 'the message that reports credits' iwarp iwarp/iwarp_receive.c \
    'ep->credit.given.posted \+= count;\s+if \(iwarp_credit_is_due\(&ep->credit\)\) \{' \
    'ep->credit.given.posted += count; if (0) {'
cut 'the recall of credits of an SRQ' iwarp iwarp/iwarp_srq.c \
    'if \(rdmux_credits_window\(user->given\) == 0\) \{\s+return;\s+\}' 'return;'
cut 'the use of a recalled credit before its return' iwarp iwarp/iwarp_srq.c \
    'if \(!ep->credit.has_news \|\| user->is_paused\) \{' '{'

JUDGE=by_pause_rules cut 'the pause of an endpoint' iwarp iwarp/iwarp_srq.c \
    'rdmux_provider_is_paused\(&base->base\) != 0' 'false'

# The end.
JUDGE=by_end_rules cut 'the drain of completions at the end' iwarp verbs/verbs_endpoint.c \
    'if \(!is_drained\(ep\)\) \{\s+return RDMUX_IN_PROGRESS;\s+\}' '(void)is_drained;'

cut 'the receives held back' roce verbs/verbs_completion.c \
    'if \(VERBS_UNLIKELY\(ep->held != NULL\)\)' 'if (0)'

JUDGE=by_read_rules cut 'the wait of a revoke for reads under way' iwarp iwarp/iwarp_provider.c \
    'RDMUX_PROVIDER_READS_LINGER \|' ''

# Atomics.
cut 'the scope of the device'"'"'s atomics' ib verbs/verbs_memory.c \
    ': cap == IBV_ATOMIC_GLOB;' ': cap != IBV_ATOMIC_NONE;'
cut 'the library'"'"'s atomics beside the device'"'"'s' roce verbs/verbs_memory.c \
    '\(!has_native \|\| is_system\)' '!has_native'
tap_end
