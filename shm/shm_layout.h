/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Layout of the shared memory, byte for byte: the segment of one endpoint pair, the region table
 * of a process, and the ready set of a queue. docs/WIRE-SHM.md specifies them. Everything here that
 * the peer writes is hostile input: read it once into a local variable and check it before use. */
#ifndef RDMUX_SHM_LAYOUT_H
#define RDMUX_SHM_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define SHM_SEGMENT_MAGIC UINT64_C(0x316d687378756d64) /* "dmuxshm1" */
#define SHM_READY_MAGIC UINT64_C(0x3179647278756d64)   /* "dmuxrdy1" */

enum {
    SHM_LINE = 64,
    SHM_LINE_PAIR = 128, /* the adjacent-line prefetcher fetches lines in pairs */
    SHM_PAGE = 4096,
    SHM_SLOT_COUNT = 256,       /* a power of two */
    SHM_BODY_SIZE = 48,         /* bytes of a slot after its header */
    SHM_DATA_SIZE = 128 * 1024, /* bytes of a data ring, a power of two */
    SHM_CHUNK_MAX = 16 * 1024,  /* most bytes of the data ring that one slot owns */
    SHM_RECEIVE_COUNT = 128,    /* receives that can be published at a time, a power of two */
    SHM_REGION_COUNT = 4096,    /* regions of a process that peers may reach without its CPU */
    SHM_MARK_WORDS = 64,        /* words of marks in a ready set, one bit of the summary each */
    SHM_MARK_COUNT = SHM_MARK_WORDS * 64,
};

/* shm_slot.kind */
enum {
    SHM_SEND = 1, /* a message, or its first chunk. chunk 0: inline_length bytes in the body */
    SHM_SEND_CHUNK = 2,  /* the next bytes of the message before it */
    SHM_SEND_PULL = 3,   /* a message that the receiver copies from the sender's memory */
    SHM_SEND_PLACED = 4, /* a message whose bytes are in the published receive already */
    SHM_NOTICE = 5,      /* the end of a write_imm */
    SHM_WRITE = 6,       /* chunk bytes for a region, written by the target's CPU */
    SHM_READ = 7,      /* chunk bytes of a region, copied into the data ring by the target's CPU */
    SHM_FETCH_ADD = 8, /* chunk is 8, for the old value */
    SHM_COMPARE_SWAP = 9, /* chunk is 8, for the old value */
    SHM_FLUSH = 10,       /* no action; once it is consumed, everything before it is placed */
};

/* shm_slot.flags */
enum { SHM_HAS_IMM = 1 << 0 };

/* One request. `sequence` is stored last, with release. It is the low half of the slot's position
 * plus one, so a slot of an earlier lap never looks published. */
struct shm_slot {
    _Alignas(SHM_LINE) _Atomic uint32_t sequence;
    uint8_t kind;
    uint8_t flags;
    uint16_t inline_length;
    uint32_t imm;
    uint32_t chunk;
    uint8_t body[SHM_BODY_SIZE];
};
static_assert(sizeof(struct shm_slot) == SHM_LINE, "a small message is one cache line");

/* Bodies, copied from and to shm_slot.body. */
struct shm_message_body { /* SEND with a chunk, SEND_PLACED, NOTICE: bytes of the whole message */
    uint64_t length;
};
struct shm_pull_body { /* a single piece is here; several pieces are in the data ring */
    uint64_t length;
    uint64_t piece_count;
    uint64_t address;
};
struct shm_piece {
    uint64_t address;
    uint64_t length;
};
struct shm_access_body { /* WRITE, READ, FETCH_ADD, COMPARE_SWAP */
    uint8_t key[16];
    uint64_t offset;
    uint64_t operand;
    uint64_t expected;
};
static_assert(sizeof(struct shm_access_body) <= SHM_BODY_SIZE, "an atomic request is one slot");

/* shm_side.state */
enum { SHM_OPEN = 0, SHM_CLOSED = 1, SHM_FAILED = 2 };

