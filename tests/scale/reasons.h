/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How often set-ups failed, and why: a table in memory that processes share. */
#ifndef RDMUX_TESTS_SCALE_REASONS_H
#define RDMUX_TESTS_SCALE_REASONS_H

#include <pthread.h>
#include <stdint.h>

enum { REASONS_MAX = 24, REASON_TEXT = 200 };

struct reason {
    uint32_t count;
    uint32_t status;        /* enum rdmux_status */
    char where[24];         /* the call or the event */
    char text[REASON_TEXT]; /* as rdmux tells it, each number in it as N */
};

struct reasons {
    pthread_mutex_t lock; /* between processes */
    uint32_t count;
    uint32_t total;
    struct reason all[REASONS_MAX]; /* the last one is for those without a place of their own */
};

void reasons_init(struct reasons *reasons);
/* Counts one. Any process. */
void reasons_add(struct reasons *reasons, const char *where, uint32_t status, const char *text);

#endif
