/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Wrong arguments of every public function: each is refused as INVALID, the error text names it,
 * and nothing has changed. */
#include "api/core/cq.h"
#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "api/core/srq.h"
#include "tests/unit/api_pair.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

enum { WORD = sizeof(uint64_t) };

/* An address of no object, which a failing call must replace by NULL. */
#define NOBODY ((void *)(uintptr_t)0x1000)

/* Checks that the call's status is INVALID, and that its text, apart from the function's own name,
 * contains `argument`. */
static void check_invalid(int line, const char *call, enum rdmux_status status, const char *argument)
{
    if (status != RDMUX_INVALID) {
        fail_msg("line %d: %s: %s, not RDMUX_INVALID: %s", line, call, rdmux_status_name(status),
                 rdmux_last_error());
    }
    const char *text = rdmux_last_error();
    if (strncmp(text, "rdmux_", 6) == 0) {
        text += strcspn(text, ": ");
    }
    if (strstr(text, argument) == NULL) {
        fail_msg("line %d: %s: \"%s\" does not name %s", line, call, rdmux_last_error(), argument);
    }
}

#define INVALID(call, argument) check_invalid(__LINE__, #call, (call), argument)

/* The same for a call with a pointer output, which must become NULL. */
#define INVALID_OUT(out, call, argument)      \
    do {                                      \
        (out) = NOBODY;                       \
        INVALID(call, argument);              \
        if ((out) != NULL) {                  \
            fail_msg("%s left " #out, #call); \
        }                                     \
    } while (0)

/* ------------------------------------------------------------------------------------ the scene */

/* A pair over tcp, and a second fabric's objects, which are of no use to the first. */
struct scene {
    struct pair pair;
    struct rdmux_fabric *fabric; /* of a */
    struct rdmux_cq *cq;         /* of a */
    struct rdmux_ep *ep;         /* a */
    struct rdmux_fabric *strange_fabric;
    struct rdmux_cq *strange_cq;
    struct rdmux_mr *strange_mr;
    uint64_t words[8];
};

static void set_scene(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    open_pair(&scene->pair, "tcp", NULL);
    scene->fabric = scene->pair.fabric_a;
    scene->cq = scene->pair.cq_a;
    scene->ep = scene->pair.a;
    scene->strange_fabric = open_fabric("tcp", 0, NULL);
    scene->strange_cq = create_cq(scene->strange_fabric);
    CHECK_OK(rdmux_mr_register(scene->strange_fabric, scene->words, sizeof(scene->words),
                               RDMUX_ACCESS_LOCAL_WRITE, &scene->strange_mr));
}

/* Checks that nothing has changed: messages arrive, there is no other entry, and no object is left
 * that the test has not made. */
static void clear_scene(struct scene *scene)
{
    struct rdmux_wc wc;
    assert_int_equal(rdmux_cq_poll(scene->cq, &wc, 1), 0);
    assert_int_equal(rdmux_cq_poll(scene->pair.cq_b, &wc, 1), 0);
    check_messages(&scene->pair);
    rdmux_mr_deregister(scene->strange_mr);
    CHECK_OK(rdmux_cq_destroy(scene->strange_cq));
    CHECK_OK(rdmux_fabric_close(scene->strange_fabric));
    close_pair(&scene->pair);
}

/* ----------------------------------------------------------------------------------- fabric, cq */

static void *no_memory(void *user, size_t size)
{
    (void)user;
    (void)size;
    return NULL;
}

static int refuse_thread(void *user, const char *name)
{
    (void)user;
    (void)name;
    return 1;
}

static void wrong_arguments_of_a_fabric_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    const char *const plugins[] = { NULL };
    const struct rdmux_plugin *const builtin[] = { NULL };
    set_scene(&scene);

    INVALID(rdmux_fabric_open(NULL, NULL), "out");
    attr.size = offsetof(struct rdmux_fabric_attr, paths) - 1;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.size");
    attr = (struct rdmux_fabric_attr)RDMUX_FABRIC_ATTR_INIT;
    attr.flags = UINT32_C(1) << 31;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.flags");
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    attr.paths = "tcp,nonsense";
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "\"nonsense\"");
    attr.paths = "tcp;shm";
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "paths");
    attr.paths = NULL;
    attr.plugin_count = 1;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.plugins");
    attr.plugins = plugins;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.plugins");
    attr.plugins = NULL;
    attr.plugin_count = 0;
    attr.builtin_count = 1;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.builtin");
    attr.builtin = builtin;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.builtin[0]");
    attr.builtin = NULL;
    attr.builtin_count = 0;
    attr.log_level = RDMUX_LOG_TRACE + 1;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.log_level");
    attr.log_level = 0;
    attr.allocate = no_memory;
    INVALID_OUT(fabric, rdmux_fabric_open(&attr, &fabric), "attr.release");
    attr.allocate = NULL;
    attr.thread_start = refuse_thread;
    assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_IO);
    assert_non_null(strstr(rdmux_last_error(), "thread_start"));
    assert_null(fabric);

    CHECK_OK(rdmux_fabric_close(NULL));
    INVALID(rdmux_fabric_close(scene.fabric), "cqs");
    assert_int_equal(rdmux_fabric_fd(NULL), -1);
    INVALID(rdmux_fabric_progress(NULL), "fabric");

    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    size_t count = 77;
    INVALID(rdmux_fabric_paths(NULL, &path, 1, &count), "fabric");
    INVALID(rdmux_fabric_paths(scene.fabric, NULL, 1, &count), "out");
    INVALID(rdmux_fabric_paths(scene.fabric, &path, 1, NULL), "count");
    path.size = offsetof(struct rdmux_path_info, provider) - 1;
    INVALID(rdmux_fabric_paths(scene.fabric, &path, 1, &count), "size");
    assert_int_equal(count, 77);
    clear_scene(&scene);
}

