/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "load.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RECEIVES = LOAD_DEPTH,
    PIECES_MAX = 4,
    SIGNAL_EVERY = 16,
    TEXT_LEAST = 64, /* bytes of a mail, header included */
    HOLD_MAX = 400,  /* entries that a mail is kept for */
    MARK = 0x6d,
    SCRIBBLE = 0x5c, /* over buffers that are the program's again */
    STATUS_NONE = UINT32_MAX,
};

/* ---------------------------------------------------------------------------------------- messages */

enum message_kind {
    KIND_TEXT = 1, /* nothing but bytes */
    KIND_MAIL = 2, /* a slot has a text */
    KIND_FREE = 3, /* a slot is the peer's again */
    KIND_DONE = 4, /* a table follows */
};

/* What a message begins with, and a mail that came by write_imm. */
struct message {
    uint64_t magic;
    uint64_t sequence; /* from 1 */
    uint32_t kind;
    uint32_t length; /* of the whole */
    uint32_t slot;
    uint32_t mail_length;
    uint64_t number; /* of the mail's text */
};

/* What KIND_DONE brings behind the header. */
struct table {
    uint64_t notes[LOAD_NOTES];
    uint64_t single_done[LOAD_SINGLES];
    uint64_t single_posted[LOAD_SINGLES];
    uint64_t added_done[LOAD_ADDED];
    uint64_t added_doubtful[LOAD_ADDED];
    uint64_t swapped[LOAD_SWAPPED];
    uint64_t swapped_or[LOAD_SWAPPED][2]; /* or one of these, of swaps in doubt */
    uint64_t doubtful_count;
    uint64_t doubtful[LOAD_DOUBTFUL];
};
_Static_assert(sizeof(struct message) + sizeof(struct table) <= LOAD_SLOT_SIZE,
               "the last message fits");

/* What a side's region has. */
struct region {
    uint8_t mails[LOAD_MAILS][LOAD_SLOT_SIZE];
    uint8_t notes[LOAD_NOTES][LOAD_SLOT_SIZE];
    uint8_t singles[LOAD_SINGLES][LOAD_SLOT_SIZE];
    uint64_t added[LOAD_ADDED];
    uint64_t swapped[LOAD_SWAPPED];
};

enum request_kind {
    REQUEST_MESSAGE = 1,
    REQUEST_MAIL, /* a write of one; REQUEST_MESSAGE if it is the write_imm */
    REQUEST_NOTE,
    REQUEST_SINGLE,
    REQUEST_READ,
    REQUEST_ADD,
    REQUEST_SWAP,
    REQUEST_FLUSH,
};

struct request {
    enum request_kind kind;
    uint32_t op;
    uint32_t flags;
    uint32_t slot;
    uint64_t number; /* of the message, or of the text */
    size_t length;
};

/* A mail that this side keeps. */
struct kept {
    bool is_kept;
    uint64_t until; /* entries taken */
};

struct load {
    struct load_attr attr;
    struct chance chance;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    struct rdmux_mr *region_mr;
    struct rdmux_mr *arena_mr;
    struct region *region; /* the peer writes here */
    uint8_t *arena;        /* LOAD_RING slots of requests, RECEIVES of receives */

    /* Requests, by the sequence of their posting. */
    struct request ring[LOAD_RING];
    uint64_t posted;
    uint64_t done;     /* those before it are over */
    uint64_t silent;   /* posted since the last signaled one */
    uint64_t signaled; /* entries owed */
    uint64_t message;  /* of the last message posted */

    /* The peer's region, as this side has written it. */
    bool is_busy[LOAD_MAILS];
    uint64_t text; /* number of the last text */
    uint64_t notes[LOAD_NOTES];
    uint32_t reading[LOAD_NOTES];
    struct table table;
    bool is_swapping[LOAD_SWAPPED];

