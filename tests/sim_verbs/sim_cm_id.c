/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* librdmacm's ids: channels and events, binding, addresses and routes, options. */
#include "sim_async.h"
#include "sim_carry.h"
#include "sim_cm.h"
#include "sim_device.h"
#include "sim_macros.h"
#include "sim_memory.h"
#include "sim_net.h"
#include "sim_options.h"
#include "sim_queue.h"
#include "sim_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sim_cm_finish(int error)
{
    if (error == 0) {
        return 0;
    }
    errno = error;
    return -1;
}

bool sim_cm_is_iwarp(const struct sim_cm_id *id)
{
    return id->device != NULL && sim_is_iwarp(id->device);
}

/* ------------------------------------------------------------------------------------ addresses */

static size_t address_size(const struct sockaddr *address)
{
    switch (address->sa_family) {
    case AF_INET:
        return sizeof(struct sockaddr_in);
    case AF_INET6:
        return sizeof(struct sockaddr_in6);
    default:
        return 0;
    }
}

static uint16_t *port_field(struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)(void *)address)->sin6_port
                                          : &((struct sockaddr_in *)(void *)address)->sin_port;
}

uint16_t sim_address_port(const struct sockaddr_storage *address)
{
    struct sockaddr_storage copy = *address;
    return ntohs(*port_field(&copy));
}

static const void *address_bytes(const struct sockaddr_storage *address, size_t *size)
{
    if (address->ss_family == AF_INET6) {
        *size = sizeof(struct in6_addr);
        return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    }
    *size = sizeof(struct in_addr);
    return &((const struct sockaddr_in *)(const void *)address)->sin_addr;
}

bool sim_address_equal(const struct sockaddr_storage *one, const struct sockaddr_storage *other)
{
    size_t size;
    size_t other_size;
    const void *bytes = address_bytes(one, &size);
    const void *other_bytes = address_bytes(other, &other_size);
    return one->ss_family == other->ss_family && memcmp(bytes, other_bytes, size) == 0;
}

static bool is_any(const struct sockaddr_storage *address)
{
    static const uint8_t zeros[sizeof(struct in6_addr)];
    size_t size;
    const void *bytes = address_bytes(address, &size);
    return memcmp(bytes, zeros, size) == 0;
}

static bool device_has(const struct sim_device *device, const struct sockaddr_storage *address)
{
    for (size_t i = 0; i < device->address_count; i++) {
        if (sim_address_equal(&device->addresses[i], address)) {
            return true;
        }
    }
    return false;
}

struct sim_device *sim_device_with_address(struct sim_host *host,
                                           const struct sockaddr_storage *address)
{
    for (struct sim_device *at = host->devices; at != NULL; at = at->next) {
        if (sim_device_alive(at) && device_has(at, address)) {
            return at;
        }
    }
    return NULL;
}

unsigned int sim_cm_gid_index(const struct sim_cm_id *id)
{
    const struct sockaddr_storage *source = &id->id.route.addr.src_storage;
    const struct sim_device *device = id->device;
    if (device->options.link != SIM_ROCE) {
        return 0;
    }
    size_t size;
    const uint8_t *bytes = address_bytes(source, &size);
    for (unsigned int i = 0; i < SIM_GIDS; i++) {
        const struct sim_gid_place *place = &device->gids[i];
        bool v2 = place->used && place->type == IBV_GID_TYPE_ROCE_V2;
        if (v2 && memcmp(place->gid.raw + sizeof(place->gid.raw) - size, bytes, size) == 0) {
            return i;
        }
    }
    return SIM_GIDS;
}

/* ------------------------------------------------------------------------------- event channels */

