/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The tcp provider and the machine it runs on: findings about its settings, congestion control
 * where it is allowed, and the memory of the socket buffers. */
#include "tcp_fallback/tcp_pool.h"
#include "tcp_fallback/tcp_socket.h"
#include "tests/unit/tcp_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sys/mman.h>

enum { FINDINGS_MAX = 8, BUFFERS_MAX = 200 };

/* ------------------------------------------------------------------------------------- settings */

/* The contents of a file; NULL: it cannot be read. */
struct setting {
    const char *path;
    const char *text;
};

static const struct setting good_settings[] = {
    { "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t16777216\n" },
    { "/proc/sys/net/ipv4/tcp_wmem", "4096\t65536\t4194304\n" },
    { "/proc/sys/net/ipv4/tcp_ecn", "1\n" },
    { "/proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic\n" },
};
static const struct setting *changed; /* instead of a good one */

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
int __real_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size);
int __real_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __real_getpeername(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size);
int __real_open(const char *path, int flags, unsigned mode);
int __wrap_open(const char *path, int flags, unsigned mode);
int __wrap_open(const char *path, int flags, unsigned mode)
{
    const struct setting *setting = NULL;
    for (size_t i = 0; i < COUNT_OF(good_settings); i++) {
        setting = strcmp(good_settings[i].path, path) == 0 ? &good_settings[i] : setting;
    }
    setting = changed != NULL && strcmp(changed->path, path) == 0 ? changed : setting;
    if (setting == NULL) {
        return __real_open(path, flags, mode);
    }
    if (setting->text == NULL) {
        errno = ENOENT;
        return -1;
    }
    ssize_t size = (ssize_t)strlen(setting->text);
    int fd = memfd_create("setting", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, setting->text, (size_t)size), size);
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

struct findings {
    size_t count;
    uint32_t severity; /* of the last one */
    char object[64];
    char text[RDMUX_TEXT_MAX];
    char remedy[RDMUX_TEXT_MAX];
};

static void note(void *user, const struct rdmux_provider_finding *finding)
{
    struct findings *findings = user;
    if (strcmp(finding->object, "RLIMIT_NOFILE") == 0) {
        return; /* a limit of the user that runs the test */
    }
    findings->count++;
    findings->severity = finding->severity;
    (void)snprintf(findings->object, sizeof(findings->object), "%s", finding->object);
    (void)snprintf(findings->text, sizeof(findings->text), "%s", finding->text);
    (void)snprintf(findings->remedy, sizeof(findings->remedy), "%s", finding->remedy);
}

static struct findings inspect(const struct setting *setting)
{
    struct findings findings = { 0 };
    changed = setting;
    assert_int_equal(ops->inspect(&fake_fabric, note, &findings), RDMUX_OK);
    changed = NULL;
    return findings;
}

static void good_settings_are_no_finding(void **state)
{
    (void)state;
    assert_int_equal(inspect(NULL).count, 0);
}

static void a_small_window_is_a_warning_with_its_size_and_remedy(void **state)
{
    (void)state;
    static const struct setting small[] = {
        { "/proc/sys/net/ipv4/tcp_rmem", "4096 131072 4194303" },
        { "/proc/sys/net/ipv4/tcp_wmem", "4096 16384 212992" },
    };
    static const char *const sizes[] = { "4194303 bytes", "212992 bytes" };
    for (size_t i = 0; i < COUNT_OF(small); i++) {
        struct findings findings = inspect(&small[i]);
        assert_int_equal(findings.count, 1);
        assert_int_equal(findings.severity, RDMUX_LOG_WARN);
        assert_string_equal(findings.object, small[i].path);
        assert_non_null(strstr(findings.text, sizes[i]));
        assert_non_null(strstr(findings.remedy, strrchr(small[i].path, '/') + 1));
    }
}

static void a_setting_that_cannot_be_read_is_no_finding(void **state)
{
    (void)state;
    static const char *const texts[] = { NULL, "", "many\n", "4096\n", "4096 0 1\n" };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct setting setting = { "/proc/sys/net/ipv4/tcp_rmem", texts[i] };
        assert_int_equal(inspect(&setting).count, 0);
    }
    assert_int_equal(inspect(&(struct setting){ "/proc/sys/net/ipv4/tcp_ecn", NULL }).count, 0);
}