    /* This side's own. */
    uint64_t receives_posted;
    uint64_t receives_taken;
    uint64_t expected; /* next message of the peer */
    uint64_t entries;
    struct kept kept[LOAD_MAILS];
    uint64_t gaps[LOAD_DOUBTFUL]; /* messages that were not there when later ones came */
    uint64_t gap_count;
    uint64_t to_free[LOAD_MAILS];
    uint32_t to_free_count;

    bool is_finishing;
    bool has_said_done;
    bool done_is_over; /* the message that said so */
    bool peer_is_done;
    bool has_ended;
    uint32_t end_status;
    uint32_t first_failure[2]; /* of requests, of receives: its status */
    bool has_flushed;          /* an entry FLUSHED or with the cause has come */
    struct load_errors errors;
    struct load_counts counts;
    char why[LOAD_TEXT];
};

static char create_why[LOAD_TEXT];

const char *load_why(void)
{
    return create_why;
}

__attribute__((format(printf, 3, 4))) static void wrong(struct load *load, uint64_t *count,
                                                        const char *format, ...)
{
    ++*count;
    if (load->why[0] != '\0') {
        return;
    }
    va_list arguments;
    int used = snprintf(load->why, sizeof(load->why), "side %u: ", load->attr.side);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(load->why + used, sizeof(load->why) - (size_t)used, format, arguments);
    va_end(arguments);
}

/* ------------------------------------------------------------------------------------------- bytes */

/* Bytes that follow from whose they are and a number. */
static void fill(uint8_t *out, size_t length, uint64_t seed, uint32_t side, uint64_t number)
{
    struct chance bytes = { seed ^ number * 0x9e3779b97f4a7c15U ^ (uint64_t)side << 62 };
    while (length >= sizeof(uint64_t)) {
        uint64_t word = draw(&bytes);
        memcpy(out, &word, sizeof(word));
        out += sizeof(word);
        length -= sizeof(word);
    }
    uint64_t word = draw(&bytes);
    memcpy(out, &word, length);
}

static bool is_filled(const uint8_t *bytes, size_t length, uint64_t seed, uint32_t side,
                      uint64_t number)
{
    uint8_t wanted[LOAD_SLOT_SIZE];
    fill(wanted, length, seed, side, number);
    return memcmp(bytes, wanted, length) == 0;
}

static bool is_all(const uint8_t *bytes, uint8_t value, size_t length)
{
    return length == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, length - 1) == 0);
}

static uint64_t magic_of(const struct load *load, uint32_t side)
{
    return load->attr.seed * 0xd1342543de82ef95U + side + 1;
}

/* Texts of messages and of slots have different seeds. */
static uint64_t text_seed(const struct load *load)
{
    return ~load->attr.seed;
}

static uint8_t *slot_of(const struct load *load, uint64_t sequence)
{
    return load->arena + sequence % LOAD_RING * LOAD_SLOT_SIZE;
}

static uint8_t *receive_of(const struct load *load, uint64_t which)
{
    return load->arena + (LOAD_RING + which % RECEIVES) * (size_t)LOAD_SLOT_SIZE;
}

/* A note's text has a length of its own, so that the whole slot is always written. */
static size_t note_size(uint32_t slot)
{
    return 40 + (size_t)slot * 173;
}

/* ------------------------------------------------------------------------------------------ create */

struct load *load_create(struct rdmux_fabric *fabric, const struct load_attr *attr)
{
    const size_t arena = (size_t)LOAD_SLOT_SIZE * (LOAD_RING + RECEIVES);
    struct load *load = calloc(1, sizeof(*load));
    if (load == NULL) {
        (void)snprintf(create_why, sizeof(create_why), "no memory");
        return NULL;
    }
    load->attr = *attr;
    load->chance.state = attr->seed * 2 + attr->side;
    load->expected = 1;
    load->first_failure[0] = load->first_failure[1] = STATUS_NONE;
    load->region = aligned_alloc(4096, (sizeof(*load->region) + 4095) / 4096 * 4096);
    load->arena = malloc(arena);
    if (load->region == NULL || load->arena == NULL) {
        (void)snprintf(create_why, sizeof(create_why), "no memory");
        goto free_load;
    }
    memset(load->region, 0, sizeof(*load->region));
    memset(load->arena, SCRIBBLE, arena);
    if (rdmux_mr_register(fabric, load->region, sizeof(*load->region),
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
                              RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
                          &load->region_mr) != RDMUX_OK ||
        rdmux_mr_register(fabric, load->arena, arena,
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
                          &load->arena_mr) != RDMUX_OK) {
        (void)snprintf(create_why, sizeof(create_why), "rdmux_mr_register: %s", rdmux_last_error());
        goto free_load;
    }
    return load;

free_load:
    load_free(load);
    return NULL;
}

