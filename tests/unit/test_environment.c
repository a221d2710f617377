/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Settings from the environment: RDMUX_LOG and RDMUX_PATHS, which a program's own filters can only
 * narrow; and a listener's filter, which narrows the acceptor's. */
#include "tests/unit/api_pair.h"

#include "negotiation/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PATHS_MAX = 16, FILE_MAX = 16384, TURN_MS = 20 };

/* A fabric that looks at the environment. */
static enum rdmux_status open_outside(const char *paths, struct logbook *book, uint32_t level,
                                      struct rdmux_fabric **out)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS | RDMUX_FABRIC_NO_SERVICE_THREAD;
    attr.paths = paths;
    if (book != NULL) {
        attr.log = logbook_write;
        attr.log_user = book;
        attr.log_level = level;
    }
    *out = NULL;
    return rdmux_fabric_open(&attr, out);
}

/* Checks that fabrics fail if `name` is set to this value, and that the text has all these
 * parts. */
static void check_refused(const char *name, const char *value, enum rdmux_status expected,
                          const char *part, const char *remedy)
{
    struct rdmux_fabric *fabric;
    assert_int_equal(setenv(name, value, 1), 0);
    CHECK_STATUS(open_outside(NULL, NULL, 0, &fabric), expected);
    assert_null(fabric);
    assert_non_null(strstr(rdmux_last_error(), name));
    assert_non_null(strstr(rdmux_last_error(), part));
    assert_non_null(strstr(rdmux_last_error(), remedy));
    assert_int_equal(unsetenv(name), 0);
}

/* ------------------------------------------------------------------------------------------ log */

static void read_whole(const char *path, char text[FILE_MAX])
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t size = read(fd, text, FILE_MAX - 1);
    assert_true(size >= 0);
    text[size] = '\0';
    close(fd);
}

static void the_log_file_of_the_environment_is_appended_to(void **state)
{
    (void)state;
    char folder[] = "/tmp/rdmux-environment.XXXXXX";
    char path[64];
    char value[80];
    char expected[64];
    char text[FILE_MAX];
    struct stat file;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/log", folder);
    (void)snprintf(value, sizeof(value), "info:%s", path);
    assert_int_equal(setenv("RDMUX_LOG", value, 1), 0);

    for (int i = 0; i < 2; i++) {
        struct rdmux_fabric *fabric;
        CHECK_OK(open_outside(NULL, NULL, 0, &fabric));
        rdmux_log(fabric, RDMUX_LOG_INFO, "fabric %d\nspeaks", i);
        rdmux_log(fabric, RDMUX_LOG_DEBUG, "nobody asked for this");
        CHECK_OK(rdmux_fabric_close(fabric));
    }

    read_whole(path, text);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(expected, sizeof(expected), " rdmux[%d] info fabric: fabric %d speaks\n",
                       (int)getpid(), i);
        assert_non_null(strstr(text, expected));
    }
    assert_null(strstr(text, "nobody asked"));
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600); /* names hosts, so it is private */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(unsetenv("RDMUX_LOG"), 0);
}

