/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The side that posts: requests on their way to the correct provider, and the reports of their
 * ends. */
#include "mutant.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- kinds */

enum kind { ANY_SEND = 1, ANY_WRITE, NOTICE, ANY_READ, ANY_ATOMIC };

static bool is_kind(const struct rdmux_request *request, enum kind kind)
{
    const uint32_t op = request->op;
    if (request->internal) {
        return false; /* the proof of a path */
    }
    switch (kind) {
    case ANY_SEND:
        return op == RDMUX_OP_SEND || op == RDMUX_OP_SEND_IMM;
    case ANY_WRITE:
        return op == RDMUX_OP_WRITE;
    case NOTICE:
        return op == RDMUX_OP_WRITE_IMM;
    case ANY_READ:
        return op == RDMUX_OP_READ;
    case ANY_ATOMIC:
        return op == RDMUX_OP_FETCH_ADD || op == RDMUX_OP_COMPARE_SWAP;
    }
    return false;
}

static bool is_signaled(const struct rdmux_request *request)
{
    return (request->flags & RDMUX_UNSIGNALED) == 0;
}

/* Mutants that let a request of the second kind overtake one of the first. */
static const struct overtaking {
    enum mutant mutant;
    enum kind first, second;
} overtakings[] = {
    { MUTANT_sends_swapped, ANY_SEND, ANY_SEND },
    { MUTANT_write_after_send, ANY_WRITE, ANY_SEND },
    { MUTANT_write_after_notice, ANY_WRITE, NOTICE },
    { MUTANT_read_first, ANY_WRITE, ANY_READ },
    { MUTANT_atomic_first, ANY_WRITE, ANY_ATOMIC },
    { MUTANT_fence_ignored, ANY_READ, ANY_WRITE },
    { MUTANT_fence_ignores_atomics, ANY_ATOMIC, ANY_WRITE },
};

static const struct overtaking *overtaking(void)
{
    for (size_t i = 0; i < sizeof(overtakings) / sizeof(overtakings[0]); i++) {
        if (is(overtakings[i].mutant)) {
            return &overtakings[i];
        }
    }
    return NULL;
}

bool mutant_uses_queue(void)
{
    switch (active) {
    case NONE_QUEUED:
    case MUTANT_waiting_overtaken:
    case MUTANT_unsignaled_read_skipped:
    case MUTANT_completions_swapped:
    case MUTANT_flush_at_once:
    case MUTANT_batch_holed:
    case MUTANT_inline_referenced:
    case MUTANT_more_waits_for_ever:
    case MUTANT_send_lost:
    case MUTANT_send_twice:
    case MUTANT_buffer_not_free:
    case MUTANT_read_at_once:
    case MUTANT_placed_write_at_once:
    case MUTANT_placed_send_at_once:
    case MUTANT_empty_send_lost:
        return true;
    default:
        return overtaking() != NULL;
    }
}

/* ------------------------------------------------------------------------------ reported ends */

static void complete_kept(struct mutant_ep *mutant)
{
    for (uint64_t i = 0; i < mutant->kept_count; i++) {
        rdmux_provider_done(mutant->ep, mutant->kept[i], RDMUX_OK);
    }
    mutant->kept_count = 0;
}

static void keep(struct mutant_ep *mutant, struct rdmux_request *request)
{
    if (mutant->kept_count < KEPT_MAX) {
        mutant->kept[mutant->kept_count++] = request;
    }
}

void mutant_fed(struct mutant_ep *mutant)
{
    mutant->starves = false;
    complete_kept(mutant);
}

static void spoil_value(const struct rdmux_request *request)
{
    uint64_t value = 0;
    rdmux_software_gather(request, 0, &value, sizeof(value));
    if (is(MUTANT_value_big_endian)) {
        value = __builtin_bswap64(value);
    } else if (request->op == RDMUX_OP_FETCH_ADD) {
        value += request->operand;
    } else if (value == request->expected) {
        value = request->operand;
    }
    rdmux_software_scatter(request, 0, &value, sizeof(value));
}

