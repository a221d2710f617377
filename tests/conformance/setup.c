/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Set-up and tear-down for most cases: fabric, queue, listener, connected pair, regions. */
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The library's default time limits; a case multiplies them by side->patience. */
enum { PATH_TIMEOUT_MS = 2000, SETUP_TIMEOUT_MS = 10000, LIVENESS_MS = 10000 }; /* the defaults */

const char *side_any_port(const struct side *side)
{
    static char address[HOST_TEXT_MAX + 2];
    (void)snprintf(address, sizeof(address), "%s:0", side->host);
    return address;
}

int side_bound_socket(struct side *side, bool listens, char address[RDMUX_ADDRESS_MAX])
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof(name);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && bind(fd, (const struct sockaddr *)&name, length) == 0 &&
               getsockname(fd, (struct sockaddr *)&name, &length) == 0 &&
               (!listens || listen(fd, 8) == 0),
           "no socket: %s", strerror(errno));
    (void)snprintf(address, RDMUX_ADDRESS_MAX, "127.0.0.1:%u", (unsigned)ntohs(name.sin_port));
    side->descriptors[fd] = true; /* not rdmux's */
    return fd;
}

struct rdmux_fabric_attr fabric_attr_of(const struct side *side)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = side->paths;
    attr.plugins = side->plugin_count == 0 ? NULL : side->plugins;
    attr.plugin_count = side->plugin_count;
    if (side->auth.key_file != NULL) {
        attr.auth = &side->auth;
    }
    if (side->manual) {
        attr.flags = RDMUX_FABRIC_NO_SERVICE_THREAD;
    }
    return attr;
}

struct rdmux_ep_attr ep_attr_of(const struct side *side)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = side->provider;
    attr.path_timeout_ms = PATH_TIMEOUT_MS * side->patience;
    attr.setup_timeout_ms = SETUP_TIMEOUT_MS * side->patience;
    attr.liveness_ms = LIVENESS_MS * side->patience;
    return attr;
}

struct rdmux_ep_attr still_ep_attr_of(const struct side *side)
{
    struct rdmux_ep_attr attr = ep_attr_of(side);
    attr.liveness_ms = RDMUX_NEVER;
    return attr;
}

/* Libraries below a provider may keep descriptors until the process ends (librdmacm: one or two for
 * each device). Descriptors that the first fabric leaves behind are theirs; any that a later fabric
 * adds is a leak. */
void side_open_libraries(struct side *side)
{
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    struct rdmux_fabric *fabric = NULL;
    attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD;
    size_t count = 0;
    EXPECT_OK(rdmux_fabric_open(&attr, &fabric));
    EXPECT_OK(rdmux_fabric_paths(fabric, NULL, 0, &count)); /* scans for devices */
    EXPECT_OK(rdmux_fabric_close(fabric));
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        side->descriptors[fd] = fcntl(fd, F_GETFD) >= 0;
    }
    side->has_libraries = true;
}

void side_open(struct side *side, const struct rdmux_fabric_attr *fabric_attr)
{
    if (!side->has_libraries) {
        side_open_libraries(side);
    }
    struct rdmux_fabric_attr attr = fabric_attr_of(side);
    struct rdmux_cq *cq = NULL;
    EXPECT_OK(rdmux_fabric_open(fabric_attr == NULL ? &attr : fabric_attr, &side->fabric));
    EXPECT_OK(rdmux_cq_create(side->fabric, NULL, &cq));
    queue_open(&side->queue, side, cq);
}

void side_meet(struct side *side)
{
    if (side->is_initiator) {
        TAKE(side, side->address, sizeof(side->address));
        return;
    }
    EXPECT_OK(rdmux_listen(side->fabric, side_any_port(side), NULL, &side->listener));
    EXPECT_OK(rdmux_listener_address(side->listener, side->address, sizeof(side->address)));
    GIVE(side, side->address, sizeof(side->address));
}

