/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Processes that exit with open fabrics. Each is a child that tells by its exit status how it
 * fared; handlers of exit() that it registers before its first fabric run after the library's. */
#include "api/loop/exit.h"

#include "negotiation/transcript.h"
#include "tests/counted.h"

#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    RIGHT = 7,      /* exit statuses of the children */
    NOT_OPEN = 90,  /* the fabric or the queue */
    OVERTAKEN = 91, /* exit() went on while the service thread had a turn */
    TURN_LATE = 92, /* a turn began after exit() had waited */
    NO_HASH = 93,   /* OpenSSL has ended */
    NOT_CLOSED = 94,
    YIELDS = 10,
};

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;

/* Forks a child, and returns its exit status; that it ended by a signal fails the test. */
static int status_of(void (*child)(void))
{
    int status = 0;
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        child();
        end_counted(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_false(WIFSIGNALED(status));
    return WEXITSTATUS(status);
}

static void register_handler(void (*handler)(void))
{
    if (atexit(handler) != 0) {
        end_counted(NOT_OPEN);
    }
}

static void open_all(uint64_t (*clock_ns)(void *user))
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.clock_ns = clock_ns;
    if (rdmux_fabric_open(&attr, &fabric) != RDMUX_OK ||
        rdmux_cq_create(fabric, NULL, &cq) != RDMUX_OK) {
        end_counted(NOT_OPEN);
    }
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The clock of the service thread, which asks for the time in each turn. */
static bool is_service_thread(void)
{
    char name[16] = "";
    (void)pthread_getname_np(pthread_self(), name, sizeof(name));
    return strcmp(name, "rdmux-service") == 0;
}

/* ----------------------------------------------------------------------- a turn that is under way */

static sem_t has_turn;
static sem_t may_go_on;
static _Atomic bool shall_hold; /* the next turn; calls that open objects wait for a turn's end */
static _Atomic bool went_on;

static uint64_t clock_that_holds(void *user)
{
    (void)user;
    if (is_service_thread() && atomic_exchange(&shall_hold, false)) {
        (void)sem_post(&has_turn);
        while (sem_wait(&may_go_on) != 0) {
        }
        for (int i = 0; i < YIELDS; i++) {
            (void)sched_yield();
        }
        atomic_store(&went_on, true);
    }
    return now_ns();
}

static void let_turn_go_on(void)
{
    (void)sem_post(&may_go_on);
}

static void judge_turn(void)
{
    if (!atomic_load(&went_on)) {
        end_counted(OVERTAKEN);
    }
}

static void exit_within_a_turn(void)
{
    (void)sem_init(&has_turn, 0, 0);
    (void)sem_init(&may_go_on, 0, 0);
    register_handler(judge_turn);
    open_all(clock_that_holds);
    atomic_store(&shall_hold, true);
    register_handler(let_turn_go_on); /* runs before the library's */
    while (sem_wait(&has_turn) != 0) {
    }
    exit(RIGHT);
}

static void exit_waits_for_a_turn_that_is_under_way(void **state)
{
    (void)state;
    assert_int_equal(status_of(exit_within_a_turn), RIGHT);
}

/* ---------------------------------------------------------------------------------- no turn later */

static void judge_begin(void)
{
    if (rdmux_exit_begin_turn()) {
        end_counted(TURN_LATE);
    }
}

static void exit_with_open_objects(void)
{
    register_handler(judge_begin);
    open_all(NULL);
    exit(RIGHT);
}

static void no_turn_begins_once_exit_has_waited(void **state)
{
    (void)state;
    assert_int_equal(status_of(exit_with_open_objects), RIGHT);
}

/* Returns whether each thread but the caller sleeps. */
static bool do_others_sleep(void)
{
    bool all_sleep = true;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *at = tasks != NULL ? readdir(tasks) : NULL; at != NULL;
         at = readdir(tasks)) {
        char path[sizeof("/proc/self/task/") + sizeof(at->d_name) + sizeof("/stat")];
        char state = 'S';
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/stat", at->d_name);
        FILE *stat = at->d_name[0] != '.' && atoi(at->d_name) != gettid() ? fopen(path, "re")
                                                                          : NULL;
        if (stat != NULL) {
            all_sleep = fscanf(stat, "%*d (%*[^)]) %c", &state) == 1 && state == 'S' && all_sleep;
            (void)fclose(stat);
        }
    }
    if (tasks != NULL) {
        (void)closedir(tasks);
    }
    return all_sleep;
}