/* Reports to the core that a request is done, or breaks that promise. */
static void complete(struct mutant_ep *mutant, struct rdmux_request *request, uint32_t status)
{
    const bool counts = !request->internal;
    switch (active) {
    case MUTANT_completion_lost:
        if (counts && ++mutant->count % 5 == 0) {
            return;
        }
        break;
    case MUTANT_completion_twice:
        if (counts && mutant->last == NULL && ++mutant->count % 10 == 0) {
            mutant->last = request;
        }
        break;
    case MUTANT_unsignaled_failed:
        if (counts && !is_signaled(request) && ++mutant->count % 50 == 0) {
            status = RDMUX_IO;
        }
        break;
    case MUTANT_starving_stops_answers:
        if (counts && mutant->starves) {
            keep(mutant, request);
            return;
        }
        break;
    case MUTANT_unsignaled_kept:
        if (counts && !is_signaled(request)) {
            keep(mutant, request);
            return;
        }
        complete_kept(mutant);
        break;
    case MUTANT_written_length:
        request->length -= is_kind(request, ANY_WRITE) && request->length > 0;
        break;
    case MUTANT_opcode_wrong:
        if (is_kind(request, ANY_WRITE)) {
            request->opcode = RDMUX_WC_SEND;
        }
        break;
    case MUTANT_read_cut:
        if (is_kind(request, ANY_READ) && request->length > 0) {
            uint8_t byte = 0;
            rdmux_software_gather(request, request->length - 1, &byte, 1);
            byte = (uint8_t)~byte;
            rdmux_software_scatter(request, request->length - 1, &byte, 1);
        }
        break;
    case MUTANT_value_after:
    case MUTANT_value_big_endian:
        if (is_kind(request, ANY_ATOMIC)) {
            spoil_value(request);
        }
        break;
    default:
        break;
    }
    rdmux_provider_done(mutant->ep, request, status);
}

/* -------------------------------------------------------------------- requests that are changed */

/* Changes of a record are undone before the core sees it again. provider[] is the provider's own;
 * the correct one does not use it. */
enum { CUT = 0, ADDRESS = 1, PIECE = 2 };

static void change_address(struct rdmux_request *request, uint16_t piece, void *addr)
{
    request->provider[ADDRESS] = (uint64_t)(uintptr_t)request->sges[piece].addr;
    request->provider[PIECE] = piece;
    request->sges[piece].addr = addr;
}

static void cut(struct rdmux_request *request, uint64_t bytes)
{
    uint16_t last = request->sge_count;
    while (last > 0 && request->sges[last - 1].length < bytes) {
        last--;
    }
    if (last > 0 && last == request->sge_count) {
        request->sges[last - 1].length -= bytes;
        request->length -= bytes;
        request->provider[CUT] = bytes;
    }
}

static void swap_pieces(const struct rdmux_request *request)
{
    if (!request->internal && request->sge_count >= 2) {
        struct rdmux_provider_sge first = request->sges[0];
        request->sges[0] = request->sges[1];
        request->sges[1] = first;
    }
}

static void mend(struct rdmux_request *request)
{
    if (request->provider[CUT] != 0) {
        request->sges[request->sge_count - 1].length += request->provider[CUT];
        request->length += request->provider[CUT];
    }
    if (request->provider[ADDRESS] != 0) {
        request->sges[request->provider[PIECE]].addr = (void *)(uintptr_t)request->provider[ADDRESS];
    }
    memset(request->provider, 0, sizeof(request->provider));
    if (is(MUTANT_pieces_swapped)) {
        swap_pieces(request);
    }
}

static void remember(struct mutant_ep *mutant, struct rdmux_request *request)
{
    const struct rdmux_provider_sge *sge = &request->sges[0];
    if (request->sge_count != 1 || request->length == 0 || request->length > 65536) {
        return;
    }
    if (mutant->remembered_at == sge->addr && mutant->remembered_length == sge->length) {
        change_address(request, 0, mutant->remembered);
        return;
    }
    free(mutant->remembered);
    mutant->remembered = malloc((size_t)sge->length);
    if (mutant->remembered != NULL) {
        memcpy(mutant->remembered, sge->addr, (size_t)sge->length);
        mutant->remembered_at = sge->addr;
        mutant->remembered_length = sge->length;
    }
}

