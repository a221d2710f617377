/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Faults of a device's requests, and faults planned by options: fail=NAME:N:ERRNO+...,
 * at=TIME:WHAT+... */
#include "sim_faults.h"

#include "sim_completion.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_options.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- requests */

enum ibv_wc_status sim_refusal_next(struct sim_refusal *refusal)
{
    return refusal->in > 0 && --refusal->in == 0 ? refusal->status : IBV_WC_SUCCESS;
}

static void plan_refusal(struct sim_device *device, struct sim_refusal *refusal, uint64_t nth,
                         enum ibv_wc_status status)
{
    sim_lock(device->world);
    *refusal = (struct sim_refusal){ .in = nth, .status = status };
    sim_unlock(device->world);
}

void sim_device_fail_request(struct sim_device *device, uint64_t nth, enum ibv_wc_status status)
{
    plan_refusal(device, &device->starts, nth, status);
}

void sim_device_refuse(struct sim_device *device, uint64_t nth, enum ibv_wc_status status)
{
    plan_refusal(device, &device->serves, nth, status);
}

void sim_device_rnr_tries(struct sim_device *device, uint32_t tries)
{
    sim_lock(device->world);
    device->rnr_tries = tries;
    sim_unlock(device->world);
}

void sim_device_kill_cqs(struct sim_device *device)
{
    sim_lock(device->world);
    for (uint32_t i = 0; i < device->host->qps_room; i++) {
        const struct sim_qp *qp = device->host->qps[i];
        if (qp != NULL && qp->device == device) {
            sim_cq_fail(qp->send_cq);
            sim_cq_fail(qp->recv_cq);
        }
    }
    sim_unlock(device->world);
}

/* ------------------------------------------------------------------------------------- fail=... */

static bool fail_read(struct sim_world *world, const char *text)
{
    char name[32];
    unsigned long long nth;
    int error;
    int used = 0;
    if (sscanf(text, "%31[^:]:%llu:%d%n", name, &nth, &error, &used) != 3 || text[used] != '\0' ||
        error <= 0) {
        sim_set_error("fail: '%s' is not NAME:N:ERRNO, as in reg_mr:3:12", text);
        return false;
    }
    return sim_plan_call(world, name, nth, error);
}

/* --------------------------------------------------------------------------------------- at=... */

enum what { PORT_DOWN, PORT_UP, REMOVE, GIDS, QP_FATAL, CUT, JOIN, WHATS };

static const char *const what_names[WHATS] = {
    [PORT_DOWN] = "port_down", [PORT_UP] = "port_up", [REMOVE] = "remove", [GIDS] = "gids",
    [QP_FATAL] = "qp_fatal",   [CUT] = "cut",         [JOIN] = "join",
};

struct planned {
    struct sim_event event;
    struct sim_world *world;
    enum what what;
};

static void qps_fatal(struct sim_host *host)
{
    for (uint32_t i = 0; i < host->qps_room; i++) {
        if (host->qps[i] != NULL) {
            sim_qp_give_up(host->qps[i], false);
        }
    }
}

static void do_device(struct sim_device *device, enum what what)
{
    switch (what) {
    case PORT_DOWN:
    case PORT_UP:
        sim_port_change(device, what == PORT_UP);
        break;
    case REMOVE:
        sim_device_vanish(device);
        break;
    case GIDS:
        if (device->options.link == SIM_ROCE) {
            sim_gids_move(device);
        }
        break;
    case QP_FATAL:
    case CUT:
    case JOIN:
    case WHATS:
        break;
    }
}

static void planned_run(struct sim_event *event)
{
    struct planned *planned = SIM_OUTER(struct planned, event, event);
    struct sim_world *world = planned->world;
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        for (struct sim_device *at = host->devices; at != NULL; at = at->next) {
            do_device(at, planned->what);
        }
        if (planned->what == QP_FATAL) {
            qps_fatal(host);
        }
    }
    if (planned->what == CUT || planned->what == JOIN) {
        world->cut = planned->what == CUT;
        sim_world_changed(world);
    }
    sim_free(planned);
}

static bool plan(struct sim_world *world, uint64_t time, const char *name)
{
    for (int what = 0; what < WHATS; what++) {
        if (strcmp(what_names[what], name) != 0) {
            continue;
        }
        struct planned *planned = sim_alloc(world, sizeof(*planned));
        if (planned == NULL) {
            sim_set_error("at: out of memory");
            return false;
        }
        planned->world = world;
        planned->what = (enum what)what;
        sim_schedule(world, &planned->event, time, planned_run);
        return true;
    }
    sim_set_error("at: nothing is called '%s'", name);
    return false;
}

static bool at_read(struct sim_world *world, const char *text)
{
    const char *colon = strchr(text, ':');
    uint64_t time;
    if (colon == NULL || !sim_time_read(text, (size_t)(colon - text), &time)) {
        sim_set_error("at: '%s' is not TIME:WHAT, as in 200ms:port_down", text);
        return false;
    }
    return plan(world, time, colon + 1);
}

/* --------------------------------------------------------------------------------- both options */

static bool each(struct sim_world *world, const char *list,
                 bool (*read)(struct sim_world *world, const char *text))
{
    char copy[sizeof(world->options.at)];
    (void)snprintf(copy, sizeof(copy), "%s", list);
    char *rest = NULL;
    for (char *one = strtok_r(copy, "+", &rest); one != NULL; one = strtok_r(NULL, "+", &rest)) {
        if (!read(world, one)) {
            return false;
        }
    }
    return true;
}

bool sim_faults_plan(struct sim_world *world)
{
    bool planned = each(world, world->options.fail, fail_read) &&
                   each(world, world->options.at, at_read);
    world->options.fail[0] = '\0';
    world->options.at[0] = '\0';
    return planned;
}
