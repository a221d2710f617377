/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A run of the campaign: two hosts with simulated adapters, in virtual time,
 * and a side of the load on each. */
#ifndef RDMUX_TESTS_FAILOVER_CAMPAIGN_SCENE_H
#define RDMUX_TESTS_FAILOVER_CAMPAIGN_SCENE_H

#include "load.h"

#include "../sim_verbs/model/process.h"
#include "../sim_verbs/sim_verbs.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    SIDES = 2,
    LINKS = 3,
    ENTRIES = 64,
    LIVENESS_MS = 600,
    HEARTBEAT_MS = LIVENESS_MS / 4, /* what is under way on an idle path, at the latest */
    MOVE_MS = 100,                  /* limit of a move, from the detection of the failure … */
    STANDBY_MS = 200,               /* … and more for each other path that drops all packets */
    LATER_MS = 25,                  /* after the liveness time: until the programs have polled */
    TRIES_MS = 1880,  /* without failover: 7 tries of an adapter whose peer asks for so much time */
    BUSY_NS = 500,    /* of a turn with entries */
    IDLE_NS = 5000,   /* of a turn without entries … */
    STILL_NS = 50000, /* … and of one after STILL_TURNS such turns: only a time ends the wait */
    STILL_TURNS = 50,
    LEAP_NS = 100000,       /* of some turns of a hold-down time */
    TURNS_MAX = 240000,     /* a longer run makes no progress */
    LATE_NS = 30000000,     /* packets held back */
    HOLD_MS = 50,           /* before failback */
    MESSAGES_BETWEEN = 120, /* received by both sides together between two faults, at most */
    SAMPLES = 4096,
    PAIRS = 16,
    RUN_SECONDS = 60, /* of a processor */
    RUN_TEXT = 700,
    DESCRIPTORS_MAX = 256,
};

/* --------------------------------------------------------------------------------------- faults */

enum fault {
    PORT_DOWN,
    REMOVAL,
    QP_FATAL,
    SILENCE,
    POST_SEND,
    POLL_CQ,
    OVERRUN,
    LATE,
    SOCKET,
    CHANNEL,
    FAULTS,
};

extern const char *const fault_names[FAULTS];

extern const char *const links[LINKS];

struct pair {
    char name[2 * RDMUX_NAME_MAX + 4];
    uint32_t count;
    uint64_t noticed_ns[SAMPLES];
    uint64_t moved_ns[SAMPLES]; /* since it was noticed */
};

/* Results of runs; shared with the child processes. */
struct result {
    uint64_t runs;
    uint64_t faults[FAULTS];
    uint64_t second; /* faults during a move */
    uint64_t returned;
    uint64_t survived;
    uint64_t ended;
    uint64_t ended_ns; /* longest time from the fault until both have ended */
    struct load_errors errors;
    struct load_counts counts;
    struct pair pairs[PAIRS];
    uint64_t failed;
    uint64_t failed_seed;
    char text[RUN_TEXT];
};

struct scenario {
    const char *path;  /* the first */
    const char *paths; /* all */
    enum fault fault;
    bool has_second;
    bool has_failover;
    bool goes_back; /* the second fault is during failback */
};

struct side {
    struct scene *scene;
    uint32_t index;
    struct sim_host *host;
    struct sim_device *devices[LINKS];
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
    struct load *load;
    struct chance secrets;
    bool is_connected;
    uint64_t moved_ns; /* time of the last PATH_CHANGED */
    uint32_t state;
};

struct scene {
    const char *plugin;
    struct scenario scenario;
    uint64_t seed;
    struct chance chance;
    struct sim_world *world;
    struct rdmux_listener *listener;
    struct side sides[SIDES];
    uint64_t turns;
    uint32_t still; /* turns without entries, one after the other */
    bool is_verbose;
    char text[RUN_TEXT];
    struct result *result;
};

/* Makes the side's host the one of the next calls, see process_use(). */
void scene_use(const struct side *side);
/* Keeps the cause of the first failure. Returns false. */
bool scene_fail(struct scene *scene, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a step if the run is verbose. side NULL: of no side. */
void scene_trace(const struct scene *scene, const char *what, const struct side *side);

bool scene_open_side(struct scene *scene, uint32_t index);
/* Connects the two and begins the load. */
bool scene_open_pair(struct scene *scene);
void scene_close(struct scene *scene);
/* One turn of the world: the work of the library's threads, then of both
 * programs. */
void scene_turn(struct scene *scene, bool posts);

/* Cuts the connector's control channel, or one of its data sockets. Returns
 * false if there is none. */
bool scene_cut_socket(struct scene *scene, bool is_control);
struct rdmux_ep_info scene_info(struct side *side);
/* Returns the adapter of a provider, -1 if it has none. */
int scene_link(const char *provider);

#endif
