/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "link.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum {
    SLOTS = 16,
    RECEIVES = 16,
    MESSAGE_MAX = 65536,
    STRIPES = 4,
    WORD_SIZE = 8,
    LIVENESS_MS = 4000,
    SETUP_MS = 8000,
};

/* Places of the region, each with one writer and one write under way at a time. */
static const size_t stripe_size[STRIPES] = { 1U << 20, 1U << 16, 1U << 13, 64 };
static const size_t stripe_at[STRIPES] = { 0, 1U << 20, (1U << 20) + (1U << 16),
                                           (1U << 20) + (1U << 16) + (1U << 13) };
enum { WORD_AT = (1 << 20) + (1 << 16) + (1 << 13) + 64, REGION_SIZE = WORD_AT + WORD_SIZE };

enum message_type {
    MESSAGE_TOKEN, /* has the token of the sender's region */
    MESSAGE_DATA,
    MESSAGE_CHECK,   /* asks the peer to check bytes of its region */
    MESSAGE_CHECKED, /* they are right, or the token was old */
};

struct message {
    uint64_t number; /* from 0 on */
    uint32_t type;
    uint32_t stripe;
    uint64_t offset;
    uint64_t length; /* of the payload behind it, or of the bytes to check */
    uint64_t sum;
    uint64_t generation; /* of the token */
    struct rdmux_token token;
};

enum slot_kind { SLOT_FREE, SLOT_SEND, SLOT_WRITE, SLOT_READ, SLOT_ADD };

struct slot {
    enum slot_kind kind;
    struct link *link;
    size_t stripe;
    uint8_t *bytes; /* of messages */
};

enum stripe_state { STRIPE_IDLE, STRIPE_WRITING, STRIPE_READING, STRIPE_ASKING };

struct stripe {
    enum stripe_state state;
    bool is_under_way; /* the write has no entry yet, so its bytes are in use */
    size_t offset;     /* of the region */
    size_t length;
    uint8_t *out;
    uint8_t *back;
};

struct receive {
    struct link *link;
    bool posted;
    uint8_t *bytes;
};

/* Private data of the connecting end. */
struct card {
    uint64_t uid;
    uint64_t dialled_ms;
};

struct link {
    struct rdmux_fabric *fabric;
    struct rdmux_ep *ep;
    uint64_t uid;
    uint64_t dialled_ms;
    bool is_up;
    bool has_ended;
    bool is_excused;
    bool is_leaving; /* posts nothing more */
    enum rdmux_status cause;
    struct rdmux_mr *mr; /* exported to the peer */
    uint64_t generation;
    bool owes_token;
    struct rdmux_remote *remote; /* the peer's region; NULL: none now */
    bool remote_is_ready;
    uint64_t remote_generation;
    bool word_is_known;
    uint64_t word;
    uint64_t word_read;
    uint64_t next_out;
    uint64_t next_in;
    bool owes_answer[STRIPES];
    struct stripe stripes[STRIPES];
    struct slot slots[SLOTS];
    struct receive receives[RECEIVES];
};

struct figures figures;
enum flaw flaw;
static uint64_t chance = 1;

/* ---------------------------------------------------------------------------------------- small */

void wrong(const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    fprintf(stderr, "# process %d: ", (int)getpid()); /* a peer's standard output has its notes */
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    _exit(1);
}

uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void draw_from(uint64_t seed)
{
    chance = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
}

static uint64_t draw_word(void)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return chance;
}

uint64_t draw(uint64_t below)
{
    return (draw_word() >> 11) % below;
}

/* Mostly small lengths, and each edge. */
static size_t draw_length(size_t most)
{
    uint64_t kind = draw(10);
    size_t bound = kind < 6 ? 64 : kind < 9 ? 4096 : most;
    bound = bound < most ? bound : most;
    return 1 + (size_t)draw(bound);
}

static void fill(uint8_t *bytes, size_t length)
{
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= length; at += sizeof(uint64_t)) {
        uint64_t word = draw_word();
        memcpy(bytes + at, &word, sizeof(word));
    }
    for (; at < length; at++) {
        bytes[at] = (uint8_t)draw_word();
    }
}