static void wrong_arguments_of_a_completion_queue_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_cq *cq = NULL;
    struct rdmux_cq_attr attr = RDMUX_CQ_ATTR_INIT;
    struct rdmux_wc wc;
    size_t count = 0;
    set_scene(&scene);

    INVALID(rdmux_cq_create(scene.fabric, NULL, NULL), "out");
    INVALID_OUT(cq, rdmux_cq_create(NULL, NULL, &cq), "fabric");
    attr.size = offsetof(struct rdmux_cq_attr, depth);
    INVALID_OUT(cq, rdmux_cq_create(scene.fabric, &attr, &cq), "attr.size");
    CHECK_OK(rdmux_cq_destroy(NULL));
    INVALID(rdmux_cq_destroy(scene.cq), "1 endpoints");

    assert_int_equal(rdmux_cq_poll(NULL, &wc, 1), 0);
    assert_int_equal(rdmux_cq_poll(scene.cq, NULL, 1), 0);
    assert_int_equal(rdmux_cq_poll(scene.cq, NULL, 0), 0);
    INVALID(rdmux_cq_wait(NULL, &wc, 1, 0, &count), "cq");
    INVALID(rdmux_cq_wait(scene.cq, NULL, 1, 0, &count), "wc");
    INVALID(rdmux_cq_wait(scene.cq, &wc, 0, 0, &count), "max");
    INVALID(rdmux_cq_wait(scene.cq, &wc, 1, -2, &count), "timeout_ms");
    INVALID(rdmux_cq_wait(scene.cq, &wc, 1, 0, NULL), "count");
    INVALID(rdmux_cq_arm(NULL), "cq");
    assert_int_equal(rdmux_cq_wake(NULL), RDMUX_INVALID); /* keeps the text, see test_cq_threads */
    INVALID(rdmux_ep_move(NULL, scene.cq), "ep");
    INVALID(rdmux_ep_move(scene.ep, NULL), "to");
    INVALID(rdmux_ep_move(scene.ep, scene.strange_cq), "another fabric");
    assert_int_equal(rdmux_cq_fd(NULL), -1);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------------- memory */

static void wrong_arguments_of_a_region_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    static _Alignas(uint64_t) uint8_t bytes[64];
    set_scene(&scene);
    struct rdmux_fabric *fabric = scene.fabric;
    const uint32_t atomic = RDMUX_ACCESS_REMOTE_ATOMIC;
    const uint32_t unknown = UINT32_C(1) << 30;

    INVALID(rdmux_mr_register(fabric, bytes, WORD, 0, NULL), "out");
    INVALID_OUT(mr, rdmux_mr_register(NULL, bytes, WORD, 0, &mr), "fabric");
    INVALID_OUT(mr, rdmux_mr_register(fabric, NULL, WORD, 0, &mr), "addr");
    INVALID_OUT(mr, rdmux_mr_register(fabric, bytes, 0, 0, &mr), "length");
    INVALID_OUT(mr, rdmux_mr_register(fabric, bytes, SIZE_MAX, 0, &mr), "length");
    INVALID_OUT(mr, rdmux_mr_register(fabric, bytes, WORD, unknown, &mr), "access");
    INVALID_OUT(mr, rdmux_mr_register(fabric, bytes + 1, WORD, atomic, &mr), "addr");
    assert_null(rdmux_mr_find(NULL, bytes, WORD, 0));
    assert_null(rdmux_mr_find(fabric, NULL, WORD, 0));
    assert_null(rdmux_mr_find(fabric, bytes, 0, 0));
    assert_null(rdmux_mr_find(fabric, bytes, SIZE_MAX, 0));
    assert_null(rdmux_mr_find(fabric, bytes, WORD, unknown));
    INVALID(rdmux_mr_alloc(fabric, WORD, 0, NULL), "out");
    INVALID_OUT(mr, rdmux_mr_alloc(NULL, WORD, 0, &mr), "fabric");
    INVALID_OUT(mr, rdmux_mr_alloc(fabric, 0, 0, &mr), "length");
    INVALID_OUT(mr, rdmux_mr_alloc(fabric, WORD, unknown, &mr), "access");

    struct rdmux_mr_attr attr = RDMUX_MR_ATTR_INIT;
    attr.length = WORD;
    INVALID(rdmux_mr_create(fabric, &attr, NULL), "out");
    INVALID_OUT(mr, rdmux_mr_create(NULL, &attr, &mr), "fabric");
    INVALID_OUT(mr, rdmux_mr_create(fabric, NULL, &mr), "attr");
    attr.size = offsetof(struct rdmux_mr_attr, length);
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "attr.size");
    attr.size = sizeof(attr);
    attr.ordering = RDMUX_ORDERING_RELAXED + 1;
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "ordering");
    attr.ordering = RDMUX_ORDERING_RELAXED;
    attr.access = atomic;
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "ordering");
    attr.ordering = 0;
    attr.access = unknown;
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "access");
    attr.access = 0;
    attr.page_size = 3000;
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "page_size");
    attr.page_size = 0;
    attr.length = 0;
    INVALID_OUT(mr, rdmux_mr_create(fabric, &attr, &mr), "length");

    assert_null(rdmux_mr_addr(NULL));
    assert_int_equal(rdmux_mr_length(NULL), 0);
    INVALID(rdmux_mr_export(NULL, &token), "mr");
    INVALID(rdmux_mr_export(scene.strange_mr, NULL), "out");
    INVALID(rdmux_mr_export(scene.strange_mr, &token), "rights");
    INVALID(rdmux_mr_export_to(NULL, "anna", &token), "mr");
    INVALID(rdmux_mr_export_to(scene.strange_mr, NULL, &token), "identity");
    INVALID(rdmux_mr_export_to(scene.strange_mr, "anna", NULL), "out");
    INVALID(rdmux_mr_export_to(scene.strange_mr, "anna", &token), "authenticates");
    INVALID(rdmux_mr_revoke(NULL), "mr");
    INVALID(rdmux_mr_suspend(NULL), "mr");
    INVALID(rdmux_mr_resume(NULL, 0, 1), "mr");
    rdmux_mr_deregister(NULL);
    clear_scene(&scene);
}

