/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* After fork(), every object is dead in the child, says so, and does no harm; the parent
 * continues. */
#include "tests/counted.h"
#include "tests/unit/api_pair.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/wait.h>

enum { DESCRIPTORS_MAX = 1024 };

static const char *const all_paths[] = { "tcp", "shm" };

/* A pair with one object of each kind. */
struct scene {
    struct pair pair;
    struct rdmux_mr *mr;
    struct rdmux_token token;
    struct rdmux_remote *remote;
    struct rdmux_srq *srq;
    struct rdmux_explanation *explanation;
    unsigned char bytes[256];
};

static void set_scene(struct scene *scene, const char *paths)
{
    memset(scene, 0, sizeof(*scene));
    open_pair(&scene->pair, paths, NULL);
    CHECK_OK(rdmux_mr_alloc(scene->pair.fabric_b, 4096,
                            RDMUX_ACCESS_REMOTE_READ | RDMUX_ACCESS_REMOTE_WRITE |
                                RDMUX_ACCESS_REMOTE_ATOMIC,
                            &scene->mr));
    CHECK_OK(rdmux_mr_export(scene->mr, &scene->token));
    CHECK_OK(rdmux_remote_import(scene->pair.a, &scene->token, PATIENT_MS, &scene->remote));
    CHECK_OK(rdmux_srq_create(scene->pair.fabric_a, scene->pair.cq_a, NULL, &scene->srq));
    CHECK_OK(rdmux_ep_explanation(scene->pair.a, &scene->explanation));
}

static void clear_scene(struct scene *scene)
{
    rdmux_explanation_free(scene->explanation);
    CHECK_OK(rdmux_srq_destroy(scene->srq));
    rdmux_remote_close(scene->remote);
    rdmux_mr_deregister(scene->mr);
    close_pair(&scene->pair);
}

/* The write is whole in b's region, and the message arrives. */
static void check_that_data_flows(struct scene *scene)
{
    static uint64_t number = 1000;
    number++;
    CHECK_OK(rdmux_write(scene->pair.a, &number, sizeof(number), NULL, scene->remote, 8, NULL,
                         RDMUX_PLACED));
    expect_entry(scene->pair.cq_a, RDMUX_WC_WRITE, RDMUX_OK);
    assert_memory_equal((char *)rdmux_mr_addr(scene->mr) + 8, &number, sizeof(number));
    check_messages(&scene->pair);
}

/* For the child, where cmocka cannot report a failed assertion: the first failure is the exit
 * status. */
#define EXPECT(condition)    \
    do {                     \
        if (!(condition)) {  \
            return __LINE__; \
        }                    \
    } while (0)
#define EXPECT_INVALID(call) EXPECT((call) == RDMUX_INVALID && rdmux_last_error()[0] != '\0')

static int try_set_up(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    struct rdmux_ep *ep = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    struct rdmux_srq *srq = NULL;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    char address[RDMUX_ADDRESS_MAX];
    size_t count = 0;
    int pipe_ends[2];
    EXPECT(rdmux_fabric_fd(pair->fabric_a) == -1);
    EXPECT_INVALID(rdmux_fabric_progress(pair->fabric_a));
    EXPECT_INVALID(rdmux_fabric_paths(pair->fabric_a, &path, 1, &count));
    EXPECT_INVALID(rdmux_cq_create(pair->fabric_a, NULL, &cq));
    EXPECT_INVALID(rdmux_listen(pair->fabric_b, "127.0.0.1:0", NULL, &listener));
    EXPECT_INVALID(rdmux_listener_address(pair->listener, address, sizeof(address)));
    EXPECT(rdmux_listener_fd(pair->listener) == -1);
    EXPECT_INVALID(rdmux_listener_next(pair->listener, 100, &peer));
    EXPECT_INVALID(rdmux_accept(pair->listener, pair->cq_b, NULL, 100, &ep));
    EXPECT_INVALID(rdmux_reject(pair->listener, 1, 0, NULL, 0));
    EXPECT_INVALID(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 100, &ep));
    EXPECT_INVALID(rdmux_explain(pair->fabric_a, pair->address, NULL, 100, &explanation));
    EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe_ends) == 0);
    EXPECT_INVALID(
        rdmux_adopt(pair->fabric_a, pair->cq_a, pipe_ends[0], RDMUX_ROLE_CONNECT, NULL, 100, &ep));
    EXPECT(write(pipe_ends[0], "x", 1) == 1); /* still usable */
    EXPECT_INVALID(rdmux_srq_create(pair->fabric_a, pair->cq_a, NULL, &srq));
    EXPECT(ep == NULL && cq == NULL && listener == NULL && srq == NULL && explanation == NULL);
    return 0;
}

