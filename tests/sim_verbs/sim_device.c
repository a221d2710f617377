/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Devices: their attributes, ports, GIDs and P_Keys, and contexts on them. */
#include "sim_device.h"

#include "sim_async.h"
#include "sim_cm_news.h"
#include "sim_completion.h"
#include "sim_memory.h"
#include "sim_options.h"
#include "sim_post.h"
#include "sim_queue.h"
#include "sim_verbs.h"
#include "sim_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* verbs.h turns the name into its inline twin. */
#undef ibv_query_port

/* ------------------------------------------------------------------------------------ addresses */

static bool interface_is_better(const struct ifaddrs *one)
{
    return (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0 &&
           one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_INET;
}

/* The first interface that is up and has an IPv4 address; lo if there is no other. */
static void interface_choose(char *name, size_t size)
{
    struct ifaddrs *all = NULL;
    (void)snprintf(name, size, "lo");
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        if (interface_is_better(at)) {
            (void)snprintf(name, size, "%s", at->ifa_name);
            break;
        }
    }
    freeifaddrs(all);
}

static void address_add(struct sim_device *device, const struct sockaddr *address)
{
    if (device->address_count == SIM_ADDRESSES) {
        return;
    }
    size_t size = address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                 : sizeof(struct sockaddr_in);
    memcpy(&device->addresses[device->address_count++], address, size);
}

static bool is_link_local(const struct sockaddr *address)
{
    const struct sockaddr_in6 *in6 = (const void *)address;
    return address->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr);
}

static void addresses_of_interface(struct sim_device *device, const char *name)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        bool ip = at->ifa_addr != NULL &&
                  (at->ifa_addr->sa_family == AF_INET || at->ifa_addr->sa_family == AF_INET6);
        if (ip && strcmp(at->ifa_name, name) == 0 && !is_link_local(at->ifa_addr)) {
            address_add(device, at->ifa_addr);
        }
    }
    freeifaddrs(all);
}

static bool address_read(struct sim_device *device, const char *text)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6 };
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        address_add(device, (const struct sockaddr *)&in);
        return true;
    }
    if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
        address_add(device, (const struct sockaddr *)&in6);
        return true;
    }
    sim_set_error("addr: '%s' is no IP address; write addr=10.1.0.1+fd00::1", text);
    return false;
}

static bool addresses_read(struct sim_device *device)
{
    char copy[sizeof(device->options.addr)];
    memcpy(copy, device->options.addr, sizeof(copy));
    char *rest = NULL;
    for (char *one = strtok_r(copy, "+", &rest); one != NULL; one = strtok_r(NULL, "+", &rest)) {
        if (!address_read(device, one)) {
            return false;
        }
    }
    return true;
}

/* Hosts of one process have their own addresses, which no interface of the machine needs to
 * have. */
static void address_invent(struct sim_device *device, unsigned int index)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    in.sin_addr.s_addr = htonl(0x0a4d0000U | ((uint32_t)(device->host->slot & 0xff) << 8) |
                               (index + 1));
    address_add(device, (const struct sockaddr *)&in);
}

static bool addresses_set(struct sim_device *device, unsigned int index)
{
    struct sim_device_options *options = &device->options;
    bool shared = device->world->environment;
    if (options->netdev[0] == '\0' && shared) {
        interface_choose(options->netdev, sizeof(options->netdev));
    }
    const char *netdev = options->netdev[0] != '\0' ? options->netdev : "lo";
    device->ifindex = if_nametoindex(netdev);
    if (device->ifindex == 0) {
        sim_set_error("netdev: no interface '%s' here", netdev);
        return false;
    }
    if (options->addr[0] != '\0') {
        return addresses_read(device);
    }
    if (options->netdev[0] != '\0') {
        addresses_of_interface(device, netdev);
    } else {
        address_invent(device, index);
    }
    return true;
}

/* ----------------------------------------------------------------------------------------- GIDs */

bool sim_gid_equal(const union ibv_gid *one, const union ibv_gid *other)
{
    return memcmp(one->raw, other->raw, sizeof(one->raw)) == 0;
}

