/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The set-up of the shm provider against a hostile peer of the same user: connection data, the
 * greeting with its descriptors, and later the descriptors of regions and of other queues. Byte 0 is
 * the victim's role, then come the peer's connection data and its messages: each has a kind, bytes,
 * and descriptors of many sorts, good ones among them.
 *
 * The victim accepts valid data or ends with a status; it keeps no descriptor, mapping or memory.
 */
#include "driver.h"

#include "tests/unit/shm_pair.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { STEPS = 12, FDS_MAX = 4, REGIONS_SIZE = SHM_REGION_COUNT * sizeof(struct shm_region) };

enum sort {
    SEGMENT,
    BELL,
    REGIONS,
    SHORT_MEMORY,
    UNSEALED_MEMORY,
    BLOCKING_PIPE,
    NULL_DEVICE,
    EMPTY_MEMORY,
    READY_SET,
    SORT_COUNT,
};

/* Bits of a message's kind. The others say how many descriptors it has, and how it is changed. */
enum { KIND_REGION = 1, KIND_QUEUE = 0xc1 };

struct input {
    const uint8_t *at;
    size_t left;
};

static uint64_t take(struct input *in, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size && in->left > 0; i++) {
        value = value << 8 | *in->at++;
        in->left--;
    }
    return value;
}

/* Returns how many of the lowest descriptors are open. */
static int count_descriptors(void)
{
    enum { LOOK_AT = 256 };
    struct pollfd fds[LOOK_AT];
    int count = 0;
    for (int fd = 0; fd < LOOK_AT; fd++) {
        fds[fd] = (struct pollfd){ .fd = fd };
    }
    fake_expect(poll(fds, LOOK_AT, 0) >= 0);
    for (int fd = 0; fd < LOOK_AT; fd++) {
        count += (fds[fd].revents & POLLNVAL) == 0;
    }
    return count;
}