/* Reads what one fabric writes to a memory file in place of standard error, with this setting. */
static void log_to_standard_error(const char *setting, struct logbook *book, char text[FILE_MAX])
{
    struct rdmux_fabric *fabric = NULL;
    int saved = dup(STDERR_FILENO);
    int file = memfd_create("stderr", MFD_CLOEXEC);
    assert_true(saved >= 0 && file >= 0);
    assert_int_equal(setenv("RDMUX_LOG", setting, 1), 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    enum rdmux_status status = open_outside(NULL, book, RDMUX_LOG_WARN, &fabric);
    if (status == RDMUX_OK) {
        rdmux_log(fabric, RDMUX_LOG_DEBUG, "endpoint 7: a detail");
        rdmux_log(fabric, RDMUX_LOG_DEBUG, "a detail of %s", "\033[2J");
        rdmux_log(fabric, RDMUX_LOG_TRACE, "endpoint 7: a trace");
        rdmux_log_about(fabric, RDMUX_CATEGORY_FAILOVER, RDMUX_LOG_WARN, "endpoint 7: moves");
        status = rdmux_fabric_close(fabric);
    }
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    CHECK_OK(status);
    ssize_t size = pread(file, text, FILE_MAX - 1, 0);
    assert_true(size >= 0);
    text[size] = '\0';
    close(file);
    assert_int_equal(unsetenv("RDMUX_LOG"), 0);
}

static void a_level_alone_logs_to_standard_error_with_time_and_category(void **state)
{
    (void)state;
    char text[FILE_MAX];
    char expected[96];

    log_to_standard_error("debug", NULL, text);

    (void)snprintf(expected, sizeof(expected), "Z rdmux[%d] debug endpoint: endpoint 7: a detail\n",
                   (int)getpid());
    assert_non_null(strstr(text, expected));
    assert_non_null(strstr(text, "] debug fabric: a detail of ?[2J\n"));
    assert_non_null(strstr(text, "] warn failover: endpoint 7: moves\n"));
    assert_null(strstr(text, "a trace"));
    unsigned year = 0;
    unsigned micros = 0;
    assert_int_equal(sscanf(text, "%4u-%*2u-%*2uT%*2u:%*2u:%*2u.%6uZ ", &year, &micros), 2);
    assert_true(year >= 2020 && micros < 1000000);
    log_to_standard_error("trace", NULL, text);
    assert_non_null(strstr(text, "] trace endpoint: endpoint 7: a trace\n"));
    log_to_standard_error("none", NULL, text);
    assert_string_equal(text, "");
}

static void named_categories_are_the_only_ones(void **state)
{
    (void)state;
    char text[FILE_MAX];

    log_to_standard_error("debug@failover,memory", NULL, text);

    assert_non_null(strstr(text, "] warn failover: endpoint 7: moves\n"));
    assert_null(strstr(text, "a detail"));
    check_refused("RDMUX_LOG", "debug@", RDMUX_INVALID, "\"debug@\"", "negotiation");
    check_refused("RDMUX_LOG", "debug@failover,nothing", RDMUX_INVALID, "nothing", "negotiation");
}

static void a_program_with_a_hook_gets_the_lines_and_standard_error_none(void **state)
{
    (void)state;
    struct logbook book = LOGBOOK_INIT;
    char text[FILE_MAX];

    log_to_standard_error("debug", &book, text);

    assert_string_equal(text, "");
    assert_int_equal(logbook_count(&book, "endpoint 7: a detail"), 1);
}

struct events {
    size_t count;
    struct rdmux_log_event last;
    char line[64];
};

static void keep_event(void *user, const struct rdmux_log_event *event)
{
    struct events *events = user;
    events->count++;
    events->last = *event;
    (void)snprintf(events->line, sizeof(events->line), "%s", event->line);
}

static void an_event_has_level_category_and_time(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        enum rdmux_log_category category;
        const char *name;
    } cases[] = {
        { "endpoint 7: ended", RDMUX_CATEGORY_ENDPOINT, "endpoint" },
        { "srq: refused", RDMUX_CATEGORY_ENDPOINT, "endpoint" },
        { "listener *:7471: full", RDMUX_CATEGORY_LISTENER, "listener" },
        { "region 3: revoked", RDMUX_CATEGORY_MEMORY, "memory" },
        { "plug-in a.so: left out", RDMUX_CATEGORY_PROVIDER, "provider" },
        { "cq: not watched", RDMUX_CATEGORY_FABRIC, "fabric" },
    };
    struct events events = { .count = 0 };
    struct logbook book = LOGBOOK_INIT;
    struct rdmux_fabric *fabric;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS | RDMUX_FABRIC_NO_SERVICE_THREAD;
    attr.log = logbook_write;
    attr.log_event = keep_event;
    attr.log_user = &events;
    attr.log_level = RDMUX_LOG_INFO;
    CHECK_OK(rdmux_fabric_open(&attr, &fabric));
    events.count = 0;

    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "%s", cases[i].line);
        rdmux_log(fabric, RDMUX_LOG_DEBUG, "nobody asked for this");

        assert_int_equal(events.count, i + 1);
        assert_string_equal(events.line, cases[i].line);
        assert_int_equal(events.last.category, cases[i].category);
        assert_int_equal(events.last.level, RDMUX_LOG_WARN);
        assert_int_equal(events.last.size, sizeof(events.last));
        assert_string_equal(rdmux_log_category_name(cases[i].category), cases[i].name);
        assert_in_range(events.last.time_ns / 1000000000, (uint64_t)time(NULL) - 60,
                        (uint64_t)time(NULL));
    }
    assert_string_equal(rdmux_log_category_name(RDMUX_CATEGORY_CONTROL), "control");
    assert_string_equal(rdmux_log_category_name((enum rdmux_log_category)99), "?");
    assert_int_equal(logbook_count(&book, ""), 0);
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void the_environment_raises_the_log_level_and_never_lowers_it(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        size_t warnings;
        size_t details;
    } cases[] = { { "debug", 1, 1 }, { "error", 1, 0 }, { "none", 1, 0 }, { "", 1, 0 } };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct logbook book = LOGBOOK_INIT;
        struct rdmux_fabric *fabric;
        assert_int_equal(setenv("RDMUX_LOG", cases[i].value, 1), 0);
        CHECK_OK(open_outside(NULL, &book, RDMUX_LOG_WARN, &fabric));
        rdmux_log(fabric, RDMUX_LOG_WARN, "a warning");
        rdmux_log(fabric, RDMUX_LOG_DEBUG, "a detail");
        CHECK_OK(rdmux_fabric_close(fabric));
        assert_int_equal(logbook_count(&book, "a warning"), cases[i].warnings);
        assert_int_equal(logbook_count(&book, "a detail"), cases[i].details);
    }
    assert_int_equal(unsetenv("RDMUX_LOG"), 0);
}