static struct sim_cm_channel *channel_make(struct sim_host *host, int *error)
{
    struct sim_world *world = host->world;
    *error = sim_call(world, SIM_CALL_create_event_channel);
    int descriptor = *error == 0 ? sim_event_descriptor() : -1;
    if (descriptor < 0) {
        *error = *error != 0 ? *error : errno;
        return NULL;
    }
    struct sim_cm_channel *channel = sim_alloc_with(world, sizeof(*channel), descriptor);
    if (channel == NULL) {
        (void)close(descriptor);
        *error = ENOMEM;
        return NULL;
    }
    channel->ib.fd = descriptor;
    channel->world = world;
    channel->host = host;
    world->objects++;
    return channel;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
    struct sim_host *host = sim_host_visit();
    struct sim_cm_channel *channel = NULL;
    int error = ENODEV; /* as on a kernel without rdma_ucm */
    if (host != NULL && !host->killed) {
        sim_lock(host->world);
        channel = channel_make(host, &error);
        sim_unlock(host->world);
    }
    if (host != NULL) {
        sim_world_leave(host->world);
    }
    if (channel == NULL) {
        errno = error;
        return NULL;
    }
    return &channel->ib;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
    struct sim_cm_channel *sim = sim_cm_channel_of(channel);
    struct sim_world *world = sim->world;
    sim_lock(world);
    if (sim->ids > 0) {
        sim_misuse(world, "rdma_destroy_event_channel: ids are still on it");
    }
    world->objects--;
    sim_free(sim);
    sim_unlock(world);
    sim_world_rest(world);
}

struct sim_cm_entry *sim_cm_tell(struct sim_cm_id *id, enum rdma_cm_event_type type, int status)
{
    static struct sim_cm_entry nowhere;
    struct sim_cm_entry *entry = sim_alloc(id->world, sizeof(*entry));
    if (entry == NULL) {
        return &nowhere;
    }
    struct sim_cm_channel *channel = sim_cm_channel_of(id->id.channel);
    entry->owner = id;
    entry->event.id = &id->id;
    entry->event.event = type;
    entry->event.status = status;
    entry->event.param.conn.private_data = NULL;
    struct sim_cm_entry **at = &channel->events;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = entry;
    id->world->counters.events++;
    sim_trace(id->world, SIM_TRACE_CM, (uint64_t)type, (uint64_t)(int64_t)status);
    sim_event_tell(channel->ib.fd);
    return entry;
}

static struct sim_cm_entry *take_first(struct sim_cm_channel *channel)
{
    struct sim_cm_entry *entry = channel->events;
    if (entry != NULL) {
        channel->events = entry->next;
        entry->next = NULL;
        (void)sim_event_take(channel->ib.fd);
    }
    return entry;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
    struct sim_cm_channel *sim = sim_cm_channel_of(channel);
    for (;;) {
        sim_lock(sim->world);
        (void)sim_run_due(sim->world);
        struct sim_cm_entry *entry = take_first(sim);
        if (entry != NULL) {
            entry->owner->events_given++;
            sim_cm_event_given(sim_cm_of(entry->event.id), entry);
        }
        sim_unlock(sim->world);
        if (entry != NULL) {
            *event = &entry->event;
            return 0;
        }
        if (!sim_wait_readable(sim->world, channel->fd)) {
            return -1;
        }
    }
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
    struct sim_cm_entry *entry = (struct sim_cm_entry *)(void *)event;
    struct sim_cm_id *owner = entry->owner;
    struct sim_world *world = owner->world;
    (void)pthread_mutex_lock(&owner->mutex);
    owner->events_completed++;
    (void)pthread_cond_signal(&owner->cond);
    (void)pthread_mutex_unlock(&owner->mutex);
    sim_lock(world);
    sim_free(entry);
    sim_unlock(world);
    return 0;
}

/* ------------------------------------------------------------------------------------------ ids */

struct sim_cm_id *sim_cm_id_make(struct sim_cm_channel *channel, void *context,
                                 enum rdma_port_space ps)
{
    struct sim_world *world = channel->world;
    struct sim_cm_id *id = sim_alloc(world, sizeof(*id));
    if (id == NULL) {
        return NULL;
    }
    id->world = world;
    id->host = channel->host;
    id->number = ++world->next_handle;
    id->port_descriptor = -1;
    id->id.channel = &channel->ib;
    id->id.context = context;
    id->id.ps = ps;
    id->id.qp_type = IBV_QPT_RC;
    (void)pthread_mutex_init(&id->mutex, NULL);
    (void)pthread_cond_init(&id->cond, NULL);
    id->next = id->host->cm_ids;
    id->host->cm_ids = id;
    channel->ids++;
    world->objects++;
    return id;
}

static void drop_events(struct sim_cm_id *id)
{
    struct sim_cm_channel *channel = sim_cm_channel_of(id->id.channel);
    struct sim_cm_entry **at = &channel->events;
    while (*at != NULL) {
        struct sim_cm_entry *entry = *at;
        if (entry->owner != id && entry->event.id != &id->id) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        sim_free(entry);
        (void)sim_event_take(channel->ib.fd);
    }
}