static void wrong_arguments_of_an_import_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_remote *none = NULL;
    struct rdmux_token token;
    uint64_t address = 0;
    uint32_t key = 0;
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    set_scene(&scene);
    CHECK_OK(rdmux_mr_alloc(scene.pair.fabric_b, WORD, RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    struct rdmux_remote *remote = import_region(scene.ep, mr);
    const struct rdmux_token zeros = { .bytes = { 0 } };

    INVALID(rdmux_mr_raw(NULL, scene.ep, &address, &key), "mr");
    INVALID(rdmux_mr_raw(mr, NULL, &address, &key), "ep");
    INVALID(rdmux_mr_raw(mr, scene.ep, NULL, &key), "addr");
    INVALID(rdmux_mr_raw(mr, scene.ep, &address, NULL), "key");
    INVALID(rdmux_mr_raw(mr, scene.ep, &address, &key), "rdma://");
    INVALID(rdmux_remote_import_raw(scene.ep, 1, 2, 3, NULL), "out");
    INVALID_OUT(none, rdmux_remote_import_raw(NULL, 1, 2, 3, &none), "ep");
    INVALID_OUT(none, rdmux_remote_import_raw(scene.ep, 1, 2, 0, &none), "length");
    INVALID_OUT(none, rdmux_remote_import_raw(scene.ep, UINT64_MAX, 2, 2, &none), "wrap");
    INVALID_OUT(none, rdmux_remote_import_raw(scene.ep, 1, 2, 3, &none), "rdma://");
    INVALID(rdmux_remote_import(scene.ep, &token, 0, NULL), "out");
    INVALID_OUT(none, rdmux_remote_import(NULL, &token, 0, &none), "ep");
    INVALID_OUT(none, rdmux_remote_import(scene.ep, NULL, 0, &none), "token");
    INVALID_OUT(none, rdmux_remote_import(scene.ep, &zeros, 0, &none), "token");
    INVALID_OUT(none, rdmux_remote_import(scene.ep, &token, -2, &none), "timeout_ms");
    INVALID(rdmux_remote_info(NULL, &info), "remote is");
    INVALID(rdmux_remote_info(remote, NULL), "out is");
    info.size = offsetof(struct rdmux_remote_info, length) - 1;
    INVALID(rdmux_remote_info(remote, &info), "size");
    rdmux_remote_close(NULL);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------------ listening */

static void wrong_arguments_of_a_listener_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_listener *none = NULL;
    char text[RDMUX_ADDRESS_MAX];
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    uint8_t data[RDMUX_PRIVATE_DATA_MAX + 1] = { 0 };
    set_scene(&scene);
    struct rdmux_fabric *fabric = scene.fabric;
    struct rdmux_listener *listener = scene.pair.listener;

    INVALID(rdmux_listen(fabric, "127.0.0.1:0", NULL, NULL), "out");
    INVALID_OUT(none, rdmux_listen(NULL, "127.0.0.1:0", NULL, &none), "fabric");
    INVALID_OUT(none, rdmux_listen(fabric, NULL, NULL, &none), "address");
    INVALID_OUT(none, rdmux_listen(fabric, "127.0.0.1:x", NULL, &none), "\"127.0.0.1:x\"");
    INVALID_OUT(none, rdmux_listen(fabric, "[::1", NULL, &none), "\"[::1\"");
    attr.flags = 1;
    INVALID_OUT(none, rdmux_listen(fabric, "127.0.0.1:0", &attr, &none), "attr.flags");
    attr.flags = 0;
    attr.paths = "nonsense";
    INVALID_OUT(none, rdmux_listen(fabric, "127.0.0.1:0", &attr, &none), "\"nonsense\"");
    attr.size = offsetof(struct rdmux_listen_attr, paths) - 1;
    INVALID_OUT(none, rdmux_listen(fabric, "127.0.0.1:0", &attr, &none), "attr.size");
    rdmux_listener_close(NULL);

    INVALID(rdmux_listener_address(NULL, text, sizeof(text)), "listener");
    INVALID(rdmux_listener_address(listener, NULL, sizeof(text)), "out");
    INVALID(rdmux_listener_address(listener, text, sizeof(text) - 1), "size");
    assert_int_equal(rdmux_listener_fd(NULL), -1);

    INVALID(rdmux_listener_next(NULL, 0, &peer), "listener");
    INVALID(rdmux_listener_next(listener, -2, &peer), "timeout_ms");
    INVALID(rdmux_listener_next(listener, 0, NULL), "out");
    peer.size = offsetof(struct rdmux_peer, address) - 1;
    INVALID(rdmux_listener_next(listener, 0, &peer), "size");

    INVALID(rdmux_reject(NULL, 1, 0, NULL, 0), "listener");
    INVALID(rdmux_reject(listener, 0, 0, NULL, 0), "peer");
    INVALID(rdmux_reject(listener, UINT64_C(1) << 60, 0, NULL, 0), "peer");
    INVALID(rdmux_reject(listener, 1, 0, NULL, 1), "private_data");
    INVALID(rdmux_reject(listener, 1, 0, data, sizeof(data)), "length");
    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------- connecting */

static void wrong_arguments_of_connect_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *ep = NULL;
    set_scene(&scene);
    struct rdmux_fabric *fabric = scene.fabric;
    struct rdmux_cq *cq = scene.cq;
    const char *address = scene.pair.address;

    INVALID(rdmux_connect(fabric, cq, address, NULL, 0, NULL), "out");
    INVALID_OUT(ep, rdmux_connect(NULL, cq, address, NULL, 0, &ep), "fabric");
    INVALID_OUT(ep, rdmux_connect(fabric, NULL, address, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_connect(fabric, scene.strange_cq, address, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_connect(fabric, cq, address, NULL, -2, &ep), "timeout_ms");
    INVALID_OUT(ep, rdmux_connect(fabric, cq, NULL, NULL, 0, &ep), "address");
    INVALID_OUT(ep, rdmux_connect(fabric, cq, ":7471", NULL, 0, &ep), "\":7471\"");
    INVALID_OUT(ep, rdmux_connect(fabric, cq, "127.0.0.1:65536", NULL, 0, &ep), "65536");
    clear_scene(&scene);
}

static void wrong_arguments_of_accept_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    set_scene(&scene);
    struct rdmux_listener *listener = scene.pair.listener;
    struct rdmux_cq *cq = scene.pair.cq_b;

    INVALID(rdmux_accept(listener, cq, NULL, 0, NULL), "out");
    INVALID_OUT(ep, rdmux_accept(NULL, cq, NULL, 0, &ep), "listener");
    INVALID_OUT(ep, rdmux_accept(listener, NULL, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_accept(listener, scene.cq, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_accept(listener, cq, NULL, -2, &ep), "timeout_ms");
    attr.peer = UINT64_C(1) << 60;
    INVALID_OUT(ep, rdmux_accept(listener, cq, &attr, 0, &ep), "attr.peer");
    clear_scene(&scene);
}

static void wrong_arguments_of_adopt_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep *ep = NULL;
    int ends[2];
    int datagrams[2];
    set_scene(&scene);
    struct rdmux_fabric *fabric = scene.fabric;
    struct rdmux_cq *cq = scene.cq;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, datagrams), 0);
    int lonely = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(lonely >= 0);
    const enum rdmux_role role = RDMUX_ROLE_CONNECT;

    INVALID(rdmux_adopt(fabric, cq, ends[0], role, NULL, 0, NULL), "out");
    INVALID_OUT(ep, rdmux_adopt(NULL, cq, ends[0], role, NULL, 0, &ep), "fabric");
    INVALID_OUT(ep, rdmux_adopt(fabric, NULL, ends[0], role, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_adopt(fabric, scene.strange_cq, ends[0], role, NULL, 0, &ep), "cq");
    INVALID_OUT(ep, rdmux_adopt(fabric, cq, -1, role, NULL, 0, &ep), "socket");
    INVALID_OUT(ep, rdmux_adopt(fabric, cq, datagrams[0], role, NULL, 0, &ep), "socket");
    INVALID_OUT(ep, rdmux_adopt(fabric, cq, lonely, role, NULL, 0, &ep), "socket");
    INVALID_OUT(ep, rdmux_adopt(fabric, cq, ends[0], (enum rdmux_role)3, NULL, 0, &ep), "role");
    INVALID_OUT(ep, rdmux_adopt(fabric, cq, ends[0], role, NULL, -2, &ep), "timeout_ms");

    const int untouched[] = { ends[0], ends[1], datagrams[0], datagrams[1], lonely };
    for (size_t i = 0; i < RDMUX_COUNT_OF(untouched); i++) {
        assert_int_equal(fcntl(untouched[i], F_GETFL) & O_NONBLOCK, 0);
        assert_int_equal(close(untouched[i]), 0);
    }
    clear_scene(&scene);
}

static void wrong_arguments_of_an_explanation_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_explanation *none = NULL;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    set_scene(&scene);
    const char *address = scene.pair.address;

    INVALID(rdmux_explain(scene.fabric, address, NULL, 100, NULL), "out");
    INVALID_OUT(none, rdmux_explain(NULL, address, NULL, 100, &none), "fabric");
    INVALID_OUT(none, rdmux_explain(scene.fabric, NULL, NULL, 100, &none), "address");
    INVALID_OUT(none, rdmux_explain(scene.fabric, ":1", NULL, 100, &none), "\":1\"");
    INVALID_OUT(none, rdmux_explain(scene.fabric, address, NULL, 0, &none), "timeout_ms");
    INVALID_OUT(none, rdmux_explain(scene.fabric, address, NULL, -2, &none), "timeout_ms");
    INVALID(rdmux_ep_explanation(scene.ep, NULL), "out");
    INVALID_OUT(none, rdmux_ep_explanation(NULL, &none), "ep");
    INVALID(rdmux_last_explanation(NULL), "out");
    CHECK_OK(rdmux_ep_explanation(scene.ep, &explanation));
    INVALID(rdmux_explanation_json(explanation, NULL), "out");
    INVALID_OUT(json, rdmux_explanation_json(NULL, &json), "explanation");
    rdmux_explanation_free(explanation);
    rdmux_explanation_free(NULL);
    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------- attributes */

/* One wrong field of struct rdmux_ep_attr. */
struct wrong_field {
    const char *name;
    size_t offset;
    size_t size;
    uint64_t value;
};
/* clang-format off */
#define FIELD(name, value) \
    { "attr." #name, offsetof(struct rdmux_ep_attr, name), \
      sizeof(((struct rdmux_ep_attr *)NULL)->name), value }
static const struct wrong_field wrong_fields[] = {
    FIELD(size, 0),
    FIELD(size, offsetof(struct rdmux_ep_attr, send_depth) - 1),
    FIELD(flags, UINT32_C(1) << 31),
    FIELD(send_depth, 65537),
    FIELD(recv_depth, 65537),
    FIELD(max_send_sge, 17),
    FIELD(max_recv_sge, 17),
    FIELD(prefer, 3),
    FIELD(require, UINT64_C(1) << 12),
    FIELD(require_native, UINT64_C(1) << 63),
    FIELD(liveness_ms, 99),
    FIELD(setup_timeout_ms, 86400001),
    FIELD(path_timeout_ms, 86400001),
    FIELD(failover, 2),
    FIELD(probe, 2),
    FIELD(dscp, 64),
    FIELD(ecn, 3),
    FIELD(service_level, 16),
    FIELD(data_sockets, 17),
    FIELD(private_length, 1), /* of nothing */
    FIELD(private_length, RDMUX_PRIVATE_DATA_MAX + 1),
};
/* clang-format on */

static struct rdmux_ep_attr with_wrong(const struct wrong_field *field)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    uint32_t half = (uint32_t)field->value;
    memcpy((char *)&attr + field->offset,
           field->size == sizeof(half) ? (const void *)&half : (const void *)&field->value,
           field->size);
    return attr;
}

/* By all four calls that take them. */
static void check_attr(struct scene *scene, const struct rdmux_ep_attr *attr, const char *name)
{
    struct pair *pair = &scene->pair;
    struct rdmux_ep *ep = NULL;
    struct rdmux_explanation *explanation = NULL;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    INVALID_OUT(ep, rdmux_connect(scene->fabric, scene->cq, pair->address, attr, 100, &ep), name);
    INVALID_OUT(ep, rdmux_accept(pair->listener, pair->cq_b, attr, 100, &ep), name);
    INVALID_OUT(ep,
                rdmux_adopt(scene->fabric, scene->cq, ends[0], RDMUX_ROLE_CONNECT, attr, 100, &ep),
                name);
    INVALID_OUT(explanation, rdmux_explain(scene->fabric, pair->address, attr, 100, &explanation),
                name);
    assert_int_equal(close(ends[0]), 0); /* untouched */
    assert_int_equal(close(ends[1]), 0);
}

static void wrong_fields_of_an_endpoints_attributes_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene);
    for (size_t i = 0; i < RDMUX_COUNT_OF(wrong_fields); i++) {
        struct rdmux_ep_attr attr = with_wrong(&wrong_fields[i]);
        const char *name = wrong_fields[i].name;
        check_attr(&scene, &attr, strcmp(name, "attr.private_length") == 0 ? "attr.private_" : name);
    }
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = "tcp,nonsense";
    check_attr(&scene, &attr, "\"nonsense\"");
    attr.paths = "tcp;shm";
    check_attr(&scene, &attr, "attr.paths");
    clear_scene(&scene);
}

