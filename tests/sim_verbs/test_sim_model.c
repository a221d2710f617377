/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Random programs against a model of a dozen lines: requests of one queue pair happen one after the
 * other. Whatever liberties the device takes, a program that fences correctly and reads memory only
 * when allowed sees exactly that. The same seed gives the same result twice.
 */
#include "support.h"

#include <errno.h>
#include <stdlib.h>

enum {
    /* A node's memory, in regions that the two directions do not share. */
    SOURCE = 0,       /* bytes that its requests send; never changes */
    TARGET = 16384,   /* bytes that the peer's requests access */
    SINK = 32768,     /* results of its own reads and atomics */
    RECEIVES = 49152, /* receives, one place for each message */
    REGION = 8192,
    PLACE = 256,
    PLACES = 32,
    DEPTH = 16,
    STEPS = 300,
};

struct random {
    uint64_t state;
};

static uint32_t below(struct random *random, uint32_t limit)
{
    random->state = random->state * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)((random->state >> 33) % limit);
}

/* Expected contents of a completion. */
struct expected {
    uint64_t wr_id;
    enum ibv_wc_opcode opcode;
    uint32_t byte_len;
    uint32_t imm;
};

enum { EXPECTED = 4096 };

struct queue {
    struct expected entries[EXPECTED];
    size_t put;
    size_t taken;
};

struct side {
    struct node *node;
    struct side *peer;
    uint8_t *model; /* of the node's memory */
    struct queue sends;
    struct queue receives;
    uint64_t next_id;
    uint32_t
        receives_posted; /* as the peer knows: messages may go ahead of it where RNR is put up with */
    uint32_t messages;   /* sent to this side */
    uint32_t unsignaled;
    bool reads_before; /* requests behind reads or atomics have to be fenced */
    bool iwarp;
};

static void expect_entry(struct queue *queue, struct expected entry)
{
    assert_true(queue->put < EXPECTED);
    queue->entries[queue->put++] = entry;
}

static void post_receive(struct side *side)
{
    uint32_t number = side->receives_posted;
    size_t place = RECEIVES + (size_t)(number % PLACES) * PLACE;
    int result = post_recv(side->node, number, place, PLACE);
    if (result == 0) {
        side->receives_posted++;
    } else {
        assert_int_equal(abs(result), ENOMEM);
    }
}

/* Does a message to the side find a receive, or may it wait for one? */
static bool may_send(const struct side *to, struct random *random)
{
    /* Never so far ahead that a place is overwritten before its message was checked. */
    if (to->messages - (uint32_t)to->receives.taken >= PLACES) {
        return false;
    }
    bool waits = !to->iwarp && below(random, 4) == 0;
    return to->messages < to->receives_posted || (waits && to->messages < to->receives_posted + 2);
}

static unsigned int flags_for(struct side *side, struct random *random, bool fence)
{
    unsigned int flags = fence ? IBV_SEND_FENCE : 0;
    bool signaled = side->unsignaled >= DEPTH / 2 || below(random, 3) == 0;
    side->unsignaled = signaled ? 0 : side->unsignaled + 1;
    return signaled ? flags | IBV_SEND_SIGNALED : flags;
}

static void model_message(struct side *side, size_t from, uint32_t length, uint32_t imm, bool write)
{
    struct side *to = side->peer;
    uint32_t number = to->messages++;
    if (!write) {
        memcpy(to->model + RECEIVES + (size_t)(number % PLACES) * PLACE, side->model + from, length);
    }
    expect_entry(
        &to->receives,
        (struct expected){ number, write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV, length, imm });
}

static uint64_t *word_of(uint8_t *model, size_t offset)
{
    return (uint64_t *)(void *)(model + offset);
}

enum what { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ADD, SWAP, WHATS };