void load_free(struct load *load)
{
    if (load == NULL) {
        return;
    }
    rdmux_mr_deregister(load->region_mr);
    rdmux_mr_deregister(load->arena_mr);
    free(load->region);
    free(load->arena);
    free(load);
}

void load_set_attr(const struct load *load, struct rdmux_ep_attr *attr)
{
    attr->send_depth = LOAD_DEPTH;
    attr->recv_depth = LOAD_DEPTH;
    attr->max_send_sge = PIECES_MAX;
    attr->max_send = LOAD_SLOT_SIZE;
    attr->max_recv = LOAD_SLOT_SIZE;
    attr->failover = load->attr.has_failover ? RDMUX_FAILOVER_ON : RDMUX_FAILOVER_OFF;
}

struct rdmux_mr *load_region(const struct load *load)
{
    return load->region_mr;
}

static void offer_receives(struct load *load)
{
    while (!load->has_ended && load->receives_posted - load->receives_taken < RECEIVES) {
        uint8_t *buffer = receive_of(load, load->receives_posted);
        enum rdmux_status status = rdmux_recv(
            load->ep, buffer, LOAD_SLOT_SIZE, load->arena_mr,
            (void *)(uintptr_t)(1 + load->receives_posted)); /* NOLINT(performance-no-int-to-ptr) */
        if (status != RDMUX_OK) {
            return; /* full, or ended: DISCONNECTED comes */
        }
        load->receives_posted++;
    }
}

void load_begin(struct load *load, struct rdmux_ep *ep, struct rdmux_remote *remote)
{
    load->ep = ep;
    load->remote = remote;
    offer_receives(load);
}

/* ------------------------------------------------------------------------------------------- posts */

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
    uint8_t *buffer = slot_of(load, load->posted);
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

/* Posts a request whose bytes stand in its slot. False: not now; nothing has changed. */
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
                wrong(load, &load->errors.broken, "a post is refused with %s: %s",
                      rdmux_status_name(status), rdmux_last_error());
            }
        }
        memset(slot_of(load, load->posted), SCRIBBLE, what->length);
        return false;
    }
    struct request *kept = &load->ring[load->posted % LOAD_RING];
    *kept = *what;
    kept->flags = wr->flags;
    if ((wr->flags & RDMUX_INLINE) != 0) {
        memset(slot_of(load, load->posted), SCRIBBLE, what->length);
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
    fill(out + sizeof(*message), message->length - sizeof(*message), load->attr.seed,
         load->attr.side, message->sequence);
}

static bool post_message(struct load *load, struct message *message, uint32_t flags,
                         const struct table *table)
{
    message->magic = magic_of(load, load->attr.side);
    message->sequence = load->message + 1;
    uint8_t *buffer = slot_of(load, load->posted);
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
    fill(slot_of(load, load->posted), what->length, text_seed(load), load->attr.side, what->number);
    if (!post(load, what, &wr)) {
        return false;
    }
    load->counts.writes++;
    return true;
}

