/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* dma-bufs over simulated adapters. test_dmabuf.c has those over paths without an adapter. */
#include "tests/unit/fake_dmabuf.h"
#include "tests/unit/simulated_scene.h"

enum { DMABUF_SIZE = 65536 };

static enum rdmux_status create_dmabuf(struct rdmux_fabric *fabric, int fd, uint64_t offset,
                                       uint32_t access, struct rdmux_mr **out)
{
    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.dmabuf_fd = (uint32_t)(fd + 1);
    attr.dmabuf_offset = offset;
    attr.length = DMABUF_SIZE;
    attr.access = access;
    return rdmux_mr_create(fabric, &attr, out);
}

/* The adapters get the descriptor, not the bytes' addresses: their memory is the dma-buf's. */
static void an_adapter_reads_and_writes_dmabufs(void **state)
{
    (void)state;
    struct scene scene;
    struct pair *pair = &scene.pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_mr *remote_mr = NULL;
    struct rdmux_token token;
    set_scene(&scene, "roce", &rdmux_roce_provider, "link=roce,dmabuf=yes",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    int fd = fake_dmabuf_create((size_t)2 * DMABUF_SIZE);
    CHECK_OK(create_dmabuf(pair->fabric_a, fd, 0, RDMUX_ACCESS_LOCAL_WRITE, &mr));
    CHECK_OK(create_dmabuf(pair->fabric_b, fd, DMABUF_SIZE,
                           RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE, &remote_mr));
    (void)close(fd);
    uint8_t *here = rdmux_mr_addr(mr);
    uint8_t *there = rdmux_mr_addr(remote_mr);
    CHECK_OK(rdmux_mr_export(remote_mr, &token));
    CHECK_OK(rdmux_mr_revoke(remote_mr)); /* its next key is made without the program's fd */
    struct rdmux_remote *remote = import_simulated(pair, remote_mr);

    memset(here, 5, DMABUF_SIZE);
    CHECK_OK(rdmux_write(pair->a, here, DMABUF_SIZE, mr, remote, 0, NULL, RDMUX_PLACED));
    assert_int_equal(await_entry(pair, pair->cq_a).status, RDMUX_OK);
    assert_memory_equal(there, here, DMABUF_SIZE);
    memset(there, 6, DMABUF_SIZE);
    CHECK_OK(rdmux_read(pair->a, here, DMABUF_SIZE, mr, remote, 0, NULL, 0));
    assert_int_equal(await_entry(pair, pair->cq_a).status, RDMUX_OK);
    assert_memory_equal(here, there, DMABUF_SIZE);

    rdmux_remote_close(remote);
    rdmux_mr_deregister(remote_mr);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

static void an_adapter_that_takes_no_dmabufs_is_named(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    set_scene(&scene, "roce", &rdmux_roce_provider, "link=roce,name=soft0",
              RDMUX_FABRIC_NO_WORKER_THREAD);
    set_gid(scene.device, 0, "127.0.0.1", NEAR);
    connect_scene(&scene);
    int fd = fake_dmabuf_create(DMABUF_SIZE);

    assert_int_equal(create_dmabuf(scene.pair.fabric_a, fd, 0, 0, &mr), RDMUX_UNSUPPORTED);

    assert_null(mr);
    assert_non_null(strstr(rdmux_last_error(), "soft0: region of 65536 bytes of a dma-buf"));
    assert_non_null(strstr(rdmux_last_error(), "takes no dma-bufs"));
    assert_int_equal(fake_dmabuf.sync_count, 2); /* the processor's access has ended, too */
    (void)close(fd);
    clear_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_reads_and_writes_dmabufs),
        cmocka_unit_test(an_adapter_that_takes_no_dmabufs_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
