/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Requests of the load. */
#include "load_model.h"

#include <string.h>

#define OFFSET_OF(member, index)                 \
    ((uint64_t)offsetof(struct region, member) + \
     (uint64_t)(index) * sizeof(((struct region *)0)->member[0]))

static bool has_room(const struct load *load, uint32_t count)
{
    return load->posted + count - load->done <= LOAD_RING;
}

/* Cuts the next request's buffer into a list. */
static uint32_t cut(struct load *load, size_t length, struct rdmux_sge *list, bool is_read)
{
    uint8_t *buffer = load_slot_of(load, load->posted);
    uint32_t pieces = length < PIECES_MAX || is_read || !percent(&load->chance, 30)
                          ? 1
                          : 1 + below(&load->chance, PIECES_MAX);
    size_t at = 0;
    for (uint32_t i = 0; i < pieces; i++) {
        size_t left = length - at;
        size_t size = i + 1 == pieces ? left : below(&load->chance, (uint32_t)(left + 1));
        list[i] = (struct rdmux_sge){ buffer + at, size, load->arena_mr };
        at += size;
    }
    return pieces;
}

/* Posts a request whose bytes are in its slot. Returns false, with nothing changed, if it cannot be
 * posted now. */
static bool post(struct load *load, const struct request *what, struct rdmux_wr *wr)
{
    struct rdmux_sge list[PIECES_MAX];
    const bool is_reading = what->kind == REQUEST_READ || what->kind == REQUEST_ADD ||
                            what->kind == REQUEST_SWAP;
    wr->op = what->op;
    wr->flags = what->flags;
    if (!is_reading && what->length <= RDMUX_INLINE_MIN && percent(&load->chance, 50)) {
        wr->flags |= RDMUX_INLINE;
    }
    if (load->silent < SIGNAL_EVERY && what->kind != REQUEST_FLUSH && !is_reading &&
        percent(&load->chance, 40)) {
        wr->flags |= RDMUX_UNSIGNALED;
    }
    if (percent(&load->chance, 10)) {
        wr->flags |= RDMUX_MORE;
    }
    if (percent(&load->chance, 5) && !is_reading) {
        wr->flags |= RDMUX_PLACED;
    }
    if (what->length > 0) {
        wr->sge_count = cut(load, what->length, list, is_reading);
        wr->sges = list;
    }
    wr->context = (void *)(uintptr_t)(1 + load->posted); /* NOLINT(performance-no-int-to-ptr) */
    enum rdmux_status status = rdmux_post(load->ep, wr, 1, NULL);
    wr->sges = NULL; /* free on return */
    if (status != RDMUX_OK) {
        if (status != RDMUX_AGAIN && !load->has_ended && load->attr.has_failover) {
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            if (rdmux_ep_info(load->ep, &info) == RDMUX_OK && info.state != RDMUX_EP_ENDED) {
                load_wrong(load, &load->errors.broken, "a post is refused with %s: %s",
                           rdmux_status_name(status), rdmux_last_error());
            }
        }
        memset(load_slot_of(load, load->posted), SCRIBBLE, what->length);
        return false;
    }
    struct request *kept = &load->ring[load->posted % LOAD_RING];
    *kept = *what;
    kept->flags = wr->flags;
    if ((wr->flags & RDMUX_INLINE) != 0) {
        memset(load_slot_of(load, load->posted), SCRIBBLE, what->length);
        load->counts.inlined++;
    }
    const bool is_silent = (wr->flags & RDMUX_UNSIGNALED) != 0;
    load->silent = is_silent ? load->silent + 1 : 0;
    load->signaled += !is_silent;
    load->counts.unsignaled += is_silent;
    load->counts.listed += wr->sge_count > 1;
    load->counts.single += (wr->flags & RDMUX_NO_REPLAY) != 0;
    load->counts.requests++;
    load->posted++;
    return true;
}

static void put_message(const struct load *load, uint8_t *out, const struct message *message)
{
    memcpy(out, message, sizeof(*message));
    load_fill(out + sizeof(*message), message->length - sizeof(*message), load->attr.seed,
              load->attr.side, message->sequence);
}