/* Takes an id out of the world; waits happen afterwards. */
static void unlink_id(struct sim_cm_id *id)
{
    sim_cancel(id->world, &id->timer);
    drop_events(id);
    if (id->port_descriptor >= 0) {
        sim_net_unlisten(id->world->net, id->port_descriptor);
    }
    struct sim_cm_id **at = &id->host->cm_ids;
    while (*at != id) {
        at = &(*at)->next;
    }
    *at = id->next;
    sim_cm_channel_of(id->id.channel)->ids--;
    id->world->objects--;
}

static void free_memory(struct sim_cm_id *id)
{
    (void)pthread_cond_destroy(&id->cond);
    (void)pthread_mutex_destroy(&id->mutex);
    sim_free(id->id.route.path_rec);
    sim_free(id);
}

void sim_cm_id_free(struct sim_cm_id *id)
{
    unlink_id(id);
    free_memory(id);
}

bool sim_cm_set_device(struct sim_cm_id *id, struct sim_device *device)
{
    if (device->cm_context == NULL) {
        device->cm_context = sim_context_create(device);
    }
    if (device->cm_context == NULL) {
        return false;
    }
    if (device->cm_pd == NULL) {
        device->cm_pd = sim_pd_make(device->cm_context);
    }
    id->device = device;
    return device->cm_pd != NULL;
}

/* From then on the program sees the device: librdmacm's own context and protection domain. */
static void show_device(struct sim_cm_id *id)
{
    id->id.verbs = &id->device->cm_context->verbs.context;
    id->id.pd = id->device->cm_pd;
    id->id.port_num = 1;
    id->id.route.addr.addr.ibaddr.pkey = htons(id->device->pkeys[0]);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space ps)
{
    if (channel == NULL || ps != RDMA_PS_TCP) {
        return sim_cm_finish(EOPNOTSUPP);
    }
    struct sim_cm_channel *sim = sim_cm_channel_of(channel);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_create_id);
    struct sim_cm_id *made = error == 0 ? sim_cm_id_make(sim, context, ps) : NULL;
    if (made != NULL) {
        made->visible = true;
        *id = &made->id;
    } else if (error == 0) {
        error = ENOMEM;
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

static void refuse_pending(struct sim_cm_id *listener)
{
    struct sim_cm_id *at = listener->host->cm_ids;
    while (at != NULL) {
        struct sim_cm_id *next = at->next;
        if (at->listener == listener) {
            sim_cm_connection_end(at);
            sim_cm_id_free(at);
            next = listener->host->cm_ids; /* the list has changed */
        }
        at = next;
    }
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    struct sim_world *world = sim->world;
    sim_cm_wait_for_call(sim);
    sim_lock(world);
    if (sim->state == SIM_CM_LISTENING) {
        refuse_pending(sim);
    }
    sim_cm_connection_end(sim);
    if (id->qp != NULL) {
        sim_qp_of(id->qp)->cm = NULL; /* it outlives the id */
    }
    if (sim->stream != NULL) {
        sim->stream->cm = NULL;
    }
    unlink_id(sim);
    struct sim_owed owed = { &sim->mutex, &sim->cond, &sim->events_completed, sim->events_given,
                             "rdma_destroy_id: events of it are not acknowledged" };
    sim_unlock(world);
    sim_wait_acknowledged(world, &owed);
    sim_lock(world);
    free_memory(sim);
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}

struct sim_cm_id *sim_cm_find(struct sim_world *world, uint16_t slot, uint32_t number)
{
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        for (struct sim_cm_id *at = host->cm_ids; host->slot == slot && at != NULL; at = at->next) {
            if (at->number == number) {
                return at;
            }
        }
    }
    return NULL;
}