static void a_log_file_that_cannot_be_opened_is_an_error(void **state)
{
    (void)state;
    check_refused("RDMUX_LOG", "loud", RDMUX_INVALID, "\"loud\"", "debug or trace");
    check_refused("RDMUX_LOG", "warning", RDMUX_INVALID, "\"warning\"",
                  "LEVEL[@CATEGORY,...][:FILE]");
    check_refused("RDMUX_LOG", "war", RDMUX_INVALID, "\"war\"", "LEVEL[@CATEGORY,...][:FILE]");
    check_refused("RDMUX_LOG", ":/tmp/log", RDMUX_INVALID, "\":/tmp/log\"",
                  "LEVEL[@CATEGORY,...][:FILE]");
    check_refused("RDMUX_LOG", "warn:/no/such/folder/log", RDMUX_IO, "/no/such/folder/log",
                  strerror(ENOENT));
}

/* -------------------------------------------------------------------------------------- filters */

/* Tells whether the fabric would use this provider. The text of a path left out says which setting
 * excluded it. */
static bool is_usable(struct rdmux_fabric *fabric, const char *provider)
{
    struct rdmux_path_info paths[PATHS_MAX];
    size_t count = 0;
    bool found = false;
    bool usable = false;
    paths[0] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    CHECK_OK(rdmux_fabric_paths(fabric, paths, PATHS_MAX, &count));
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        if (strcmp(paths[i].provider, provider) != 0) {
            continue;
        }
        found = true;
        usable = usable || paths[i].reason == RDMUX_REASON_USABLE;
        assert_true(paths[i].reason != RDMUX_REASON_FILTERED ||
                    strstr(paths[i].text, "RDMUX_PATHS") != NULL);
    }
    assert_true(found);
    return usable;
}

static void a_provider_is_used_if_the_environment_and_the_program_both_allow_it(void **state)
{
    (void)state;
    static const struct {
        const char *environment;
        const char *program;
        bool tcp;
        bool shm;
    } cases[] = {
        { NULL, NULL, true, true },         { "", "auto", true, true },
        { "!shm", NULL, true, false },      { "tcp", "shm,tcp", true, false },
        { "auto", "shm", false, true },     { "tcp", "shm", false, false },
        { "!tcp", "!shm", false, false },   { "tcp,shm", "!tcp", false, true },
        { " tcp , shm", NULL, true, true },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct rdmux_fabric *fabric;
        assert_int_equal(cases[i].environment == NULL
                             ? unsetenv("RDMUX_PATHS")
                             : setenv("RDMUX_PATHS", cases[i].environment, 1),
                         0);
        CHECK_OK(open_outside(cases[i].program, NULL, 0, &fabric));
        assert_int_equal(is_usable(fabric, "tcp"), cases[i].tcp);
        assert_int_equal(is_usable(fabric, "shm"), cases[i].shm);
        CHECK_OK(rdmux_fabric_close(fabric));
    }
    assert_int_equal(unsetenv("RDMUX_PATHS"), 0);
}