static void a_local_address_that_this_host_lacks_is_refused(void **state)
{
    (void)state;
    static const char *const nothing[] = {
        "",    "no-such-device", "mlx5_0", "203.0.113.9", "2001:db8::1", "localhost",
        "tcp", "127.0.0.1:0",
    };
    struct scene scene;
    set_scene(&scene);
    for (size_t i = 0; i < RDMUX_COUNT_OF(nothing); i++) {
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        char quoted[RDMUX_NAME_MAX + 2];
        attr.local = nothing[i];
        (void)snprintf(quoted, sizeof(quoted), "attr.local \"%s\"", nothing[i]);
        check_attr(&scene, &attr, quoted);
    }
    char long_name[RDMUX_NAME_MAX + 1];
    memset(long_name, 'd', RDMUX_NAME_MAX);
    long_name[RDMUX_NAME_MAX] = '\0';
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.local = long_name;
    check_attr(&scene, &attr, "attr.local");
    clear_scene(&scene);
}

static void a_local_address_of_this_host_is_accepted(void **state)
{
    (void)state;
    static const char *const here[] = { "127.0.0.1", "127.0.0.2", "lo" };
    struct scene scene;
    set_scene(&scene);
    for (size_t i = 0; i < RDMUX_COUNT_OF(here); i++) {
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        attr.local = here[i];
        connect_more(&scene.pair, &attr, &a, &b);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(a, &info));
        if (strcmp(here[i], "lo") != 0) {
            assert_memory_equal(info.local_address, here[i], strlen(here[i]));
        }
        CHECK_OK(rdmux_ep_close(a));
        expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        CHECK_OK(rdmux_ep_close(b));
    }
    clear_scene(&scene);
}

