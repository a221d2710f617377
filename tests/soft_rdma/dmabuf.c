/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Tests regions over dma-bufs of the kernel's driver udmabuf. Both ends are in this process.
 *
 *   dmabuf PROVIDER ADDRESS   prints TAP
 *
 * Over tcp and shm requests of every kind reach the bytes. The adapters in software take no
 * dma-bufs: the region is refused beside one, and an adapter that comes to a region loses its path
 * to tcp, with the reason. Exit status 77: the kernel has no udmabuf.
 */
#include <rdmux/rdmux.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PATIENT_MS = 120000, ACCEPT_MS = 20, SIZE = 1 << 20, EXIT_SKIPPED = 77 };

/* Two fabrics and a connection between them. */
struct scene {
    struct rdmux_fabric *fabrics[2];
    struct rdmux_cq *cqs[2];
    struct rdmux_listener *listener;
    struct rdmux_ep *eps[2];
    atomic_bool has_failed; /* the connector, which is not accepted then */
};

static unsigned cases;
static unsigned failures;

static void check(bool is_good, const char *name)
{
    failures += is_good ? 0 : 1;
    (void)printf("%s %u - %s\n", is_good ? "ok" : "not ok", ++cases, name);
}

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        (void)printf("Bail out! %s: %s: %s\n", what, rdmux_status_name(status), rdmux_last_error());
        exit(EXIT_FAILURE);
    }
}

/* ---------------------------------------------------------------------------------------- dma-bufs */