/* shm_side.sleeping */
enum {
    SHM_WAKE_MESSAGE = 1 << 0,  /* ring when there is a slot, or state changed */
    SHM_WAKE_PROGRESS = 1 << 1, /* ring when consumed moved */
};

/* Words that one side shows the other. They are grouped into lines by reader and frequency. */
struct shm_side {
    /* Read at each post and poll, rarely written. The peer clears sleeping when it rings. */
    _Alignas(SHM_LINE_PAIR) _Atomic uint32_t sleeping;
    _Atomic uint32_t state;     /* stored with release, after status and failed_at */
    _Atomic uint32_t status;    /* if SHM_FAILED: enum rdmux_status */
    _Atomic uint32_t can_copy;  /* 1: this side may use process_vm_readv and writev on the other */
    _Atomic uint64_t failed_at; /* if SHM_FAILED: position of the slot that was refused */
    /* Changes when the socket has news of this side's queue. Stored before sleeping. */
    _Atomic uint32_t moves;
    /* Number of the peer's slots that this side has executed; acknowledges all of them. */
    _Alignas(SHM_LINE_PAIR) _Atomic uint64_t consumed;
    /* Odd while this side touches the other's memory outside the segment. */
    _Alignas(SHM_LINE_PAIR) _Atomic uint64_t busy;
};

/* A published receive. The peer maps its memory and copies a message directly into it. */
struct shm_receive {
    _Alignas(SHM_LINE) _Atomic uint64_t number; /* 1 + number of earlier receives; stored last */
    uint64_t life;
    uint64_t offset;
    uint64_t length;
    uint32_t index;
    uint32_t zero;
};
static_assert(sizeof(struct shm_receive) == SHM_LINE, "one line per published receive");

/* One direction. The producer writes slots and data, the consumer writes receives and, as results
 * of reads and atomics, chunks of data. */
struct shm_direction {
    _Alignas(SHM_PAGE) struct shm_slot slots[SHM_SLOT_COUNT];
    struct shm_receive receives[SHM_RECEIVE_COUNT];
    uint8_t data[SHM_DATA_SIZE];
};

/* Index 0 is the connector's side and outgoing direction, index 1 the acceptor's. */
struct shm_segment {
    _Alignas(SHM_PAGE) uint64_t magic;
    uint64_t size;
    struct shm_side sides[2];
    struct shm_direction directions[2];
};
static_assert(offsetof(struct shm_segment, directions) == SHM_PAGE, "one page of words");
static_assert(sizeof(struct shm_segment) % SHM_PAGE == 0, "whole pages");

/* Entry of the region table. Only the process itself writes; peers map the table read-only. */
struct shm_region {
    _Atomic uint64_t life;       /* unique number of the registration, 0 = free */
    _Atomic uint64_t generation; /* of the exported rights, 0 = none are in force */
};

/* The ready set of a queue for one peer process. A queue polls only its lately active endpoints.
 * The peer marks the others when it has something for them, so that the queue need not look for it.
 * The peer writes marks and summary, in this order. The queue takes a bit of the summary, then the
 * word of marks. Only this queue and this process share the set. */
struct shm_ready { /* NOLINT(clang-analyzer-optin.performance.Padding) lines of their own */
    uint64_t magic;
    uint64_t size;
    /* 1: the queue sleeps. A peer that has set a mark swaps it for 0, and rings if it was 1. */
    _Alignas(SHM_LINE_PAIR) _Atomic uint32_t sleeping;
    _Alignas(SHM_LINE_PAIR) _Atomic uint64_t summary; /* bit i: marks[i] may have bits */
    _Alignas(SHM_LINE_PAIR) _Atomic uint64_t marks[SHM_MARK_WORDS];
};
static_assert(sizeof(struct shm_ready) <= SHM_PAGE, "a ready set is one page");

static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2, "shared words need it");
static_assert(sizeof(_Atomic uint64_t) == 8 && sizeof(_Atomic uint32_t) == 4, "as laid out");

#endif
