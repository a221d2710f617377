/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What the runner and a session on another host share: one process of a case. */
#ifndef CONFORMANCE_RUN_H
#define CONFORMANCE_RUN_H

#include "harness.h"

#include <sys/types.h>

/* Memory of the runner and the processes of a case. */
struct shared {
    struct report reports[2]; /* initiator, target */
    struct provider_caps caps;
};

/* What one side of a case starts with. */
struct start {
    const struct conformance_case *test;
    const char *provider;
    const struct run_options *options;
    struct shared *shared;
    unsigned index; /* of reports: 0 is the initiator */
    int sync;
    int socket;
    int others[2]; /* descriptors of the runner that the process closes; -1 is none */
    bool remote;   /* the other side is on another host */
};

/* Forks the process, in a process group of its own. Returns its id, -1 with errno set. */
pid_t start_side(const struct start *start);

unsigned case_timeout_s(const struct conformance_case *test, const struct run_options *options);

/* NULL: out of memory. */
struct shared *shared_map(void);
void shared_unmap(struct shared *shared);

#endif