static void events_move(const struct sim_cm_id *id, struct sim_cm_channel *from,
                        struct sim_cm_channel *to)
{
    struct sim_cm_entry **end = &to->events;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    for (struct sim_cm_entry **at = &from->events; *at != NULL;) {
        struct sim_cm_entry *entry = *at;
        if (entry->event.id != &id->id) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        (void)sim_event_take(from->ib.fd);
        entry->next = NULL;
        *end = entry;
        end = &entry->next;
        sim_event_tell(to->ib.fd);
    }
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    if (channel == NULL) {
        return sim_cm_finish(EOPNOTSUPP); /* would make it synchronous */
    }
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_migrate_id);
    if (error == 0 && channel != id->channel) {
        struct sim_cm_channel *from = sim_cm_channel_of(id->channel);
        struct sim_cm_channel *to = sim_cm_channel_of(channel);
        events_move(sim, from, to);
        from->ids--;
        to->ids++;
        id->channel = channel;
    }
    struct sim_owed owed = { &sim->mutex, &sim->cond, &sim->events_completed, sim->events_given,
                             "rdma_migrate_id: events of it are not acknowledged" };
    sim_unlock(sim->world);
    if (error == 0) {
        sim_wait_acknowledged(sim->world, &owed);
    }
    return sim_cm_finish(error);
}

/* -------------------------------------------------------------------------------------- binding */

static bool port_taken(const struct sim_cm_id *id, uint16_t port)
{
    for (const struct sim_cm_id *at = id->host->cm_ids; at != NULL; at = at->next) {
        const struct sockaddr_storage *source = &at->id.route.addr.src_storage;
        if (at != id && at->state != SIM_CM_IDLE && !at->passive &&
            sim_address_port(source) == port) {
            return true;
        }
    }
    return false;
}

static bool port_claim(struct sim_cm_id *id, uint16_t port)
{
    if (port_taken(id, port)) {
        return false;
    }
    if (sim_net_has(id->world->net)) {
        id->port_descriptor = sim_net_listen(id->world->net, port);
        return id->port_descriptor >= 0;
    }
    return true;
}

/* A port chosen by the program, or any; 0: none. */
static uint16_t port_find(struct sim_cm_id *id, uint16_t wanted)
{
    enum { FIRST = 20000, COUNT = 40000 };
    if (wanted != 0) {
        return port_claim(id, wanted) ? wanted : 0;
    }
    uint32_t start = (uint32_t)sim_chance(id->world, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint16_t port = (uint16_t)(FIRST + (start + i) % COUNT);
        if (port_claim(id, port)) {
            return port;
        }
    }
    return 0;
}