static int try_data_path(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    struct rdmux_ep *a = pair->a;
    uint64_t word = 0;
    size_t posted = 9;
    size_t count = 9;
    struct rdmux_wc wc;
    struct rdmux_sge sge = { &word, sizeof(word), NULL };
    struct rdmux_wr wr = { .op = RDMUX_OP_SEND, .sges = &sge, .sge_count = 1 };
    struct rdmux_wr receive = { .op = RDMUX_OP_RECV, .sges = &sge, .sge_count = 1 };
    EXPECT_INVALID(rdmux_send(a, &word, 8, NULL, NULL, 0));
    EXPECT_INVALID(rdmux_send_imm(a, &word, 8, NULL, 1, NULL, 0));
    EXPECT_INVALID(rdmux_recv(a, &word, 8, NULL, NULL));
    EXPECT_INVALID(rdmux_srq_recv(scene->srq, &word, 8, NULL, NULL));
    EXPECT_INVALID(rdmux_write(a, &word, 8, NULL, scene->remote, 0, NULL, 0));
    EXPECT_INVALID(rdmux_write_imm(a, &word, 8, NULL, scene->remote, 0, 1, NULL, 0));
    EXPECT_INVALID(rdmux_read(a, &word, 8, NULL, scene->remote, 0, NULL, 0));
    EXPECT_INVALID(rdmux_fetch_add(a, &word, NULL, scene->remote, 0, 1, NULL, 0));
    EXPECT_INVALID(rdmux_compare_swap(a, &word, NULL, scene->remote, 0, 0, 1, NULL, 0));
    EXPECT_INVALID(rdmux_post(a, &wr, 1, &posted));
    EXPECT(posted == 0);
    EXPECT_INVALID(rdmux_post_recv(a, &receive, 1, &posted));
    EXPECT_INVALID(rdmux_srq_post_recv(scene->srq, &receive, 1, &posted));
    EXPECT(rdmux_cq_poll(pair->cq_a, &wc, 1) == 0);
    EXPECT_INVALID(rdmux_cq_wait(pair->cq_a, &wc, 1, 100, &count));
    EXPECT_INVALID(rdmux_cq_arm(pair->cq_a));
    EXPECT(rdmux_cq_fd(pair->cq_a) == -1);
    return 0;
}