void check_endpoint(const struct side *side, struct rdmux_ep *ep, struct rdmux_ep_info *info)
{
    *info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    EXPECT_OK(rdmux_ep_info(ep, info));
    EXPECT_EQUAL(info->state, RDMUX_EP_CONNECTED);
    EXPECT_EQUAL(info->status, RDMUX_OK);
    EXPECT(strcmp(info->provider, side->provider) == 0,
           "the endpoint uses provider \"%s\", not \"%s\"", info->provider, side->provider);
    EXPECT((info->native & info->emulated) == 0,
           "capabilities 0x%" PRIx64 " are reported as native and as emulated",
           info->native & info->emulated);
    if (!side->caps->known) {
        side->caps->native = info->native;
        side->caps->emulated = info->emulated;
        side->caps->known = true;
    }
}

void side_track(struct side *side, struct rdmux_ep *ep)
{
    EXPECT(side->ep_count < SIDE_ENDPOINTS_MAX, "the case is wrong: too many endpoints");
    side->eps[side->ep_count++] = ep;
    if (side->ep_count == 1) {
        side->ep = ep;
    }
}

void side_close_ep(struct side *side, struct rdmux_ep *ep)
{
    EXPECT_OK(rdmux_ep_close(ep));
    for (size_t i = 0; i < side->ep_count; i++) {
        if (side->eps[i] == ep) {
            side->eps[i] = side->eps[--side->ep_count];
            break;
        }
    }
    if (side->ep == ep) {
        side->ep = NULL;
    }
}

struct rdmux_ep *side_pair_on(struct side *side, struct queue *queue,
                              const struct rdmux_ep_attr *attr)
{
    struct rdmux_ep_attr default_attr = ep_attr_of(side);
    struct rdmux_ep_info info;
    struct rdmux_ep *ep = NULL;
    if (attr == NULL) {
        attr = &default_attr;
    }
    if (side->is_initiator) {
        EXPECT_OK(
            rdmux_connect(side->fabric, queue->cq, side->address, attr, side->patient_ms, &ep));
    } else {
        EXPECT_OK(rdmux_accept(side->listener, queue->cq, attr, side->patient_ms, &ep));
    }
    EXPECT(ep != NULL, "RDMUX_OK without an endpoint");
    check_endpoint(side, ep, &info);
    side_track(side, ep);
    if (side->ep == ep) {
        side->info = info;
    }
    return ep;
}

struct rdmux_ep *side_pair(struct side *side, const struct rdmux_ep_attr *attr)
{
    return side_pair_on(side, &side->queue, attr);
}

void side_open_pair(struct side *side, const struct rdmux_ep_attr *attr)
{
    side_open(side, NULL);
    side_meet(side);
    (void)side_pair(side, attr);
}

bool side_has(const struct side *side, uint64_t needs)
{
    return side->caps->known && caps_missing(side->caps, needs) == 0;
}

uint32_t flag_if_there(const struct side *side, uint32_t flag)
{
    return side_has(side, flag == RDMUX_PLACED ? NEEDS_PLACED : NEEDS_FENCE) ? flag : 0;
}

void settle_writes(struct side *side, struct queue *queue, struct rdmux_ep *ep,
                   struct rdmux_remote *remote)
{
    uint8_t byte = 0;
    if (flag_if_there(side, RDMUX_PLACED) == 0) {
        EXPECT_OK(rdmux_read(ep, &byte, 1, NULL, remote, 0, CTX(8800), 0));
        (void)WAIT_OF(queue, ep, RDMUX_WC_READ, CTX(8800), RDMUX_OK);
    }
}

/* Descriptors that were not open when the case began belong to rdmux. */
static void expect_no_descriptor_left(const struct side *side)
{
    for (int fd = 0; fd < SIDE_DESCRIPTORS_MAX; fd++) {
        if (side->descriptors[fd] || fcntl(fd, F_GETFD) < 0) {
            continue;
        }
        char link[64];
        char target[256];
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, target, sizeof(target) - 1);
        target[length < 0 ? 0 : length] = '\0';
        FAIL("after rdmux_fabric_close descriptor %d is still open: %s", fd, target);
    }
}

