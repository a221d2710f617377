/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A pair in which one side has a device: the tcp provider with other capabilities. Each test says
 * how the device handles requests. */
#ifndef RDMUX_TESTS_DEVICE_SCENE_H
#define RDMUX_TESTS_DEVICE_SCENE_H

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/data/completion.h"
#include "tests/unit/api_pair.h"

#include "providers/registry.h"

enum {
    INLINE_MAX = 32,
    BOUNCED = 8 * 1024, /* longest request that the core copies */
    HELD_MAX = 64,
    SHORT = 1000,
    HANG_S = 60, /* SIGALRM ends a test that loops forever */
};

/* How the device handles requests. */
enum conduct {
    CARRY,        /* passes requests to tcp */
    DONE_AT_ONCE, /* completes a request within the post, and carries no bytes */
    DONE_BY_POLL, /* completes a request at the next poll, and carries no bytes */
    HELD,         /* keeps requests, and its endpoint from being quiet, until the conduct changes */
};

static struct device {
    const struct rdmux_provider_ops *tcp;
    struct rdmux_provider_ops ops;
    enum conduct conduct;
    uint64_t max_message;
    uint32_t max_sge;        /* limit of the path; 0: no limit */
    bool is_overlong;        /* the core posted, or requested at open, a list longer than max_sge */
    bool needs_sinks;        /* the pieces of a read need RDMUX_ACCESS_READ_SINK */
    bool is_exposed;         /* a piece of a read without such a region was posted */
    size_t own_keys;         /* pieces of reads that use the core's own registrations */
    size_t region_keys;      /* pieces taken that use the registration of a region */
    uint64_t refused_length; /* registration of buffers of this length fails; 0: never */
    bool flush_fails;
    bool path_stays;  /* the path does not fail when the flush fails */
    bool holds_flush; /* holds the flush for flush_polls polls, or until flush_ms; both 0: forever */
    unsigned flush_polls;
    uint64_t flush_ms;              /* as now_ms() */
    struct rdmux_request *flush;    /* the flush held now */
    size_t flushes;                 /* flushes held so far */
    bool is_invalid;                /* a key was invalidated */
    bool keyless;                   /* a buffer without a key was posted */
    _Atomic long registrations;     /* live registrations; the worker thread makes some */
    struct rdmux_provider_ep *path; /* the path opened last */
    struct rdmux_request *held[HELD_MAX];
    size_t held_count;
    size_t most_held;
    bool is_closed_early; /* an import was closed while a held request named it */
    size_t odd_atomics;   /* atomics of another length than 8 */
    size_t inline_pieces;
    size_t doorbells;
    struct rdmux_request *shared[HELD_MAX]; /* receives of the SRQ */
    size_t shared_count;
} device;

static inline enum rdmux_status device_probe(struct rdmux_fabric *fabric,
                                             struct rdmux_local_path *out, size_t max,
                                             size_t *count)
{
    enum rdmux_status status = device.tcp->probe(fabric, out, max, count);
    for (size_t i = 0; i < *count && i < max; i++) {
        out[i].max_inline = INLINE_MAX;
        out[i].max_message = device.max_message;
        out[i].max_sge = device.max_sge;
    }
    return status;
}

static inline enum rdmux_status device_mr_register(struct rdmux_provider_mr *mr,
                                                   const struct rdmux_provider_mr_attr *attr)
{
    if (attr->length == device.refused_length) {
        rdmux_provider_error("device: no room for %llu bytes", (unsigned long long)attr->length);
        return RDMUX_NO_MEMORY;
    }
    enum rdmux_status status = device.tcp->mr_register(mr, attr);
    device.registrations += status == RDMUX_OK;
    return status;
}

static inline enum rdmux_status device_mr_invalidate(struct rdmux_provider_mr *mr)
{
    device.is_invalid = true;
    return device.tcp->mr_invalidate(mr);
}

static inline void device_mr_deregister(struct rdmux_provider_mr *mr)
{
    device.registrations--;
    device.tcp->mr_deregister(mr);
}

