/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* RLIMIT_FSIZE, the limit on file sizes: a process that exceeds it gets SIGXFSZ, which kills it.
 * The library's own actions must never cause that, as its user has not asked for a file. */
#include <rdmux/rdmux.h>

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT = 8192 };

/* Runs play() in a child. Returns the status of waitpid(): 0 if play() returned true. */
static int in_child(bool (*play)(void))
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(play() ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static bool limit_files(rlim_t bytes)
{
    const struct rlimit limit = { .rlim_cur = bytes, .rlim_max = bytes };
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

static struct rdmux_fabric *open_fabric(void)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS | RDMUX_FABRIC_NO_SERVICE_THREAD;
    return rdmux_fabric_open(&attr, &fabric) == RDMUX_OK ? fabric : NULL;
}

static bool allocate_beyond(void)
{
    struct rdmux_fabric *fabric = open_fabric();
    struct rdmux_mr *within = NULL;
    struct rdmux_mr *beyond = NULL;
    return fabric != NULL && limit_files(LIMIT) &&
           rdmux_mr_alloc(fabric, LIMIT, RDMUX_ACCESS_REMOTE_READ, &within) == RDMUX_OK &&
           rdmux_mr_alloc(fabric, LIMIT + 1, RDMUX_ACCESS_REMOTE_READ, &beyond) ==
               RDMUX_NO_MEMORY &&
           beyond == NULL && strstr(rdmux_last_error(), "ulimit -f") != NULL;
}

static void memory_beyond_the_limit_is_refused_with_a_remedy(void **state)
{
    (void)state;
    assert_int_equal(in_child(allocate_beyond), 0);
}

static char log_path[] = "/tmp/log-XXXXXX";

/* Whether a signal of the program's own, which it holds back, is pending. */
static bool is_pending(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

static bool hold_back(int how)
{
    sigset_t limit;
    (void)sigemptyset(&limit);
    (void)sigaddset(&limit, SIGXFSZ);
    return sigprocmask(how, &limit, NULL) == 0;
}

/* Opens a fabric that writes a log file. */
static bool open_with_log(void)
{
    char value[64];
    (void)snprintf(value, sizeof(value), "trace:%s", log_path);
    return setenv("RDMUX_LOG", value, 1) == 0 && open_fabric() != NULL;
}

static bool log_beyond(void)
{
    bool opened = limit_files(0) && open_with_log();
    return opened && hold_back(SIG_BLOCK) && !is_pending(); /* no signal is pending */
}

/* A program that waits for the signal itself gets its own. */
static bool log_beyond_beside_a_pending_signal(void)
{
    return hold_back(SIG_BLOCK) && raise(SIGXFSZ) == 0 && limit_files(0) && open_with_log() &&
           is_pending();
}

static void a_full_log_file_ends_no_process(void **state)
{
    struct stat limited;
    struct stat unlimited;
    (void)state;
    int fd = mkstemp(log_path);
    assert_true(fd >= 0);

    int alone = in_child(log_beyond);
    int beside = in_child(log_beyond_beside_a_pending_signal);
    assert_int_equal(fstat(fd, &limited), 0);
    int free = in_child(open_with_log);
    assert_int_equal(fstat(fd, &unlimited), 0);

    (void)close(fd);
    assert_int_equal(unlink(log_path), 0);
    assert_int_equal(alone, 0);
    assert_int_equal(beside, 0);
    assert_int_equal(free, 0);
    assert_int_equal(limited.st_size, 0);
    assert_true(unlimited.st_size > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_beyond_the_limit_is_refused_with_a_remedy),
        cmocka_unit_test(a_full_log_file_ends_no_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