void side_end(struct side *side)
{
    while (side->ep_count > 0) {
        side_close_ep(side, side->eps[side->ep_count - 1]);
    }
    while (side->region_count > 0) {
        struct region region = side->regions[side->region_count - 1];
        region_free(side, &region);
    }
    if (side->queue.cq != NULL) {
        EXPECT_OK(rdmux_cq_destroy(side->queue.cq));
        queue_close(&side->queue);
    }
    STAND("rdmux_listener_close");
    rdmux_listener_close(side->listener);
    side->listener = NULL;
    EXPECT_OK(rdmux_fabric_close(side->fabric));
    side->fabric = NULL;
    expect_no_descriptor_left(side);
}

void side_finish(struct side *side)
{
    EXPECT_QUIET(&side->queue);
    BARRIER(side);
    side_end(side);
}

struct region region_make(struct side *side, enum memory_kind kind, size_t length, uint32_t access)
{
    struct region region = { .kind = kind, .length = length };
    EXPECT(side->region_count < SIDE_REGIONS_MAX, "the case is wrong: too many regions");
    if (kind == MEMORY_ALLOCATED) {
        EXPECT_OK(rdmux_mr_alloc(side->fabric, length, access, &region.mr));
        region.addr = rdmux_mr_addr(region.mr);
    } else {
        region.addr = calloc(1, length);
    }
    EXPECT(region.addr != NULL, "no memory for a region of %zu bytes", length);
    if (kind == MEMORY_REGISTERED) {
        EXPECT_OK(rdmux_mr_register(side->fabric, region.addr, length, access, &region.mr));
    }
    side->regions[side->region_count++] = region;
    return region;
}

struct region region_of_kind(struct side *side, unsigned number, size_t length)
{
    const unsigned kind = number % REGION_KINDS;
    return region_make(side, kind == 0 ? MEMORY_ALLOCATED : MEMORY_REGISTERED, length,
                       ACCESS_ALL | (kind == 2 ? RDMUX_ACCESS_NO_MAP : 0));
}

void region_free(struct side *side, struct region *region)
{
    for (size_t i = 0; i < side->region_count; i++) {
        if (side->regions[i].addr == region->addr) {
            side->regions[i] = side->regions[--side->region_count];
            break;
        }
    }
    STAND("rdmux_mr_deregister");
    rdmux_mr_deregister(region->mr);
    if (region->kind != MEMORY_ALLOCATED) {
        free(region->addr);
    }
    *region = (struct region){ .kind = region->kind };
}

void give_token(struct side *side, const struct region *region)
{
    struct rdmux_token token;
    EXPECT_OK(rdmux_mr_export(region->mr, &token));
    GIVE(side, &token, sizeof(token));
}

struct rdmux_remote *take_remote(struct side *side, struct rdmux_ep *ep)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    TAKE(side, &token, sizeof(token));
    EXPECT_OK(rdmux_remote_import(ep, &token, side->patient_ms, &remote));
    EXPECT(remote != NULL, "RDMUX_OK without a remote");
    return remote;
}

void await_revoked(struct side *side, struct rdmux_remote *remote)
{
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    for (;;) {
        (void)queue_poll(&side->queue);
        if (side->manual) {
            EXPECT_OK(rdmux_fabric_progress(side->fabric));
        }
        EXPECT_OK(rdmux_remote_info(remote, &info));
        if (info.status != RDMUX_OK) {
            break;
        }
        EXPECT(!time_is_up(), "an importer does not learn of a revoke");
        (void)sched_yield();
    }
    EXPECT_EQUAL(info.status, RDMUX_DENIED);
}

enum { EXERCISE_SIZE = 5000, EXERCISE_ROOM = 8192, EXERCISE_WORD = 6000 };

static void exercise_initiator(struct side *side, struct queue *queue, struct rdmux_ep *ep,
                               struct rdmux_remote *remote)
{
    uint8_t *bytes = malloc(EXERCISE_ROOM);
    uint64_t old = 1;
    EXPECT(bytes != NULL, "out of memory");