/* Posts one random request and applies it to the model at once. */
static void post_request(struct side *side, struct random *random)
{
    struct side *to = side->peer;
    enum what what = (enum what)below(random, WHATS);
    bool message = what == SEND || what == SEND_IMM || what == WRITE_IMM;
    bool plain = what == SEND || what == WRITE || what == READ;
    if ((side->iwarp && !plain) || (message && !may_send(to, random))) {
        return;
    }
    uint32_t length = 1 + below(random, what == SEND || what == SEND_IMM ? PLACE : 3000);
    uint32_t imm = below(random, 1000000);
    size_t from = SOURCE + below(random, REGION - length);
    size_t target = TARGET + below(random, REGION - length);
    size_t sink = SINK + below(random, REGION - length);
    size_t word = TARGET + below(random, REGION / 8) * 8;
    size_t word_sink = SINK + below(random, REGION / 8) * 8;
    bool reads = what == READ || what == ADD || what == SWAP;
    if (message && side->reads_before && below(random, 2) == 0) {
        from = sink; /* result of a read; the fence makes that correct */
    }
    bool fence = side->reads_before && !(what == READ);
    unsigned int flags = flags_for(side, random, fence);
    uint64_t id = side->next_id;
    uint64_t old = *word_of(to->model, word);
    uint64_t compare = below(random, 2) == 0 ? old : 5;
    int result = 0;
    switch (what) {
    case SEND:
        result = post_send(side->node, id, from, length, flags);
        break;
    case SEND_IMM:
        result = post_send_imm(side->node, id, from, length, imm, flags);
        break;
    case WRITE:
        result = post_write(side->node, id, from, length, to->node, target, flags);
        break;
    case WRITE_IMM:
        result = post_write_imm(side->node, id, from, length, to->node, target, imm, flags);
        break;
    case READ:
        result = post_read(side->node, id, sink, length, to->node, target, flags);
        break;
    case ADD:
        result = post_fetch_add(side->node, id, word_sink, to->node, word, imm, flags);
        break;
    case SWAP:
        result = post_cmp_swap(side->node, id, word_sink, to->node, word, compare, imm, flags);
        break;
    case WHATS:
        break;
    }
    if (result != 0) {
        assert_int_equal(abs(result), ENOMEM);
        side->unsignaled = 0; /* the next request may be signaled */
        return;
    }
    side->next_id++;
    side->reads_before = fence ? reads : side->reads_before || reads;
    static const enum ibv_wc_opcode opcodes[WHATS] = {
        [SEND] = IBV_WC_SEND,        [SEND_IMM] = IBV_WC_SEND,
        [WRITE] = IBV_WC_RDMA_WRITE, [WRITE_IMM] = IBV_WC_RDMA_WRITE,
        [READ] = IBV_WC_RDMA_READ,   [ADD] = IBV_WC_FETCH_ADD,
        [SWAP] = IBV_WC_COMP_SWAP,
    };
    uint32_t bytes = what == READ ? length : reads ? 8 : 0;
    if ((flags & IBV_SEND_SIGNALED) != 0) {
        expect_entry(&side->sends, (struct expected){ id, opcodes[what], bytes, 0 });
    }
    switch (what) {
    case SEND:
        model_message(side, from, length, 0, false);
        break;
    case SEND_IMM:
        model_message(side, from, length, imm, false);
        break;
    case WRITE_IMM:
    case WRITE:
        memcpy(to->model + target, side->model + from, length);
        if (what == WRITE_IMM) {
            model_message(side, from, length, imm, true);
        }
        break;
    case READ:
        memcpy(side->model + sink, to->model + target, length);
        break;
    case ADD:
        *word_of(side->model, word_sink) = old;
        *word_of(to->model, word) = old + imm;
        break;
    case SWAP:
        *word_of(side->model, word_sink) = old;
        *word_of(to->model, word) = old == compare ? imm : old;
        break;
    case WHATS:
        break;
    }
}

static void check_entry(const struct side *side, const struct ibv_wc *wc,
                        const struct expected *entry, bool receive)
{
    if (wc->status != IBV_WC_SUCCESS || wc->wr_id != entry->wr_id || wc->opcode != entry->opcode ||
        wc->byte_len != entry->byte_len) {
        fail_msg("entry %llu '%s' opcode %d, %u bytes; expected %llu opcode %d, %u bytes",
                 (unsigned long long)wc->wr_id, ibv_wc_status_str(wc->status), (int)wc->opcode,
                 wc->byte_len, (unsigned long long)entry->wr_id, (int)entry->opcode,
                 entry->byte_len);
    }
    assert_int_equal(wc->imm_data, entry->imm);
    if (receive && entry->opcode == IBV_WC_RECV) {
        /* The message is complete when its entry is polled, not only in the end. */
        size_t place = RECEIVES + (size_t)(entry->wr_id % PLACES) * PLACE;
        assert_memory_equal(side->node->memory + place, side->model + place, entry->byte_len);
    }
}