static int try_objects(struct scene *scene)
{
    struct pair *pair = &scene->pair;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    struct rdmux_cq_stats cq_stats = RDMUX_CQ_STATS_INIT;
    struct rdmux_fabric_stats fabric_stats = RDMUX_FABRIC_STATS_INIT;
    struct rdmux_remote_info remote_info = RDMUX_REMOTE_INFO_INIT;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_remote *remote = NULL;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    const char *json = NULL;
    EXPECT_INVALID(rdmux_ep_info(pair->a, &info));
    EXPECT_INVALID(rdmux_ep_stats(pair->a, &stats));
    EXPECT_INVALID(rdmux_cq_stats(pair->cq_a, &cq_stats));
    EXPECT_INVALID(rdmux_fabric_stats(pair->fabric_a, &fabric_stats));
    EXPECT_INVALID(rdmux_ep_set_user(pair->a, pair));
    EXPECT_INVALID(rdmux_ep_pause(pair->a, 1));
    EXPECT(rdmux_ep_user(pair->a) == NULL);
    EXPECT_INVALID(rdmux_ep_explanation(pair->a, &explanation));
    EXPECT_INVALID(rdmux_ep_shutdown(pair->a, 100));
    EXPECT_INVALID(rdmux_ep_close(pair->a));
    EXPECT_INVALID(rdmux_remote_import(pair->a, &scene->token, 100, &remote));
    EXPECT_INVALID(rdmux_remote_info(scene->remote, &remote_info));
    rdmux_remote_close(scene->remote);
    EXPECT_INVALID(rdmux_mr_register(pair->fabric_a, scene->bytes, sizeof(scene->bytes), 0, &mr));
    EXPECT_INVALID(rdmux_mr_alloc(pair->fabric_a, 100, 0, &mr));
    EXPECT(rdmux_mr_find(pair->fabric_b, rdmux_mr_addr(scene->mr), 1, 0) == NULL);
    EXPECT_INVALID(rdmux_mr_export(scene->mr, &token));
    EXPECT_INVALID(rdmux_mr_revoke(scene->mr));
    EXPECT_INVALID(rdmux_mr_suspend(scene->mr));
    EXPECT_INVALID(rdmux_mr_resume(scene->mr, 0, 1));
    rdmux_mr_deregister(scene->mr);
    EXPECT_INVALID(rdmux_srq_destroy(scene->srq));
    EXPECT_INVALID(rdmux_cq_destroy(pair->cq_a));
    rdmux_listener_close(pair->listener);
    EXPECT_INVALID(rdmux_fabric_close(pair->fabric_a));
    EXPECT_INVALID(rdmux_fabric_close(pair->fabric_b));
    EXPECT(explanation == NULL && remote == NULL && mr == NULL);
    EXPECT(rdmux_explanation_json(scene->explanation, &json) ==
           RDMUX_OK); /* plain memory of the program */
    rdmux_explanation_free(scene->explanation);
    return 0;
}

