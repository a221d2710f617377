/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A peer that uses librdmacm and libibverbs by itself, in a thread, as simple programs do. */
#ifndef RDMUX_TESTS_INTEROP_BY_HAND_H
#define RDMUX_TESTS_INTEROP_BY_HAND_H

#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>

#define BY_HAND_GREETING "by hand"
enum { BY_HAND_SIZE = 64 };

enum by_hand_role {
    BY_HAND_LEAVES, /* connects, and ends when by_hand_end() is called */
    BY_HAND_SENDS,  /* connects, sends the greeting at once, takes one answer, ends */
    BY_HAND_LENDS, /* connects, sends the key of a region with the greeting, takes one answer, ends */
    /* Listens, grants no reads, sends the first message back, ends when the peer does. */
    BY_HAND_ECHOES,
};

/* What BY_HAND_LENDS sends. */
struct by_hand_key {
    uint64_t addr;
    uint32_t key;
    uint32_t spare;
};

struct by_hand {
    enum by_hand_role role;
    char address[128]; /* "HOST:PORT", or where to listen: "HOST" */
    uint16_t port;
    sem_t listens;
    sem_t may_leave;
    pthread_t thread;
    char result[BY_HAND_SIZE]; /* the message that came, or what the region has in the end */
};

/* Any failure of the peer ends the process with a text. */
void by_hand_start(struct by_hand *peer, enum by_hand_role role, const char *address);
uint16_t by_hand_port(struct by_hand *peer);
/* Waits for the peer's end. Its result, or what the peer has in the region that it lent. */
const char *by_hand_end(struct by_hand *peer);

#endif