    pattern_fill(bytes, EXERCISE_SIZE, side->seed, 0);
    if (side_has(side, NEEDS_WRITE)) {
        /* If a message follows, it proves that the bytes are placed. */
        uint32_t placed = side_has(side, NEEDS_SEND) ? 0 : flag_if_there(side, RDMUX_PLACED);
        EXPECT_OK(rdmux_write(ep, bytes, EXERCISE_SIZE, NULL, remote, 0, CTX(101), placed));
    }
    if (side_has(side, NEEDS_SEND)) {
        EXPECT_OK(rdmux_send(ep, bytes, 100, NULL, CTX(102), 0));
    }
    if (side_has(side, NEEDS_WRITE)) {
        (void)WAIT_OF(queue, ep, RDMUX_WC_WRITE, CTX(101), RDMUX_OK);
    }
    if (side_has(side, NEEDS_SEND)) {
        (void)WAIT_OF(queue, ep, RDMUX_WC_SEND, CTX(102), RDMUX_OK);
    }
    if (side_has(side, NEEDS_READ)) {
        memset(bytes, 0, EXERCISE_ROOM);
        EXPECT_OK(rdmux_read(ep, bytes, EXERCISE_SIZE, NULL, remote, 0, CTX(103), 0));
        (void)WAIT_OF(queue, ep, RDMUX_WC_READ, CTX(103), RDMUX_OK);
        if (side_has(side, NEEDS_WRITE)) {
            EXPECT_PATTERN(bytes, EXERCISE_SIZE, side->seed);
        } else {
            EXPECT_FILLED(bytes, EXERCISE_SIZE, 0);
        }
    }
    if (side_has(side, NEEDS_ATOMICS)) {
        EXPECT_OK(rdmux_fetch_add(ep, &old, NULL, remote, EXERCISE_WORD, 7, CTX(104), 0));
        (void)WAIT_OF(queue, ep, RDMUX_WC_FETCH_ADD, CTX(104), RDMUX_OK);
        EXPECT_EQUAL(old, 40);
        EXPECT_OK(rdmux_compare_swap(ep, &old, NULL, remote, EXERCISE_WORD, 47, 40, CTX(105), 0));
        (void)WAIT_OF(queue, ep, RDMUX_WC_COMPARE_SWAP, CTX(105), RDMUX_OK);
        EXPECT_EQUAL(old, 47);
    }
    free(bytes);
}

/* The write is placed when a later message has arrived (2.3). On a path without messages, it is
 * placed once its PLACED completion has come and the other side has reported it. */
static void exercise_target(struct side *side, struct queue *queue, struct rdmux_ep *ep,
                            const struct region *region, const uint8_t *message)
{
    if (side_has(side, NEEDS_SEND)) {
        struct rdmux_wc wc = WAIT_OF(queue, ep, RDMUX_WC_RECV, CTX(201), RDMUX_OK);
        EXPECT_EQUAL(wc.length, 100);
        EXPECT_PATTERN(message, 100, side->seed);
    }
    const bool is_there = side_has(side, NEEDS_WRITE) &&
                          (side_has(side, NEEDS_SEND) || side_has(side, NEEDS_SETTLED));
    if (is_there && side_has(side, NEEDS_SEND)) {
        EXPECT_PATTERN(region->addr, EXERCISE_SIZE, side->seed);
    }
    BARRIER(side);
    if (is_there) {
        EXPECT_PATTERN(region->addr, EXERCISE_SIZE, side->seed);
    }
}

void exercise(struct side *side, struct queue *queue, struct rdmux_ep *ep)
{
    if (side->is_initiator) {
        struct rdmux_remote *remote = take_remote(side, ep);
        exercise_initiator(side, queue, ep, remote);
        BARRIER(side);
        rdmux_remote_close(remote);
        return;
    }
    struct region region = region_make(side, MEMORY_ALLOCATED, EXERCISE_ROOM, ACCESS_ALL);
    uint8_t message[128];
    const uint64_t word = 40;
    memcpy(region.addr + EXERCISE_WORD, &word, sizeof(word));
    if (side_has(side, NEEDS_SEND)) {
        EXPECT_OK(rdmux_recv(ep, message, sizeof(message), NULL, CTX(201)));
    }
    give_token(side, &region);
    exercise_target(side, queue, ep, &region, message);
    EXPECT(memcmp(region.addr + EXERCISE_WORD, &word, sizeof(word)) == 0,
           "a fetch_add and a compare_swap back do not leave the word as it was");
    region_free(side, &region);
}
