/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Checks after a fault: section 7 of docs/SEMANTICS.md. */
#include "model.h"

#include <string.h>

static char name_of(const struct end *end)
{
    return (char)('A' + (char)end->side->index);
}

/* 7.2: the first request that fails has the cause or FLUSHED, later ones FLUSHED. 6.9: requests in
 * doubt have OUTCOME_UNKNOWN. */
static bool is_allowed(uint32_t status, bool is_first)
{
    switch ((enum rdmux_status)status) {
    case RDMUX_FLUSHED:
    case RDMUX_OUTCOME_UNKNOWN:
        return true;
    case RDMUX_PEER_GONE:
    case RDMUX_IO:
    case RDMUX_LENGTH:
    case RDMUX_DENIED:
    case RDMUX_PROTOCOL:
        return is_first;
    default:
        return false;
    }
}

void fault_completed(struct end *end, uint64_t sequence, const struct rdmux_wc *wc)
{
    struct scene *scene = end->side->scene;
    if (!is_allowed(wc->status, !end->has_failed)) {
        mismatch(scene, "%c%u: request %llu has failed with %s", name_of(end), end->pair,
                 (unsigned long long)sequence, rdmux_status_name((enum rdmux_status)wc->status));
    }
    if (wc->length != 0) {
        mismatch(scene, "%c%u: request %llu has failed and says %llu bytes (1.16)", name_of(end),
                 end->pair, (unsigned long long)sequence, (unsigned long long)wc->length);
    }
    /* 7.1: after a failed request, unsignaled ones raise completions as well. */
    if (end->has_failed && sequence != end->failed_last + 1) {
        mismatch(scene, "%c%u: request %llu is the next that has failed behind %llu", name_of(end),
                 end->pair, (unsigned long long)sequence, (unsigned long long)end->failed_last);
    }
    if (!end->has_failed) {
        end->failed_first = sequence;
        end->failed_status = wc->status;
    }
    end->is_in_doubt = end->is_in_doubt || wc->status == RDMUX_OUTCOME_UNKNOWN;
    end->has_failed = true;
    end->failed_last = sequence;
    /* 7.6: the buffer belongs to the program again. */
    const struct pieces *pieces = &end->requests[sequence % SLOTS].pieces;
    for (uint32_t i = 0; i < pieces->count; i++) {
        memset(pieces->list[i].addr, MARK_FREE, pieces->list[i].length);
    }
}

void fault_received(struct end *end, struct receive *receive, const struct rdmux_wc *wc)
{
    if (!is_allowed(wc->status, !end->has_failed_receives)) {
        mismatch(end->side->scene, "%c%u: a receive has failed with %s", name_of(end), end->pair,
                 rdmux_status_name((enum rdmux_status)wc->status));
    }
    if (!end->has_failed_receives) {
        end->receive_status = wc->status;
    }
    end->has_failed_receives = true;
    for (uint32_t i = 0; i < receive->pieces.count; i++) {
        memset(receive->pieces.list[i].addr, MARK_FREE, receive->pieces.list[i].length);
    }
}

/* 7.2: the cause is the status of DISCONNECTED. 6.9: if that is DENIED, it may be unknown which
 * request it was. */
static void check_causes(const struct end *end)
{
    const uint32_t first[] = { end->has_failed ? end->failed_status : (uint32_t)RDMUX_FLUSHED,
                               end->has_failed_receives ? end->receive_status
                                                        : (uint32_t)RDMUX_FLUSHED };
    for (size_t i = 0; i < sizeof(first) / sizeof(*first); i++) {
        bool is_unknown = first[i] == RDMUX_OUTCOME_UNKNOWN;
        if (first[i] != RDMUX_FLUSHED && first[i] != end->end_status && !is_unknown) {
            mismatch(
                end->side->scene, "%c%u has ended with %s, and its first %s has failed with %s",
                name_of(end), end->pair, rdmux_status_name((enum rdmux_status)end->end_status),
                i == 0 ? "request" : "receive", rdmux_status_name((enum rdmux_status)first[i]));
        }
    }
    if (end->is_in_doubt && end->end_status != RDMUX_DENIED) {
        mismatch(end->side->scene, "%c%u has ended with %s, and a request is in doubt",
                 name_of(end), end->pair, rdmux_status_name((enum rdmux_status)end->end_status));
    }
}

void fault_check_end(struct end *end)
{
    struct scene *scene = end->side->scene;
    check_causes(end);
    if (end->unanswered != 0 || (end->has_failed && end->failed_last + 1 != end->next)) {
        mismatch(scene,
                 "%c%u has ended and %u signaled requests have no entry; %llu of %llu have one",
                 name_of(end), end->pair, end->unanswered, (unsigned long long)end->answered,
                 (unsigned long long)end->next);
    }
    if (end->side->srq == NULL && end->receives.taken != end->receives.posted) {
        mismatch(scene, "%c%u has ended and %llu of %llu receives have an entry", name_of(end),
                 end->pair, (unsigned long long)end->receives.taken,
                 (unsigned long long)end->receives.posted);
    }
    /* The library never touches the buffers of failed requests again. */
    for (uint64_t i = end->covered; i < end->next; i++) {
        const struct pieces *pieces = &end->requests[i % SLOTS].pieces;
        for (uint32_t j = 0; end->has_failed && j < pieces->count; j++) {
            if (i > end->failed_last || i < end->failed_first) {
                continue;
            }
            if (!is_all(pieces->list[j].addr, MARK_FREE, pieces->list[j].length)) {
                mismatch(scene, "%c%u: the buffer of request %llu has changed after it failed",
                         name_of(end), end->pair, (unsigned long long)i);
            }
        }
    }
}