static void a_system_that_does_not_request_ecn_is_a_finding(void **state)
{
    (void)state;
    static const char *const texts[] = { "0\n", "2\n" };
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct findings findings = inspect(
            &(struct setting){ "/proc/sys/net/ipv4/tcp_ecn", texts[i] });
        assert_int_equal(findings.count, 1);
        assert_int_equal(findings.severity, RDMUX_LOG_INFO);
        assert_string_equal(findings.object, "net.ipv4.tcp_ecn");
        assert_string_equal(findings.remedy, "sysctl -w net.ipv4.tcp_ecn=1");
    }
}

static void dctcp_is_used_only_where_it_is_allowed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool dctcp;
    } cases[] = { { "reno cubic\n", false }, { "reno cubic dctcp\n", true }, { NULL, false } };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct setting setting = { "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
                                   cases[i].text };
        struct rdmux_provider_domain *domain = fake_object(ops->domain_size);
        struct rdmux_local_path path = { 0 };
        domain->ops = ops;
        domain->fabric = &fake_fabric;
        changed = &setting;
        assert_int_equal(ops->domain_open(domain, &path), RDMUX_OK);
        changed = NULL;
        assert_int_equal(((struct tcp_domain *)(void *)domain)->is_dctcp, cases[i].dctcp);
        ops->domain_close(domain);
        free(domain);
    }
}

/* --------------------------------------------------------------------------- congestion control */

enum { SOCKETS_MAX = 64 };

/* The algorithm that the system gives each socket, and the result. */
static struct {
    const char *given; /* NULL: the kernel answers */
    bool is_reno[SOCKETS_MAX];
    int told_before; /* sockets set before they connected */
    int told_after;
    const char *local; /* an address that the sockets seem to have, and their peers; NULL: their own */
    const char *peer;
} congestion;

static bool is_connected(int fd)
{
    struct sockaddr_storage peer;
    socklen_t size = sizeof(peer);
    return __real_getpeername(fd, (struct sockaddr *)&peer, &size) == 0;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size)
{
    if (congestion.given == NULL || level != IPPROTO_TCP || name != TCP_CONGESTION) {
        return __real_getsockopt(fd, level, name, value, size);
    }
    assert_true(fd < SOCKETS_MAX);
    int written = snprintf(value, *size, "%s", congestion.is_reno[fd] ? "reno" : congestion.given);
    *size = (socklen_t)written + 1;
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size)
{
    if (congestion.given == NULL || level != IPPROTO_TCP || name != TCP_CONGESTION) {
        return __real_setsockopt(fd, level, name, value, size);
    }
    assert_int_equal(size, strlen("reno"));
    assert_memory_equal(value, "reno", size);
    congestion.is_reno[fd] = true;
    congestion.told_before += !is_connected(fd);
    congestion.told_after += is_connected(fd);
    return 0;
}

static int answer(const char *text, struct sockaddr *address, socklen_t *size)
{
    struct sockaddr_in in = { .sin_family = AF_INET };
    assert_int_equal(inet_pton(AF_INET, text, &in.sin_addr), 1);
    memcpy(address, &in, sizeof(in));
    *size = sizeof(in);
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size)
{
    return congestion.local != NULL && is_connected(fd) ? answer(congestion.local, address, size)
                                                        : __real_getsockname(fd, address, size);
}

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size)
{
    return congestion.peer != NULL && is_connected(fd) ? answer(congestion.peer, address, size)
                                                       : __real_getpeername(fd, address, size);
}

/* If the system's default is BBR, four sockets between two ends of this host use reno. The dialled
 * sockets do so before they connect if only the loopback is dialled. */
static void nothing_is_paced_within_a_host(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        const char *local;
        const char *peer;
        enum wiring wiring;
        int told_before;
        int told_after;
    } cases[] = {
        { "bbr", NULL, NULL, WIRED_FOUR, 4, 4 },
        { "bbr", "192.0.2.1", "192.0.2.1", WIRED_FOUR, 4, 4 },
        { "bbr", "192.0.2.1", "192.0.2.2", WIRED_FOUR, 4, 0 },
        { "bbr", NULL, NULL, WIRED_TCP, 0, 0 }, /* it is the application's */
        { "cubic", NULL, NULL, WIRED_FOUR, 0, 0 },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        memset(&congestion, 0, sizeof(congestion));
        congestion.given = cases[i].given;
        congestion.local = cases[i].local;
        congestion.peer = cases[i].peer;
        struct pair pair = pair_create(cases[i].wiring);
        assert_int_equal(congestion.told_before, cases[i].told_before);
        assert_int_equal(congestion.told_after, cases[i].told_after);
        pair_destroy(pair);
    }
    memset(&congestion, 0, sizeof(congestion));
}