static void an_srq_of_another_cq_is_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_srq *srq = NULL;
    struct rdmux_ep *ep = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    set_scene(&scene);
    CHECK_OK(rdmux_srq_create(scene.strange_fabric, scene.strange_cq, NULL, &srq));
    attr.srq = srq;
    INVALID_OUT(ep, rdmux_connect(scene.fabric, scene.cq, scene.pair.address, &attr, 100, &ep),
                "attr.srq");
    INVALID_OUT(ep, rdmux_accept(scene.pair.listener, scene.pair.cq_b, &attr, 100, &ep), "attr.srq");
    CHECK_OK(rdmux_srq_destroy(srq));
    clear_scene(&scene);
}

/* -------------------------------------------------------------------------------- endpoint, SRQ */

static void wrong_arguments_of_an_endpoint_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    struct rdmux_cq_stats cq_stats = RDMUX_CQ_STATS_INIT;
    struct rdmux_fabric_stats fabric_stats = RDMUX_FABRIC_STATS_INIT;
    set_scene(&scene);

    INVALID(rdmux_ep_info(NULL, &info), "ep");
    INVALID(rdmux_ep_info(scene.ep, NULL), "out");
    info.size = offsetof(struct rdmux_ep_info, provider) - 1;
    INVALID(rdmux_ep_info(scene.ep, &info), "size");
    INVALID(rdmux_ep_stats(NULL, &stats), "ep");
    INVALID(rdmux_ep_stats(scene.ep, NULL), "out");
    stats.size = offsetof(struct rdmux_ep_stats, sends) - 1;
    INVALID(rdmux_ep_stats(scene.ep, &stats), "size");
    INVALID(rdmux_cq_stats(NULL, &cq_stats), "cq");
    INVALID(rdmux_cq_stats(scene.cq, NULL), "out");
    cq_stats.size = offsetof(struct rdmux_cq_stats, endpoints) - 1;
    INVALID(rdmux_cq_stats(scene.cq, &cq_stats), "size");
    INVALID(rdmux_fabric_stats(NULL, &fabric_stats), "fabric");
    INVALID(rdmux_fabric_stats(scene.fabric, NULL), "out");
    fabric_stats.size = offsetof(struct rdmux_fabric_stats, providers) - 1;
    INVALID(rdmux_fabric_stats(scene.fabric, &fabric_stats), "size");
    INVALID(rdmux_ep_set_user(NULL, NULL), "ep");
    assert_null(rdmux_ep_user(NULL));
    INVALID(rdmux_ep_shutdown(NULL, 0), "ep");
    INVALID(rdmux_ep_shutdown(scene.ep, -2), "timeout_ms");
    INVALID(rdmux_ep_pause(NULL, 1), "ep");
    INVALID(rdmux_ep_pause(scene.ep, 1), "SRQ");
    CHECK_OK(rdmux_ep_close(NULL));
    clear_scene(&scene);
}

