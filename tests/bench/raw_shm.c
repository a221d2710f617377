/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The limit of the machine through shared memory: the smallest program that does each job.
 *
 *   raw_shm line 8 SECONDS         half a round trip in us; a cache line each way, with the flag in
 *   it raw_shm copy SIZE SECONDS      half a round trip in us of SIZE bytes copied twice: from
 *                                  ordinary memory into a shared buffer, from there into ordinary
 *                                  memory
 *   raw_shm place SIZE SECONDS     the same copied once, into the shared buffer
 *   raw_shm single 8 SECONDS       messages/s through a ring of lines, each published by itself
 *   raw_shm packed BATCH SECONDS   messages/s of 8 bytes with 8 bytes of header, four to a line,
 *                                  published BATCH at a time
 *   raw_shm memcpy SIZE SECONDS    bytes/s into shared memory
 *   raw_shm cma SIZE SECONDS       bytes/s of process_vm_writev() into the other process
 *   raw_shm atomic 8 SECONDS       ns of an atomic addition to a shared word
 */
#include "bench.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    LINE = 64,
    RING_LINES = 1024,
    PACKED_SLOTS = 4096, /* of 16 bytes */
    LOOKS = 256,
    COPY_MAX = 1 << 20,
};

struct line {
    _Alignas(LINE) _Atomic uint64_t sequence;
    uint64_t payload;
};

struct slot {
    uint64_t header; /* the number of the message + 1 once it has arrived */
    uint64_t payload;
};

/* The memory that the two sides share. */
struct area {
    struct line ping;
    struct line pong;
    struct line ring[RING_LINES];
    struct line taken;     /* messages that the consumer has finished */
    struct line published; /* messages in packed */
    struct line over;
    _Alignas(LINE) struct slot packed[PACKED_SLOTS];
    _Alignas(4096) uint8_t to_server[COPY_MAX];
    _Alignas(4096) uint8_t to_client[COPY_MAX];
};

struct side {
    struct bench *bench;
    struct area *area;
    size_t size;
    uint8_t *out;
    uint8_t *in;
    uint64_t sequence;
};

static inline uint64_t acquire(const struct line *line)
{
    return atomic_load_explicit(&line->sequence, memory_order_acquire);
}

static inline void release(struct line *line, uint64_t value)
{
    atomic_store_explicit(&line->sequence, value, memory_order_release);
}

static void line_round(void *user, bool last)
{
    struct side *side = user;
    side->area->ping.payload = last;
    release(&side->area->ping, ++side->sequence);
    while (acquire(&side->area->pong) != side->sequence) {
    }
}

static void line_serve(struct side *side)
{
    uint64_t last = 0;
    while (last == 0) {
        side->sequence++;
        while (acquire(&side->area->ping) != side->sequence) {
        }
        last = side->area->ping.payload;
        side->area->pong.payload = last;
        release(&side->area->pong, side->sequence);
    }
}

static void copy_round(void *user, bool last)
{
    struct side *side = user;
    memcpy(side->area->to_server, side->out, side->size);
    side->area->ping.payload = last;
    release(&side->area->ping, ++side->sequence);
    while (acquire(&side->area->pong) != side->sequence) {
    }
    memcpy(side->in, side->area->to_client, side->size);
}

static void copy_serve(struct side *side)
{
    uint64_t last = 0;
    while (last == 0) {
        side->sequence++;
        while (acquire(&side->area->ping) != side->sequence) {
        }
        last = side->area->ping.payload;
        memcpy(side->in, side->area->to_server, side->size);
        memcpy(side->area->to_client, side->out, side->size);
        release(&side->area->pong, side->sequence);
    }
}

static void place_round(void *user, bool last)
{
    struct side *side = user;
    memcpy(side->area->to_server, side->out, side->size);
    side->area->ping.payload = last;
    release(&side->area->ping, ++side->sequence);
    while (acquire(&side->area->pong) != side->sequence) {
    }
}

static void place_serve(struct side *side)
{
    uint64_t last = 0;
    while (last == 0) {
        side->sequence++;
        while (acquire(&side->area->ping) != side->sequence) {
        }
        last = side->area->ping.payload;
        memcpy(side->area->to_client, side->out, side->size);
        release(&side->area->pong, side->sequence);
    }
}

static void run_ping_pong(struct side *side, void (*round)(void *, bool),
                          void (*serve)(struct side *))
{
    double value = 0;
    uint64_t rounds = 0;
    if (side->bench->side == 0) {
        value = bench_ping_pong(side->bench, round, side, &rounds);
    } else {
        bench_start(side->bench);
        serve(side);
    }
    bench_finish(side->bench, value, rounds * 2);
}

/* The consumer frees a quarter of the ring at a time. */
static void single_produce(struct side *side)
{
    struct area *area = side->area;
    uint64_t room = RING_LINES;
    do {
        for (int i = 0; i < LOOKS; i++) {
            while (side->sequence == room) {
                room = acquire(&area->taken) + RING_LINES;
            }
            struct line *line = &area->ring[side->sequence % RING_LINES];
            line->payload = side->sequence;
            release(line, ++side->sequence);
        }
    } while (!bench_is_over(side->bench));
    area->over.payload = side->sequence;
    release(&area->over, 1);
    while (acquire(&area->taken) != side->sequence) {
    }
}

static void single_consume(struct side *side)
{
    struct area *area = side->area;
    uint64_t sum = 0;
    for (;;) {
        struct line *line = &area->ring[side->sequence % RING_LINES];
        while (acquire(line) != side->sequence + 1) {
            if (acquire(&area->over) != 0 && area->over.payload == side->sequence) {
                release(&area->taken, side->sequence);
                memcpy(side->in, &sum, sizeof(sum));
                return;
            }
        }
        sum += line->payload;
        if (++side->sequence % (RING_LINES / 4) == 0) {
            release(&area->taken, side->sequence);
        }
    }
}

