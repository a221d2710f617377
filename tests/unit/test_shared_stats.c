/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The counts that a fabric shares with other processes of its user, and what the kernel counts for a
 * tcp path. tests/tools/run.sh has the reader, rdmux top. */
#include "tests/unit/api_pair.h"

#include "api/base/stats_layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { FILES_MAX = 4 };

static char runtime[] = "/tmp/rdmux-stats.XXXXXX"; /* XDG_RUNTIME_DIR of the tests */
static char folder[64];

static int make_runtime(void **state)
{
    (void)state;
    if (mkdtemp(runtime) == NULL || setenv("XDG_RUNTIME_DIR", runtime, 1) != 0) {
        return -1;
    }
    (void)snprintf(folder, sizeof(folder), "%s/rdmux", runtime);
    return 0;
}

static int remove_runtime(void **state)
{
    (void)state;
    (void)unsetenv("XDG_RUNTIME_DIR");
    return (rmdir(folder) == 0 || errno == ENOENT) && rmdir(runtime) == 0 ? 0 : -1;
}

/* Returns the number of files in the folder, and the first name. */
static size_t count_files(char name[64])
{
    size_t count = 0;
    DIR *files = opendir(folder);
    for (struct dirent *file; files != NULL && (file = readdir(files)) != NULL;) {
        if (file->d_name[0] != '.') {
            (void)snprintf(name, 64, "%.63s", file->d_name);
            count++;
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    return count;
}

/* Reads the only file. Returns the number of entries, at most max. */
static size_t read_entries(struct rdmux_stats_header *header, struct rdmux_stats_entry *entries,
                           size_t max)
{
    char name[64];
    char path[160];
    struct stat info;
    if (count_files(name) != 1 || strstr(name, RDMUX_STATS_SUFFIX) == NULL) {
        return 0; /* it is being replaced */
    }
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(read(fd, header, sizeof(*header)), sizeof(*header));
    assert_int_equal(info.st_size, sizeof(*header) + header->count * sizeof(*entries));
    size_t count = header->count < max ? header->count : max;
    assert_int_equal(read(fd, entries, count * sizeof(*entries)), count * sizeof(*entries));
    close(fd);
    return count;
}

static void open_sharing(struct pair *pair, const char *paths, uint32_t flags)
{
    open_sides(pair, paths, 0, flags | RDMUX_FABRIC_SHARE_STATS);
    connect_more(pair, NULL, &pair->a, &pair->b);
}

/* Waits until the file shows what the endpoint has received, and returns its entry. */
static struct rdmux_stats_entry await_entry(struct pair *pair, uint64_t bytes)
{
    uint64_t until = now_ms() + PATIENT_MS;
    for (;;) {
        struct rdmux_stats_header header;
        struct rdmux_stats_entry entry;
        CHECK_OK(rdmux_fabric_progress(pair->fabric_b));
        (void)rdmux_cq_poll(pair->cq_b, NULL, 0);
        if (read_entries(&header, &entry, 1) == 1 && entry.bytes_received == bytes) {
            assert_memory_equal(header.magic, RDMUX_STATS_MAGIC, sizeof(header.magic));
            assert_int_equal(header.count, 1);
            assert_int_equal(header.left_out, 0);
            assert_int_equal(header.pid, getpid());
            assert_int_equal(header.start_ticks, rdmux_stats_start_of(getpid()));
            assert_true(header.start_ticks != 0 && header.written_ns != 0);
            return entry;
        }
        assert_true(now_ms() < until);
        pause_ms(5);
    }
}

static void check_shown(const char *paths, uint32_t flags)
{
    struct pair pair;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    char name[64];
    struct stat of_folder;
    open_sharing(&pair, paths, flags);

    (void)await_entry(&pair, 0);
    check_messages(&pair);
    struct rdmux_stats_entry entry = await_entry(&pair, sizeof(uint32_t));

    assert_int_equal(stat(folder, &of_folder), 0);
    assert_int_equal(of_folder.st_mode & 0777, 0700);
    CHECK_OK(rdmux_ep_info(pair.b, &info));
    assert_int_equal(entry.state, RDMUX_EP_CONNECTED);
    assert_int_equal(entry.epoch, 1);
    assert_int_equal(entry.requests, 1);
    assert_int_equal(entry.receives, 1);
    assert_int_equal(entry.bytes_sent, sizeof(uint32_t));
    assert_string_equal(entry.provider, paths);
    assert_string_equal(entry.peer_address, info.peer_address);
    CHECK_OK(rdmux_ep_close(pair.b));
    pair.b = NULL;
    struct rdmux_stats_header header;
    uint64_t until = now_ms() + PATIENT_MS;
    do {
        CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
        (void)rdmux_cq_poll(pair.cq_b, NULL, 0);
        assert_true(now_ms() < until);
        header.count = 1;
        (void)read_entries(&header, &entry, 1);
    } while (header.count != 0);
    close_pair(&pair);
    assert_int_equal(count_files(name), 0);
}

static void the_file_shows_what_the_endpoints_count(void **state)
{
    (void)state;
    check_shown("tcp", 0);
    check_shown("shm", 0);
}

static void a_fabric_without_service_thread_writes_the_file_too(void **state)
{
    (void)state;
    check_shown("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD);
}

static void a_program_asleep_in_a_call_is_shown(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_wc wc;
    size_t count = 0;
    struct rdmux_stats_header header;
    struct rdmux_stats_entry entry = { .bytes_received = 0 };
    open_sharing(&pair, "tcp", 0);
    check_messages(&pair);

    uint64_t until = now_ms() + PATIENT_MS;
    while (entry.bytes_received != sizeof(uint32_t)) {
        CHECK_STATUS(rdmux_cq_wait(pair.cq_b, &wc, 1, 300, &count), RDMUX_TIMED_OUT);
        (void)read_entries(&header, &entry, 1);
        assert_true(now_ms() < until);
    }

    close_pair(&pair);
}

static void nothing_is_shared_unless_asked_for(void **state)
{
    (void)state;
    struct pair pair;
    char name[64];

    open_pair(&pair, "tcp", NULL);
    pause_ms(600); /* more than two of the library's periods */

    assert_int_equal(count_files(name), 0);
    close_pair(&pair);
}

static void a_folder_that_others_may_enter_gets_no_file(void **state)
{
    (void)state;
    struct logbook book = LOGBOOK_INIT;
    char name[64];
    (void)mkdir(folder, 0700);
    assert_int_equal(chmod(folder, 0755), 0);

    struct rdmux_fabric *fabric = open_fabric(
        "tcp", RDMUX_FABRIC_SHARE_STATS | RDMUX_FABRIC_NO_SERVICE_THREAD, &book);
    CHECK_OK(rdmux_fabric_progress(fabric));

    assert_int_equal(count_files(name), 0);
    assert_int_equal(logbook_count(&book, "its mode is 755, and not 700"), 1);
    CHECK_OK(rdmux_fabric_close(fabric));
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(symlink("/tmp", folder), 0);
    CHECK_OK(rdmux_fabric_close(open_fabric("tcp", RDMUX_FABRIC_SHARE_STATS, &book)));
    assert_int_equal(logbook_count(&book, "its counts are not shared"), 2);
    assert_int_equal(unlink(folder), 0);
}

static void tcp_counts_what_the_kernel_and_the_peer_tell(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    uint32_t receive[3];
    uint64_t until = now_ms() + PATIENT_MS;
    open_pair(&pair, "tcp", NULL);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(rdmux_recv(pair.b, &receive[i], sizeof(receive[i]), NULL, NULL));
    }

    do {
        assert_int_equal(rdmux_cq_poll(pair.cq_a, NULL, 0), 0);
        assert_int_equal(rdmux_cq_poll(pair.cq_b, NULL, 0), 0);
        CHECK_OK(rdmux_ep_stats(pair.a, &stats));
        assert_true(now_ms() < until);
    } while (stats.credits != 3);

    assert_int_equal(stats.counted, RDMUX_COUNTED_RETRANSMISSIONS | RDMUX_COUNTED_ECN_MARKS |
                                        RDMUX_COUNTED_CREDITS);
    assert_int_equal(stats.retransmissions, 0); /* loopback loses nothing */
    close_pair(&pair);
    open_pair(&pair, "shm", NULL);
    CHECK_OK(rdmux_ep_stats(pair.a, &stats));
    assert_int_equal(stats.counted, 0);
    assert_int_equal(stats.credits, 0);
    close_pair(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_file_shows_what_the_endpoints_count),
        cmocka_unit_test(a_fabric_without_service_thread_writes_the_file_too),
        cmocka_unit_test(a_program_asleep_in_a_call_is_shown),
        cmocka_unit_test(nothing_is_shared_unless_asked_for),
        cmocka_unit_test(a_folder_that_others_may_enter_gets_no_file),
        cmocka_unit_test(tcp_counts_what_the_kernel_and_the_peer_tell),
    };
    return cmocka_run_group_tests(tests, make_runtime, remove_runtime);
}