static bool post_message(struct load *load, struct message *message, uint32_t flags,
                         const struct table *table)
{
    message->magic = load_magic_of(load, load->attr.side);
    message->sequence = load->message + 1;
    uint8_t *buffer = load_slot_of(load, load->posted);
    put_message(load, buffer, message);
    if (table != NULL) {
        memcpy(buffer + sizeof(*message), table, sizeof(*table));
    }
    const struct request request = { REQUEST_MESSAGE,   RDMUX_OP_SEND,  flags, 0,
                                     message->sequence, message->length };
    struct rdmux_wr wr = { 0 };
    struct request what = request;
    if (percent(&load->chance, 20)) {
        what.op = RDMUX_OP_SEND_IMM;
        wr.imm = (uint32_t)message->sequence;
    }
    if (!post(load, &what, &wr)) {
        return false;
    }
    load->message++;
    return true;
}

static void post_text(struct load *load)
{
    static const uint32_t sizes[] = { sizeof(struct message), 64, 200, 1024, 4096, LOAD_SLOT_SIZE };
    struct message message = { .kind = KIND_TEXT };
    uint32_t most = PICK(&load->chance, sizes);
    message.length = (uint32_t)sizeof(message) +
                     below(&load->chance, most - (uint32_t)sizeof(message) + 1);
    (void)post_message(load, &message, percent(&load->chance, 10) ? RDMUX_NO_REPLAY : 0, NULL);
}

static bool post_write(struct load *load, const struct request *what, uint64_t offset)
{
    struct rdmux_wr wr = { .remote = load->remote, .offset = offset };
    load_fill(load_slot_of(load, load->posted), what->length, load_text_seed(load), load->attr.side,
              what->number);
    if (!post(load, what, &wr)) {
        return false;
    }
    load->counts.writes++;
    return true;
}

/* Writes perhaps an older text, then the text in one or two writes, and sends the message that
 * names it. If the queue has no room for one of them, this side keeps the slot, and writes it anew
 * later. */
static void post_mail(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_MAILS);
    if (load->is_busy[slot]) {
        return;
    }
    const uint64_t at = OFFSET_OF(mails, slot);
    struct request write = { REQUEST_MAIL, RDMUX_OP_WRITE, 0, slot, 0, 0 };
    write.length = TEXT_LEAST + below(&load->chance, percent(&load->chance, 30) ? 8000 : 300);
    uint32_t olds = percent(&load->chance, 30) ? 1 + below(&load->chance, 2) : 0;
    for (uint32_t i = 0; i <= olds; i++) {
        write.number = ++load->text;
        if (i < olds || percent(&load->chance, 60)) {
            if (!post_write(load, &write, at)) {
                return;
            }
            continue;
        }
        /* The text is the message itself. */
        struct message message = { .kind = KIND_MAIL, .slot = slot };
        message.magic = load_magic_of(load, load->attr.side);
        message.sequence = load->message + 1;
        message.length = (uint32_t)write.length;
        message.mail_length = message.length;
        put_message(load, load_slot_of(load, load->posted), &message);
        struct rdmux_wr wr = { .remote = load->remote, .offset = at, .imm = slot };
        const struct request what = { REQUEST_MESSAGE,  RDMUX_OP_WRITE_IMM, 0, slot,
                                      message.sequence, write.length };
        if (post(load, &what, &wr)) {
            load->message++;
            load->counts.writes++;
            load->is_busy[slot] = true;
        }
        return;
    }
    struct message message = { .kind = KIND_MAIL, .slot = slot, .number = write.number };
    message.mail_length = (uint32_t)write.length;
    message.length = (uint32_t)sizeof(message);
    load->is_busy[slot] = post_message(load, &message, 0, NULL);
}

static void post_note(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_NOTES);
    const struct request what = { REQUEST_NOTE, RDMUX_OP_WRITE, 0,
                                  slot,         load->text + 1, load_note_size(slot) };
    if (load->reading[slot] == 0 && post_write(load, &what, OFFSET_OF(notes, slot))) {
        load->notes[slot] = ++load->text;
    }
}

static void post_single(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_SINGLES);
    const struct request what = { REQUEST_SINGLE, RDMUX_OP_WRITE, RDMUX_NO_REPLAY,
                                  slot,           load->text + 1, load_note_size(slot) };
    if (post_write(load, &what, OFFSET_OF(singles, slot))) {
        load->table.single_posted[slot] = ++load->text;
    }
}