static inline enum rdmux_status device_ep_open(struct rdmux_provider_ep *ep,
                                               const struct rdmux_provider_ep_attr *attr)
{
    device.path = ep;
    ep->needs_sinks = device.needs_sinks ? 1 : 0;
    device.is_overlong = device.max_sge != 0 && (attr->max_send_sge > device.max_sge ||
                                                 attr->max_recv_sge > device.max_sge);
    return device.tcp->ep_open(ep, attr);
}

static inline size_t region_keys_of(const struct rdmux_request *request)
{
    size_t keys = 0;
    for (uint16_t i = 0; i < request->sge_count; i++) {
        keys += request->sges[i].mr != NULL && request->sges[i].mr->mr != NULL;
    }
    return keys;
}

static inline void note_keys(const struct rdmux_request *request)
{
    bool in_itself = (device.ops.flags & RDMUX_PROVIDER_LOCAL_KEYS) == 0 ||
                     (request->op != RDMUX_OP_RECV && request->length <= INLINE_MAX);
    for (uint16_t i = 0; i < request->sge_count && !in_itself; i++) {
        device.keyless = device.keyless || request->sges[i].mr == NULL;
    }
    device.region_keys += region_keys_of(request);
    for (uint16_t i = 0; i < request->sge_count && request->op == RDMUX_OP_READ; i++) {
        const struct rdmux_provider_mr *mr = request->sges[i].mr;
        bool is_own = mr != NULL && mr->mr == NULL;
        device.own_keys += is_own;
        device.is_exposed = device.is_exposed ||
                            (device.needs_sinks && !is_own &&
                             (mr == NULL || (mr->mr->access & RDMUX_ACCESS_READ_SINK) == 0));
    }
    device.is_overlong = device.is_overlong ||
                         (device.max_sge != 0 && request->sge_count > device.max_sge);
}

static inline bool is_flush(const struct rdmux_request *request)
{
    return request->op == RDMUX_OP_WRITE && request->length == 0 &&
           (request->flags & RDMUX_PLACED) != 0;
}

static inline enum rdmux_status device_post(struct rdmux_provider_ep *ep,
                                            struct rdmux_request *requests, size_t count,
                                            uint32_t flags, size_t *posted)
{
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_request *request = &requests[i];
        bool atomic = request->op == RDMUX_OP_FETCH_ADD || request->op == RDMUX_OP_COMPARE_SWAP;
        note_keys(request);
        device.odd_atomics += atomic && request->length != sizeof(uint64_t);
        device.inline_pieces += request->internal && (request->flags & RDMUX_INLINE) != 0;
    }
    if (device.flush_fails && is_flush(&requests[0])) {
        *posted = 1;
        rdmux_provider_done(ep, &requests[0], RDMUX_PEER_GONE);
        if (!device.path_stays) {
            rdmux_provider_failed(ep, RDMUX_PEER_GONE, "device: the peer does not answer");
        }
        return RDMUX_OK;
    }
    if (device.holds_flush && is_flush(&requests[0]) && device.is_invalid) {
        device.flush = &requests[0];
        *posted = 1;
        return RDMUX_OK;
    }
    if (device.conduct == CARRY || requests[0].length == 0) {
        enum rdmux_status status = device.tcp->post(ep, requests, count, flags, posted);
        for (size_t i = *posted; i < count; i++) { /* they come again */
            device.region_keys -= region_keys_of(&requests[i]);
        }
        return status;
    }
    for (*posted = 0; *posted < count; ++*posted) {
        if (device.conduct == DONE_AT_ONCE) {
            rdmux_provider_done(ep, &requests[*posted], RDMUX_OK);
        } else {
            assert_true(device.held_count < HELD_MAX);
            device.held[device.held_count++] = &requests[*posted];
        }
    }
    device.most_held = device.held_count > device.most_held ? device.held_count : device.most_held;
    return RDMUX_OK;
}