bool sim_device_has_gid(const struct sim_device *device, const union ibv_gid *gid)
{
    for (size_t i = 0; i < SIM_GIDS; i++) {
        if (device->gids[i].used && sim_gid_equal(&device->gids[i].gid, gid)) {
            return true;
        }
    }
    return false;
}

static void gid_add(struct sim_device *device, const union ibv_gid *gid, enum ibv_gid_type type)
{
    size_t at = 0;
    while (at < SIM_GIDS && device->gids[at].used) {
        at++;
    }
    if (at < SIM_GIDS) {
        device->gids[at] = (struct sim_gid_place){
            .gid = *gid,
            .type = type,
            .ifindex = device->options.gid_ifindex ? device->ifindex : 0,
            .used = true,
        };
    }
}

/* rxe has each address once; most adapters have it twice, for both versions of RoCE. */
static void gid_add_roce(struct sim_device *device, const union ibv_gid *gid)
{
    if (device->options.like == SIM_LIKE_HCA) {
        gid_add(device, gid, IBV_GID_TYPE_ROCE_V1);
    }
    gid_add(device, gid, IBV_GID_TYPE_ROCE_V2);
}

static union ibv_gid gid_of_address(const struct sockaddr_storage *address)
{
    union ibv_gid gid = { .raw = { 0 } };
    if (address->ss_family == AF_INET6) {
        memcpy(gid.raw, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
    } else {
        gid.raw[10] = 0xff;
        gid.raw[11] = 0xff;
        memcpy(gid.raw + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    }
    return gid;
}

static union ibv_gid gid_of_guid(uint64_t guid)
{
    union ibv_gid gid = { .raw = { 0xfe, 0x80 } };
    gid.global.interface_id = htobe64(guid);
    return gid;
}

static void gids_set(struct sim_device *device)
{
    union ibv_gid local = gid_of_guid(device->guid);
    if (device->options.link == SIM_IB) {
        gid_add(device, &local, IBV_GID_TYPE_IB);
        device->gids[0].ifindex = 0;
        return;
    }
    if (device->options.link == SIM_IWARP) {
        /* The MAC address, then zeros. */
        union ibv_gid mac = { .raw = { 0x02, 0x5e } };
        memcpy(mac.raw + 2, (const uint8_t *)&local + 12, 4);
        gid_add(device, &mac, IBV_GID_TYPE_IB);
        return;
    }
    gid_add_roce(device, &local);
    for (size_t i = 0; i < device->address_count; i++) {
        union ibv_gid gid = gid_of_address(&device->addresses[i]);
        gid_add_roce(device, &gid);
    }
}

/* -------------------------------------------------------------------------------------- devices */

bool sim_is_iwarp(const struct sim_device *device)
{
    return device->options.link == SIM_IWARP;
}

bool sim_like_rxe(const struct sim_device *device)
{
    return device->options.like == SIM_LIKE_RXE;
}

bool sim_device_alive(const struct sim_device *device)
{
    return !device->removed && !device->host->killed && !device->world->dead;
}

static unsigned int device_count(const struct sim_host *host)
{
    unsigned int count = 0;
    for (const struct sim_device *at = host->devices; at != NULL; at = at->next) {
        count++;
    }
    return count;
}

static void device_name(struct sim_device *device, unsigned int index)
{
    static const char *const names[] = {
        [SIM_IB] = "simib", [SIM_ROCE] = "simroce", [SIM_IWARP] = "simiw"
    };
    struct ibv_device *ib = &device->ib;
    if (device->options.name[0] == '\0') {
        (void)snprintf(device->options.name, sizeof(device->options.name), "%s%u",
                       names[device->options.link], index);
    }
    (void)snprintf(ib->name, sizeof(ib->name), "%s", device->options.name);
    (void)snprintf(ib->dev_name, sizeof(ib->dev_name), "uverbs%u", index);
    (void)snprintf(ib->dev_path, sizeof(ib->dev_path), "/sys/class/infiniband_verbs/uverbs%u",
                   index);
    (void)snprintf(ib->ibdev_path, sizeof(ib->ibdev_path), "/sys/class/infiniband/%s",
                   device->options.name);
    ib->node_type = sim_is_iwarp(device) ? IBV_NODE_RNIC : IBV_NODE_CA;
    ib->transport_type = sim_is_iwarp(device) ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
}

struct sim_device *sim_device_make(struct sim_host *host, const struct sim_device_options *options)
{
    struct sim_device *device = sim_alloc(host->world, sizeof(*device));
    if (device == NULL) {
        sim_set_error("device: out of memory");
        return NULL;
    }
    unsigned int index = device_count(host);
    bool shared = host->world->environment;
    device->world = host->world;
    device->host = host;
    device->options = *options;
    sim_device_complete(&device->options);
    /* Processes of one network share the machine's adapter, so they see one identity. */
    unsigned int machine = shared ? 0 : host->slot;
    device->guid = 0x005e00fffe000000U | ((uint64_t)machine << 8) | index;
    device->lid = (uint16_t)(1 + machine * 8 + index);
    device->pkeys[0] = 0xffff;
    device->port_up = true;
    device->mr_next = 1;
    device_name(device, index);
    if (!addresses_set(device, index)) {
        sim_free(device);
        return NULL;
    }
    gids_set(device);
    struct sim_device **at = &host->devices;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = device;
    sim_world_changed(host->world);
    return device;
}

struct sim_device *sim_device_add(struct sim_host *host, const char *options)
{
    struct sim_device_options read;
    sim_device_defaults(&read);
    if (options != NULL && !sim_options_read(options, strlen(options), NULL, &read)) {
        return NULL;
    }
    sim_lock(host->world);
    struct sim_device *device = sim_device_make(host, &read);
    sim_unlock(host->world);
    return device;
}

struct sim_context *sim_context_of(const struct ibv_context *context)
{
    const char *at = (const char *)context - offsetof(struct sim_context, verbs.context);
    return (struct sim_context *)(uintptr_t)at;
}

struct sim_device *sim_device_from(const struct ibv_context *context)
{
    return sim_context_of(context)->device;
}

struct sim_device *sim_device_of(struct ibv_context *context)
{
    return sim_device_from(context);
}

struct sim_use sim_device_use(struct sim_device *device)
{
    sim_lock(device->world);
    struct sim_use use = {
        .queue_pairs = device->qp_count,
        .receive_entries = device->srq_entries,
        .shared_queues = device->srq_count,
        .completion_queues = device->cq_count,
        .completion_entries = device->cq_entries,
        .regions = device->mr_count,
    };
    for (uint32_t i = 0; i < device->host->qps_room; i++) {
        const struct sim_qp *qp = device->host->qps[i];
        if (qp != NULL && qp->device == device) {
            use.send_entries += qp->sq.room;
            use.receive_entries += qp->rq.room;
        }
    }
    for (uint32_t i = 0; i < device->mrs_room; i++) {
        const struct sim_mr *mr = device->mrs[i].mr;
        use.region_bytes += mr == NULL ? 0 : mr->length;
    }
    sim_unlock(device->world);
    return use;
}

bool sim_device_address(struct sim_device *device, struct sockaddr *out, size_t size)
{
    for (size_t i = 0; i < device->address_count; i++) {
        const struct sockaddr_storage *address = &device->addresses[i];
        if (address->ss_family != out->sa_family) {
            continue;
        }
        if (out->sa_family == AF_INET && size >= sizeof(struct sockaddr_in)) {
            ((struct sockaddr_in *)(void *)out)
                ->sin_addr = ((const struct sockaddr_in *)(const void *)address)->sin_addr;
            return true;
        }
        if (out->sa_family == AF_INET6 && size >= sizeof(struct sockaddr_in6)) {
            ((struct sockaddr_in6 *)(void *)out)
                ->sin6_addr = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
            return true;
        }
    }
    return false;
}

struct sim_world *sim_world_of(struct sim_device *device)
{
    return device->world;
}

/* ---------------------------------------------------------------------------------- device list */

/* A list begins with its world, which lives as long as the list. */
static struct ibv_device **list_make(struct sim_host *host, int *count)
{
    struct ibv_device **list = calloc(device_count(host) + 2, sizeof(struct ibv_device *));
    if (list == NULL) {
        return NULL;
    }
    memcpy(list, &host->world, sizeof(struct sim_world *));
    *count = 0;
    for (struct sim_device *at = host->devices; at != NULL; at = at->next) {
        if (!at->removed) {
            list[1 + (*count)++] = &at->ib;
        }
    }
    return list + 1;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
    struct sim_host *host = sim_host_visit();
    struct sim_world *world = host != NULL ? host->world : NULL;
    struct ibv_device **list = NULL;
    int error = ENOSYS; /* as on a kernel without RDMA */
    int count = 0;
    if (host != NULL && !host->killed) {
        sim_lock(world);
        error = sim_call(world, SIM_CALL_get_device_list);
        list = error == 0 ? list_make(host, &count) : NULL;
        error = error == 0 ? ENOMEM : error;
        sim_unlock(world);
    }
    if (list == NULL) {
        if (world != NULL) {
            sim_world_leave(world);
        }
        errno = error;
    }
    if (num_devices != NULL) {
        *num_devices = count;
    }
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    struct sim_world *world;
    memcpy(&world, list - 1, sizeof(struct sim_world *));
    free(list - 1);
    sim_world_leave(world);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
    struct sim_device *wanted = (struct sim_device *)(void *)device;
    int index = 0;
    for (struct sim_device *at = wanted->host->devices; at != wanted; at = at->next) {
        index++;
    }
    return index;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
    return htobe64(((struct sim_device *)(void *)device)->guid);
}

/* ------------------------------------------------------------------------------------- contexts */

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size);
static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size);

