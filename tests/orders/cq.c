/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The hand-over of a cq between the application's calls and the service thread (cq_owner.c). The
 * owner alone may touch what belongs to the cq: here it counts in `owned`, without atomics. */
#include "api/loop/service.h"
#include "api/progress/cq_owner.h"
#include "tests/orders/model.h"

#include <stdlib.h>
#include <string.h>

static struct rdmux_cq cq;
static struct rdmux_cq_gate gate;
static struct rdmux_fast_path fast;
static unsigned owned;
static unsigned times[MODEL_THREADS]; /* of each thread */

/* What cq_owner.c calls. */
void rdmux_membarrier(void)
{
    model_membarrier();
}

void rdmux_service_wake(struct rdmux_fabric *fabric)
{
    (void)fabric;
}

void rdmux_service_rearm(struct rdmux_fabric *fabric, int fd, struct rdmux_watch *watch)
{
    (void)fabric;
    (void)fd;
    (void)watch;
}

enum rdmux_status rdmux_fail(enum rdmux_status status, const char *format, ...)
{
    (void)format;
    return status;
}

static void close_gate(struct rdmux_cq *closed)
{
    (void)closed;
    owned++; /* the fast path belongs to the owner, too */
    owned--;
}

static void prepare(uint32_t fence)
{
    memset(&cq, 0, sizeof(cq));
    memset(times, 0, sizeof(times));
    gate.signal = RDMUX_SIGNAL_ALIVE;
    gate.inside = RDMUX_GATE_AWAY;
    cq.gate = &gate;
    cq.close_gate = close_gate;
    cq.fast_poll.fast = &fast;
    cq.fence = fence;
    owned = 0;
    model_name(&gate.signal, "signal");
    model_name(&gate.inside, "inside");
    model_name(&cq.claim.lock, "claim.lock");
    model_name(&owned, "owned");
}

static void prepare_plain(void)
{
    prepare(0);
}

static void prepare_fenced(void)
{
    prepare(RDMUX_ENTER_FENCED);
}

static void prepare_serialized(void)
{
    prepare(RDMUX_ENTER_SERIALIZED | RDMUX_ENTER_FENCED);
}

static void prepare_checked(void)
{
    prepare(RDMUX_ENTER_CHECKED | RDMUX_ENTER_FENCED);
}

static void call(unsigned thread, unsigned count)
{
    while (count-- > 0) {
        if (rdmux_cq_enter(&cq)) {
            owned++;
            times[thread]++;
            rdmux_cq_leave(&cq);
        }
    }
}

static void two_calls(void)
{
    call(0, 2);
}

static void one_call(void)
{
    call(0, 1);
}

static void call_of_another_thread(void)
{
    call(1, 1);
}

static void serve(unsigned count)
{
    while (count-- > 0) {
        if (rdmux_cq_claim(&cq)) {
            owned++;
            times[2]++;
            rdmux_cq_release_claim(&cq);
        }
    }
}

static void two_slices(void)
{
    serve(2);
}

static void one_slice(void)
{
    serve(1);
}

static void all_calls_were_inside(void)
{
    model_check(owned == times[0] + times[1] + times[2], "a count is lost");
    model_check(times[0] + times[1] >= 1, "no call was inside");
    model_check(gate.inside == RDMUX_GATE_AWAY, "a call is still inside");
    model_check((gate.signal & RDMUX_SIGNAL_CLAIM) == 0, "a claim is left");
}

int main(void)
{
    static const struct model_program programs[] = {
        { "a cq has one owner, by membarrier",
          prepare_plain,
          { two_calls, two_slices },
          all_calls_were_inside },
        { "a cq has one owner, by fences",
          prepare_fenced,
          { two_calls, two_slices },
          all_calls_were_inside },
        { "a serialized cq has one owner",
          prepare_serialized,
          { one_call, call_of_another_thread, one_slice },
          all_calls_were_inside },
        { "a checked cq has one owner",
          prepare_checked,
          { one_call, call_of_another_thread, one_slice },
          all_calls_were_inside },
    };
    bool holds = true;
    for (unsigned i = 0; holds && i < sizeof(programs) / sizeof(programs[0]); i++) {
        holds = model_explore(&programs[i]);
    }
    return holds ? EXIT_SUCCESS : EXIT_FAILURE;
}
