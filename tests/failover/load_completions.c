/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Completions of requests. */
#include "load_model.h"

#include <string.h>

static uint32_t opcode_of(uint32_t op)
{
    switch (op) {
    case RDMUX_OP_SEND:
    case RDMUX_OP_SEND_IMM:
        return RDMUX_WC_SEND;
    case RDMUX_OP_WRITE:
    case RDMUX_OP_WRITE_IMM:
        return RDMUX_WC_WRITE;
    case RDMUX_OP_READ:
        return RDMUX_WC_READ;
    case RDMUX_OP_FETCH_ADD:
        return RDMUX_WC_FETCH_ADD;
    default:
        return RDMUX_WC_COMPARE_SWAP;
    }
}

static void swapped(struct load *load, const struct request *request, uint64_t before)
{
    struct table *table = &load->table;
    const uint64_t maybe = table->swapped_or[request->slot][0];
    if (before == table->swapped[request->slot]) {
        table->swapped[request->slot] = request->number;
    } else if (maybe != 0 && before == maybe) {
        table->swapped[request->slot] = maybe; /* the one in doubt was executed */
    } else {
        load_wrong(load, &load->errors.mismatched, "a compare_swap has found %llu instead of %llu",
                   (unsigned long long)before, (unsigned long long)table->swapped[request->slot]);
    }
    table->swapped_or[request->slot][0] = 0;
}

static void request_is_done(struct load *load, uint64_t sequence)
{
    const struct request *request = &load->ring[sequence % LOAD_RING];
    uint8_t *buffer = load_slot_of(load, sequence);
    uint64_t word = 0;
    memcpy(&word, buffer, sizeof(word));
    switch (request->kind) {
    case REQUEST_READ:
        load->reading[request->slot]--;
        if (!load_is_filled(buffer, request->length, load_text_seed(load), load->attr.side,
                            request->number)) {
            load_wrong(load, &load->errors.mismatched, "a read of note %u has other bytes",
                       request->slot);
        }
        break;
    case REQUEST_SINGLE:
        load->table.single_done[request->slot] = request->number;
        break;
    case REQUEST_ADD:
        if (word >
                load->table.added_done[request->slot] + load->table.added_doubtful[request->slot] ||
            word < load->table.added_done[request->slot]) {
            load_wrong(load, &load->errors.mismatched, "a fetch_add has found %llu",
                       (unsigned long long)word);
        }
        load->table.added_done[request->slot]++;
        break;
    case REQUEST_SWAP:
        load->is_swapping[request->slot] = false;
        swapped(load, request, word);
        break;
    case REQUEST_MESSAGE:
        load->done_is_over = load->done_is_over ||
                             (load->has_said_done && request->number == load->message);
        break;
    case REQUEST_MAIL:
    case REQUEST_NOTE:
    case REQUEST_FLUSH:
        break;
    }
}

static void request_is_doubtful(struct load *load, const struct request *request)
{
    struct table *table = &load->table;
    load->counts.doubtful++;
    switch (request->kind) {
    case REQUEST_MESSAGE:
        if (table->doubtful_count < LOAD_DOUBTFUL) {
            table->doubtful[table->doubtful_count++] = request->number;
        }
        break;
    case REQUEST_ADD:
        table->added_doubtful[request->slot]++;
        break;
    case REQUEST_SWAP:
        /* With two swaps in doubt the word is not used any more. */
        load->is_swapping[request->slot] = table->swapped_or[request->slot][0] != 0;
        table->swapped_or[request->slot][load->is_swapping[request->slot]] = request->number;
        break;
    case REQUEST_READ:
        load->reading[request->slot]--;
        break;
    case REQUEST_SINGLE:
    case REQUEST_MAIL:
    case REQUEST_NOTE:
    case REQUEST_FLUSH:
        break;
    }
}

static bool may_be_doubtful(const struct load *load, const struct request *request)
{
    return load->attr.has_failover &&
           ((request->flags & RDMUX_NO_REPLAY) != 0 || request->kind == REQUEST_ADD ||
            request->kind == REQUEST_SWAP);
}

void load_take_request(struct load *load, const struct rdmux_wc *wc)
{
    uint64_t sequence = (uint64_t)(uintptr_t)wc->context - 1;
    if (sequence < load->done || sequence >= load->posted) {
        load_wrong(load, &load->errors.broken,
                   "request %llu has an entry (%s), and %llu is the next",
                   (unsigned long long)sequence, rdmux_status_name((enum rdmux_status)wc->status),
                   (unsigned long long)load->done);
        return;
    }
    const bool has_failed = load->first_failure[0] != STATUS_NONE;
    for (; load->done < sequence; load->done++) {
        const struct request *before = &load->ring[load->done % LOAD_RING];
        if ((before->flags & RDMUX_UNSIGNALED) == 0 || has_failed) {
            load_wrong(load, &load->errors.broken, "request %llu has no entry, and %llu has one",
                       (unsigned long long)load->done, (unsigned long long)sequence);
        }
        request_is_done(load, load->done);
        memset(load_slot_of(load, load->done), SCRIBBLE, before->length);
    }
    const struct request *request = &load->ring[sequence % LOAD_RING];
    if (wc->opcode != opcode_of(request->op)) {
        load_wrong(load, &load->errors.broken, "request %llu has the entry of another kind: %s",
                   (unsigned long long)sequence, rdmux_wc_opcode_name(wc->opcode));
    }
    const bool is_silent = (request->flags & RDMUX_UNSIGNALED) != 0;
    load->signaled -= !is_silent;
    if (wc->status == RDMUX_OK) {
        if (is_silent || has_failed) {
            load_wrong(load, &load->errors.broken, "request %llu has an entry with RDMUX_OK %s",
                       (unsigned long long)sequence,
                       is_silent ? "and is unsignaled" : "behind a failure");
        }
        request_is_done(load, sequence);
    } else if (wc->status == RDMUX_OUTCOME_UNKNOWN && may_be_doubtful(load, request)) {
        request_is_doubtful(load, request);
    } else {
        load_failed(load, wc->status, false);
    }
    load->done++;
    memset(load_slot_of(load, sequence), SCRIBBLE, request->length);
}