static void wrong_arguments_of_an_srq_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_srq *none = NULL;
    struct rdmux_srq *srq = NULL;
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_sge piece = { .length = WORD };
    struct rdmux_wr wr = { .op = RDMUX_OP_RECV, .sges = &piece, .sge_count = 1 };
    size_t posted = 77;
    set_scene(&scene);
    piece.addr = scene.words;

    INVALID(rdmux_srq_create(scene.fabric, scene.cq, NULL, NULL), "out");
    INVALID_OUT(none, rdmux_srq_create(NULL, scene.cq, NULL, &none), "fabric");
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, NULL, NULL, &none), "cq");
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.strange_cq, NULL, &none), "cq");
    attr.depth = 65537;
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.cq, &attr, &none), "attr.depth");
    attr.depth = 0;
    attr.max_sge = 17;
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.cq, &attr, &none), "attr.max_sge");
    attr.max_sge = 0;
    attr.device_share = 1025;
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.cq, &attr, &none), "attr.device_share");
    attr.device_share = 0;
    attr.limit = 1025;
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.cq, &attr, &none), "attr.limit");
    attr.limit = 0;
    attr.size = offsetof(struct rdmux_srq_attr, device_share) - 1;
    INVALID_OUT(none, rdmux_srq_create(scene.fabric, scene.cq, &attr, &none), "attr.size");

    CHECK_OK(rdmux_srq_create(scene.fabric, scene.cq, NULL, &srq));
    INVALID(rdmux_srq_recv(NULL, scene.words, WORD, NULL, NULL), "srq");
    INVALID(rdmux_srq_recv(srq, NULL, WORD, NULL, NULL), "buf");
    INVALID(rdmux_srq_recv(srq, scene.words, WORD, scene.strange_mr, NULL), "mr");
    INVALID(rdmux_srq_post_recv(NULL, &wr, 1, &posted), "srq");
    assert_int_equal(posted, 0);
    INVALID(rdmux_srq_post_recv(srq, NULL, 1, &posted), "wrs");
    CHECK_OK(rdmux_srq_post_recv(srq, NULL, 0, &posted));
    wr.op = RDMUX_OP_SEND;
    INVALID(rdmux_srq_post_recv(srq, &wr, 1, &posted), "op");
    wr.op = RDMUX_OP_RECV;
    wr.flags = RDMUX_UNSIGNALED;
    INVALID(rdmux_srq_post_recv(srq, &wr, 1, &posted), "flags");
    wr.flags = 0;
    wr.sge_count = 5;
    INVALID(rdmux_srq_post_recv(srq, &wr, 1, &posted), "sge_count");
    wr.sge_count = 1;
    wr.sges = NULL;
    INVALID(rdmux_srq_post_recv(srq, &wr, 1, &posted), "sges");
    wr.sges = &piece;
    wr.spare[7] = 1;
    INVALID(rdmux_srq_post_recv(srq, &wr, 1, &posted), "spare");
    assert_int_equal(posted, 0);
    CHECK_OK(rdmux_srq_destroy(NULL));
    CHECK_OK(rdmux_srq_destroy(srq));
    clear_scene(&scene);
}

/* ------------------------------------------------------------------------------------ data path */

static void wrong_arguments_of_sends_and_receives_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    set_scene(&scene);
    struct rdmux_ep *ep = scene.ep;
    uint64_t *word = scene.words;
    struct rdmux_mr *strange = scene.strange_mr;
    const uint32_t unknown = RDMUX_NO_REPLAY << 1;

    INVALID(rdmux_send(NULL, word, WORD, NULL, NULL, 0), "ep");
    INVALID(rdmux_send(ep, NULL, WORD, NULL, NULL, 0), "buf");
    INVALID(rdmux_send(ep, word, WORD, strange, NULL, 0), "mr");
    INVALID(rdmux_send(ep, word, WORD, NULL, NULL, unknown), "flags");
    INVALID(rdmux_send_imm(NULL, word, WORD, NULL, 1, NULL, 0), "ep");
    INVALID(rdmux_send_imm(ep, NULL, WORD, NULL, 1, NULL, 0), "buf");
    INVALID(rdmux_send_imm(ep, word, WORD, strange, 1, NULL, 0), "mr");
    INVALID(rdmux_send_imm(ep, word, WORD, NULL, 1, NULL, unknown), "flags");
    INVALID(rdmux_recv(NULL, word, WORD, NULL, NULL), "ep");
    INVALID(rdmux_recv(ep, NULL, WORD, NULL, NULL), "buf");
    INVALID(rdmux_recv(ep, word, WORD, strange, NULL), "mr");
    clear_scene(&scene);
}