/* Depends on the order of the bytes. Works by words, as it sums up megabytes. */
static uint64_t sum_up(const uint8_t *bytes, size_t length)
{
    uint64_t sum = length + UINT64_C(0xcbf29ce484222325);
    size_t at = 0;
    for (; at + sizeof(uint64_t) <= length; at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + at, sizeof(word));
        sum = (sum ^ word) * UINT64_C(0x100000001b3);
        sum ^= sum >> 29;
    }
    for (; at < length; at++) {
        sum = (sum ^ bytes[at]) * UINT64_C(0x100000001b3);
    }
    return sum;
}

static void *make(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL) {
        wrong("no memory for a link");
    }
    return memory;
}

static const char *name_of(enum rdmux_status status)
{
    return rdmux_status_name(status);
}

/* ------------------------------------------------------------------------------------- requests */

static struct slot *free_slot(struct link *link)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (link->slots[i].kind == SLOT_FREE) {
            return &link->slots[i];
        }
    }
    return NULL;
}

/* Checks the status of a post: OK, or a refusal that may be. */
static bool was_taken(struct link *link, struct slot *slot, enum slot_kind kind,
                      enum rdmux_status status)
{
    if (status == RDMUX_OK) {
        slot->kind = kind;
        return true;
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    bool has_ended = rdmux_ep_info(link->ep, &info) == RDMUX_OK && info.state == RDMUX_EP_ENDED;
    bool is_revoked = kind != SLOT_SEND && status == RDMUX_DENIED;
    if (status != RDMUX_AGAIN && !has_ended && !is_revoked && !link->is_leaving) {
        wrong("a post gave %s: %s", name_of(status), rdmux_last_error());
    }
    return false;
}

static bool post_message(struct link *link, struct message *message, size_t payload)
{
    struct slot *slot = free_slot(link);
    if (slot == NULL) {
        return false;
    }
    message->number = link->next_out;
    if (slot->bytes == NULL) {
        slot->bytes = make(MESSAGE_MAX);
    }
    if (payload > 0) {
        fill(slot->bytes + sizeof(*message), payload);
        message->length = payload;
        message->sum = sum_up(slot->bytes + sizeof(*message), payload);
    }
    memcpy(slot->bytes, message, sizeof(*message));
    static uint64_t filled;
    filled += payload > 0;
    if (flaw == FLAW_BYTE && payload > 0 && filled % 100 == 0) {
        slot->bytes[sizeof(*message)] ^= 1;
    }
    enum rdmux_status status = rdmux_send(link->ep, slot->bytes, sizeof(*message) + payload, NULL,
                                          slot, 0);
    if (!was_taken(link, slot, SLOT_SEND, status)) {
        return false;
    }
    link->next_out++;
    return true;
}

static void send_token(struct link *link)
{
    struct message message = { .type = MESSAGE_TOKEN, .generation = link->generation };
    if (rdmux_mr_export(link->mr, &message.token) != RDMUX_OK) {
        wrong("export: %s", rdmux_last_error());
    }
    link->owes_token = !post_message(link, &message, 0);
}

static void send_data(struct link *link)
{
    struct message message = { .type = MESSAGE_DATA };
    (void)post_message(link, &message, draw_length(MESSAGE_MAX - sizeof(message)));
}

static void send_answer(struct link *link, size_t stripe)
{
    struct message message = { .type = MESSAGE_CHECKED, .stripe = (uint32_t)stripe };
    link->owes_answer[stripe] = !post_message(link, &message, 0);
}

static void ask(struct link *link, size_t number)
{
    struct stripe *stripe = &link->stripes[number];
    struct message message = { .type = MESSAGE_CHECK,
                               .stripe = (uint32_t)number,
                               .offset = stripe->offset,
                               .length = stripe->length,
                               .sum = sum_up(stripe->out, stripe->length),
                               .generation = link->remote_generation };
    stripe->state = post_message(link, &message, 0) ? STRIPE_ASKING : STRIPE_IDLE;
}

static void read_back(struct link *link, size_t number)
{
    struct stripe *stripe = &link->stripes[number];
    struct slot *slot = free_slot(link);
    stripe->state = STRIPE_IDLE;
    if (slot == NULL || link->remote == NULL) {
        return;
    }
    memset(stripe->back, 0, stripe->length);
    slot->stripe = number;
    if (was_taken(link, slot, SLOT_READ,
                  rdmux_read(link->ep, stripe->back, stripe->length, NULL, link->remote,
                             stripe->offset, slot, 0))) {
        stripe->state = STRIPE_READING;
    }
}

/* Writes bytes, and asks the peer to check them or reads them back when the write has completed. */
static void write_stripe(struct link *link, size_t number)
{
    struct stripe *stripe = &link->stripes[number];
    struct slot *slot = free_slot(link);
    if (slot == NULL || stripe->state != STRIPE_IDLE || stripe->is_under_way) {
        return;
    }
    stripe->length = draw_length(stripe_size[number]);
    stripe->offset = stripe_at[number] + (size_t)draw(stripe_size[number] - stripe->length + 1);
    fill(stripe->out, stripe->length);
    slot->stripe = number;
    bool asks = draw(2) == 0;
    uint32_t flags = draw(4) == 0 ? RDMUX_PLACED : 0;
    if (!was_taken(link, slot, SLOT_WRITE,
                   rdmux_write(link->ep, stripe->out, stripe->length, NULL, link->remote,
                               stripe->offset, slot, flags))) {
        return;
    }
    stripe->state = STRIPE_WRITING;
    stripe->is_under_way = true;
    if (asks) {
        ask(link, number);
        stripe->state = stripe->state == STRIPE_IDLE ? STRIPE_WRITING : stripe->state;
    }
}

static void add(struct link *link)
{
    struct slot *slot = free_slot(link);
    for (size_t i = 0; i < SLOTS; i++) {
        if (link->slots[i].kind == SLOT_ADD) {
            return;
        }
    }
    if (slot != NULL) {
        (void)was_taken(
            link, slot, SLOT_ADD,
            rdmux_fetch_add(link->ep, &link->word_read, NULL, link->remote, WORD_AT, 1, slot, 0));
    }
}

/* -------------------------------------------------------------------------------------- entries */

static void post_receive(struct link *link, struct receive *receive)
{
    enum rdmux_status status = rdmux_recv(link->ep, receive->bytes, MESSAGE_MAX, NULL, receive);
    receive->posted = status == RDMUX_OK;
}

static void take_token(struct link *link, const struct message *message)
{
    rdmux_remote_close(link->remote);
    link->remote = NULL;
    link->remote_is_ready = false;
    link->word_is_known = false;
    link->remote_generation = message->generation;
    enum rdmux_status status = rdmux_remote_import(link->ep, &message->token, 0, &link->remote);
    if (status == RDMUX_OK) {
        link->remote_is_ready = true;
    } else if (status != RDMUX_IN_PROGRESS) {
        link->remote = NULL;
    }
    figures.imports++;
}

static void check_bytes(struct link *link, const struct message *message)
{
    const uint8_t *bytes = rdmux_mr_addr(link->mr);
    if (message->offset + message->length > REGION_SIZE || message->stripe >= STRIPES) {
        wrong("a message asks about bytes that are not there");
    }
    if (message->generation == link->generation) {
        if (sum_up(bytes + message->offset, message->length) != message->sum) {
            wrong("%" PRIu64 " bytes at %" PRIu64
                  " of a region are not those written before the message",
                  message->length, message->offset);
        }
        figures.bytes += message->length;
    }
    send_answer(link, message->stripe);
}

static void take_message(struct link *link, const uint8_t *bytes, uint64_t length)
{
    struct message message;
    if (length < sizeof(message)) {
        wrong("a message has %" PRIu64 " bytes", length);
    }
    memcpy(&message, bytes, sizeof(message));
    if (message.number != link->next_in) {
        wrong("message %" PRIu64 " came in the place of %" PRIu64, message.number, link->next_in);
    }
    link->next_in++;
    switch ((enum message_type)message.type) {
    case MESSAGE_TOKEN:
        take_token(link, &message);
        return;
    case MESSAGE_DATA:
        if (length != sizeof(message) + message.length ||
            sum_up(bytes + sizeof(message), message.length) != message.sum) {
            wrong("message %" PRIu64 " of %" PRIu64 " bytes came with other bytes", message.number,
                  message.length);
        }
        figures.bytes += message.length;
        return;
    case MESSAGE_CHECK:
        check_bytes(link, &message);
        return;
    case MESSAGE_CHECKED:
        if (message.stripe >= STRIPES || link->stripes[message.stripe].state != STRIPE_ASKING) {
            wrong("an answer came without a question");
        }
        link->stripes[message.stripe].state = STRIPE_IDLE;
        return;
    default:
        break;
    }
    wrong("a message of type %u", message.type);
}

static void take_receive(struct link *link, struct receive *receive, const struct rdmux_wc *wc)
{
    if (!receive->posted) {
        wrong("a receive completed that was not posted");
    }
    receive->posted = false;
    if (wc->status != RDMUX_OK) {
        return;
    }
    figures.operations++;
    take_message(link, receive->bytes, wc->length);
    post_receive(link, receive);
}

static void check_word(struct link *link)
{
    if (link->word_is_known && link->word_read != link->word + 1) {
        wrong("a word of this link alone: %" PRIu64 " after %" PRIu64, link->word_read, link->word);
    }
    link->word = link->word_read;
    link->word_is_known = true;
}

static void finish_stripe(struct link *link, struct slot *slot, enum slot_kind kind, bool is_good)
{
    struct stripe *stripe = &link->stripes[slot->stripe];
    stripe->is_under_way = false;
    if (kind == SLOT_READ) {
        stripe->state = STRIPE_IDLE;
        if (is_good && memcmp(stripe->back, stripe->out, stripe->length) != 0) {
            wrong("%zu bytes at %zu of a region came back otherwise than they were written",
                  stripe->length, stripe->offset);
        }
        figures.bytes += is_good ? stripe->length : 0;
    } else if (stripe->state == STRIPE_WRITING && is_good && !link->is_leaving) {
        read_back(link, slot->stripe);
    } else if (stripe->state == STRIPE_WRITING) {
        stripe->state = STRIPE_IDLE;
    }
}

static void take_slot(struct link *link, struct slot *slot, const struct rdmux_wc *wc)
{
    enum slot_kind kind = slot->kind;
    bool is_good = wc->status == RDMUX_OK;
    if (kind == SLOT_FREE) {
        wrong("an entry %s of no request", rdmux_wc_opcode_name(wc->opcode));
    }
    slot->kind = SLOT_FREE;
    figures.operations += is_good;
    if (kind == SLOT_WRITE || kind == SLOT_READ) {
        finish_stripe(link, slot, kind, is_good);
    } else if (kind == SLOT_ADD && is_good) {
        check_word(link);
    } else if (kind == SLOT_ADD) {
        link->word_is_known = false;
    }
}

/* Checks at the end of an endpoint that each request has had its entry. */
static void check_all_completed(struct link *link)
{
    for (size_t i = 0; i < SLOTS; i++) {
        if (link->slots[i].kind != SLOT_FREE) {
            wrong("a request has no entry, though its endpoint has ended");
        }
    }
    for (size_t i = 0; i < RECEIVES; i++) {
        if (link->receives[i].posted) {
            wrong("a receive has no entry, though its endpoint has ended");
        }
    }
}

static void begin(struct link *link)
{
    link->is_up = true;
    link->owes_token = true;
    figures.connects++;
}

static void take_event(struct link *link, const struct rdmux_wc *wc)
{
    if (link->has_ended && !link->is_up) {
        return; /* it was never connected, and its end is known */
    }
    if (link->has_ended) {
        wrong("an event %s came behind the last", rdmux_wc_opcode_name(wc->opcode));
    }
    switch (wc->opcode) {
    case RDMUX_WC_CONNECTED:
        if (wc->status == RDMUX_OK) {
            begin(link);
            return;
        }
        link->cause = (enum rdmux_status)wc->status;
        link->has_ended = true;
        return;
    case RDMUX_WC_DISCONNECTED:
        link->cause = (enum rdmux_status)wc->status;
        link->has_ended = true;
        check_all_completed(link);
        return;
    case RDMUX_WC_REMOTE_READY:
        if (wc->context == link->remote) {
            link->remote_is_ready = wc->status == RDMUX_OK;
        }
        return;
    default: /* WRITABLE: posts are tried at each step */
        return;
    }
}

void link_entry(struct link *link, const struct rdmux_wc *wc)
{
    if (wc->opcode >= RDMUX_WC_CONNECTED) {
        take_event(link, wc);
        return;
    }
    if (link->has_ended && link->is_up) { /* without a connection, the entries of receives follow */
        wrong("an entry %s came behind the last", rdmux_wc_opcode_name(wc->opcode));
    }
    if (wc->opcode == RDMUX_WC_RECV) {
        take_receive(link, wc->context, wc);
        return;
    }
    take_slot(link, wc->context, wc);
    const struct slot *slot = wc->context;
    if (flaw == FLAW_ENTRY && figures.operations > 1000 && slot->kind == SLOT_FREE) {
        take_slot(link, wc->context, wc);
    }
}

/* ------------------------------------------------------------------------------- life of a link */

static void *linger(void *argument)
{
    (void)pause();
    return argument;
}

static void lose_memory(void)
{
    enum { BLOCK = 48, ENTRY = 256, MAPPING = 4096 };
    static void **kept;    /* each block has the address of its predecessor */
    static uint8_t *table; /* one more entry each time */
    static size_t entries;
    if (flaw == FLAW_MEMORY) {
        void **block = make(BLOCK);
        block[0] = kept;
        kept = block;
    }
    if (flaw == FLAW_TABLE) {
        table = realloc(table, ++entries * ENTRY);
        if (table == NULL) {
            wrong("no memory for a table");
        }
    }
    if (flaw == FLAW_MAPPING) {
        uint8_t *pages = mmap(NULL, MAPPING, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                              -1, 0);
        if (pages == MAP_FAILED) {
            wrong("no pages to leave");
        }
        pages[0] = 1;
    }
}

static void be_flawed(void)
{
    static uint64_t count;
    pthread_t thread;
    count++;
    if (flaw == FLAW_THREAD && count % 50 == 0 && pthread_create(&thread, NULL, linger, NULL) != 0) {
        wrong("no thread to leave");
    }
    if (flaw == FLAW_DESCRIPTOR && count % 10 == 0) {
        (void)!dup(STDOUT_FILENO);
    }
    lose_memory();
}

static struct link *make_link(struct rdmux_fabric *fabric, uint64_t uid)
{
    struct link *link = make(sizeof(*link));
    link->fabric = fabric;
    link->uid = uid;
    for (size_t i = 0; i < STRIPES; i++) {
        link->stripes[i].out = make(stripe_size[i]);
        link->stripes[i].back = make(stripe_size[i]);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        link->slots[i].link = link;
    }
    for (size_t i = 0; i < RECEIVES; i++) {
        link->receives[i].link = link;
        link->receives[i].bytes = make(MESSAGE_MAX);
    }
    enum rdmux_status status = rdmux_mr_alloc(fabric, REGION_SIZE,
                                              RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                                  RDMUX_ACCESS_REMOTE_ATOMIC,
                                              &link->mr);
    if (status != RDMUX_OK) {
        wrong("a region: %s: %s", name_of(status), rdmux_last_error());
    }
    be_flawed();
    return link;
}

static void free_link(struct link *link)
{
    rdmux_mr_deregister(link->mr);
    for (size_t i = 0; i < STRIPES; i++) {
        free(link->stripes[i].out);
        free(link->stripes[i].back);
    }
    for (size_t i = 0; i < SLOTS; i++) {
        free(link->slots[i].bytes);
    }
    for (size_t i = 0; i < RECEIVES; i++) {
        free(link->receives[i].bytes);
    }
    free(link);
}

static void post_receives(struct link *link)
{
    for (size_t i = 0; i < RECEIVES; i++) {
        post_receive(link, &link->receives[i]);
    }
}

struct link *link_dial(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
                       uint64_t uid)
{
    struct link *link = make_link(fabric, uid);
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.user = link;
    attr.liveness_ms = LIVENESS_MS;
    attr.setup_timeout_ms = SETUP_MS;
    const struct card card = { uid, now_ms() };
    attr.private_data = &card;
    attr.private_length = sizeof(card);
    if (rdmux_connect(fabric, cq, address, &attr, 0, &link->ep) != RDMUX_IN_PROGRESS) {
        wrong("connect: %s", rdmux_last_error());
    }
    post_receives(link);
    return link;
}

struct link *link_take(struct rdmux_fabric *fabric, struct rdmux_ep *ep)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct card card = { 0 };
    if (rdmux_ep_info(ep, &info) != RDMUX_OK || info.private_length != sizeof(card)) {
        wrong("the private data of a connection has %u bytes", info.private_length);
    }
    memcpy(&card, info.private_data, sizeof(card));
    struct link *link = make_link(fabric, card.uid);
    link->dialled_ms = card.dialled_ms;
    link->ep = ep;
    (void)rdmux_ep_set_user(ep, link);
    begin(link);
    post_receives(link);
    return link;
}