static void a_malformed_filter_is_an_error(void **state)
{
    (void)state;
    char endless[RDMUX_FILTER_MAX + 1];
    memset(endless, 'a', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = '\0';
    check_refused("RDMUX_PATHS", "tcp,smh", RDMUX_INVALID, "\"smh\"", "there are: shm, tcp");
    check_refused("RDMUX_PATHS", "tcp;shm", RDMUX_INVALID, "tcp;shm", "write names as in");
    check_refused("RDMUX_PATHS", endless, RDMUX_INVALID, "aaaa", "write names as in");
}

static void a_program_that_ignores_the_environment_opens_despite_its_errors(void **state)
{
    (void)state;
    assert_int_equal(setenv("RDMUX_LOG", "loud", 1), 0);
    assert_int_equal(setenv("RDMUX_PATHS", "smh", 1), 0);
    struct rdmux_fabric *fabric = open_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL);
    assert_true(is_usable(fabric, "tcp"));
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(unsetenv("RDMUX_LOG"), 0);
    assert_int_equal(unsetenv("RDMUX_PATHS"), 0);
}

/* ------------------------------------------------------------ programs with rights of their own */

/* The results that this program reports when it is executed again with OPEN_ONLY. */
enum { HEARD = 1, HAS_RIGHTS = 2 };
#define OPEN_ONLY "--open-only"
static const char absent_folder[] = "/no/such/folder";

/* HEARD: the environment made opening a fabric fail or warn. HAS_RIGHTS: the process has the rights
 * of its file. */
static int open_only(void)
{
    struct logbook book = LOGBOOK_INIT;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    int says = getauxval(AT_SECURE) == 0 ? 0 : HAS_RIGHTS;
    attr.flags = RDMUX_FABRIC_NO_SERVICE_THREAD;
    attr.log = logbook_write;
    attr.log_user = &book;
    attr.log_level = RDMUX_LOG_WARN;
    if (rdmux_fabric_open(&attr, &fabric) != RDMUX_OK) {
        return says | HEARD;
    }
    says |= logbook_count(&book, absent_folder) > 0 ? HEARD : 0;
    return rdmux_fabric_close(fabric) == RDMUX_OK ? says : -1;
}

/* Runs the file with only this variable in its environment. */
static int what_it_says(const char *file, const char *variable)
{
    char setting[64];
    char name[] = "test_environment";
    char word[] = OPEN_ONLY;
    char *const arguments[] = { name, word, NULL };
    char *const environment[] = { setting, NULL };
    int status = 0;
    (void)snprintf(setting, sizeof(setting), "%s", variable);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)execve(file, arguments, environment);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void copy_this_program(const char *path)
{
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    struct stat file;
    assert_true(from >= 0 && to >= 0);
    assert_int_equal(fstat(from, &file), 0);
    for (off_t at = 0; at < file.st_size;) {
        assert_true(sendfile(to, from, &at, (size_t)(file.st_size - at)) > 0);
    }
    assert_int_equal(close(from), 0);
    assert_int_equal(close(to), 0);
}

/* Gives the file another group, and the rights of the group to every user that executes it. */
static bool set_group(const char *path)
{
    enum { GROUPS = 64 };
    gid_t groups[GROUPS];
    int count = getgroups(GROUPS, groups);
    gid_t other = getegid();
    for (int i = 0; i < count && other == getegid(); i++) {
        other = groups[i];
    }
    if (other == getegid() && geteuid() == 0) {
        other++; /* root needs not be in it */
    }
    /* Without the group's right to execute, the bit has another meaning (inode(7)). */
    return other != getegid() && chown(path, (uid_t)-1, other) == 0 && chmod(path, 02710) == 0;
}

static void a_program_with_file_rights_ignores_the_environment(void **state)
{
    static const char *const variables[] = { "RDMUX_LOG=loud", "RDMUX_PATHS=smh",
                                             "RDMUX_PROVIDER_DIR=/no/such/folder" };
    char folder[] = "/tmp/rdmux-environment.XXXXXX";
    char path[64];
    int before[RDMUX_COUNT_OF(variables)];
    int with_rights[RDMUX_COUNT_OF(variables)] = { 0 };
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/program", folder);
    copy_this_program(path);

    for (size_t i = 0; i < RDMUX_COUNT_OF(variables); i++) {
        before[i] = what_it_says(path, variables[i]);
    }
    bool grouped = set_group(path);
    for (size_t i = 0; i < RDMUX_COUNT_OF(variables) && grouped; i++) {
        with_rights[i] = what_it_says(path, variables[i]);
    }

    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    for (size_t i = 0; i < RDMUX_COUNT_OF(variables); i++) {
        assert_int_equal(before[i], HEARD); /* a sanity check */
    }
    if (!grouped || (with_rights[0] & HAS_RIGHTS) == 0) {
        puts("# a setgid program cannot be had here: no second group, or /tmp is mounted nosuid");
        skip();
    }
    for (size_t i = 0; i < RDMUX_COUNT_OF(variables); i++) {
        assert_int_equal(with_rights[i], HAS_RIGHTS);
    }
}