/* On iWARP a read's entry may come after those of later requests: search instead of taking the
 * next. */
static const struct expected *find_entry(struct queue *queue, const struct ibv_wc *wc, bool ordered)
{
    if (ordered || queue->entries[queue->taken].wr_id == wc->wr_id) {
        return &queue->entries[queue->taken++];
    }
    for (size_t at = queue->taken; at < queue->put; at++) {
        if (queue->entries[at].wr_id == wc->wr_id) {
            struct expected found = queue->entries[at];
            assert_int_equal(queue->entries[queue->taken].opcode, IBV_WC_RDMA_READ);
            memmove(&queue->entries[queue->taken + 1], &queue->entries[queue->taken],
                    (at - queue->taken) * sizeof(found));
            queue->entries[queue->taken] = found;
            return &queue->entries[queue->taken++];
        }
    }
    fail_msg("an entry that nobody expects: %llu", (unsigned long long)wc->wr_id);
    return NULL;
}

static void poll_some(struct side *side, uint32_t most)
{
    struct ibv_wc wc[8];
    int count = ibv_poll_cq(side->node->send_cq, (int)most, wc);
    for (int i = 0; i < count; i++) {
        assert_true(side->sends.taken < side->sends.put);
        check_entry(side, &wc[i], find_entry(&side->sends, &wc[i], !side->iwarp), false);
    }
    count = ibv_poll_cq(side->node->recv_cq, (int)most, wc);
    for (int i = 0; i < count; i++) {
        assert_true(side->receives.taken < side->receives.put);
        check_entry(side, &wc[i], find_entry(&side->receives, &wc[i], true), true);
    }
}

static bool all_taken(const struct side *side)
{
    return side->sends.taken == side->sends.put && side->receives.taken == side->receives.put;
}

static void side_make(struct side *side, struct node *node, struct side *peer, bool iwarp)
{
    *side = (struct side){ .node = node, .peer = peer, .iwarp = iwarp };
    for (size_t i = 0; i < NODE_MEMORY; i++) {
        node->memory[i] = (uint8_t)(i * 31 + (i >> 8));
    }
    side->model = malloc(NODE_MEMORY);
    assert_non_null(side->model);
    memcpy(side->model, node->memory, NODE_MEMORY);
}

/* The end: every message has a receive, a read flushes each direction, all entries are polled. */
static void finish(struct pair *pair, struct side sides[2])
{
    for (unsigned int tries = 0; tries < 100000; tries++) {
        bool done = true;
        for (size_t i = 0; i < 2; i++) {
            if (sides[i].receives_posted < sides[i].messages) {
                post_receive(&sides[i]);
            }
            poll_some(&sides[i], 8);
            done = done && all_taken(&sides[i]) && sides[i].receives_posted >= sides[i].messages;
        }
        if (done) {
            break;
        }
        (void)sim_step(pair->world);
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(all_taken(&sides[i]));
        assert_int_equal(post_read(sides[i].node, 1 << 20, SINK, 0, sides[i].peer->node, TARGET,
                                   IBV_SEND_SIGNALED),
                         0);
        expect_wc(sides[i].node->send_cq, 1 << 20, IBV_WC_SUCCESS);
    }
}

struct result {
    uint64_t hash;
    uint64_t time;
    struct sim_counters counters;
};

