/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Messages and mails of the peer. */
#include "load_model.h"

#include <string.h>

void load_offer_receives(struct load *load)
{
    while (!load->has_ended && load->receives_posted - load->receives_taken < RECEIVES) {
        uint8_t *buffer = load_receive_of(load, load->receives_posted);
        enum rdmux_status status = rdmux_recv(
            load->ep, buffer, LOAD_SLOT_SIZE, load->arena_mr,
            (void *)(uintptr_t)(1 + load->receives_posted)); /* NOLINT(performance-no-int-to-ptr) */
        if (status != RDMUX_OK) {
            return; /* full, or ended: DISCONNECTED comes */
        }
        load->receives_posted++;
    }
}

static bool is_gap(struct load *load, uint64_t sequence)
{
    for (uint64_t i = 0; i < load->gap_count; i++) {
        if (load->gaps[i] == sequence) {
            return true;
        }
    }
    return false;
}

/* Notes the missing messages in front of this one. They are no error if their sender reports them
 * as in doubt at the end. */
static void count_message(struct load *load, uint64_t sequence)
{
    load->counts.messages++;
    if (sequence < load->expected) {
        bool is_late = is_gap(load, sequence);
        load_wrong(load, is_late ? &load->errors.disordered : &load->errors.doubled,
                   "message %llu has come %s", (unsigned long long)sequence,
                   is_late ? "behind later ones" : "again");
        return;
    }
    for (; load->expected < sequence; load->expected++) {
        if (load->gap_count < LOAD_DOUBTFUL) {
            load->gaps[load->gap_count++] = load->expected;
        } else {
            load_wrong(load, &load->errors.lost, "message %llu is missing",
                       (unsigned long long)load->expected);
        }
    }
    load->expected++;
}

static void take_mail(struct load *load, uint32_t slot)
{
    struct kept *kept = &load->kept[slot];
    if (kept->is_kept) {
        load_wrong(load, &load->errors.broken, "slot %u is named twice", slot);
    }
    memset(load->region->mails[slot], MARK, LOAD_SLOT_SIZE);
    kept->is_kept = true;
    kept->until = load->entries + below(&load->chance, HOLD_MAX);
}

static bool is_single_good(const struct load *load, const struct table *table, uint32_t slot)
{
    const uint8_t *bytes = load->region->singles[slot];
    const uint32_t peer = 1 - load->attr.side;
    if (table->single_done[slot] == 0 && load_is_all(bytes, 0, load_note_size(slot))) {
        return true;
    }
    for (uint64_t number = table->single_posted[slot]; number >= 1; number--) {
        if (load_is_filled(bytes, load_note_size(slot), ~load->attr.seed, peer, number)) {
            return number >= table->single_done[slot];
        }
        if (number < table->single_done[slot]) {
            break;
        }
    }
    return false;
}

static void check_memory(struct load *load, const struct table *table)
{
    const uint32_t peer = 1 - load->attr.side;
    uint64_t *count = &load->errors.mismatched;
    for (uint32_t slot = 0; slot < LOAD_NOTES; slot++) {
        if (table->notes[slot] != 0 &&
            !load_is_filled(load->region->notes[slot], load_note_size(slot), load_text_seed(load),
                            peer, table->notes[slot])) {
            load_wrong(load, count, "note %u has not the last text", slot);
        }
    }
    for (uint32_t slot = 0; slot < LOAD_SINGLES; slot++) {
        if (!is_single_good(load, table, slot)) {
            load_wrong(load, count, "single %u has none of the texts that it may have", slot);
        }
    }
    for (uint32_t i = 0; i < LOAD_ADDED; i++) {
        if (load->region->added[i] < table->added_done[i] ||
            load->region->added[i] > table->added_done[i] + table->added_doubtful[i]) {
            load_wrong(load, count, "word %u is %llu: %llu were added, %llu are in doubt", i,
                       (unsigned long long)load->region->added[i],
                       (unsigned long long)table->added_done[i],
                       (unsigned long long)table->added_doubtful[i]);
        }
    }
    for (uint32_t i = 0; i < LOAD_SWAPPED; i++) {
        const uint64_t word = load->region->swapped[i];
        const uint64_t *maybe = table->swapped_or[i];
        if (word != table->swapped[i] && (maybe[0] == 0 || word != maybe[0]) &&
            (maybe[1] == 0 || word != maybe[1])) {
            load_wrong(load, count, "swapped word %u is %llu instead of %llu", i,
                       (unsigned long long)word, (unsigned long long)table->swapped[i]);
        }
    }
}