void link_step(struct link *link)
{
    if (!link->is_up || link->has_ended || link->is_leaving) {
        return;
    }
    if (link->owes_token) {
        send_token(link);
    }
    for (size_t i = 0; i < STRIPES; i++) {
        if (link->owes_answer[i]) {
            send_answer(link, i);
        }
    }
    bool has_remote = link->remote != NULL && link->remote_is_ready;
    switch (draw(6)) {
    case 0:
    case 1:
        send_data(link);
        break;
    case 2:
    case 3:
    case 4:
        if (has_remote) {
            write_stripe(link, (size_t)draw(STRIPES));
        }
        break;
    default:
        if (has_remote) {
            add(link);
        }
        break;
    }
}

void link_revoke(struct link *link)
{
    if (!link->is_up || link->has_ended || link->is_leaving || link->owes_token) {
        return;
    }
    if (rdmux_mr_revoke(link->mr) != RDMUX_OK) {
        wrong("revoke: %s", rdmux_last_error());
    }
    /* An endpoint whose peer did not answer in time may be lost. */
    link->is_excused = true;
    link->generation++;
    link->owes_token = true;
    figures.revocations++;
}

void link_shutdown(struct link *link)
{
    link->is_leaving = true;
    link->is_excused = true;
    enum rdmux_status status = rdmux_ep_shutdown(link->ep, 0);
    if (status == RDMUX_OK || status == RDMUX_TIMED_OUT) {
        wrong("a shutdown that does not wait gave %s", name_of(status));
    }
}

void link_close(struct link *link)
{
    rdmux_remote_close(link->remote);
    if (rdmux_ep_close(link->ep) != RDMUX_OK) {
        wrong("close: %s", rdmux_last_error());
    }
    free_link(link);
}

uint64_t link_uid(const struct link *link)
{
    return link->uid;
}

uint64_t link_dialled_ms(const struct link *link)
{
    return link->dialled_ms;
}

bool link_is_up(const struct link *link)
{
    return link->is_up && !link->has_ended && !link->is_leaving;
}

bool link_is_leaving(const struct link *link)
{
    return link->is_leaving;
}

bool link_has_ended(const struct link *link)
{
    return link->has_ended;
}

enum rdmux_status link_cause(const struct link *link)
{
    return link->cause;
}

void link_excuse(struct link *link)
{
    link->is_excused = true;
}

bool link_is_excused(const struct link *link)
{
    return link->is_excused;
}

const char *link_text(struct link *link)
{
    static struct rdmux_ep_info info;
    info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    return rdmux_ep_info(link->ep, &info) == RDMUX_OK ? info.text : "";
}