static int create_dmabuf(size_t size)
{
    int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
    if (device < 0) {
        (void)printf("1..0 # SKIP /dev/udmabuf: %s\n", strerror(errno));
        exit(EXIT_SKIPPED);
    }
    int memory = memfd_create("dmabuf", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (memory < 0 || ftruncate(memory, (off_t)size) != 0 ||
        fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
        (void)printf("Bail out! memfd: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    struct udmabuf_create create = { .memfd = (uint32_t)memory,
                                     .flags = UDMABUF_FLAGS_CLOEXEC,
                                     .size = size };
    int dmabuf = ioctl(device, UDMABUF_CREATE, &create);
    if (dmabuf < 0) {
        (void)printf("Bail out! UDMABUF_CREATE: %s\n", strerror(errno));
        exit(EXIT_FAILURE);
    }
    (void)close(memory);
    (void)close(device);
    return dmabuf;
}

static enum rdmux_status create_region(struct rdmux_fabric *fabric, int dmabuf, uint64_t offset,
                                       uint32_t access, struct rdmux_mr **out)
{
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.dmabuf_fd = (uint32_t)(dmabuf + 1);
    attr.dmabuf_offset = offset;
    attr.length = SIZE;
    attr.access = access;
    return rdmux_mr_create(fabric, &attr, out);
}

/* ------------------------------------------------------------------------------------- connections */

static void open_scene(struct scene *scene, const char *host)
{
    char address[RDMUX_ADDRESS_MAX];
    (void)snprintf(address, sizeof(address), "%s:0", host);
    memset(scene, 0, sizeof(*scene));
    for (int i = 0; i < 2; i++) {
        must(rdmux_fabric_open(NULL, &scene->fabrics[i]), "rdmux_fabric_open");
        must(rdmux_cq_create(scene->fabrics[i], NULL, &scene->cqs[i]), "rdmux_cq_create");
    }
    must(rdmux_listen(scene->fabrics[1], address, NULL, &scene->listener), "rdmux_listen");
}

/* Accepts one connection, unless the connector has given up. */
static void *accept_one(void *argument)
{
    struct scene *scene = argument;
    enum rdmux_status status = RDMUX_TIMED_OUT;
    while (status == RDMUX_TIMED_OUT && !atomic_load(&scene->has_failed)) {
        status = rdmux_accept(scene->listener, scene->cqs[1], NULL, ACCEPT_MS, &scene->eps[1]);
    }
    return NULL;
}

static enum rdmux_status connect_over(struct scene *scene, const char *paths)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    pthread_t acceptor;
    attr.paths = paths;
    must(rdmux_listener_address(scene->listener, address, sizeof(address)), "the address");
    atomic_store(&scene->has_failed, false);
    if (pthread_create(&acceptor, NULL, accept_one, scene) != 0) {
        (void)printf("Bail out! pthread_create\n");
        exit(EXIT_FAILURE);
    }
    enum rdmux_status status = rdmux_connect(scene->fabrics[0], scene->cqs[0], address, &attr,
                                             PATIENT_MS, &scene->eps[0]);
    atomic_store(&scene->has_failed, status != RDMUX_OK);
    (void)pthread_join(acceptor, NULL);
    return status;
}

static void disconnect(struct scene *scene)
{
    for (int i = 0; i < 2; i++) {
        must(rdmux_ep_close(scene->eps[i]), "rdmux_ep_close");
        scene->eps[i] = NULL;
    }
}

static void close_scene(struct scene *scene)
{
    rdmux_listener_close(scene->listener);
    for (int i = 0; i < 2; i++) {
        must(rdmux_cq_destroy(scene->cqs[i]), "rdmux_cq_destroy");
        must(rdmux_fabric_close(scene->fabrics[i]), "rdmux_fabric_close");
    }
}

/* Waits for the next entry, and returns whether it is this one and succeeded. */
static bool succeeds(struct rdmux_cq *cq, uint32_t opcode)
{
    struct rdmux_wc wc;
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(cq, &wc, 1, PATIENT_MS, &count);
    if (status != RDMUX_OK || wc.opcode != opcode || wc.status != RDMUX_OK) {
        (void)printf("# wait: %s, entry %s: %s\n", rdmux_status_name(status),
                     count == 0 ? "none" : rdmux_wc_opcode_name(wc.opcode),
                     count == 0 ? "" : rdmux_status_name((enum rdmux_status)wc.status));
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- cases */

static void check_messages(struct scene *scene, uint8_t *here, struct rdmux_mr *mr)
{
    static uint8_t there[SIZE];
    memset(here, 1, SIZE);
    must(rdmux_recv(scene->eps[1], there, SIZE, NULL, NULL), "rdmux_recv");
    must(rdmux_send(scene->eps[0], here, SIZE, mr, NULL, 0), "rdmux_send");
    check(succeeds(scene->cqs[1], RDMUX_WC_RECV) && succeeds(scene->cqs[0], RDMUX_WC_SEND) &&
              memcmp(here, there, SIZE) == 0,
          "a message leaves a dma-buf");
    memset(there, 2, SIZE);
    must(rdmux_recv(scene->eps[0], here, SIZE, mr, NULL), "rdmux_recv");
    must(rdmux_send(scene->eps[1], there, SIZE, NULL, NULL, 0), "rdmux_send");
    check(succeeds(scene->cqs[0], RDMUX_WC_RECV) && succeeds(scene->cqs[1], RDMUX_WC_SEND) &&
              memcmp(here, there, SIZE) == 0,
          "a message arrives in a dma-buf");
}

static void check_accesses(struct scene *scene, uint8_t *here, struct rdmux_mr *mr,
                           struct rdmux_mr *theirs)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    uint8_t *there = rdmux_mr_addr(theirs);
    must(rdmux_mr_export(theirs, &token), "rdmux_mr_export");
    must(rdmux_remote_import(scene->eps[0], &token, PATIENT_MS, &remote), "rdmux_remote_import");
    memset(here, 3, SIZE);
    must(rdmux_write(scene->eps[0], here, SIZE, mr, remote, 0, NULL, RDMUX_PLACED), "rdmux_write");
    check(succeeds(scene->cqs[0], RDMUX_WC_WRITE) && memcmp(here, there, SIZE) == 0,
          "a write reaches a dma-buf");
    memset(there, 4, SIZE);
    must(rdmux_read(scene->eps[0], here, SIZE, mr, remote, 0, NULL, 0), "rdmux_read");
    check(succeeds(scene->cqs[0], RDMUX_WC_READ) && memcmp(here, there, SIZE) == 0,
          "a read finds a dma-buf's bytes");
    memset(there, 0, sizeof(uint64_t));
    uint64_t *result = (uint64_t *)(void *)here;
    must(rdmux_fetch_add(scene->eps[0], result, mr, remote, 0, 7, NULL, 0), "rdmux_fetch_add");
    check(succeeds(scene->cqs[0], RDMUX_WC_FETCH_ADD) && *result == 0 && there[0] == 7,
          "an atomic reaches a dma-buf");
    rdmux_remote_close(remote);
}

static void check_path(struct scene *scene, const char *provider)
{
    struct rdmux_mr *mr = NULL;
    struct rdmux_mr *theirs = NULL;
    int dmabuf = create_dmabuf((size_t)2 * SIZE);
    must(connect_over(scene, provider), "rdmux_connect");
    must(create_region(scene->fabrics[0], dmabuf, 0, RDMUX_ACCESS_LOCAL_WRITE, &mr), "a region");
    must(create_region(scene->fabrics[1], dmabuf, SIZE,
                       RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                           RDMUX_ACCESS_REMOTE_ATOMIC,
                       &theirs),
         "a region with remote rights");
    (void)close(dmabuf);
    check_messages(scene, rdmux_mr_addr(mr), mr);
    check_accesses(scene, rdmux_mr_addr(mr), mr, theirs);
    disconnect(scene);
    rdmux_mr_deregister(theirs);
    rdmux_mr_deregister(mr);
}

/* The adapter comes to a region that it cannot register. */
static void check_adapter_after_region(struct scene *scene, const char *provider)
{
    struct rdmux_mr *mr = NULL;
    struct rdmux_explanation *explanation = NULL;
    bool is_explained = false;
    int dmabuf = create_dmabuf(SIZE);
    must(create_region(scene->fabrics[0], dmabuf, 0, 0, &mr), "a region before any adapter");
    check(connect_over(scene, provider) == RDMUX_NO_PATH, "an adapter loses its path to a dma-buf");
    must(rdmux_last_explanation(&explanation), "rdmux_last_explanation");
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        (void)printf("# %s: %s\n", candidate->provider, candidate->text);
        is_explained = is_explained || (strcmp(candidate->provider, provider) == 0 &&
                                        strstr(candidate->text, "takes no dma-bufs") != NULL);
    }
    check(is_explained, "the explanation names the cause");
    rdmux_explanation_free(explanation);
    rdmux_mr_deregister(mr);
    (void)close(dmabuf);
}

static void check_region_after_adapter(struct scene *scene, const char *provider)
{
    struct rdmux_mr *mr = NULL;
    int dmabuf = create_dmabuf(SIZE);
    must(connect_over(scene, provider), "rdmux_connect");
    check(create_region(scene->fabrics[0], dmabuf, 0, 0, &mr) == RDMUX_UNSUPPORTED && mr == NULL &&
              strstr(rdmux_last_error(), "takes no dma-bufs") != NULL,
          "a dma-buf beside an adapter that takes none is refused");
    disconnect(scene);
    (void)close(dmabuf);
}

int main(int argc, char **argv)
{
    struct scene scene;
    if (argc != 3) {
        (void)fprintf(stderr, "usage: dmabuf PROVIDER ADDRESS\n");
        return 2;
    }
    open_scene(&scene, argv[2]);
    if (strcmp(argv[1], "roce") == 0 || strcmp(argv[1], "iwarp") == 0) {
        check_adapter_after_region(&scene, argv[1]);
        check_region_after_adapter(&scene, argv[1]);
    } else {
        check_path(&scene, argv[1]);
    }
    close_scene(&scene);
    (void)printf("1..%u\n", cases);
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