static void post_read(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_NOTES);
    const struct request what = { REQUEST_READ, RDMUX_OP_READ,     0,
                                  slot,         load->notes[slot], load_note_size(slot) };
    struct rdmux_wr wr = { .remote = load->remote, .offset = OFFSET_OF(notes, slot) };
    if (load->notes[slot] != 0 && post(load, &what, &wr)) {
        load->reading[slot]++;
        load->counts.reads++;
    }
}

static void post_atomic(struct load *load)
{
    struct rdmux_wr wr = { .remote = load->remote, .operand = 1 };
    struct request what = { REQUEST_ADD, RDMUX_OP_FETCH_ADD, 0, below(&load->chance, LOAD_ADDED),
                            0,           sizeof(uint64_t) };
    wr.offset = OFFSET_OF(added, what.slot);
    if (percent(&load->chance, 30)) {
        what.kind = REQUEST_SWAP;
        what.op = RDMUX_OP_COMPARE_SWAP;
        what.slot = below(&load->chance, LOAD_SWAPPED);
        if (load->is_swapping[what.slot]) {
            return;
        }
        wr.offset = OFFSET_OF(swapped, what.slot);
        wr.expected = load->table.swapped[what.slot];
        wr.operand = what.number = wr.expected + 1 + below(&load->chance, 1000);
    }
    if (!post(load, &what, &wr)) {
        return;
    }
    load->counts.atomics++;
    if (what.kind == REQUEST_SWAP) {
        load->is_swapping[what.slot] = true;
    }
}

static void post_flush(struct load *load)
{
    const struct request what = { REQUEST_FLUSH, RDMUX_OP_WRITE, RDMUX_PLACED, 0, 0, 0 };
    struct rdmux_wr wr = { 0 };
    (void)post(load, &what, &wr);
}

static void post_done(struct load *load)
{
    memcpy(load->table.notes, load->notes, sizeof(load->notes));
    struct message message = { .kind = KIND_DONE };
    message.length = (uint32_t)(sizeof(message) + sizeof(load->table));
    load->silent = SIGNAL_EVERY; /* it has an entry */
    load->has_said_done = post_message(load, &message, 0, &load->table);
}

static bool wants_more(const struct load *load)
{
    return !load->is_finishing && load->message < load->attr.messages;
}

/* Frees the mails whose time is over. */
static void free_mails(struct load *load)
{
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        struct kept *kept = &load->kept[slot];
        if (!kept->is_kept || (load->entries < kept->until && wants_more(load)) ||
            !has_room(load, 1)) {
            continue;
        }
        if (!load_is_all(load->region->mails[slot], MARK, LOAD_SLOT_SIZE)) {
            load_wrong(load, &load->errors.mismatched,
                       "something was written into slot %u behind the message that named it", slot);
        }
        struct message message = { .kind = KIND_FREE, .slot = slot };
        message.length = (uint32_t)sizeof(message);
        if (!post_message(load, &message, 0, NULL)) {
            return;
        }
        kept->is_kept = false;
    }
}

void load_post(struct load *load)
{
    if (load->has_ended || load->ep == NULL) {
        return;
    }
    load_offer_receives(load);
    if (load->has_said_done) {
        return;
    }
    free_mails(load);
    if (!wants_more(load)) {
        bool has_mail = false;
        for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
            has_mail = has_mail || load->kept[slot].is_kept;
        }
        if (load->silent > 0 && !load_is_idle(load) && has_room(load, 1)) {
            post_flush(load);
        } else if (load_is_idle(load) && !has_mail) {
            post_done(load);
        }
        return;
    }
    for (uint32_t count = 1 + below(&load->chance, 6); count > 0 && has_room(load, 8); count--) {
        uint32_t which = below(&load->chance, 100);
        if (which < 35) {
            post_text(load);
        } else if (which < 60) {
            post_mail(load);
        } else if (which < 75) {
            post_note(load);
        } else if (which < 80) {
            post_single(load);
        } else if (which < 86) {
            post_read(load);
        } else if (which < 97) {
            post_atomic(load);
        } else {
            post_flush(load);
        }
    }
}

void load_finish(struct load *load)
{
    load->is_finishing = true;
}