static void wrong_arguments_of_one_sided_operations_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_mr *mr = NULL;
    struct rdmux_ep *other = NULL;
    struct rdmux_ep *accepted = NULL;
    set_scene(&scene);
    struct rdmux_ep *ep = scene.ep;
    uint64_t *word = scene.words;
    void *odd = (char *)scene.words + 1;
    struct rdmux_mr *strange = scene.strange_mr;
    connect_more(&scene.pair, NULL, &other, &accepted);
    CHECK_OK(rdmux_mr_alloc(
        scene.pair.fabric_b, 64,
        RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC, &mr));
    struct rdmux_remote *remote = import_region(ep, mr);
    struct rdmux_remote *others = import_region(other, mr);
    const uint32_t unknown = RDMUX_NO_REPLAY << 1;

    INVALID(rdmux_write(NULL, word, WORD, NULL, remote, 0, NULL, 0), "ep");
    INVALID(rdmux_write(ep, NULL, WORD, NULL, remote, 0, NULL, 0), "buf");
    INVALID(rdmux_write(ep, word, WORD, strange, remote, 0, NULL, 0), "mr");
    INVALID(rdmux_write(ep, word, WORD, NULL, NULL, 0, NULL, 0), "remote");
    INVALID(rdmux_write(ep, word, WORD, NULL, others, 0, NULL, 0), "remote");
    INVALID(rdmux_write(ep, word, WORD, NULL, remote, 0, NULL, unknown), "flags");
    INVALID(rdmux_write_imm(NULL, word, WORD, NULL, remote, 0, 1, NULL, 0), "ep");
    INVALID(rdmux_write_imm(ep, NULL, WORD, NULL, remote, 0, 1, NULL, 0), "buf");
    INVALID(rdmux_write_imm(ep, word, WORD, strange, remote, 0, 1, NULL, 0), "mr");
    INVALID(rdmux_write_imm(ep, NULL, 0, NULL, NULL, 0, 1, NULL, 0), "remote");
    INVALID(rdmux_write_imm(ep, word, WORD, NULL, remote, 0, 1, NULL, unknown), "flags");
    INVALID(rdmux_read(NULL, word, WORD, NULL, remote, 0, NULL, 0), "ep");
    INVALID(rdmux_read(ep, NULL, WORD, NULL, remote, 0, NULL, 0), "buf");
    INVALID(rdmux_read(ep, word, WORD, strange, remote, 0, NULL, 0), "mr");
    INVALID(rdmux_read(ep, NULL, 0, NULL, NULL, 0, NULL, 0), "remote");
    INVALID(rdmux_read(ep, word, WORD, NULL, others, 0, NULL, 0), "remote");
    INVALID(rdmux_read(ep, word, WORD, NULL, remote, 0, NULL, RDMUX_INLINE), "flags");

    INVALID(rdmux_fetch_add(NULL, word, NULL, remote, 0, 1, NULL, 0), "ep");
    INVALID(rdmux_fetch_add(ep, NULL, NULL, remote, 0, 1, NULL, 0), "result");
    INVALID(rdmux_fetch_add(ep, odd, NULL, remote, 0, 1, NULL, 0), "result");
    INVALID(rdmux_fetch_add(ep, word, strange, remote, 0, 1, NULL, 0), "mr");
    INVALID(rdmux_fetch_add(ep, word, NULL, NULL, 0, 1, NULL, 0), "remote");
    INVALID(rdmux_fetch_add(ep, word, NULL, remote, 4, 1, NULL, 0), "offset");
    INVALID(rdmux_fetch_add(ep, word, NULL, remote, 0, 1, NULL, RDMUX_INLINE), "flags");
    INVALID(rdmux_compare_swap(NULL, word, NULL, remote, 0, 1, 2, NULL, 0), "ep");
    INVALID(rdmux_compare_swap(ep, NULL, NULL, remote, 0, 1, 2, NULL, 0), "result");
    INVALID(rdmux_compare_swap(ep, odd, NULL, remote, 0, 1, 2, NULL, 0), "result");
    INVALID(rdmux_compare_swap(ep, word, strange, remote, 0, 1, 2, NULL, 0), "mr");
    INVALID(rdmux_compare_swap(ep, word, NULL, NULL, 0, 1, 2, NULL, 0), "remote");
    INVALID(rdmux_compare_swap(ep, word, NULL, remote, 4, 1, 2, NULL, 0), "offset");
    INVALID(rdmux_compare_swap(ep, word, NULL, remote, 0, 1, 2, NULL, RDMUX_INLINE), "flags");

    rdmux_mr_deregister(mr);
    CHECK_OK(rdmux_ep_close(other));
    expect_entry(scene.pair.cq_b, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
    CHECK_OK(rdmux_ep_close(accepted));
    clear_scene(&scene);
}

static void wrong_requests_of_a_batch_are_refused(void **state)
{
    (void)state;
    struct scene scene;
    struct rdmux_sge pieces[17] = { { 0 } };
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND, .sges = pieces, .sge_count = 1 };
    size_t posted = 77;
    set_scene(&scene);
    struct rdmux_ep *ep = scene.ep;
    for (size_t i = 0; i < RDMUX_COUNT_OF(pieces); i++) {
        pieces[i] = (struct rdmux_sge){ .addr = scene.words, .length = 1 };
    }

    INVALID(rdmux_post(NULL, &wr, 1, &posted), "ep");
    assert_int_equal(posted, 0);
    INVALID(rdmux_post(NULL, NULL, 0, &posted), "ep");
    INVALID(rdmux_post(ep, NULL, 1, &posted), "wrs");
    CHECK_OK(rdmux_post(ep, NULL, 0, NULL));
    static const uint32_t not_sent[] = { 0, RDMUX_OP_RECV, RDMUX_OP_COMPARE_SWAP + 1, UINT32_MAX };
    for (size_t i = 0; i < RDMUX_COUNT_OF(not_sent); i++) {
        wr.op = not_sent[i];
        INVALID(rdmux_post(ep, &wr, 1, &posted), "op");
    }
    wr.op = RDMUX_OP_SEND;
    wr.flags = UINT32_C(1) << 31;
    INVALID(rdmux_post(ep, &wr, 1, &posted), "flags");
    wr.flags = 0;
    wr.sge_count = 17;
    INVALID(rdmux_post(ep, &wr, 1, &posted), "sge_count");
    wr.sge_count = 2;
    wr.sges = NULL;
    INVALID(rdmux_post(ep, &wr, 1, &posted), "sges");
    wr.sges = pieces;
    pieces[0].length = SIZE_MAX;
    INVALID(rdmux_post(ep, &wr, 1, &posted), "length");
    pieces[0].length = 1;
    wr.spare[0] = 1;
    INVALID(rdmux_post(ep, &wr, 1, &posted), "spare");
    assert_int_equal(posted, 0);

    wr = (struct rdmux_wr){ .op = RDMUX_OP_RECV, .sges = pieces, .sge_count = 1 };
    posted = 77;
    INVALID(rdmux_post_recv(NULL, &wr, 1, &posted), "ep");
    assert_int_equal(posted, 0);
    INVALID(rdmux_post_recv(NULL, NULL, 0, &posted), "ep");
    INVALID(rdmux_post_recv(ep, NULL, 1, &posted), "wrs");
    CHECK_OK(rdmux_post_recv(ep, NULL, 0, NULL));
    wr.op = RDMUX_OP_SEND;
    INVALID(rdmux_post_recv(ep, &wr, 1, &posted), "op");
    wr.op = RDMUX_OP_RECV;
    wr.flags = RDMUX_PLACED;
    INVALID(rdmux_post_recv(ep, &wr, 1, &posted), "flags");
    wr.flags = 0;
    wr.sge_count = 17;
    INVALID(rdmux_post_recv(ep, &wr, 1, &posted), "sge_count");
    wr.sge_count = 1;
    wr.sges = NULL;
    INVALID(rdmux_post_recv(ep, &wr, 1, &posted), "sges");
    wr.sges = pieces;
    wr.spare[3] = 1;
    INVALID(rdmux_post_recv(ep, &wr, 1, &posted), "spare");
    assert_int_equal(posted, 0);
    clear_scene(&scene);
}