/* Waits for the library's threads to have begun. A thread that begins allocates, and AddressSanitizer
 * does not release its locks in the child of a fork. */
static void wait_for_threads(void)
{
    enum { TIMES = 20 };
    for (int slept = 0; slept < TIMES; slept = do_others_sleep() ? slept + 1 : 0) {
        (void)nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
}

/* The parent's turn, which goes on, is none of the child's. */
static void exit_in_child_of_a_fork(void)
{
    int status = 0;
    open_all(NULL);
    wait_for_threads();
    const bool begun = rdmux_exit_begin_turn();
    const pid_t pid = fork();
    if (pid == 0) {
        exit(RIGHT);
    }
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status);
    rdmux_exit_end_turn();
    exit(begun && ended ? WEXITSTATUS(status) : 1);
}

static void a_child_of_a_fork_exits_by_itself(void **state)
{
    (void)state;
    assert_int_equal(status_of(exit_in_child_of_a_fork), RIGHT);
}

/* ------------------------------------------------------------------------- exit, called in a hook */

static uint64_t clock_that_exits(void *user)
{
    (void)user;
    if (is_service_thread()) {
        exit(RIGHT);
    }
    return now_ns();
}

static void exit_in_a_hook(void)
{
    open_all(clock_that_exits);
    for (;;) {
        (void)pause();
    }
}

static void a_hook_of_the_service_thread_may_exit(void **state)
{
    (void)state;
    assert_int_equal(status_of(exit_in_a_hook), RIGHT);
}

/* ------------------------------------------------------------------------------ handlers that follow */

static void close_all(void)
{
    if (rdmux_cq_destroy(cq) != RDMUX_OK || rdmux_fabric_close(fabric) != RDMUX_OK) {
        end_counted(NOT_CLOSED);
    }
}

static void exit_and_close_then(void)
{
    register_handler(close_all);
    open_all(NULL);
    exit(RIGHT);
}

static void a_handler_that_follows_may_close_the_fabric(void **state)
{
    (void)state;
    assert_int_equal(status_of(exit_and_close_then), RIGHT);
}

static void judge_hash(void)
{
    static const uint8_t byte = 1;
    const struct rdmux_transcript_piece piece = { .bytes = &byte, .size = 1 };
    uint8_t hash[RDMUX_TRANSCRIPT_SIZE];
    if (rdmux_transcript_hash(&piece, 1, hash) != RDMUX_OK) {
        end_counted(NO_HASH);
    }
}

static void exit_and_hash_then(void)
{
    register_handler(judge_hash);
    open_all(NULL);
    judge_hash();
    exit(RIGHT);
}

/* Other threads of the program may be inside rdmux_cq_poll() while the handlers run. */
static void openssl_lasts_until_the_process_is_gone(void **state)
{
    (void)state;
    if (!rdmux_transcript_available()) {
        skip();
    }
    assert_int_equal(status_of(exit_and_hash_then), RIGHT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exit_waits_for_a_turn_that_is_under_way),
        cmocka_unit_test(no_turn_begins_once_exit_has_waited),
        cmocka_unit_test(a_child_of_a_fork_exits_by_itself),
        cmocka_unit_test(a_hook_of_the_service_thread_may_exit),
        cmocka_unit_test(a_handler_that_follows_may_close_the_fabric),
        cmocka_unit_test(openssl_lasts_until_the_process_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