struct sim_context *sim_context_create(struct sim_device *device)
{
    int async = sim_event_descriptor();
    struct sim_context *context = async >= 0
                                      ? sim_alloc_with(device->world, sizeof(*context), async)
                                      : NULL;
    if (context == NULL) {
        errno = async >= 0 ? ENOMEM : errno;
        return NULL;
    }
    context->device = device;
    context->world = device->world;
    context->next = device->contexts;
    device->contexts = context;
    struct verbs_context *verbs = &context->verbs;
    verbs->sz = sizeof(*verbs);
    verbs->query_port = query_port;
    verbs->query_device_ex = query_device_ex;
    verbs->create_cq_ex = device->options.cq_ex ? sim_create_cq_ex : NULL;
    verbs->create_qp_ex = sim_create_qp_ex;
    struct ibv_context *ib = &verbs->context;
    ib->device = &device->ib;
    ib->cmd_fd = -1;
    ib->async_fd = async;
    ib->num_comp_vectors = (int)device->options.vectors;
    ib->abi_compat = __VERBS_ABI_IS_EXTENDED;
    (void)pthread_mutex_init(&ib->mutex, NULL);
    sim_fill_operations(context);
    return context;
}

void sim_context_destroy(struct sim_context *context)
{
    struct sim_context **at = &context->device->contexts;
    while (*at != context) {
        at = &(*at)->next;
    }
    *at = context->next;
    while (context->events != NULL) {
        struct sim_async *event = context->events;
        context->events = event->next;
        sim_free(event);
    }
    (void)pthread_mutex_destroy(&context->verbs.context.mutex);
    sim_free(context);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    struct sim_device *sim = (struct sim_device *)(void *)device;
    sim_lock(sim->world);
    int error = sim_call(sim->world, SIM_CALL_open_device);
    struct sim_context *context = NULL;
    if (error == 0 && !sim_device_alive(sim)) {
        error = ENODEV;
    }
    if (error == 0) {
        context = sim_context_create(sim);
        error = errno;
    }
    if (context != NULL) {
        sim->world->objects++;
    }
    sim_unlock(sim->world);
    if (context == NULL) {
        errno = error;
        return NULL;
    }
    return &context->verbs.context;
}

