/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The hook that sees each thread of a fabric before its work. */
#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include <cmocka.h>

enum { THREADS_MAX = 8, NAME_SIZE = 16, REFUSAL = 42 };

struct seen {
    _Atomic uint32_t count;
    char names[THREADS_MAX][NAME_SIZE]; /* as the library calls them */
    pid_t ids[THREADS_MAX];
    const char *refuse; /* refuses the thread of this name */
    size_t processor;   /* where the threads go */
};

/* Returns the first processor that this thread may use. */
static size_t first_processor(void)
{
    cpu_set_t set;
    size_t processor = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    while (!CPU_ISSET(processor, &set)) {
        processor++;
    }
    return processor;
}

/* Pins the thread to one processor and renames it. */
static int note_thread(void *user, const char *name)
{
    struct seen *seen = user;
    char own_name[NAME_SIZE];
    cpu_set_t set;
    sigset_t blocked;
    const uint32_t index = atomic_fetch_add(&seen->count, 1);
    (void)snprintf(seen->names[index], NAME_SIZE, "%s", name);
    seen->ids[index] = gettid();
    (void)snprintf(own_name, sizeof(own_name), "mine-%u", index);
    CPU_ZERO(&set);
    CPU_SET(seen->processor, &set);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (seen->refuse != NULL && strcmp(seen->refuse, name) == 0) {
        return REFUSAL;
    }
    return pthread_setname_np(pthread_self(), own_name) == 0 &&
                   sched_setaffinity(0, sizeof(set), &set) == 0 &&
                   sigismember(&blocked, SIGUSR1) == 1
               ? 0
               : -1;
}

static struct rdmux_fabric_attr attr_with_hook(struct seen *seen)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    attr.paths = "shm,tcp";
    attr.thread_start = note_thread;
    attr.thread_user = seen;
    seen->processor = first_processor();
    return attr;
}

static size_t thread_count(void)
{
    size_t count = 0;
    DIR *threads = opendir("/proc/self/task");
    assert_non_null(threads);
    for (const struct dirent *entry; (entry = readdir(threads)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(threads);
    return count;
}

static void *tell_id(void *id)
{
    *(pid_t *)id = gettid();
    return NULL;
}

/* A thread that was joined may be listed a moment longer. */
static void start_and_join(void)
{
    pthread_t thread;
    pid_t id = 0;
    char path[64];
    assert_int_equal(pthread_create(&thread, NULL, tell_id, &id), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d", (int)id);
    while (access(path, F_OK) == 0) {
        (void)sched_yield();
    }
}

static void await_threads(size_t expected)
{
    enum { TRIES = 100000 };
    for (int i = 0; i < TRIES && thread_count() != expected; i++) {
        (void)sched_yield();
    }
    assert_int_equal(thread_count(), expected);
}

static void expect_name(pid_t id, const char *expected)
{
    char path[64];
    char name[NAME_SIZE + 1] = "";
    (void)snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)id);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(fgets(name, sizeof(name), file));
    (void)fclose(file);
    name[strcspn(name, "\n")] = '\0';
    assert_string_equal(name, expected);
}

static void the_hook_places_and_names_each_thread_before_open_returns(void **state)
{
    (void)state;
    struct seen seen = { .refuse = NULL };
    struct rdmux_fabric_attr attr = attr_with_hook(&seen);
    struct rdmux_fabric *fabric = NULL;
    start_and_join(); /* with the first thread of a program a sanitizer starts its own */
    const size_t before = thread_count();
    assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_OK);
    assert_int_equal(atomic_load(&seen.count), 2);
    assert_string_equal(seen.names[0], "rdmux-worker");
    assert_string_equal(seen.names[1], "rdmux-service");
    for (uint32_t i = 0; i < 2; i++) {
        char own_name[NAME_SIZE];
        cpu_set_t set;
        assert_int_not_equal(seen.ids[i], gettid());
        (void)snprintf(own_name, sizeof(own_name), "mine-%u", i);
        expect_name(seen.ids[i], own_name);
        assert_int_equal(sched_getaffinity(seen.ids[i], sizeof(set), &set), 0);
        assert_int_equal(CPU_COUNT(&set), 1);
        assert_true(CPU_ISSET(seen.processor, &set));
    }
    assert_int_equal(rdmux_fabric_close(fabric), RDMUX_OK);
    await_threads(before);
}

static void without_a_hook_the_threads_have_their_own_names(void **state)
{
    (void)state;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    const size_t before = thread_count();
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT;
    attr.paths = "shm,tcp";
    assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_OK);
    await_threads(before + 2);
    assert_int_equal(rdmux_fabric_close(fabric), RDMUX_OK);
    await_threads(before);
}

static void a_thread_that_does_not_exist_is_not_shown(void **state)
{
    (void)state;
    struct seen seen = { .refuse = NULL };
    struct rdmux_fabric_attr attr = attr_with_hook(&seen);
    struct rdmux_fabric *fabric = NULL;
    const size_t before = thread_count();
    attr.flags |= RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_OK);
    assert_int_equal(atomic_load(&seen.count), 0);
    assert_int_equal(rdmux_fabric_close(fabric), RDMUX_OK);
    await_threads(before);
}

static void a_refused_thread_fails_the_open_and_leaves_nothing(void **state)
{
    (void)state;
    static const char *const names[] = { "rdmux-worker", "rdmux-service" };
    for (size_t i = 0; i < 2; i++) {
        struct seen seen = { .refuse = names[i] };
        struct rdmux_fabric_attr attr = attr_with_hook(&seen);
        struct rdmux_fabric *fabric = NULL;
        const size_t before = thread_count();
        assert_int_equal(rdmux_fabric_open(&attr, &fabric), RDMUX_IO);
        assert_null(fabric);
        assert_non_null(strstr(rdmux_last_error(), "thread_start"));
        assert_non_null(strstr(rdmux_last_error(), names[i]));
        assert_non_null(strstr(rdmux_last_error(), "42"));
        assert_int_equal(atomic_load(&seen.count), i + 1);
        await_threads(before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hook_places_and_names_each_thread_before_open_returns),
        cmocka_unit_test(without_a_hook_the_threads_have_their_own_names),
        cmocka_unit_test(a_thread_that_does_not_exist_is_not_shown),
        cmocka_unit_test(a_refused_thread_fails_the_open_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