static void packed_produce(struct side *side)
{
    struct area *area = side->area;
    uint64_t batch = side->size;
    uint64_t room = PACKED_SLOTS;
    do {
        for (int i = 0; i < LOOKS; i++) {
            while (side->sequence + batch > room) {
                room = acquire(&area->taken) + PACKED_SLOTS;
            }
            for (uint64_t j = 0; j < batch; j++) {
                struct slot *slot = &area->packed[side->sequence % PACKED_SLOTS];
                slot->payload = side->sequence;
                slot->header = ++side->sequence;
            }
            release(&area->published, side->sequence);
        }
    } while (!bench_is_over(side->bench));
    area->over.payload = side->sequence;
    release(&area->over, 1);
    while (acquire(&area->taken) != side->sequence) {
    }
}

static void packed_consume(struct side *side)
{
    struct area *area = side->area;
    uint64_t sum = 0;
    for (;;) {
        uint64_t published = acquire(&area->published);
        while (side->sequence != published) {
            const struct slot *slot = &area->packed[side->sequence % PACKED_SLOTS];
            sum += slot->payload + slot->header;
            if (++side->sequence % (PACKED_SLOTS / 4) == 0) {
                release(&area->taken, side->sequence);
            }
        }
        if (acquire(&area->over) != 0 && area->over.payload == side->sequence) {
            release(&area->taken, side->sequence);
            memcpy(side->in, &sum, sizeof(sum));
            return;
        }
    }
}

static void run_rate(struct side *side, void (*produce)(struct side *),
                     void (*consume)(struct side *))
{
    bench_start(side->bench);
    (side->bench->side == 0 ? produce : consume)(side);
    bench_stop(side->bench);
    bench_finish(side->bench, (double)side->sequence / side->bench->elapsed, side->sequence);
}

/* Keeps the compiler from joining two copies of the same bytes. */
static inline void touch(void *bytes)
{
    __asm__ volatile("" : : "r"(bytes) : "memory");
}

static void run_memcpy(struct side *side)
{
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        do {
            memcpy(side->area->to_server, side->out, side->size);
            touch(side->area->to_server);
            count++;
        } while (!bench_is_over(side->bench));
    }
    bench_stop(side->bench);
    bench_finish(side->bench, (double)(count * side->size) / side->bench->elapsed, count);
}

static void run_cma(struct side *side)
{
    struct {
        pid_t pid;
        void *in;
    } mine = { .pid = getpid(), .in = side->in }, theirs;
    bench_exchange(side->bench, &mine, &theirs, sizeof(mine));
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        struct iovec local = { .iov_base = side->out, .iov_len = side->size };
        struct iovec remote = { .iov_base = theirs.in, .iov_len = side->size };
        do {
            if (process_vm_writev(theirs.pid, &local, 1, &remote, 1, 0) != (ssize_t)side->size) {
                bench_skip("process_vm_writev: %s (kernel.yama.ptrace_scope?)", strerror(errno));
            }
            count++;
        } while (!bench_is_over(side->bench));
    }
    bench_stop(side->bench);
    bench_meet(side->bench);
    bench_finish(side->bench, (double)(count * side->size) / side->bench->elapsed, count);
}

static void run_atomic(struct side *side)
{
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        do {
            for (int i = 0; i < LOOKS; i++) {
                atomic_fetch_add(&side->area->ping.sequence, 1);
            }
            count += LOOKS;
        } while (!bench_is_over(side->bench));
    }
    bench_stop(side->bench);
    bench_finish(side->bench, side->bench->elapsed * 1e9 / (double)(count > 0 ? count : 1), count);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        bench_fail("usage: raw_shm line|copy|place|single|packed|memcpy|cma|atomic SIZE SECONDS");
    }
    struct bench bench;
    size_t size = bench_size(argv[2]);
    if (strcmp(argv[1], "cma") != 0 && size > COPY_MAX) {
        bench_fail("%zu bytes are more than the %d of the shared buffer", size, COPY_MAX);
    }
    bench_fork(&bench, strtod(argv[3], NULL), sizeof(struct area) + sizeof(struct line));
    uintptr_t start = ((uintptr_t)bench_memory(&bench) + LINE - 1) & ~(uintptr_t)(LINE - 1);
    struct side side = {
        .bench = &bench,
        .area = (struct area *)start,
        .size = size,
        .out = bench_buffer(size < LINE ? LINE : size),
        .in = bench_buffer(size < LINE ? LINE : size),
    };
    bench_meet(&bench);
    if (strcmp(argv[1], "line") == 0) {
        run_ping_pong(&side, line_round, line_serve);
    } else if (strcmp(argv[1], "copy") == 0) {
        run_ping_pong(&side, copy_round, copy_serve);
    } else if (strcmp(argv[1], "place") == 0) {
        run_ping_pong(&side, place_round, place_serve);
    } else if (strcmp(argv[1], "single") == 0) {
        run_rate(&side, single_produce, single_consume);
    } else if (strcmp(argv[1], "packed") == 0) {
        run_rate(&side, packed_produce, packed_consume);
    } else if (strcmp(argv[1], "memcpy") == 0) {
        run_memcpy(&side);
    } else if (strcmp(argv[1], "cma") == 0) {
        run_cma(&side);
    } else if (strcmp(argv[1], "atomic") == 0) {
        run_atomic(&side);
    } else {
        bench_fail("there is no '%s'", argv[1]);
    }
    return 0;
}