int ibv_close_device(struct ibv_context *context)
{
    struct sim_context *sim = sim_context_of(context);
    struct sim_world *world = sim->world;
    sim_lock(world);
    if (sim->objects > 0) {
        sim_misuse(world, "ibv_close_device: the context still has objects");
    }
    sim_context_destroy(sim);
    world->objects--;
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}

/* -------------------------------------------------------------------------------------- queries */

static void device_attributes(const struct sim_device *device, struct ibv_device_attr *attr)
{
    const struct sim_device_options *options = &device->options;
    *attr = (struct ibv_device_attr){
        .fw_ver = "sim",
        .node_guid = htobe64(device->guid),
        .sys_image_guid = htobe64(device->guid),
        .max_mr_size = options->limits.max_mr_size,
        .page_size_cap = 0xfffff000,
        .vendor_id = 0x5e5e5e,
        .vendor_part_id = 1,
        .hw_ver = 1,
        .max_qp = (int)options->limits.max_qp,
        .max_qp_wr = (int)options->limits.max_qp_wr,
        .device_cap_flags = options->limits.max_srq > 0 ? IBV_DEVICE_SRQ_RESIZE : 0,
        .max_sge = (int)options->limits.max_sge,
        .max_sge_rd = (int)options->limits.max_sge_rd,
        .max_cq = (int)options->limits.max_cq,
        .max_cqe = (int)options->limits.max_cqe,
        .max_mr = (int)options->limits.max_mr,
        .max_pd = (int)options->limits.max_pd,
        .max_qp_rd_atom = (int)options->limits.max_rd_atomic,
        .max_res_rd_atom = (int)(options->limits.max_rd_atomic * options->limits.max_qp),
        .max_qp_init_rd_atom = (int)options->limits.max_init_rd_atomic,
        .atomic_cap = (enum ibv_atomic_cap)options->atomics,
        .max_srq = (int)options->limits.max_srq,
        .max_srq_wr = (int)options->limits.max_srq_wr,
        .max_srq_sge = (int)options->limits.max_srq_sge,
        .max_ah = 1024,
        .max_pkeys = (uint16_t)options->pkeys,
        .local_ca_ack_delay = 15,
        .phys_port_cnt = 1,
    };
    attr->device_cap_flags |= sim_is_iwarp(device) ? 0 : IBV_DEVICE_RC_RNR_NAK_GEN;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    struct sim_device *device = sim_device_from(context);
    sim_lock(device->world);
    int error = sim_call(device->world, SIM_CALL_query_device);
    error = error == 0 && !sim_device_alive(device) ? EIO : error;
    if (error == 0) {
        device_attributes(device, attr);
    }
    sim_unlock(device->world);
    return error;
}