static struct result run(const char *world, const char *device, unsigned int seed)
{
    char options[256];
    bool iwarp = strstr(device, "iwarp") != NULL;
    (void)snprintf(options, sizeof(options), "seed=%u,%s", seed, world);
    struct pair pair = pair_make(
        &(struct wishes){ .world = options, .device = device, .depth = DEPTH });
    struct random random = { seed * 77 + 1 };
    struct side *sides = calloc(2, sizeof(*sides));
    assert_non_null(sides);
    side_make(&sides[0], &pair.a, &sides[1], iwarp);
    side_make(&sides[1], &pair.b, &sides[0], iwarp);
    if (iwarp) {
        /* The connector has to send first. */
        assert_int_equal(post_read(&pair.a, 1 << 20, SINK, 0, &pair.b, TARGET, IBV_SEND_SIGNALED),
                         0);
        expect_wc(pair.a.send_cq, 1 << 20, IBV_WC_SUCCESS);
    }
    for (unsigned int step = 0; step < STEPS; step++) {
        struct side *side = &sides[below(&random, 2)];
        switch (below(&random, 4)) {
        case 0:
            post_receive(side);
            break;
        case 1:
            poll_some(side, 1 + below(&random, 8));
            break;
        case 2:
            (void)sim_advance(pair.world, below(&random, 20000));
            break;
        default:
            post_request(side, &random);
            break;
        }
    }
    finish(&pair, sides);
    for (size_t i = 0; i < 2; i++) {
        if (memcmp(sides[i].node->memory, sides[i].model, NODE_MEMORY) != 0) {
            size_t where = 0;
            while (sides[i].node->memory[where] == sides[i].model[where]) {
                where++;
            }
            fail_msg("world '%s' device '%s': memory of side %zu differs at %zu", options, device,
                     i, where);
        }
    }
    struct result result = { sim_trace_hash(pair.world), sim_now(pair.world),
                             sim_counters(pair.world) };
    for (size_t i = 0; i < 2; i++) {
        free(sides[i].model);
    }
    free(sides);
    pair_end(&pair);
    return result;
}

static const char *const worlds[] = {
    "",
    "latency=1us",
    "latency=3us,jitter=5us,packet=256,window=64,shuffle=yes",
    "packet=100,visible=30us,scatter=yes",
    "freedoms=all",
    "freedoms=all,drop=50",
    "freedoms=lazy",
    "freedoms=lazy,drop=20,batch=16,bandwidth=1000",
};

static const char *const devices[] = { "link=roce", "link=ib,like=hca", "link=roce,atomics=glob",
                                       "link=iwarp", "link=iwarp,unordered_reads=no" };

enum {
    WORLDS = sizeof(worlds) / sizeof(worlds[0]),
    DEVICES = sizeof(devices) / sizeof(devices[0]),
};

static unsigned int seeds(void)
{
    const char *level = getenv("RDMUX_TEST_LEVEL");
    return level != NULL && strcmp(level, "thorough") == 0 ? 100 : 6;
}

static void random_programs_see_what_the_model_says(void **state)
{
    (void)state;
    struct sim_counters sum = { .requests = 0 };
    for (size_t w = 0; w < WORLDS; w++) {
        for (size_t d = 0; d < DEVICES; d++) {
            for (unsigned int seed = 1; seed <= seeds(); seed++) {
                struct result result = run(worlds[w], devices[d], seed);
                sum.requests += result.counters.requests;
                sum.rnr_naks += result.counters.rnr_naks;
                sum.retries += result.counters.retries;
                sum.placed_late += result.counters.placed_late;
                sum.reads_late += result.counters.reads_late;
            }
        }
    }
    /* The device took its liberties; otherwise this proves little. */
    assert_true(sum.requests > 10000);
    assert_true(sum.rnr_naks > 100);
    assert_true(sum.retries > 100);
    assert_true(sum.placed_late > 1000);
    assert_true(sum.reads_late > 100);
}

static void the_same_seed_gives_the_same_run(void **state)
{
    (void)state;
    unsigned int different = 0;
    for (size_t w = 0; w < WORLDS; w++) {
        for (size_t d = 0; d < DEVICES; d++) {
            struct result first = run(worlds[w], devices[d], 3);
            void *shift = malloc(12345); /* addresses must not matter */
            struct result second = run(worlds[w], devices[d], 3);
            free(shift);
            assert_true(first.hash == second.hash && first.time == second.time);
            assert_memory_equal(&first.counters, &second.counters, sizeof(first.counters));
            struct result other = run(worlds[w], devices[d], 4);
            different += other.hash != first.hash;
        }
    }
    assert_int_equal(different, WORLDS * DEVICES);
}