static inline size_t device_poll(struct rdmux_provider_cq *cq, size_t budget)
{
    size_t did = device.conduct == HELD ? 0 : device.held_count;
    for (size_t i = 0; i < did; i++) {
        rdmux_provider_done(device.path, device.held[i], RDMUX_OK);
    }
    device.held_count -= did;
    if (device.flush != NULL && ((device.flush_polls > 0 && --device.flush_polls == 0) ||
                                 (device.flush_ms != 0 && now_ms() >= device.flush_ms))) {
        rdmux_provider_done(device.path, device.flush, RDMUX_OK);
        device.flush = NULL;
        device.flushes++;
    }
    return did + device.tcp->poll(cq, budget);
}

static inline enum rdmux_status device_ep_quiesce(struct rdmux_provider_ep *ep,
                                                  struct rdmux_provider_counts *counts)
{
    return device.conduct == HELD && device.held_count != 0 ? RDMUX_IN_PROGRESS
                                                            : device.tcp->ep_quiesce(ep, counts);
}

static inline void device_remote_close(struct rdmux_provider_remote *remote)
{
    for (size_t i = 0; i < device.held_count; i++) {
        device.is_closed_early = device.is_closed_early || device.held[i]->remote == remote;
    }
    device.tcp->remote_close(remote);
}

static inline void device_doorbell(struct rdmux_provider_ep *ep)
{
    device.doorbells++;
    device.tcp->doorbell(ep);
}

static inline enum rdmux_status device_post_recv(struct rdmux_provider_ep *ep,
                                                 struct rdmux_request *requests, size_t count)
{
    for (size_t i = 0; i < count && requests != NULL; i++) {
        note_keys(&requests[i]);
    }
    return device.tcp->post_recv(ep, requests, count);
}

static inline enum rdmux_status device_srq_post_recv(struct rdmux_provider_srq *srq,
                                                     struct rdmux_request *requests, size_t count)
{
    (void)srq;
    for (size_t i = 0; i < count; i++) {
        note_keys(&requests[i]);
        assert_true(device.shared_count < HELD_MAX);
        device.shared[device.shared_count++] = &requests[i];
    }
    return RDMUX_OK;
}

static inline void device_srq_close(struct rdmux_provider_srq *srq)
{
    (void)srq;
    device.shared_count = 0;
}

/* Replaces the fabric's tcp provider by this device. */
static inline void make_device(struct rdmux_fabric *fabric, uint32_t flags, uint64_t max_message)
{
    memset(&device, 0, sizeof(device));
    device.max_message = max_message;
    for (size_t i = 0; i < fabric->registry.count; i++) {
        struct rdmux_provider_entry *entry = &fabric->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            device.tcp = entry->ops;
            entry->ops = &device.ops;
        }
    }
    if (device.tcp == NULL) {
        fail_msg("there is no tcp");
        return;
    }
    device.ops = *device.tcp;
    device.ops.flags = flags;
    device.ops.probe = device_probe;
    device.ops.mr_register = device_mr_register;
    device.ops.mr_deregister = device_mr_deregister;
    device.ops.mr_invalidate = device_mr_invalidate;
    device.ops.ep_open = device_ep_open;
    device.ops.post = device_post;
    device.ops.poll = device_poll;
    device.ops.doorbell = device_doorbell;
    device.ops.ep_quiesce = device_ep_quiesce;
    device.ops.remote_close = device_remote_close;
    device.ops.post_recv = device_post_recv;
    device.ops.srq_post_recv = device_srq_post_recv;
    device.ops.srq_close = device_srq_close;
}

/* Endpoint a has the device; b has plain tcp, and exports a region of this length. */
struct scene {
    struct pair pair;
    struct rdmux_mr *mr;
    struct rdmux_remote *remote;
};

static inline void finish_scene(struct scene *scene, const struct rdmux_ep_attr *attr, size_t length)
{
    connect_more(&scene->pair, attr, &scene->pair.a, &scene->pair.b);
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_b, length,
                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC,
                            &scene->mr));
    scene->remote = import_region(scene->pair.a, scene->mr);
    alarm(HANG_S);
}