static int query_device_ex(struct ibv_context *context,
                           const struct ibv_query_device_ex_input *input,
                           struct ibv_device_attr_ex *attr, size_t size)
{
    (void)input;
    struct ibv_device_attr_ex full;
    memset(&full, 0, sizeof(full));
    int error = ibv_query_device(context, &full.orig_attr);
    if (error != 0) {
        return error;
    }
    if (full.orig_attr.atomic_cap == IBV_ATOMIC_GLOB) {
        full.pci_atomic_caps.fetch_add = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
        full.pci_atomic_caps.compare_swap = IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP;
    }
    full.phys_port_cnt_ex = 1;
    memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    return 0;
}

static void port_attributes(const struct sim_device *device, struct ibv_port_attr *attr)
{
    const struct sim_device_options *options = &device->options;
    bool ib = options->link == SIM_IB;
    enum { LINK_UP = 5, DISABLED = 3 }; /* phys_state of the IBTA PortInfo */
    *attr = (struct ibv_port_attr){
        .state = device->port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
        .max_mtu = IBV_MTU_4096,
        .active_mtu = (enum ibv_mtu)options->mtu,
        .gid_tbl_len = sim_is_iwarp(device) ? 1 : SIM_GIDS,
        .port_cap_flags = ib ? IBV_PORT_CM_SUP : IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS,
        .max_msg_sz = (uint32_t)options->limits.max_msg,
        .pkey_tbl_len = (uint16_t)options->pkeys,
        .lid = ib ? device->lid : 0,
        .sm_lid = ib ? 1 : 0,
        .max_vl_num = 1,
        .subnet_timeout = 18,
        .active_width = 2,  /* 4x */
        .active_speed = 32, /* EDR */
        .phys_state = device->port_up ? LINK_UP : DISABLED,
        .link_layer = ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET,
    };
}

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr,
                      size_t size)
{
    struct sim_device *device = sim_device_from(context);
    sim_lock(device->world);
    int error = sim_call(device->world, SIM_CALL_query_port);
    error = error == 0 && !sim_device_alive(device) ? EIO : error;
    error = error == 0 && port != 1 ? EINVAL : error;
    if (error == 0) {
        struct ibv_port_attr full;
        port_attributes(device, &full);
        memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
    }
    sim_unlock(device->world);
    return error;
}