/* Spoils a record before the correct provider gets it. */
static void spoil(struct mutant_ep *mutant, struct rdmux_request *request)
{
    const bool brings = is_kind(request, ANY_SEND) || is_kind(request, ANY_WRITE);
    memset(request->provider, 0, sizeof(request->provider));
    switch (active) {
    case MUTANT_unsignaled_signaled:
        if (!request->internal) {
            request->flags &= ~(uint32_t)RDMUX_UNSIGNALED;
        }
        break;
    case MUTANT_pieces_swapped:
        swap_pieces(request);
        break;
    case MUTANT_fifth_piece_lost:
        if (brings && request->sge_count >= 5 &&
            request->sges[4].length <= request->sges[3].length) {
            change_address(request, 4, request->sges[3].addr);
        }
        break;
    case MUTANT_send_cut:
        if (is_kind(request, ANY_SEND)) {
            cut(request, 1);
        }
        break;
    case MUTANT_write_cut:
        if (is_kind(request, ANY_WRITE)) {
            cut(request, 1);
        }
        break;
    case MUTANT_long_write_cut:
        if (is_kind(request, ANY_WRITE) && request->length > 65536) {
            cut(request, request->length - 65536);
        }
        break;
    case MUTANT_address_rounded:
        if (brings && request->sge_count == 1 && request->sges[0].mr == NULL) {
            uintptr_t addr = (uintptr_t)request->sges[0].addr;
            change_address(request, 0, (void *)(addr - addr % 8));
        }
        break;
    case MUTANT_bytes_remembered:
        if (brings) {
            remember(mutant, request);
        }
        break;
    case MUTANT_touches_after_close:
        if (is_kind(request, ANY_READ) && request->length > 0) {
            mutant->touched = request->sges[0].addr;
        }
        break;
    default:
        break;
    }
}

/* ------------------------------------------------------------------------------------ the queue */

static struct entry *entry_at(struct mutant_ep *mutant, uint64_t at)
{
    return &mutant->entries[at % mutant->room];
}

/* Gives the first of the queue to the correct provider. A request that may be overtaken waits for
 * the next one, unless there is no time left. */
static void pump(struct mutant_ep *mutant, bool at_once)
{
    const struct overtaking *order = overtaking();
    if (mutant->head == mutant->tail || mutant->holds) {
        return;
    }
    struct entry *entry = entry_at(mutant, mutant->head);
    if (entry->is_inside || (order != NULL && !at_once && mutant->tail - mutant->head == 1 &&
                             is_kind(&entry->copy, order->first))) {
        return;
    }
    size_t posted = 0;
    entry->is_inside = true;
    entry->copy.sges = entry->sges;
    entry->is_inside = toy_provider.post(mutant->ep, &entry->copy, 1, 0, &posted) == RDMUX_OK;
}

static void swap_last_two(struct mutant_ep *mutant)
{
    struct entry *one = entry_at(mutant, mutant->tail - 1);
    struct entry *other = entry_at(mutant, mutant->tail - 2);
    struct entry between = *one;
    *one = *other;
    *other = between;
}

/* Swaps the contexts of two requests under way. */
static void swap_contexts(struct rdmux_request *one, struct rdmux_request *other)
{
    if (!one->internal && !other->internal && is_signaled(one) && is_signaled(other)) {
        void *context = one->context;
        one->context = other->context;
        other->context = context;
    }
}

/* Puts a request behind the others. is_done: its end is not reported. */
static struct entry *append(struct mutant_ep *mutant, struct rdmux_request *request, bool is_done)
{
    struct entry *entry = entry_at(mutant, mutant->tail++);
    entry->record = request;
    entry->copy = *request;
    entry->is_done = is_done;
    entry->is_inside = false;
    entry->bytes = NULL;
    memcpy(entry->sges, request->sges, request->sge_count * sizeof(entry->sges[0]));
    return entry;
}

