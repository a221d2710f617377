/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Waiting for completions. Completions polled while waiting for another one are kept and must be
 * taken later. */
#include "harness.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    POLL_AT_ONCE = 16,
    POLLS_PER_STEP = 1000,
    /* The machine may have fewer cores than the case has processes: polls at first follow each
     * other closely, and then leave the core to the process that has to do something. */
    CLOSE_POLLS = 256,
    POLLS_PER_YIELD = 64,
    POLLS_PER_NAP = 16,
    NAP_NS = 50000,
    WAIT_STEP_MS = 200,
};

void queue_open(struct queue *queue, const struct side *side, struct rdmux_cq *cq)
{
    *queue = (struct queue){
        .cq = cq,
        .progress = side->manual ? side->fabric : NULL,
        .sleeps = side->sleeps && !side->manual,
    };
}

void queue_close(struct queue *queue)
{
    free(queue->kept);
    *queue = (struct queue){ .cq = NULL };
}

static void queue_keep(struct queue *queue, const struct rdmux_wc *wc, size_t count)
{
    if (queue->kept_count + count > queue->kept_room) {
        queue->kept_room = 2 * (queue->kept_count + count);
        queue->kept = realloc(queue->kept, queue->kept_room * sizeof(*queue->kept));
        EXPECT(queue->kept != NULL, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        queue->kept[queue->kept_count++] = wc[i];
    }
}

static void queue_check(const struct rdmux_wc *wc, size_t count, size_t max)
{
    EXPECT(count <= max, "a poll for %zu entries returned %zu", max, count);
    for (size_t i = 0; i < count; i++) {
        const bool has_none = wc[i].opcode == RDMUX_WC_WOKEN || wc[i].opcode >= RDMUX_WC_SRQ_LIMIT;
        EXPECT((wc[i].ep == NULL) == has_none, "an entry with%s ep: %s", has_none ? "" : "out",
               wc_text(&wc[i]));
        EXPECT(wc[i].status == RDMUX_OK || wc[i].length == 0,
               "a failed completion has a length: %s", wc_text(&wc[i]));
    }
}

size_t queue_poll(struct queue *queue)
{
    struct rdmux_wc wc[POLL_AT_ONCE];
    size_t count = rdmux_cq_poll(queue->cq, wc, COUNT_OF(wc));
    queue_check(wc, count, COUNT_OF(wc));
    queue_keep(queue, wc, count);
    return queue->kept_count;
}

/* Polls alone have to find the entries here, so the queue is not armed: there is no event to wait
 * for. A nap leaves the core to the other side. */
static void leave_the_core(unsigned polls)
{
    static const struct timespec nap = { .tv_nsec = NAP_NS };
    if (polls > CLOSE_POLLS && polls % POLLS_PER_NAP == 0) {
        (void)nanosleep(&nap, NULL);
    } else if (polls % POLLS_PER_YIELD == 0) {
        (void)sched_yield();
    }
}

/* Waits until a completion has come. */
static void queue_wait(struct queue *queue)
{
    size_t before = queue->kept_count;
    if (queue->sleeps) {
        struct rdmux_wc wc[POLL_AT_ONCE];
        size_t count = 0;
        enum rdmux_status status = rdmux_cq_wait(queue->cq, wc, COUNT_OF(wc), WAIT_STEP_MS, &count);
        if (status == RDMUX_TIMED_OUT) {
            EXPECT(count == 0, "rdmux_cq_wait timed out and counts %zu entries", count);
            return;
        }
        EXPECT_STATUS(status, RDMUX_OK);
        EXPECT(count > 0, "rdmux_cq_wait returned RDMUX_OK without an entry");
        queue_check(wc, count, COUNT_OF(wc));
        queue_keep(queue, wc, count);
        return;
    }
    for (unsigned polls = 1; polls < POLLS_PER_STEP; polls++) {
        if (queue_poll(queue) > before) {
            return;
        }
        if (queue->progress != NULL && polls % 8 == 0) {
            EXPECT_OK(rdmux_fabric_progress(queue->progress));
        }
        leave_the_core(polls);
    }
}

static struct rdmux_wc queue_remove(struct queue *queue, size_t index)
{
    struct rdmux_wc wc = queue->kept[index];
    memmove(queue->kept + index, queue->kept + index + 1,
            (queue->kept_count - index - 1) * sizeof(*queue->kept));
    queue->kept_count--;
    return wc;
}

struct rdmux_wc queue_next_at(const char *file, int line, struct queue *queue, const char *what)
{
    stand_at(file, line, "NEXT: any completion");
    while (queue->kept_count == 0) {
        queue_wait(queue);
        stand_at(file, line, "NEXT: any completion");
        if (time_is_up()) {
            fail_at(file, line, "%s", what);
        }
    }
    return queue_remove(queue, 0);
}

static const char *ended_text(const struct rdmux_wc *wc)
{
    static struct rdmux_ep_info info;
    info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    if (rdmux_ep_info(wc->ep, &info) != RDMUX_OK) {
        return "no info";
    }
    info.text[sizeof(info.text) - 1] = '\0';
    return info.text;
}

struct rdmux_wc queue_wait_at(const char *file, int line, struct queue *queue, struct rdmux_ep *ep,
                              uint32_t opcode, const void *context, enum rdmux_status expected)
{
    static _Thread_local char wanted[128];
    struct rdmux_wc want = { .opcode = opcode, .status = expected, .ep = ep };
    (void)snprintf(wanted, sizeof(wanted), "wait for %s with context %" PRIu64,
                   rdmux_wc_opcode_name(want.opcode), CTX_NUMBER(context));
    size_t seen = 0;
    for (;;) {
        for (; seen < queue->kept_count; seen++) {
            const struct rdmux_wc *wc = &queue->kept[seen];
            if (ep != NULL && wc->ep != ep) {
                continue;
            }
            if (wc->opcode == opcode && wc->context == context) {
                if (wc->status != expected) {
                    fail_at(file, line, "got %s, expected status %s", wc_text(wc),
                            rdmux_status_name(expected));
                }
                return queue_remove(queue, seen);
            }
            if (wc->opcode == RDMUX_WC_DISCONNECTED) {
                fail_at(file, line, "%s: the endpoint ended, %s: %s", wanted,
                        rdmux_status_name((enum rdmux_status)wc->status), ended_text(wc));
            }
        }
        queue_wait(queue);
        stand_at(file, line, "WAIT for a completion");
        if (time_is_up()) {
            fail_at(file, line, "%s: it never came; %zu others did%s%s", wanted, queue->kept_count,
                    queue->kept_count == 0 ? "" : ", the first: ",
                    queue->kept_count == 0 ? "" : wc_text(&queue->kept[0]));
        }
    }
}

void expect_quiet_at(const char *file, int line, struct queue *queue)
{
    stand_at(file, line, "EXPECT_QUIET");
    if (queue_poll(queue) != 0) {
        fail_at(file, line, "%zu completions too many, the first: %s", queue->kept_count,
                wc_text(&queue->kept[0]));
    }
}

const char *wc_text(const struct rdmux_wc *wc)
{
    static _Thread_local char texts[4][160];
    static _Thread_local unsigned turn;
    char *text = texts[turn++ % COUNT_OF(texts)];
    (void)snprintf(
        text, sizeof(texts[0]), "%s %s context %" PRIu64 " length %" PRIu64 " flags %u imm 0x%x",
        rdmux_wc_opcode_name(wc->opcode), rdmux_status_name((enum rdmux_status)wc->status),
        CTX_NUMBER(wc->context), wc->length, wc->flags, wc->imm);
    return text;
}