/* --------------------------------------------------------------------------------- completeness */

static char *read_source(const char *path)
{
    char full[512];
    (void)snprintf(full, sizeof(full), "%s/%s", RDMUX_SOURCE_DIR, path);
    FILE *file = fopen(full, "r");
    assert_non_null(file);
    size_t room = (size_t)1 << 20;
    char *text = calloc(1, room);
    assert_non_null(text);
    size_t size = fread(text, 1, room - 1, file);
    assert_true(size > 0 && size < room - 1);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* The name of the function that is declared from here on: the last word before the parenthesis. */
static const char *declared_name(const char *declaration, size_t *length)
{
    const char *end = strchr(declaration, '(');
    assert_non_null(end);
    const char *begin = end;
    while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') {
        begin--;
    }
    *length = (size_t)(end - begin);
    return begin;
}

/* They have no status, and do nothing; see test_struct_init. */
static void wrong_arguments_of_init_functions_are_ignored(void **state)
{
    (void)state;
    rdmux_fabric_auth_init(NULL, 8);
    rdmux_fabric_attr_init(NULL, 8);
    rdmux_path_info_init(NULL, 8);
    rdmux_cq_attr_init(NULL, 8);
    rdmux_cq_stats_init(NULL, 8);
    rdmux_fabric_stats_init(NULL, 8);
    rdmux_mr_attr_init(NULL, 8);
    rdmux_remote_info_init(NULL, 8);
    rdmux_ep_attr_init(NULL, 8);
    rdmux_listen_attr_init(NULL, 8);
    rdmux_peer_init(NULL, 8);
    rdmux_ep_info_init(NULL, 8);
    rdmux_ep_stats_init(NULL, 8);
    rdmux_srq_attr_init(NULL, 8);
}

static void every_public_function_is_called_with_wrong_arguments(void **state)
{
    (void)state;
    static const char *const have_none[] = {
        /* no argument that could be wrong */
        "rdmux_status_name",    "rdmux_last_error",        "rdmux_version",
        "rdmux_reason_name",    "rdmux_stage_name",        "rdmux_security_name",
        "rdmux_wc_opcode_name", "rdmux_log_category_name",
    };
    char *header = read_source("api/include/rdmux/rdmux.h");
    char *here = read_source("tests/unit/test_arguments.c");
    size_t functions = 0;
    for (const char *at = strstr(header, "\nRDMUX_API "); at != NULL;
         at = strstr(at + 1, "\nRDMUX_API ")) {
        size_t length;
        const char *name = declared_name(at, &length);
        char call[RDMUX_NAME_MAX];
        bool exempt = false;
        functions++;
        for (size_t i = 0; i < RDMUX_COUNT_OF(have_none); i++) {
            exempt = exempt ||
                     (strlen(have_none[i]) == length && strncmp(have_none[i], name, length) == 0);
        }
        assert_true(length + 2 <= sizeof(call));
        memcpy(call, name, length);
        call[length] = '(';
        call[length + 1] = '\0';
        if (!exempt && strstr(here, call) == NULL) {
            fail_msg("%s) is not called with wrong arguments", call);
        }
    }
    assert_true(functions > 60); /* the header was understood */
    free(header);
    free(here);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_of_a_fabric_are_refused),
        cmocka_unit_test(wrong_arguments_of_a_completion_queue_are_refused),
        cmocka_unit_test(wrong_arguments_of_a_region_are_refused),
        cmocka_unit_test(wrong_arguments_of_an_import_are_refused),
        cmocka_unit_test(wrong_arguments_of_a_listener_are_refused),
        cmocka_unit_test(wrong_arguments_of_connect_are_refused),
        cmocka_unit_test(wrong_arguments_of_accept_are_refused),
        cmocka_unit_test(wrong_arguments_of_adopt_are_refused),
        cmocka_unit_test(wrong_arguments_of_an_explanation_are_refused),
        cmocka_unit_test(wrong_fields_of_an_endpoints_attributes_are_refused),
        cmocka_unit_test(a_local_address_that_this_host_lacks_is_refused),
        cmocka_unit_test(a_local_address_of_this_host_is_accepted),
        cmocka_unit_test(an_srq_of_another_cq_is_refused),
        cmocka_unit_test(wrong_arguments_of_an_endpoint_are_refused),
        cmocka_unit_test(wrong_arguments_of_an_srq_are_refused),
        cmocka_unit_test(wrong_arguments_of_sends_and_receives_are_refused),
        cmocka_unit_test(wrong_arguments_of_one_sided_operations_are_refused),
        cmocka_unit_test(wrong_requests_of_a_batch_are_refused),
        cmocka_unit_test(wrong_arguments_of_init_functions_are_ignored),
        cmocka_unit_test(every_public_function_is_called_with_wrong_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