/* Runs what() in a child; returns its result. While the child lives, the parent's data flows. */
static int in_child(struct scene *scene, int (*what)(struct scene *scene))
{
    int command[2];
    int status = 0;
    assert_int_equal(pipe2(command, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(command[1]);
        int line = what(scene);
        if (line != 0) {
            (void)dprintf(STDERR_FILENO, "test_fork.c:%d: not so in the child; last error: %s\n",
                          line, rdmux_last_error());
        }
        ssize_t got = read(command[0], &byte, 1); /* until the parent has tried, too */
        end_counted(line == 0 && got == 0 ? 0 : 1);
    }
    close(command[0]);
    check_that_data_flows(scene);
    close(command[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void every_call_in_the_child_returns_invalid_and_the_parent_continues(void **state)
{
    (void)state;
    static int (*const parts[])(struct scene * scene) = { try_set_up, try_data_path, try_objects };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i]);
        for (size_t k = 0; k < RDMUX_COUNT_OF(parts); k++) {
            assert_int_equal(in_child(&scene, parts[k]), 0);
            check_that_data_flows(&scene);
        }
        clear_scene(&scene);
    }
}

static int do_nothing(struct scene *scene)
{
    (void)scene;
    return 0;
}

static void a_child_that_lives_on_does_not_hide_the_end_of_an_endpoint(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct scene scene;
        set_scene(&scene, all_paths[i]);
        int command[2];
        assert_int_equal(pipe2(command, O_CLOEXEC), 0);
        pid_t pid = fork(); /* holds every descriptor of both sides */
        assert_true(pid >= 0);
        if (pid == 0) {
            char byte;
            close(command[1]);
            _exit(read(command[0], &byte, 1) == 0 ? do_nothing(&scene) : 1);
        }
        close(command[0]);

        CHECK_OK(rdmux_ep_close(scene.pair.b));

        expect_entry(scene.pair.cq_a, RDMUX_WC_DISCONNECTED, RDMUX_PEER_GONE);
        CHECK_OK(rdmux_ep_close(scene.pair.a));
        scene.remote = NULL; /* closed with its endpoint */
        connect_more(&scene.pair, NULL, &scene.pair.a,
                     &scene.pair.b); /* sockets and cqs are as before */
        check_messages(&scene.pair);
        clear_scene(&scene);
        close(command[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

static void a_child_with_a_copy_of_a_dialling_socket_does_not_disturb_the_parent(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    int command[2];
    struct rdmux_ep *ep = NULL;
    struct rdmux_wc wc;
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &ep),
                 RDMUX_IN_PROGRESS);
    assert_int_equal(pipe2(command, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char byte;
        close(command[1]);
        _exit(read(command[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(command[0]);

    CHECK_OK(rdmux_ep_close(ep));

    assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0); /* frees it */
    connect_more(&pair, NULL, &pair.a, &pair.b);
    check_messages(&pair);
    close_pair(&pair);
    close(command[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int open_own(struct scene *scene)
{
    (void)scene;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep *ep = NULL;
    char address[RDMUX_ADDRESS_MAX];
    EXPECT(rdmux_fabric_open(&attr, &fabric) == RDMUX_OK);
    EXPECT(rdmux_cq_create(fabric, NULL, &cq) == RDMUX_OK);
    EXPECT(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener) == RDMUX_OK);
    EXPECT(rdmux_listener_address(listener, address, sizeof(address)) == RDMUX_OK);
    EXPECT(rdmux_connect(fabric, cq, address, NULL, 0, &ep) == RDMUX_IN_PROGRESS);
    EXPECT(rdmux_ep_close(ep) == RDMUX_OK);
    rdmux_listener_close(listener);
    EXPECT(rdmux_cq_destroy(cq) == RDMUX_OK);
    EXPECT(rdmux_fabric_close(fabric) == RDMUX_OK);
    return 0;
}

static void a_child_may_open_a_fabric_of_its_own(void **state)
{
    (void)state;
    struct scene scene;
    if (RDMUX_TSAN) {
        skip(); /* it cannot follow threads that are started after a fork of many */
    }
    set_scene(&scene, "tcp");

    assert_int_equal(in_child(&scene, open_own), 0);

    clear_scene(&scene);
}

/* ----------------------------------------------------------------------------------------- exec */

static size_t list_descriptors(bool open_here[DESCRIPTORS_MAX])
{
    size_t count = 0;
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        open_here[fd] = fcntl(fd, F_GETFD) >= 0;
        count += open_here[fd];
    }
    return count;
}

static void no_descriptor_of_the_library_survives_exec(void **state)
{
    (void)state;
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        static bool before[DESCRIPTORS_MAX];
        static bool after[DESCRIPTORS_MAX];
        size_t count_before = list_descriptors(before);
        struct scene scene;

        set_scene(&scene, all_paths[i]);

        size_t count_after = list_descriptors(after);
        assert_true(count_after > count_before + 8);
        for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
            if (after[fd] && !before[fd] && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0) {
                char path[64];
                char name[128] = "";
                (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                (void)!readlink(path, name, sizeof(name) - 1);
                fail_msg("%s: descriptor %d (%s) would survive exec", all_paths[i], fd, name);
            }
        }
        clear_scene(&scene);
        assert_int_equal(list_descriptors(after), count_before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_in_the_child_returns_invalid_and_the_parent_continues),
        cmocka_unit_test(a_child_that_lives_on_does_not_hide_the_end_of_an_endpoint),
        cmocka_unit_test(a_child_with_a_copy_of_a_dialling_socket_does_not_disturb_the_parent),
        cmocka_unit_test(a_child_may_open_a_fabric_of_its_own),
        cmocka_unit_test(no_descriptor_of_the_library_survives_exec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