static int bind_id(struct sim_cm_id *id, const struct sockaddr *addr)
{
    struct sockaddr_storage address = { .ss_family = AF_UNSPEC };
    size_t size = address_size(addr);
    if (size == 0 || id->state != SIM_CM_IDLE) {
        return EINVAL;
    }
    memcpy(&address, addr, size);
    struct sim_device *device = NULL;
    if (!is_any(&address)) {
        device = sim_device_with_address(id->host, &address);
        if (device == NULL) {
            return ENODEV;
        }
        if (!sim_cm_set_device(id, device)) {
            return ENOMEM;
        }
    }
    uint16_t port = port_find(id, sim_address_port(&address));
    if (port == 0) {
        id->device = NULL;
        return EADDRINUSE;
    }
    *port_field(&address) = htons(port);
    id->id.route.addr.src_storage = address;
    id->state = SIM_CM_BOUND;
    if (device != NULL) {
        show_device(id);
    }
    return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_bind_addr);
    error = error == 0 ? bind_id(sim, addr) : error;
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    enum { BACKLOG_MAX = 1024 };
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_listen);
    struct sockaddr_in any = { .sin_family = AF_INET };
    if (error == 0 && sim->state == SIM_CM_IDLE) {
        error = bind_id(sim, (const struct sockaddr *)&any);
    }
    if (error == 0 && sim->state != SIM_CM_BOUND) {
        error = EINVAL;
    }
    if (error == 0) {
        sim->backlog = backlog > 0 && backlog < BACKLOG_MAX ? backlog : BACKLOG_MAX;
        sim->state = SIM_CM_LISTENING;
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

/* ------------------------------------------------------------------------------------ resolving */

static struct sim_device *device_of_peer(struct sim_world *world,
                                         const struct sockaddr_storage *address)
{
    for (struct sim_host *host = world->hosts; host != NULL; host = host->next) {
        struct sim_device *device = sim_device_with_address(host, address);
        if (device != NULL) {
            return device;
        }
    }
    return NULL;
}

/* The device that a route to the peer begins with: of the peer's kind and address family. */
static struct sim_device *device_towards(struct sim_cm_id *id,
                                         const struct sockaddr_storage *target,
                                         const struct sim_device *peer)
{
    for (struct sim_device *at = id->host->devices; at != NULL; at = at->next) {
        bool kind = peer == NULL || peer->options.link == at->options.link;
        for (size_t i = 0; kind && sim_device_alive(at) && i < at->address_count; i++) {
            if (at->addresses[i].ss_family == target->ss_family) {
                return at;
            }
        }
    }
    return NULL;
}

static void source_choose(struct sim_cm_id *id, const struct sim_device *device)
{
    struct sockaddr_storage *source = &id->id.route.addr.src_storage;
    uint16_t port = id->state == SIM_CM_IDLE ? 0 : *port_field(source);
    uint16_t family = id->id.route.addr.dst_storage.ss_family;
    for (size_t i = 0; i < device->address_count; i++) {
        if (device->addresses[i].ss_family == family) {
            *source = device->addresses[i];
            break;
        }
    }
    *port_field(source) = port != 0 ? port : htons(port_find(id, 0));
}

static void addr_resolved(struct sim_event *event)
{
    struct sim_cm_id *id = SIM_OUTER(struct sim_cm_id, timer, event);
    if (id->resolve_error != 0) {
        id->state = SIM_CM_BOUND;
        (void)sim_cm_tell(id, RDMA_CM_EVENT_ADDR_ERROR, -id->resolve_error);
        return;
    }
    id->state = SIM_CM_ADDR_RESOLVED;
    (void)sim_cm_tell(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
}

static int resolve_addr(struct sim_cm_id *id, const struct sockaddr *src_addr,
                        const struct sockaddr *dst_addr, int timeout_ms)
{
    bool bound = id->state == SIM_CM_BOUND;
    if ((id->state != SIM_CM_IDLE && !bound) || address_size(dst_addr) == 0) {
        return EINVAL;
    }
    if (!bound && src_addr != NULL) {
        int error = bind_id(id, src_addr);
        if (error != 0) {
            return error;
        }
    }
    struct sockaddr_storage *target = &id->id.route.addr.dst_storage;
    memcpy(target, dst_addr, address_size(dst_addr));
    bool shared = sim_net_has(id->world->net);
    struct sim_device *peer = shared ? NULL : device_of_peer(id->world, target);
    struct sim_device *device = id->device != NULL ? id->device : device_towards(id, target, peer);
    bool known = device != NULL && (shared || peer != NULL) && device->port_up;
    if (known && !sim_cm_set_device(id, device)) {
        return ENOMEM;
    }
    if (known && (id->state == SIM_CM_IDLE || is_any(&id->id.route.addr.src_storage))) {
        source_choose(id, device);
    }
    /* A missing target is retried until the timeout. */
    id->resolve_error = known ? 0 : ETIMEDOUT;
    id->state = SIM_CM_ADDR_QUERY;
    uint64_t time = known ? 2 * sim_transit(id->world, 0)
                          : (uint64_t)(timeout_ms > 0 ? timeout_ms : 0) * 1000000;
    sim_schedule(id->world, &id->timer, time, addr_resolved);
    return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr, struct sockaddr *dst_addr,
                      int timeout_ms)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_resolve_addr);
    error = error == 0 ? resolve_addr(sim, src_addr, dst_addr, timeout_ms) : error;
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

static void route_fill(struct sim_cm_id *id)
{
    enum { EXACTLY = 2, LIFE_TIME = 16, RATE_100G = 16 };
    struct ibv_sa_path_rec *path = sim_alloc(id->world, sizeof(*path));
    if (path == NULL) {
        return;
    }
    unsigned int index = sim_cm_gid_index(id);
    if (index < SIM_GIDS) {
        path->sgid = id->device->gids[index].gid;
    }
    path->slid = htons(id->device->lid);
    path->traffic_class = id->route_tos;
    path->hop_limit = 64;
    path->reversible = 1;
    path->numb_path = 1;
    path->pkey = htons(id->device->pkeys[0]);
    path->mtu_selector = EXACTLY;
    path->mtu = (uint8_t)id->device->options.mtu;
    path->rate_selector = EXACTLY;
    path->rate = RATE_100G;
    path->packet_life_time_selector = EXACTLY;
    path->packet_life_time = LIFE_TIME;
    sim_free(id->id.route.path_rec);
    id->id.route.path_rec = path;
    id->id.route.num_paths = 1;
}

static void route_resolved(struct sim_event *event)
{
    struct sim_cm_id *id = SIM_OUTER(struct sim_cm_id, timer, event);
    bool usable = sim_device_alive(id->device) && id->device->port_up;
    id->state = usable ? SIM_CM_ROUTE_RESOLVED : SIM_CM_ADDR_RESOLVED;
    (void)sim_cm_tell(id, usable ? RDMA_CM_EVENT_ROUTE_RESOLVED : RDMA_CM_EVENT_ROUTE_ERROR,
                      usable ? 0 : -ENETUNREACH);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    (void)timeout_ms;
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_resolve_route);
    error = error == 0 && sim->state != SIM_CM_ADDR_RESOLVED ? EINVAL : error;
    if (error == 0) {
        sim->route_tos = sim->tos; /* later settings have no effect */
        sim->state = SIM_CM_ROUTE_QUERY;
        sim_schedule(sim->world, &sim->timer, sim_transit(sim->world, 0), route_resolved);
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

void sim_cm_event_given(struct sim_cm_id *id, struct sim_cm_entry *entry)
{
    switch (entry->event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        show_device(id);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (!sim_cm_is_iwarp(id)) {
            route_fill(id);
        }
        break;
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        id->listener->pending--;
        id->listener = NULL;
        id->visible = true;
        show_device(id);
        break;
    default:
        sim_cm_connection_given(id, entry);
        break;
    }
}

/* -------------------------------------------------------------------------------------- options */

static int set_option(struct sim_cm_id *id, int optname, const void *optval, size_t optlen)
{
    switch (optname) {
    case RDMA_OPTION_ID_TOS:
        if (optlen != sizeof(uint8_t)) {
            return EINVAL;
        }
        id->tos = *(const uint8_t *)optval;
        return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
        if (optlen != sizeof(uint8_t)) {
            return EINVAL;
        }
        id->ack_timeout = *(const uint8_t *)optval & 31;
        id->ack_timeout_set = true;
        return 0;
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
        return optlen == sizeof(int) ? 0 : EINVAL;
    default:
        return ENOSYS;
    }
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval, size_t optlen)
{
    struct sim_cm_id *sim = sim_cm_of(id);
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_set_option);
    if (error == 0) {
        error = level == RDMA_OPTION_ID ? set_option(sim, optname, optval, optlen) : ENOSYS;
    }
    sim_unlock(sim->world);
    return sim_cm_finish(error);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
    return htons(sim_address_port(&id->route.addr.src_storage));
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
    return htons(sim_address_port(&id->route.addr.dst_storage));
}

/* -------------------------------------------------------------------------------------- devices */

enum { DEVICES_MAX = 64 };

/* A list begins with its world, which lives as long as the list. */
static struct ibv_context **contexts_list(struct sim_host *host, int *count)
{
    struct ibv_context **list = calloc(DEVICES_MAX + 2, sizeof(struct ibv_context *));
    if (list == NULL) {
        return NULL;
    }
    memcpy(list, &host->world, sizeof(struct sim_world *));
    for (struct sim_device *at = host->devices; at != NULL && *count < DEVICES_MAX; at = at->next) {
        if (sim_device_alive(at) && at->cm_context == NULL) {
            at->cm_context = sim_context_create(at);
        }
        if (sim_device_alive(at) && at->cm_context != NULL) {
            list[1 + (*count)++] = &at->cm_context->verbs.context;
        }
    }
    return list + 1;
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
    struct sim_host *host = sim_host_visit();
    struct ibv_context **list = NULL;
    int count = 0;
    if (host == NULL) {
        errno = ENODEV;
        return NULL;
    }
    sim_lock(host->world);
    list = contexts_list(host, &count);
    sim_unlock(host->world);
    if (list == NULL) {
        sim_world_leave(host->world);
        errno = ENOMEM;
    }
    if (num_devices != NULL) {
        *num_devices = count;
    }
    return list;
}

void rdma_free_devices(struct ibv_context **list)
{
    struct sim_world *world;
    memcpy(&world, list - 1, sizeof(struct sim_world *));
    free(list - 1);
    sim_world_leave(world);
}