int ibv_query_port(struct ibv_context *context, uint8_t port_num,
                   struct _compat_ibv_port_attr *port_attr)
{
    return query_port(context, port_num, (void *)port_attr,
                      offsetof(struct ibv_port_attr, port_cap_flags2));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num, uint32_t gid_index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t entry_size)
{
    struct sim_device *device = sim_device_from(context);
    sim_lock(device->world);
    int error = sim_call(device->world, SIM_CALL_query_gid);
    uint32_t length = sim_is_iwarp(device) ? 1 : SIM_GIDS;
    if (error == 0 && !sim_device_alive(device)) {
        error = EIO;
    } else if (error == 0 && (port_num != 1 || flags != 0 || gid_index >= length)) {
        error = EINVAL;
    } else if (error == 0 && !device->gids[gid_index].used) {
        error = ENODATA;
    }
    if (error == 0) {
        const struct sim_gid_place *place = &device->gids[gid_index];
        struct ibv_gid_entry full = { place->gid, gid_index, port_num, place->type, place->ifindex };
        memcpy(entry, &full, entry_size < sizeof(full) ? entry_size : sizeof(full));
    }
    sim_unlock(device->world);
    return error;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                             size_t max_entries, uint32_t flags, size_t entry_size)
{
    ssize_t count = 0;
    for (uint32_t i = 0; i < SIM_GIDS; i++) {
        struct ibv_gid_entry entry;
        int error = _ibv_query_gid_ex(context, 1, i, &entry, flags, sizeof(entry));
        if (error == ENODATA || (error == EINVAL && i > 0)) {
            continue;
        }
        if (error != 0 || (size_t)count == max_entries) {
            return error != 0 ? -error : -EINVAL;
        }
        memcpy((char *)entries + (size_t)count * entry_size, &entry,
               entry_size < sizeof(entry) ? entry_size : sizeof(entry));
        count++;
    }
    return count;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index, union ibv_gid *gid)
{
    struct ibv_gid_entry entry = { .gid = { .raw = { 0 } } };
    int error = _ibv_query_gid_ex(context, port_num, (uint32_t)index, &entry, 0, sizeof(entry));
    if (error != 0 && error != ENODATA) {
        errno = error;
        return -1;
    }
    *gid = entry.gid; /* zeros for an empty place */
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index, __be16 *pkey)
{
    struct sim_device *device = sim_device_from(context);
    sim_lock(device->world);
    int error = sim_call(device->world, SIM_CALL_query_pkey);
    if (error == 0 && (port_num != 1 || index < 0 || (uint64_t)index >= device->options.pkeys)) {
        error = EINVAL;
    }
    if (error == 0) {
        *pkey = htons(device->pkeys[index]);
    }
    sim_unlock(device->world);
    if (error != 0) {
        errno = error;
        return -1;
    }
    return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num, __be16 pkey)
{
    __be16 at;
    for (int i = 0; ibv_query_pkey(context, port_num, i, &at) == 0; i++) {
        if (at == pkey) {
            return i;
        }
    }
    return -1;
}

/* --------------------------------------------------------------------------------------- faults */

static void gids_hide(struct sim_device *device)
{
    for (size_t i = 0; i < SIM_GIDS; i++) {
        device->gids[i].used = false;
    }
}

