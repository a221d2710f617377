/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "device.h"

#include "inject.h"
#include "life.h"

#include <rdmux/provider.h>

#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sim_verbs.h>
#include <string.h>

const struct rdmux_plugin *rdmux_plugin(void);

static struct sim_world *world;
static struct sim_device *device;

/* -------------------------------------------------------------------------------------- plug-in */

void *__real_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags);
void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);
char *__real_dlerror(void);
char *__wrap_dlerror(void);
struct rdmux_refusal;
enum rdmux_status __wrap_rdmux_binding_check(struct rdmux_refusal *refusal);

static char linked[] = FAULT_PLUGIN; /* its address is the handle */
static _Thread_local bool has_failed;

/* Loads the plug-in as librdmux.so would, so that the calls of loading fail, too. */
enum rdmux_status __wrap_rdmux_binding_check(struct rdmux_refusal *refusal)
{
    (void)refusal;
    return RDMUX_OK;
}

void *__wrap_dlopen(const char *path, int flags)
{
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (inject_fails(INJECT_CALL, "dlopen")) {
        has_failed = true;
        return NULL;
    }
    return slash != NULL && strcmp(slash + 1, linked) == 0 ? linked : __real_dlopen(path, flags);
}

char *__wrap_dlerror(void)
{
    static char text[] = "failed to map segment from shared object";
    if (has_failed) {
        has_failed = false;
        return text;
    }
    return __real_dlerror();
}

void *__wrap_dlsym(void *handle, const char *name)
{
    if (handle != linked) {
        return __real_dlsym(handle, name);
    }
    const struct rdmux_plugin *(*entry)(void) = rdmux_plugin;
    const char *(*version)(void) = rdmux_version;
    void *found = NULL;
    if (strcmp(name, RDMUX_PLUGIN_SYMBOL) == 0) {
        memcpy(&found, &entry, sizeof(found));
    } else if (strcmp(name, "rdmux_version") == 0) {
        memcpy(&found, &version, sizeof(found));
    }
    return found;
}

/* ---------------------------------------------------------------------------------------- calls */

/* Calls that the simulated adapter does not let fail by itself. */

INJECT_FAILING(INJECT_VERBS, int, ibv_fork_init, (void), (), EINVAL, EINVAL)
INJECT_FAILING(INJECT_VERBS, int, ibv_get_async_event,
               (struct ibv_context * context, struct ibv_async_event *event), (context, event), EIO,
               -1)
INJECT_FAILING(INJECT_VERBS, int, ibv_get_cq_event,
               (struct ibv_comp_channel * channel, struct ibv_cq **cq, void **context),
               (channel, cq, context), EINTR, -1)
INJECT_FAILING(INJECT_VERBS, int, rdma_get_cm_event,
               (struct rdma_event_channel * channel, struct rdma_cm_event **event),
               (channel, event), EINTR, -1)

static int decide(void *context, const char *name)
{
    (void)context;
    if (!inject_fails(INJECT_VERBS, name)) {
        return 0;
    }
    bool is_data = strncmp(name, "post_", 5) == 0 || strcmp(name, "poll_cq") == 0 ||
                   strcmp(name, "wr_complete") == 0;
    return is_data ? EIO : ENOMEM;
}

/* --------------------------------------------------------------------------------------- device */

bool device_keeps_objects(const char *victim)
{
    return victim != NULL && (strcmp(victim, "dereg_mr") == 0 || strcmp(victim, "dealloc_pd") == 0);
}

/* An object that could not be destroyed still exists when its context is closed. */
static void judge_misuse(void *context, const char *text)
{
    (void)context;
    if (!device_keeps_objects(inject_victim())) {
        wrong("%s", text);
    }
}

bool device_is_possible(void)
{
    return true;
}

bool device_start(const char *options, const char **text)
{
    world = sim_world_create("time=real");
    struct sim_host *host = world == NULL ? NULL : sim_host_add(world);
    device = host == NULL ? NULL : sim_device_add(host, options);
    if (device == NULL) {
        *text = sim_error();
        return false;
    }
    sim_default_host(host);
    sim_on_call(world, decide, NULL);
    sim_on_misuse(world, judge_misuse, NULL);
    return true;
}

void device_port(bool up)
{
    sim_port_set(device, up);
}

void device_break(void)
{
    sim_device_kill_cqs(device);
}

size_t device_objects(void)
{
    return world == NULL ? 0 : sim_objects(world);
}

void device_end(void)
{
    (void)sim_world_destroy(world);
    world = NULL;
}
