/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* One process of a case: shared by the runner and a session on another host. */
#ifndef CONFORMANCE_RUN_H
#define CONFORMANCE_RUN_H

#include "harness.h"

#include <sys/types.h>

/* Memory shared by the runner and the processes of a case. */
struct shared {
    struct report reports[2]; /* initiator, target */
    struct provider_caps caps;
};

/* Arguments of one side of a case. */
struct start {
    const struct conformance_case *test;
    const char *provider;
    const struct run_options *options;
    struct shared *shared;
    unsigned index; /* index in reports: 0 is the initiator */
    int sync;
    int socket;
    int others[2]; /* descriptors of the runner that the process closes; -1: none */
    bool remote;   /* the other side is on another host */
};

/* Forks the process in a process group of its own. Returns its id, -1 with errno set. */
pid_t start_side(const struct start *start);

unsigned case_timeout_s(const struct conformance_case *test, const struct run_options *options);

/* Returns NULL if memory is short. */
struct shared *shared_map(void);
void shared_unmap(struct shared *shared);

#endif