void sim_port_change(struct sim_device *device, bool up)
{
    if (device->port_up == up || !sim_device_alive(device)) {
        return;
    }
    device->port_up = up;
    sim_world_changed(device->world);
    sim_async_device(device, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
    if (device->options.link == SIM_ROCE) {
        gids_hide(device);
        if (up) {
            gids_set(device);
        }
        sim_async_device(device, IBV_EVENT_GID_CHANGE);
    }
}

void sim_port_set(struct sim_device *device, bool up)
{
    sim_lock(device->world);
    sim_port_change(device, up);
    sim_unlock(device->world);
}

void sim_gid_set(struct sim_device *device, unsigned int index, const union ibv_gid *gid,
                 enum ibv_gid_type type, unsigned int ifindex)
{
    sim_lock(device->world);
    if (index < SIM_GIDS) {
        device->gids[index] = (struct sim_gid_place){ .used = false };
        if (gid != NULL) {
            device->gids[index] = (struct sim_gid_place){ *gid, type, ifindex, true };
        }
        sim_world_changed(device->world);
        sim_async_device(device, IBV_EVENT_GID_CHANGE);
    }
    sim_unlock(device->world);
}

void sim_gids_move(struct sim_device *device)
{
    struct sim_gid_place old[SIM_GIDS];
    memcpy(old, device->gids, sizeof(old));
    gids_hide(device);
    /* Odd steps visit every place of a table whose length is a power of two. */
    for (size_t i = 0; i < SIM_GIDS; i++) {
        device->gids[(i * 5 + 3) % SIM_GIDS] = old[i];
    }
    sim_world_changed(device->world);
    sim_async_device(device, IBV_EVENT_GID_CHANGE);
}

void sim_gids_renumber(struct sim_device *device)
{
    sim_lock(device->world);
    if (device->options.link == SIM_ROCE) {
        sim_gids_move(device);
    }
    sim_unlock(device->world);
}

void sim_lid_set(struct sim_device *device, uint16_t lid)
{
    sim_lock(device->world);
    device->lid = lid;
    sim_world_changed(device->world);
    sim_async_device(device, IBV_EVENT_LID_CHANGE);
    sim_unlock(device->world);
}

void sim_pkey_set(struct sim_device *device, unsigned int index, uint16_t pkey)
{
    sim_lock(device->world);
    if (index < SIM_PKEYS) {
        device->pkeys[index] = pkey;
        sim_world_changed(device->world);
        sim_async_device(device, IBV_EVENT_PKEY_CHANGE);
    }
    sim_unlock(device->world);
}

void sim_device_vanish(struct sim_device *device)
{
    if (!sim_device_alive(device)) {
        return;
    }
    device->removed = true;
    device->port_up = false;
    sim_world_changed(device->world);
    sim_async_device(device, IBV_EVENT_DEVICE_FATAL);
    sim_cm_device_removed(device);
}

void sim_device_remove(struct sim_device *device)
{
    sim_lock(device->world);
    sim_device_vanish(device);
    sim_unlock(device->world);
}

/* ------------------------------------------------------------------------------ other functions */

int ibv_fork_init(void)
{
    return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
    struct sim_host *host = sim_host_visit();
    bool needed = host != NULL && host->devices != NULL && host->devices->options.fork_needed;
    if (host != NULL) {
        sim_world_leave(host->world);
    }
    return needed ? IBV_FORK_DISABLED : IBV_FORK_UNNEEDED;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    struct sim_context *context = sim_context_of(pd->context);
    struct sim_device *device = context->device;
    sim_lock(device->world);
    int error = sim_call(device->world, SIM_CALL_create_ah);
    struct ibv_ah *ah = NULL;
    bool global = attr->is_global != 0;
    bool valid = attr->port_num == 1 && (global || device->options.link == SIM_IB) &&
                 (!global ||
                  (attr->grh.sgid_index < SIM_GIDS && device->gids[attr->grh.sgid_index].used));
    if (error == 0) {
        ah = valid ? sim_alloc(device->world, sizeof(*ah)) : NULL;
        error = valid ? ENOMEM : EINVAL;
    }
    if (ah != NULL) {
        ah->context = pd->context;
        ah->pd = pd;
        context->objects++;
        device->world->objects++;
    }
    sim_unlock(device->world);
    if (ah == NULL) {
        errno = error;
    }
    return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
    struct sim_context *context = sim_context_of(ah->context);
    struct sim_world *world = context->world;
    sim_lock(world);
    context->objects--;
    world->objects--;
    sim_free(ah);
    sim_unlock(world);
    sim_world_rest(world);
    return 0;
}