/* -------------------------------------------------------------------------------------- buffers */

static int compare(const void *a, const void *b)
{
    const uint8_t *const *x = a;
    const uint8_t *const *y = b;
    return (*x > *y) - (*x < *y);
}

/* Each buffer belongs to one taker only, however often the pool has grown, and is reused before the
 * pool grows. */
static void buffers_are_separate_and_reused(void **state)
{
    (void)state;
    static uint8_t *buffers[BUFFERS_MAX];
    struct tcp_pool pool = { 0 };
    size_t count = 0;
    while (count < BUFFERS_MAX) {
        assert_int_equal(rdmux_tcp_pool_reserve(&fake_fabric, &pool, 1), RDMUX_OK);
        buffers[count] = rdmux_tcp_pool_get(&pool);
        memset(buffers[count], (int)(count % 251), TCP_BUFFER_SIZE);
        count++;
    }
    assert_true(fake_fabric.allocations > 2); /* it grew, and more than once */
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(buffers[i][0], i % 251);
        assert_int_equal(buffers[i][TCP_BUFFER_SIZE - 1], i % 251);
    }
    qsort(buffers, count, sizeof(buffers[0]), compare);
    for (size_t i = 1; i < count; i++) {
        assert_true(buffers[i] - buffers[i - 1] >= TCP_BUFFER_SIZE);
    }

    size_t capacity = pool.capacity;
    for (size_t i = 0; i < count; i++) {
        rdmux_tcp_pool_put(&pool, buffers[i]);
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *again = rdmux_tcp_pool_get(&pool);
        assert_non_null(bsearch(&again, buffers, count, sizeof(buffers[0]), compare));
    }
    assert_int_equal(pool.capacity, capacity);
    rdmux_tcp_pool_unreserve(&pool, count);
    rdmux_tcp_pool_finish(&fake_fabric, &pool);
    assert_int_equal(fake_fabric.allocations, 0);
}

/* Reserved all at once, and taken then: no chunk is full before another is begun. */
static void a_reserved_buffer_can_always_be_taken(void **state)
{
    (void)state;
    static uint8_t *buffers[BUFFERS_MAX];
    struct tcp_pool pool = { 0 };
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        assert_int_equal(rdmux_tcp_pool_reserve(&fake_fabric, &pool, 1), RDMUX_OK);
    }
    assert_true(fake_fabric.allocations > 2);
    for (size_t i = 0; i < BUFFERS_MAX; i++) {
        buffers[i] = rdmux_tcp_pool_get(&pool);
        buffers[i][TCP_BUFFER_SIZE - 1] = 1;
    }
    qsort(buffers, BUFFERS_MAX, sizeof(buffers[0]), compare);
    for (size_t i = 1; i < BUFFERS_MAX; i++) {
        assert_true(buffers[i] - buffers[i - 1] >= TCP_BUFFER_SIZE);
    }
    rdmux_tcp_pool_unreserve(&pool, BUFFERS_MAX);
    rdmux_tcp_pool_finish(&fake_fabric, &pool);
    assert_int_equal(fake_fabric.allocations, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(good_settings_are_no_finding, clear_state),
        cmocka_unit_test_setup(a_small_window_is_a_warning_with_its_size_and_remedy, clear_state),
        cmocka_unit_test_setup(a_setting_that_cannot_be_read_is_no_finding, clear_state),
        cmocka_unit_test_setup(a_system_that_does_not_request_ecn_is_a_finding, clear_state),
        cmocka_unit_test_setup(dctcp_is_used_only_where_it_is_allowed, clear_state),
        cmocka_unit_test_setup(nothing_is_paced_within_a_host, clear_state),
        cmocka_unit_test_setup(buffers_are_separate_and_reused, clear_state),
        cmocka_unit_test_setup(a_reserved_buffer_can_always_be_taken, clear_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