static int memory(size_t size, bool sealed, uint64_t magic)
{
    const uint64_t words[2] = { magic, magic == SHM_READY_MAGIC ? sizeof(struct shm_ready)
                                                                : sizeof(struct shm_segment) };
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    fake_expect(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
    if (magic != 0) {
        fake_expect(pwrite(fd, words, sizeof(words), 0) == (ssize_t)sizeof(words));
    }
    if (magic == SHM_SEGMENT_MAGIC && size == sizeof(struct shm_segment)) {
        /* The peer sleeps, so the victim's end marks it. */
        const uint32_t sleeping = SHM_WAKE_MESSAGE;
        fake_expect(pwrite(fd, &sleeping, sizeof(sleeping), offsetof(struct shm_segment, sides)) ==
                    (ssize_t)sizeof(sleeping));
    }
    fake_expect(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

static int make_descriptor(struct input *in, uint8_t sort)
{
    int ends[2];
    switch (sort % SORT_COUNT) {
    case SEGMENT:
        return memory(sizeof(struct shm_segment), true, SHM_SEGMENT_MAGIC);
    case BELL:
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    case REGIONS:
        return memory(REGIONS_SIZE, true, 0);
    case SHORT_MEMORY:
        return memory((size_t)take(in, 2), true, SHM_SEGMENT_MAGIC);
    case UNSEALED_MEMORY:
        return memory(sizeof(struct shm_segment), false, SHM_SEGMENT_MAGIC);
    case BLOCKING_PIPE:
        fake_expect(pipe2(ends, O_CLOEXEC) == 0);
        (void)close(ends[0]);
        return ends[1];
    case NULL_DEVICE:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case READY_SET:
        return memory(SHM_PAGE, true, SHM_READY_MAGIC);
    default:
        return memory(sizeof(struct shm_segment), true, take(in, 8));
    }
}

struct scene {
    struct shm_pair pair; /* only end 1 is open */
    struct shm_end *end;
    enum rdmux_role role;
    int listener;           /* the peer's, if the victim connects */
    int socket;             /* the peer's */
    struct shm_place place; /* of the listener */
    bool has_ready_sets;    /* the peer, as it says */
};

/* Makes the greeting of a good peer, then changes it. */
static size_t make_hello(struct scene *scene, struct input *in, uint8_t *bytes)
{
    struct shm_hello hello = {
        .magic = scene->role == RDMUX_ROLE_ACCEPT ? SHM_HELLO_CONNECTOR : SHM_HELLO_ACCEPTOR,
        .flags = (uint32_t)take(in, 2),
        .pid = (uint32_t)getpid(),
        .mark = scene->has_ready_sets ? (uint32_t)take(in, 2) : 0,
    };
    rdmux_provider_secret(&scene->end->ep->base, hello.secret);
    rdmux_shm_hello_encode(&hello, bytes);
    return SHM_HELLO_SIZE;
}

static size_t make_region(struct input *in, uint8_t *bytes)
{
    const struct shm_region_message message = {
        .index = (uint32_t)take(in, 1),
        .writable = 1,
        .life = take(in, 1),
        .length = take(in, 3),
    };
    rdmux_shm_region_message_encode(&message, bytes);
    return SHM_REGION_SIZE;
}

static size_t make_queue(struct input *in, uint8_t *bytes)
{
    const struct shm_queue_message message = { .mark = (uint32_t)take(in, 2) };
    rdmux_shm_queue_message_encode(&message, bytes);
    return SHM_REGION_SIZE;
}

/* Makes the message that the kind says, and the descriptors of a good one, in their order. */
static size_t make_message(struct scene *scene, struct input *in, uint8_t kind, uint8_t *bytes,
                           uint8_t good[FDS_MAX])
{
    const bool is_queue = (kind & KIND_QUEUE) == KIND_QUEUE;
    const bool has_set_third = is_queue ||
                               (scene->has_ready_sets && scene->role == RDMUX_ROLE_CONNECT);
    good[0] = BELL;
    good[1] = REGIONS;
    good[2] = has_set_third ? READY_SET : SEGMENT;
    good[3] = READY_SET;
    return is_queue                    ? make_queue(in, bytes)
           : (kind & KIND_REGION) != 0 ? make_region(in, bytes)
                                       : make_hello(scene, in, bytes);
}

/* Sends a message, whether or not the victim has closed the socket. */
static void pass(int socket, const uint8_t *bytes, size_t size, const int *fds, size_t fd_count)
{
    _Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(FDS_MAX * sizeof(int))] = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (fd_count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
    }
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)sent;
}

/* Sends one message with its descriptors. */
static void say(struct scene *scene, struct input *in)
{
    uint8_t bytes[64];
    uint8_t kind = (uint8_t)take(in, 1);
    uint8_t good[FDS_MAX];
    size_t size = make_message(scene, in, kind, bytes, good);
    size_t fd_count = (size_t)(kind >> 1 & 3) + (size_t)(kind >> 5 & 1);
    if ((kind & 8) != 0) {
        bytes[take(in, 1) % size] ^= (uint8_t)take(in, 1);
    }
    if ((kind & 16) != 0) {
        size = (size_t)take(in, 1) % (sizeof(bytes) + 1);
        for (size_t i = 0; i < size; i++) {
            bytes[i] = (uint8_t)take(in, 1);
        }
    }
    int fds[FDS_MAX];
    for (size_t i = 0; i < fd_count; i++) {
        uint8_t sort = (uint8_t)take(in, 1);
        /* Mostly, the descriptors have the order of a good message. */
        fds[i] = make_descriptor(in, (sort & 0x80) != 0 ? sort & 0x7f : good[i]);
        fake_expect(fds[i] >= 0);
    }
    if (scene->socket >= 0) {
        pass(scene->socket, bytes, size, fds, fd_count);
    }
    for (size_t i = 0; i < fd_count; i++) {
        (void)close(fds[i]);
    }
}

/* Gets the peer's end of the socket, as soon as the victim's state permits one. */
static void meet(struct scene *scene)
{
    if (scene->socket >= 0) {
        return;
    }
    enum rdmux_status status = scene->role == RDMUX_ROLE_ACCEPT
                                   ? rdmux_shm_meeting_connect(&scene->end->ep->setup.meeting,
                                                               getpid(), &scene->socket)
                                   : rdmux_shm_socket_accept(scene->listener, getpid(),
                                                             &scene->socket);
    if (status != RDMUX_OK) {
        scene->socket = -1;
    }
}

static enum rdmux_status begin(struct scene *scene, struct input *in)
{
    uint8_t bytes[SHM_DESCRIPTION_SIZE];
    uint8_t change = (uint8_t)take(in, 1);
    scene->has_ready_sets = (change & 4) != 0;
    const struct shm_description description = {
        .pid = (uint32_t)getpid(),
        .features = scene->has_ready_sets ? SHM_FEATURE_READY : 0,
        .place = scene->place,
    };
    size_t size = sizeof(bytes);
    rdmux_shm_description_encode(&description, bytes);
    if ((change & 1) != 0) {
        size = (size_t)take(in, 1) % (sizeof(bytes) + 1);
    }
    if ((change & 2) != 0) {
        bytes[take(in, 1) % sizeof(bytes)] ^= (uint8_t)take(in, 1);
    }
    return rdmux_shm_ep_connect(&scene->end->ep->base, bytes, size);
}

/* Lets a connected victim import a region that the peer describes. */
static void import(struct scene *scene, struct input *in)
{
    struct shm_remote remote;
    uint8_t description[56] = { 1, 1 };
    memset(&remote, 0, sizeof(remote));
    remote.base.ep = &scene->end->ep->base;
    remote.base.length = take(in, 2) + 1;
    remote.base.access = RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE;
    description[4] = (uint8_t)take(in, 1);
    description[8] = (uint8_t)take(in, 1);
    description[24] = (uint8_t)take(in, 1);
    description[26] = (uint8_t)take(in, 1);
    if (rdmux_shm_remote_open(&remote.base, description, sizeof(description)) == RDMUX_OK) {
        if (remote.mode == SHM_REMOTE_MAPPED) { /* all of it must be readable */
            for (uint64_t at = 0; at < remote.base.length; at += SHM_PAGE) {
                ((volatile uint8_t *)remote.mapped)[at] = 1;
            }
            ((volatile uint8_t *)remote.mapped)[remote.base.length - 1] = 1;
        }
        rdmux_shm_remote_close(&remote.base);
    }
}

static void run(struct scene *scene, struct input *in)
{
    enum rdmux_status status = begin(scene, in);
    for (int i = 0; i < STEPS && (status == RDMUX_IN_PROGRESS || status == RDMUX_OK); i++) {
        meet(scene);
        if (in->left > 0) {
            say(scene, in);
        }
        (void)rdmux_shm_poll(&scene->end->cq->base, 16);
        if (status == RDMUX_IN_PROGRESS) {
            status = rdmux_shm_ep_connect(&scene->end->ep->base, NULL, 0);
        } else {
            import(scene, in);
        }
        (void)rdmux_shm_poll(&scene->end->cq->base, 16);
        (void)rdmux_shm_arm(&scene->end->cq->base);
    }
}

static void scene_open(struct scene *scene)
{
    scene->pair.domain = shm_pair_domain();
    shm_end_open(&scene->pair, 1);
    scene->end = &scene->pair.ends[1];
    scene->listener = -1;
    scene->socket = -1;
}

static void scene_close(struct scene *scene)
{
    rdmux_shm_ep_close(&scene->end->ep->base);
    free(scene->end->ep);
    rdmux_shm_cq_close(&scene->end->cq->base);
    free(scene->end->cq);
    rdmux_shm_provider.domain_close(&scene->pair.domain->base);
    free(scene->pair.domain);
    if (scene->socket >= 0) {
        (void)close(scene->socket);
    }
    if (scene->listener >= 0) {
        rdmux_shm_meeting_remove(&scene->place);
        (void)close(scene->listener);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct scene *scene = calloc(1, sizeof(*scene));
    fake_expect(scene != NULL);
    int before = count_descriptors();
    scene->role = (take(&in, 1) & 1) != 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT;
    scene_open(scene);
    if (scene->role == RDMUX_ROLE_CONNECT) {
        rdmux_shm_ep_close(&scene->end->ep->base);
        memset(scene->end->ep, 0, sizeof(*scene->end->ep));
        scene->end->ep->base.ops = &rdmux_shm_provider;
        scene->end->ep->base.cq = &scene->end->cq->base;
        scene->end->ep->base.ep = &scene->end->core;
        scene->end->attr.role = RDMUX_ROLE_CONNECT;
        fake_expect(rdmux_shm_ep_open(&scene->end->ep->base, &scene->end->attr) == RDMUX_OK);
        fake_expect(getentropy(scene->place.name, sizeof(scene->place.name)) == 0);
        fake_expect(rdmux_shm_meeting_listen(&scene->place, &scene->listener) == RDMUX_OK);
    }
    run(scene, &in);
    scene_close(scene);
    free(scene);
    fake_expect(fake_fabric.allocations == 0);
    fake_expect(count_descriptors() == before);
    return 0;
}