/* Perhaps an older text, the text in one or two writes, and the message that names it. Where one of them finds no
 * room the slot is not the peer's yet; it is written anew the next time. */
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
        message.magic = magic_of(load, load->attr.side);
        message.sequence = load->message + 1;
        message.length = (uint32_t)write.length;
        message.mail_length = message.length;
        put_message(load, slot_of(load, load->posted), &message);
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
                                  slot,         load->text + 1, note_size(slot) };
    if (load->reading[slot] == 0 && post_write(load, &what, OFFSET_OF(notes, slot))) {
        load->notes[slot] = ++load->text;
    }
}

static void post_single(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_SINGLES);
    const struct request what = { REQUEST_SINGLE, RDMUX_OP_WRITE, RDMUX_NO_REPLAY,
                                  slot,           load->text + 1, note_size(slot) };
    if (post_write(load, &what, OFFSET_OF(singles, slot))) {
        load->table.single_posted[slot] = ++load->text;
    }
}

static void post_read(struct load *load)
{
    uint32_t slot = below(&load->chance, LOAD_NOTES);
    const struct request what = { REQUEST_READ, RDMUX_OP_READ,     0,
                                  slot,         load->notes[slot], note_size(slot) };
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

/* Mails whose time is over go back. */
static void free_mails(struct load *load)
{
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        struct kept *kept = &load->kept[slot];
        if (!kept->is_kept || (load->entries < kept->until && wants_more(load)) ||
            !has_room(load, 1)) {
            continue;
        }
        if (!is_all(load->region->mails[slot], MARK, LOAD_SLOT_SIZE)) {
            wrong(load, &load->errors.mismatched,
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

/* Everything is over but what the peer keeps. */
static bool is_idle(const struct load *load)
{
    return load->done == load->posted;
}

void load_post(struct load *load)
{
    if (load->has_ended || load->ep == NULL) {
        return;
    }
    offer_receives(load);
    if (load->has_said_done) {
        return;
    }
    free_mails(load);
    if (!wants_more(load)) {
        bool has_mail = false;
        for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
            has_mail = has_mail || load->kept[slot].is_kept;
        }
        if (load->silent > 0 && !is_idle(load) && has_room(load, 1)) {
            post_flush(load);
        } else if (is_idle(load) && !has_mail) {
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

/* ------------------------------------------------------------------------------------- completions */

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
        table->swapped[request->slot] = maybe; /* the one in doubt had been carried out */
    } else {
        wrong(load, &load->errors.mismatched, "a compare_swap has found %llu instead of %llu",
              (unsigned long long)before, (unsigned long long)table->swapped[request->slot]);
    }
    table->swapped_or[request->slot][0] = 0;
}

static void request_is_done(struct load *load, uint64_t sequence)
{
    const struct request *request = &load->ring[sequence % LOAD_RING];
    uint8_t *buffer = slot_of(load, sequence);
    uint64_t word = 0;
    memcpy(&word, buffer, sizeof(word));
    switch (request->kind) {
    case REQUEST_READ:
        load->reading[request->slot]--;
        if (!is_filled(buffer, request->length, text_seed(load), load->attr.side, request->number)) {
            wrong(load, &load->errors.mismatched, "a read of note %u has other bytes",
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
            wrong(load, &load->errors.mismatched, "a fetch_add has found %llu",
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
        /* With two of them in doubt the word is left alone. */
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

/* 7.2: the first that fails has the cause or FLUSHED, those behind it FLUSHED. */
static void failed(struct load *load, uint32_t status, bool is_receive)
{
    uint32_t *first = &load->first_failure[is_receive];
    const bool is_known = status == RDMUX_FLUSHED || status == RDMUX_PEER_GONE ||
                          status == RDMUX_IO || status == RDMUX_OUTCOME_UNKNOWN;
    if (!is_known ||
        (*first != STATUS_NONE && status != RDMUX_FLUSHED && status != RDMUX_OUTCOME_UNKNOWN)) {
        wrong(load, &load->errors.broken, "a %s has failed with %s behind %s",
              is_receive ? "receive" : "request", rdmux_status_name((enum rdmux_status)status),
              *first == STATUS_NONE ? "nothing" : rdmux_status_name((enum rdmux_status) * first));
    }
    if (*first == STATUS_NONE) {
        *first = status;
    }
}

static void take_request(struct load *load, const struct rdmux_wc *wc)
{
    uint64_t sequence = (uint64_t)(uintptr_t)wc->context - 1;
    if (sequence < load->done || sequence >= load->posted) {
        wrong(load, &load->errors.broken, "request %llu has an entry (%s), and %llu is the next",
              (unsigned long long)sequence, rdmux_status_name((enum rdmux_status)wc->status),
              (unsigned long long)load->done);
        return;
    }
    const bool has_failed = load->first_failure[0] != STATUS_NONE;
    for (; load->done < sequence; load->done++) {
        const struct request *before = &load->ring[load->done % LOAD_RING];
        if ((before->flags & RDMUX_UNSIGNALED) == 0 || has_failed) {
            wrong(load, &load->errors.broken, "request %llu has no entry, and %llu has one",
                  (unsigned long long)load->done, (unsigned long long)sequence);
        }
        request_is_done(load, load->done);
        memset(slot_of(load, load->done), SCRIBBLE, before->length);
    }
    const struct request *request = &load->ring[sequence % LOAD_RING];
    if (wc->opcode != opcode_of(request->op)) {
        wrong(load, &load->errors.broken, "request %llu has the entry of another kind: %s",
              (unsigned long long)sequence, rdmux_wc_opcode_name(wc->opcode));
    }
    const bool is_silent = (request->flags & RDMUX_UNSIGNALED) != 0;
    load->signaled -= !is_silent;
    if (wc->status == RDMUX_OK) {
        if (is_silent || has_failed) {
            wrong(load, &load->errors.broken, "request %llu has an entry with RDMUX_OK %s",
                  (unsigned long long)sequence,
                  is_silent ? "and is unsignaled" : "behind a failure");
        }
        request_is_done(load, sequence);
    } else if (wc->status == RDMUX_OUTCOME_UNKNOWN && may_be_doubtful(load, request)) {
        request_is_doubtful(load, request);
    } else {
        failed(load, wc->status, false);
    }
    load->done++;
    memset(slot_of(load, sequence), SCRIBBLE, request->length);
}

/* ---------------------------------------------------------------------------------------- receives */

static bool is_gap(struct load *load, uint64_t sequence)
{
    for (uint64_t i = 0; i < load->gap_count; i++) {
        if (load->gaps[i] == sequence) {
            return true;
        }
    }
    return false;
}

/* Messages missing in front of this one are forgiven if their sender says in the end that they were in doubt. */
static void count_message(struct load *load, uint64_t sequence)
{
    load->counts.messages++;
    if (sequence < load->expected) {
        bool is_late = is_gap(load, sequence);
        wrong(load, is_late ? &load->errors.disordered : &load->errors.doubled,
              "message %llu has come %s", (unsigned long long)sequence,
              is_late ? "behind later ones" : "again");
        return;
    }
    for (; load->expected < sequence; load->expected++) {
        if (load->gap_count < LOAD_DOUBTFUL) {
            load->gaps[load->gap_count++] = load->expected;
        } else {
            wrong(load, &load->errors.lost, "message %llu is missing",
                  (unsigned long long)load->expected);
        }
    }
    load->expected++;
}

static void take_mail(struct load *load, uint32_t slot)
{
    struct kept *kept = &load->kept[slot];
    if (kept->is_kept) {
        wrong(load, &load->errors.broken, "slot %u is named twice", slot);
    }
    memset(load->region->mails[slot], MARK, LOAD_SLOT_SIZE);
    kept->is_kept = true;
    kept->until = load->entries + below(&load->chance, HOLD_MAX);
}

static bool is_single_good(const struct load *load, const struct table *table, uint32_t slot)
{
    const uint8_t *bytes = load->region->singles[slot];
    const uint32_t peer = 1 - load->attr.side;
    if (table->single_done[slot] == 0 && is_all(bytes, 0, note_size(slot))) {
        return true;
    }
    for (uint64_t number = table->single_posted[slot]; number >= 1; number--) {
        if (is_filled(bytes, note_size(slot), ~load->attr.seed, peer, number)) {
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
        if (table->notes[slot] != 0 && !is_filled(load->region->notes[slot], note_size(slot),
                                                  text_seed(load), peer, table->notes[slot])) {
            wrong(load, count, "note %u has not the last text", slot);
        }
    }
    for (uint32_t slot = 0; slot < LOAD_SINGLES; slot++) {
        if (!is_single_good(load, table, slot)) {
            wrong(load, count, "single %u has none of the texts that it may have", slot);
        }
    }
    for (uint32_t i = 0; i < LOAD_ADDED; i++) {
        if (load->region->added[i] < table->added_done[i] ||
            load->region->added[i] > table->added_done[i] + table->added_doubtful[i]) {
            wrong(load, count, "word %u is %llu: %llu were added, %llu are in doubt", i,
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
            wrong(load, count, "swapped word %u is %llu instead of %llu", i,
                  (unsigned long long)word, (unsigned long long)table->swapped[i]);
        }
    }
}

/* Everything was said: what is missing now, and not in doubt, is lost. */
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
            wrong(load, &load->errors.lost, "message %llu is missing",
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
    if (wc->length < sizeof(message) || message.magic != magic_of(load, peer) ||
        message.length != wc->length || message.slot >= LOAD_MAILS ||
        ((wc->flags & RDMUX_WC_HAS_IMM) != 0 && wc->opcode == RDMUX_WC_RECV &&
         wc->imm != (uint32_t)message.sequence)) {
        wrong(load, &load->errors.mismatched, "a message of %llu bytes is none of the peer's",
              (unsigned long long)wc->length);
        return;
    }
    const uint8_t *rest = bytes + sizeof(message);
    if (message.kind != KIND_DONE && !is_filled(rest, message.length - sizeof(message),
                                                load->attr.seed, peer, message.sequence)) {
        wrong(load, &load->errors.mismatched, "message %llu has other bytes",
              (unsigned long long)message.sequence);
    }
    count_message(load, message.sequence);
    switch (message.kind) {
    case KIND_MAIL:
        if (wc->opcode == RDMUX_WC_RECV &&
            !is_filled(load->region->mails[message.slot], message.mail_length, text_seed(load),
                       peer, message.number)) {
            wrong(load, &load->errors.mismatched,
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

static void take_receive(struct load *load, const struct rdmux_wc *wc)
{
    const uint64_t which = (uint64_t)(uintptr_t)wc->context - 1;
    if (which != load->receives_taken) {
        wrong(load, &load->errors.broken, "receive %llu has an entry, and %llu is the next",
              (unsigned long long)which, (unsigned long long)load->receives_taken);
        return;
    }
    uint8_t *buffer = receive_of(load, which);
    load->receives_taken++;
    if (wc->status != RDMUX_OK) {
        failed(load, wc->status, true);
    } else if (load->first_failure[1] != STATUS_NONE) {
        wrong(load, &load->errors.broken, "a message behind a receive that failed");
    } else if (wc->opcode == RDMUX_WC_RECV) {
        take_message(load, wc, buffer);
    } else if (wc->imm < LOAD_MAILS) {
        /* A path that failed may have begun to fill it with a message that is in doubt now. */
        if (load->counts.moves == 0 && !is_all(buffer, SCRIBBLE, LOAD_SLOT_SIZE)) {
            wrong(load, &load->errors.mismatched, "a write_imm has touched its receive");
        }
        take_message(load, wc, load->region->mails[wc->imm]);
    } else {
        wrong(load, &load->errors.mismatched, "a write_imm names slot %u", wc->imm);
    }
    memset(buffer, SCRIBBLE, LOAD_SLOT_SIZE);
}

/* ------------------------------------------------------------------------------------------ events */

void load_take(struct load *load, const struct rdmux_wc *wc)
{
    load->entries++;
    if (load->has_ended) {
        wrong(load, &load->errors.broken, "an entry behind DISCONNECTED: %s",
              rdmux_wc_opcode_name(wc->opcode));
        return;
    }
    switch (wc->opcode) {
    case RDMUX_WC_RECV:
    case RDMUX_WC_RECV_WRITE_IMM:
        take_receive(load, wc);
        offer_receives(load);
        break;
    case RDMUX_WC_DISCONNECTED:
        load->has_ended = true;
        load->end_status = wc->status;
        break;
    case RDMUX_WC_PATH_CHANGED:
        load->counts.moves++;
        if (!load->attr.has_failover) {
            wrong(load, &load->errors.broken, "the path has changed without failover");
        }
        break;
    case RDMUX_WC_WRITABLE:
    case RDMUX_WC_REMOTE_READY:
    case RDMUX_WC_CONNECTED:
        break;
    default:
        take_request(load, wc);
    }
}

/* -------------------------------------------------------------------------------------------- end */

bool load_is_done(const struct load *load)
{
    return load->done_is_over && load->peer_is_done && is_idle(load);
}

bool load_has_ended(const struct load *load)
{
    return load->has_ended;
}

uint32_t load_end_status(const struct load *load)
{
    return load->end_status;
}

const char *load_state(const struct load *load, char *out, size_t size)
{
    uint32_t kept = 0;
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        kept += load->kept[slot].is_kept;
    }
    (void)snprintf(
        out, size,
        "%llu of %llu requests over, the next of kind %d, %llu messages received, %u slots kept, "
        "%llu receives posted, %s%s",
        (unsigned long long)load->done, (unsigned long long)load->posted,
        load->done < load->posted ? (int)load->ring[load->done % LOAD_RING].kind : 0,
        (unsigned long long)load->counts.messages, kept,
        (unsigned long long)(load->receives_posted - load->receives_taken),
        load->has_said_done ? "has said that it is done" : "is not done",
        load->peer_is_done ? ", and so has the peer" : "");
    return out;
}

void load_check_marks(struct load *load)
{
    for (uint32_t slot = 0; slot < LOAD_MAILS; slot++) {
        if (load->kept[slot].is_kept && !is_all(load->region->mails[slot], MARK, LOAD_SLOT_SIZE)) {
            wrong(load, &load->errors.mismatched,
                  "something was written into slot %u behind the message that named it", slot);
        }
    }
}

void load_check_end(struct load *load)
{
    if (load->signaled != 0 || (load->first_failure[0] != STATUS_NONE && !is_idle(load))) {
        wrong(load, &load->errors.broken, "the endpoint has ended, and %llu requests have no entry",
              (unsigned long long)(load->posted - load->done));
    }
    if (load->receives_posted != load->receives_taken) {
        wrong(load, &load->errors.broken, "the endpoint has ended, and %llu receives have no entry",
              (unsigned long long)(load->receives_posted - load->receives_taken));
    }
    for (int i = 0; i < 2; i++) {
        uint32_t first = load->first_failure[i];
        if (first != STATUS_NONE && first != RDMUX_FLUSHED && first != RDMUX_OUTCOME_UNKNOWN &&
            first != load->end_status) {
            wrong(load, &load->errors.broken, "the first failure was %s, the end is %s",
                  rdmux_status_name((enum rdmux_status)first),
                  rdmux_status_name((enum rdmux_status)load->end_status));
        }
    }
}

const struct load_errors *load_errors(const struct load *load)
{
    return &load->errors;
}

bool load_is_clean(const struct load *load)
{
    const struct load_errors *errors = &load->errors;
    return errors->lost + errors->doubled + errors->disordered + errors->mismatched +
               errors->broken ==
           0;
}

const struct load_counts *load_counts(const struct load *load)
{
    return &load->counts;
}

const char *load_text(const struct load *load)
{
    return load->why;
}