/* Adds these flags to a's fabric, which has no service thread, as tests look into its endpoint. */
static inline void set_scene(struct scene *scene, uint32_t flags, uint64_t max_message,
                             size_t length, uint32_t fabric_flags)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.max_send = max_message != 0 ? max_message : attr.max_send;
    attr.max_recv = attr.max_send;
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", fabric_flags | RDMUX_FABRIC_NO_SERVICE_THREAD, 0);
    make_device(scene->pair.fabric_a, flags, max_message);
    finish_scene(scene, &attr, length);
}

static inline void set_list_scene(struct scene *scene, uint32_t flags, uint32_t max_sge,
                                  size_t length, uint32_t fabric_flags)
{
    memset(scene, 0, sizeof(*scene));
    open_sides(&scene->pair, "tcp", fabric_flags, 0);
    make_device(scene->pair.fabric_a, flags, 0);
    device.max_sge = max_sge;
    finish_scene(scene, NULL, length);
}

static inline void clear_scene(struct scene *scene)
{
    alarm(0);
    CHECK_OK(rdmux_ep_close(scene->pair.a));
    CHECK_OK(rdmux_ep_close(scene->pair.b));
    scene->pair.a = NULL;
    scene->pair.b = NULL;
    rdmux_mr_deregister(scene->mr);
    close_pair(&scene->pair);
    assert_int_equal(device.registrations, 0);
    assert_false(device.keyless);
    assert_false(device.is_overlong);
    assert_false(device.is_exposed);
}

/* Progresses both sides, without taking an entry, until all requests of a are done. */
static inline void progress_until_done(struct pair *pair)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (!rdmux_ep_done_before(pair->a, pair->a->send.head)) {
        assert_true(now_ms() < until);
        assert_int_equal(rdmux_cq_poll(pair->cq_a, NULL, 0), 0);
        assert_int_equal(rdmux_cq_poll(pair->cq_b, NULL, 0), 0);
    }
}

enum { LIST_MAX = 4, PIECE_MAX = 30 * 1000 };

/* A list of LIST_MAX pieces of one length, not adjacent. */
struct list {
    uint8_t memory[LIST_MAX][PIECE_MAX + 1];
    struct rdmux_mr *mr;
    struct rdmux_sge sges[LIST_MAX];
    uint64_t length;
};

/* with_region: how many of the pieces have a region. */
static inline void make_list(struct list *list, struct rdmux_fabric *fabric, size_t piece,
                             uint8_t first, size_t with_region)
{
    CHECK_OK(rdmux_mr_register(fabric, list->memory, sizeof(list->memory), RDMUX_ACCESS_LOCAL_WRITE,
                               &list->mr));
    for (size_t i = 0; i < LIST_MAX; i++) {
        memset(list->memory[i], (int)(first + i), sizeof(list->memory[i]));
        list->sges[i] = (struct rdmux_sge){ list->memory[i], piece,
                                            i < with_region ? list->mr : NULL };
    }
    list->length = LIST_MAX * piece;
}

static inline void check_list(const struct list *list, uint8_t first)
{
    for (size_t i = 0; i < LIST_MAX; i++) {
        const uint8_t *bytes = list->memory[i];
        for (size_t at = 0; at < list->sges[i].length; at++) {
            assert_int_equal(bytes[at], first + i);
        }
    }
}

static inline void post_list(struct rdmux_ep *ep, struct list *list, uint32_t op, uint32_t flags,
                             struct rdmux_remote *remote)
{
    struct rdmux_wr wr = {
        .op = op, .flags = flags, .sges = list->sges, .sge_count = LIST_MAX, .remote = remote
    };
    CHECK_OK(op == RDMUX_OP_RECV ? rdmux_post_recv(ep, &wr, 1, NULL) : rdmux_post(ep, &wr, 1, NULL));
}

#endif