/* --------------------------------------------------------------------------- programs cut short */

/* Whatever the end: each request and receive has at most one entry, a failed one has exactly one,
 * in order, and after the first failure of a queue none succeeds. */
static void cut_short(const char *world, const char *device, unsigned int seed)
{
    char options[256];
    enum { COUNT = 12 };
    (void)snprintf(options, sizeof(options), "seed=%u,%s", seed, world);
    struct pair pair = pair_make(
        &(struct wishes){ .world = options, .device = device, .depth = 16 });
    struct random random = { seed };
    fill(&pair.a, SOURCE, 4096, 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(post_recv(&pair.b, i, RECEIVES + i * 64, 64), 0);
    }
    uint32_t bad = below(&random, COUNT);
    bool signaled[COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        signaled[i] = below(&random, 2) == 0;
        unsigned int flags = signaled[i] ? IBV_SEND_SIGNALED : 0;
        uint32_t key = pair.b.mr->rkey;
        pair.b.mr->rkey = i == bad ? key ^ 2 : key;
        int result = i % 2 == 0 || i == bad
                         ? post_write(&pair.a, i, SOURCE, 300, &pair.b, TARGET + i * 512, flags)
                         : post_send(&pair.a, i, SOURCE, 64, flags);
        pair.b.mr->rkey = key;
        assert_int_equal(result, 0);
    }
    (void)sim_advance(pair.world, below(&random, 20000));
    if (below(&random, 3) == 0) {
        assert_int_equal(qp_to_error(pair.a.qp), 0);
    }
    (void)sim_advance(pair.world, 10ULL * 1000000000);
    assert_int_equal(qp_to_error(pair.b.qp), 0);
    (void)sim_advance(pair.world, 10ULL * 1000000000);

    struct ibv_wc wc[64];
    int count = 0;
    int last = -1;
    int failed = -1;
    while ((count = ibv_poll_cq(pair.a.send_cq, 64, wc)) > 0 || sim_step(pair.world)) {
        for (int i = 0; i < count; i++) {
            int id = (int)wc[i].wr_id;
            bool good = wc[i].status == IBV_WC_SUCCESS;
            assert_true(id > last);
            assert_true(!good || (signaled[id] && failed < 0 && (uint32_t)id < bad));
            assert_true(failed < 0 || (wc[i].status == IBV_WC_WR_FLUSH_ERR && id == last + 1));
            failed = failed < 0 && !good ? id : failed;
            last = id;
        }
    }
    assert_int_equal(last, COUNT - 1);
    assert_in_range(failed, 0, bad);
    last = -1;
    bool flushed = false;
    while ((count = ibv_poll_cq(pair.b.recv_cq, 64, wc)) > 0 || sim_step(pair.world)) {
        for (int i = 0; i < count; i++) {
            bool good = wc[i].status == IBV_WC_SUCCESS;
            assert_int_equal(wc[i].wr_id, ++last);
            assert_false(good && flushed);
            flushed = flushed || !good;
        }
    }
    assert_int_equal(last, COUNT - 1);
    assert_int_equal(ibv_destroy_qp(pair.b.qp), 0);
    pair.b.qp = NULL;
    for (int i = 0; i < COUNT; i += 2) {
        bool there = filled(&pair.b, TARGET + (size_t)i * 512, 300, 1);
        assert_true(i < failed ? there : (uint32_t)i < bad || !there);
    }
    pair_end(&pair);
}

static void a_program_cut_short_has_each_entry_once_and_in_order(void **state)
{
    (void)state;
    for (size_t w = 0; w < WORLDS; w++) {
        for (unsigned int seed = 1; seed <= seeds() * 10; seed++) {
            cut_short(worlds[w], seed % 2 == 0 ? "link=roce" : "link=ib,like=hca", seed);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_see_what_the_model_says),
        cmocka_unit_test(the_same_seed_gives_the_same_run),
        cmocka_unit_test(a_program_cut_short_has_each_entry_once_and_in_order),
    };
    return cmocka_run_group_tests_name("sim_model", tests, NULL, NULL);
}