/* Copies the bytes, so that the application's are free. */
static void take_bytes(struct entry *entry)
{
    uint64_t length = entry->record->length;
    entry->bytes = malloc((size_t)length + 1);
    if (entry->bytes == NULL) {
        abort();
    }
    rdmux_software_gather(entry->record, 0, entry->bytes, length);
    entry->sges[0] = (struct rdmux_provider_sge){ .addr = entry->bytes, .length = length };
    entry->copy.sge_count = 1;
}

/* Returns whether the request completes when it starts. */
static bool ends_at_once(const struct rdmux_request *request)
{
    const bool is_placed = (request->flags & RDMUX_PLACED) != 0;
    const bool is_flush = is_placed && request->op == RDMUX_OP_WRITE && request->length == 0;
    const bool is_write = is_kind(request, ANY_WRITE) || is_kind(request, NOTICE);
    switch (active) {
    case MUTANT_flush_at_once:
        return is_kind(request, ANY_SEND) ||
               (is_kind(request, ANY_WRITE) && (!is_placed || is_flush));
    case MUTANT_buffer_not_free:
        return is_write || is_kind(request, ANY_SEND);
    case MUTANT_read_at_once:
        return is_kind(request, ANY_READ);
    case MUTANT_placed_write_at_once:
        return is_write && !is_flush;
    case MUTANT_placed_send_at_once:
        return is_kind(request, ANY_SEND);
    default:
        return false;
    }
}

static bool is_lost(struct mutant_ep *mutant, const struct rdmux_request *request, bool is_second)
{
    switch (active) {
    case MUTANT_unsignaled_read_skipped:
        return is_kind(request, ANY_READ) && !is_signaled(request);
    case MUTANT_batch_holed:
        return is_second && !request->internal;
    case MUTANT_send_lost:
        return is_kind(request, ANY_SEND) && ++mutant->count % 16 == 0;
    case MUTANT_empty_send_lost:
        return is_kind(request, ANY_SEND) && request->length == 0;
    default:
        return false;
    }
}

static void enqueue(struct mutant_ep *mutant, struct rdmux_request *request, bool is_second)
{
    const struct overtaking *order = overtaking();
    if (is_lost(mutant, request, is_second)) {
        rdmux_provider_done(mutant->ep, request, RDMUX_OK);
        return;
    }
    const bool is_done = ends_at_once(request);
    const bool is_inline = (request->flags & RDMUX_INLINE) != 0;
    struct entry *entry = append(mutant, request, is_done);
    if ((is_inline && !is(MUTANT_inline_referenced)) ||
        (is_done && !is(MUTANT_buffer_not_free) && !is_kind(request, ANY_READ))) {
        take_bytes(entry);
    }
    const struct entry *before = mutant->tail - mutant->head > 1
                                     ? entry_at(mutant, mutant->tail - 2)
                                     : NULL;
    bool swaps = order != NULL && before != NULL && is_kind(&before->copy, order->first) &&
                 is_kind(request, order->second);
    swaps |= is(MUTANT_waiting_overtaken) && before != NULL && is_kind(&before->copy, ANY_SEND) &&
             is_kind(request, ANY_SEND);
    if (swaps && !before->is_inside) {
        swap_last_two(mutant);
    }
    if (is(MUTANT_completions_swapped) && before != NULL) {
        swap_contexts(before->record, request);
    }
    if (is(MUTANT_send_twice) && is_kind(request, ANY_SEND) && ++mutant->count % 16 == 0) {
        take_bytes(append(mutant, request, true));
    }
    if (is_done) {
        rdmux_provider_done(mutant->ep, request, RDMUX_OK);
    }
}