/* ------------------------------------------------------------------------------------ listeners */

/* Returns the provider of a connection to a listener with this filter, accepted with that one.
 * NULL: none was found, and both sides know it. */
static const char *provider_between(const char *listening, const char *accepting)
{
    static char provider[RDMUX_NAME_MAX];
    struct rdmux_listen_attr listen_attr = RDMUX_LISTEN_ATTR_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_wc wc = { 0 };
    uint64_t until = now_ms() + PATIENT_MS;
    struct pair pair = { .fabric_a = open_fabric("auto", 0, NULL),
                         .fabric_b = open_fabric("auto", 0, NULL) };
    pair.cq_a = create_cq(pair.fabric_a);
    pair.cq_b = create_cq(pair.fabric_b);
    listen_attr.paths = listening;
    attr.paths = accepting;
    pair.listener = listen_here(pair.fabric_b, &listen_attr, pair.address);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);

    while (wc.opcode != RDMUX_WC_CONNECTED || (wc.status == RDMUX_OK && pair.b == NULL)) {
        assert_true(now_ms() < until);
        if (pair.b == NULL &&
            rdmux_accept(pair.listener, pair.cq_b, &attr, TURN_MS, &pair.b) != RDMUX_OK) {
            assert_null(pair.b);
        }
        if (wc.opcode != RDMUX_WC_CONNECTED) {
            (void)rdmux_cq_poll(pair.cq_b, NULL, 0);
            (void)rdmux_cq_poll(pair.cq_a, &wc, 1);
        }
    }
    bool found = wc.status == RDMUX_OK;
    if (found) {
        CHECK_OK(rdmux_ep_info(pair.b, &info));
        (void)snprintf(provider, sizeof(provider), "%s", info.provider);
        check_messages(&pair);
    } else {
        assert_int_equal(wc.status, RDMUX_NO_PATH);
    }
    close_pair(&pair);
    return found ? provider : NULL;
}

static void an_accept_can_only_narrow_the_filter_of_the_listener(void **state)
{
    (void)state;
    assert_string_equal(provider_between("auto", "tcp"), "tcp");
    assert_string_equal(provider_between("shm,tcp", "!shm"), "tcp");
    assert_string_equal(provider_between("!tcp", NULL), "shm");
    assert_string_equal(provider_between("tcp", "auto"), "tcp");
    assert_null(provider_between("tcp", "shm"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_log_file_of_the_environment_is_appended_to),
        cmocka_unit_test(a_level_alone_logs_to_standard_error_with_time_and_category),
        cmocka_unit_test(named_categories_are_the_only_ones),
        cmocka_unit_test(a_program_with_a_hook_gets_the_lines_and_standard_error_none),
        cmocka_unit_test(an_event_has_level_category_and_time),
        cmocka_unit_test(the_environment_raises_the_log_level_and_never_lowers_it),
        cmocka_unit_test(a_log_file_that_cannot_be_opened_is_an_error),
        cmocka_unit_test(a_provider_is_used_if_the_environment_and_the_program_both_allow_it),
        cmocka_unit_test(a_malformed_filter_is_an_error),
        cmocka_unit_test(a_program_that_ignores_the_environment_opens_despite_its_errors),
        cmocka_unit_test(a_program_with_file_rights_ignores_the_environment),
        cmocka_unit_test(an_accept_can_only_narrow_the_filter_of_the_listener),
    };
    if (argc == 2 && strcmp(argv[1], OPEN_ONLY) == 0) {
        _exit(open_only()); /* a sanitizer that looks for leaks may not trace a setgid program */
    }
    (void)unsetenv("RDMUX_LOG");
    (void)unsetenv("RDMUX_PATHS");
    (void)unsetenv("RDMUX_PROVIDER_DIR");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