/* After the peer's table: a message that is missing and not in doubt is lost. */
static void take_done(struct load *load, const uint8_t *bytes)
{
    struct table table;
    memcpy(&table, bytes, sizeof(table));
    load->peer_is_done = true;
    for (uint64_t i = 0; i < load->gap_count; i++) {
        bool is_doubtful = false;
        for (uint64_t j = 0; j < table.doubtful_count && j < LOAD_DOUBTFUL; j++) {
            is_doubtful = is_doubtful || table.doubtful[j] == load->gaps[i];
        }
        if (!is_doubtful) {
            load_wrong(load, &load->errors.lost, "message %llu is missing",
                       (unsigned long long)load->gaps[i]);
        }
    }
    check_memory(load, &table);
}

static void take_message(struct load *load, const struct rdmux_wc *wc, const uint8_t *bytes)
{
    struct message message;
    const uint32_t peer = 1 - load->attr.side;
    memcpy(&message, bytes, sizeof(message));
    if (wc->length < sizeof(message) || message.magic != load_magic_of(load, peer) ||
        message.length != wc->length || message.slot >= LOAD_MAILS ||
        ((wc->flags & RDMUX_WC_HAS_IMM) != 0 && wc->opcode == RDMUX_WC_RECV &&
         wc->imm != (uint32_t)message.sequence)) {
        load_wrong(load, &load->errors.mismatched, "a message of %llu bytes is none of the peer's",
                   (unsigned long long)wc->length);
        return;
    }
    const uint8_t *rest = bytes + sizeof(message);
    if (message.kind != KIND_DONE && !load_is_filled(rest, message.length - sizeof(message),
                                                     load->attr.seed, peer, message.sequence)) {
        load_wrong(load, &load->errors.mismatched, "message %llu has other bytes",
                   (unsigned long long)message.sequence);
    }
    count_message(load, message.sequence);
    switch (message.kind) {
    case KIND_MAIL:
        if (wc->opcode == RDMUX_WC_RECV &&
            !load_is_filled(load->region->mails[message.slot], message.mail_length,
                            load_text_seed(load), peer, message.number)) {
            load_wrong(load, &load->errors.mismatched,
                       "slot %u has not the text that message %llu names", message.slot,
                       (unsigned long long)message.sequence);
        }
        take_mail(load, message.slot);
        break;
    case KIND_FREE:
        load->is_busy[message.slot] = false;
        break;
    case KIND_DONE:
        take_done(load, rest);
        break;
    default:
        break;
    }
}

void load_take_receive(struct load *load, const struct rdmux_wc *wc)
{
    const uint64_t which = (uint64_t)(uintptr_t)wc->context - 1;
    if (which != load->receives_taken) {
        load_wrong(load, &load->errors.broken, "receive %llu has an entry, and %llu is the next",
                   (unsigned long long)which, (unsigned long long)load->receives_taken);
        return;
    }
    uint8_t *buffer = load_receive_of(load, which);
    load->receives_taken++;
    if (wc->status != RDMUX_OK) {
        load_failed(load, wc->status, true);
    } else if (load->first_failure[1] != STATUS_NONE) {
        load_wrong(load, &load->errors.broken, "a message behind a receive that failed");
    } else if (wc->opcode == RDMUX_WC_RECV) {
        take_message(load, wc, buffer);
    } else if (wc->imm < LOAD_MAILS) {
        /* A path that failed may have begun to fill it with a message that is in doubt now. */
        if (load->counts.moves == 0 && !load_is_all(buffer, SCRIBBLE, LOAD_SLOT_SIZE)) {
            load_wrong(load, &load->errors.mismatched, "a write_imm has touched its receive");
        }
        take_message(load, wc, load->region->mails[wc->imm]);
    } else {
        load_wrong(load, &load->errors.mismatched, "a write_imm names slot %u", wc->imm);
    }
    memset(buffer, SCRIBBLE, LOAD_SLOT_SIZE);
}