static enum rdmux_status post_queued(struct mutant_ep *mutant, struct rdmux_request *requests,
                                     size_t count, uint32_t flags, size_t *posted)
{
    for (*posted = 0; *posted < count; ++*posted) {
        if (mutant->tail - mutant->head + 2 > mutant->room) {
            mutant->refused = true;
            return RDMUX_AGAIN;
        }
        enqueue(mutant, &requests[*posted], *posted == 1);
        mutant->holds = is(MUTANT_more_waits_for_ever) && (flags & RDMUX_POST_MORE) != 0;
        if (!is(MUTANT_inline_referenced) || requests[*posted].internal) {
            pump(mutant, false);
        }
    }
    return RDMUX_OK;
}

void mutant_progress(struct mutant_ep *mutant)
{
    if (mutant->entries != NULL) {
        pump(mutant, true);
    }
    if (mutant->arrival.request != NULL &&
        rdmux_provider_now_ns(mutant->ep->cq->domain->fabric) > mutant->count) {
        mutant_report_arrival(mutant);
    }
}

/* ------------------------------------------------------------------------------------ the hooks */

void mutant_done(struct rdmux_provider_ep *ep, struct rdmux_request *request, uint32_t status)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    if (mutant->entries == NULL) {
        mend(request);
        complete(mutant, request, status);
        return;
    }
    const struct entry *entry = entry_at(mutant, mutant->head++);
    free(entry->bytes);
    if (!entry->is_done) {
        complete(mutant, entry->record, status);
    }
    if (mutant->refused) {
        mutant->refused = false;
        rdmux_provider_resume(ep);
    }
    pump(mutant, false);
}

void mutant_resume(struct rdmux_provider_ep *ep)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    if (is(MUTANT_resume_forgotten) && ++mutant->count % 20 == 0) {
        return;
    }
    rdmux_provider_resume(ep);
}

/* Returns a failure in place of the post, or RDMUX_OK. */
static enum rdmux_status refuse(struct rdmux_provider_ep *ep, const struct rdmux_request *request)
{
    struct rdmux_fabric *fabric = ep->cq->domain->fabric;
    if (is(MUTANT_data_path_allocates)) {
        rdmux_provider_release(fabric, rdmux_provider_allocate(fabric, 64));
    } else if (is(MUTANT_data_path_logs)) {
        rdmux_provider_log(fabric, RDMUX_LOG_INFO, "mutant: a post");
    } else if (is(MUTANT_masks_signals)) {
        mutant_mask_signals();
    } else if (is(MUTANT_empty_write_refused) && is_kind(request, ANY_WRITE) &&
               request->length == 0) {
        rdmux_provider_error("mutant: a write of no bytes");
        return RDMUX_INVALID;
    } else if (is(MUTANT_claims_atomics) && is_kind(request, ANY_ATOMIC)) {
        rdmux_provider_error("mutant: no atomics");
        return RDMUX_UNSUPPORTED;
    }
    return RDMUX_OK;
}

enum rdmux_status mutant_post(struct rdmux_provider_ep *ep, struct rdmux_request *requests,
                              size_t count, uint32_t flags, size_t *posted)
{
    struct mutant_ep *mutant = mutant_ep_of(ep);
    if (is(MUTANT_descriptor_deaf) && count > 0 && !requests[0].internal) {
        mutant_watch(ep->cq, false);
    }
    if (mutant->entries != NULL) {
        return post_queued(mutant, requests, count, flags, posted);
    }
    enum rdmux_status status = RDMUX_OK;
    for (*posted = 0; *posted < count && status == RDMUX_OK;) {
        struct rdmux_request *request = &requests[*posted];
        const struct rdmux_request saved = *request;
        size_t taken = 0;
        status = refuse(ep, request);
        if (status != RDMUX_OK) {
            break;
        }
        spoil(mutant, request);
        status = toy_provider.post(ep, request, 1, flags, &taken);
        if (taken == 0) {
            mend(request);
            *request = saved;
            break;
        }
        *posted += 1;
        if (is(MUTANT_completion_twice) && mutant->last == request) {
            mutant->last = NULL;
            rdmux_provider_done(ep, request, RDMUX_OK);
        }
    }
    return status;
}

void mutant_doorbell(struct rdmux_provider_ep *ep)
{
    toy_provider.doorbell(ep);
}
