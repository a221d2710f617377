/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Every call on a stream: wrong arguments, other threads, a child process, a path that is lost. */
#include "stream_scene.h"

#include <pthread.h>
#include <sys/wait.h>

static void a_wrong_argument_is_invalid_and_named(void **state)
{
    struct stream_pair streams;
    size_t moved = 0;
    const void *bytes = NULL;
    uint8_t byte = 0;
    struct rdmux_sge pieces[17] = { { &byte, 1, NULL } };
    struct rdmux_stream_info small = { .size = 8 };
    open_streams(&streams, *state, true, NULL);
    struct rdmux_stream *a = streams.a;

    CHECK_STATUS(rdmux_stream_read(NULL, &byte, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_read(a, NULL, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_read(a, &byte, 1, 2, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_read(a, &byte, 1, 0, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_readv(a, NULL, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_readv(a, pieces, 17, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_write(NULL, &byte, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_write(a, NULL, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_write(a, &byte, 1, 1, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_write(a, &byte, 1, 0, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_writev(a, NULL, 1, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_writev(a, pieces, 17, 0, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_peek(a, NULL, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_peek(a, &bytes, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_peek(NULL, &bytes, &moved), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_consume(a, 1), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_consume(NULL, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_shutdown(a, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_shutdown(a, 4), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_shutdown(NULL, 1), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_wait(a, 0, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_wait(a, 8, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_wait(a, 1, -2), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_wait(NULL, 1, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_arm(a, 0), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_arm(NULL, 1), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_info(a, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_info(a, &small), RDMUX_INVALID);
    CHECK_STATUS(rdmux_stream_set_user(NULL, NULL), RDMUX_INVALID);
    assert_null(rdmux_stream_user(NULL));
    assert_null(rdmux_stream_ep(NULL));
    assert_int_equal(rdmux_stream_fd(NULL), -1);

    check_flow(streams.a, streams.b, 1000); /* nothing has changed */
    close_streams(&streams);
}

static void empty_reads_and_writes_return_at_once(void **state)
{
    struct stream_pair streams;
    size_t moved = 1;
    open_streams(&streams, *state, true, NULL);

    CHECK_OK(rdmux_stream_read(streams.a, NULL, 0, 0, &moved));
    assert_int_equal(moved, 0);
    CHECK_OK(rdmux_stream_read(streams.a, NULL, 0, RDMUX_STREAM_ALL, &moved));
    CHECK_OK(rdmux_stream_write(streams.a, NULL, 0, 0, &moved));
    CHECK_OK(rdmux_stream_write(streams.a, NULL, 0, RDMUX_STREAM_LEND, &moved));
    CHECK_OK(rdmux_stream_readv(streams.a, NULL, 0, 0, &moved));
    assert_int_equal(moved, 0);

    close_streams(&streams);
}

static void a_stream_keeps_a_pointer_and_counts(void **state)
{
    struct stream_pair streams;
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    attr.user = &attr;
    attr.ring = 8192;
    open_streams(&streams, *state, true, &attr);

    assert_ptr_equal(rdmux_stream_user(streams.a), &attr);
    CHECK_OK(rdmux_stream_set_user(streams.a, &info));
    assert_ptr_equal(rdmux_stream_user(streams.a), &info);
    check_flow(streams.a, streams.b, 30000);
    CHECK_OK(rdmux_stream_info(streams.a, &info));
    assert_int_equal(info.state, RDMUX_STREAM_OPEN);
    assert_int_equal(info.bytes_written, 30000);
    assert_int_equal(info.ring, 8192);
    assert_int_equal(info.peer_ring, 8192);
    CHECK_OK(rdmux_stream_info(streams.b, &info));
    assert_int_equal(info.bytes_read, 30000);
    assert_int_equal(info.readable, 0);

    close_streams(&streams);
}

/* Moves a lent write into a read of all of it. Returns how many bytes did without the ring. */
static uint64_t direct_bytes(const char *path, uint64_t direct)
{
    enum { LENGTH = 1 << 20 };
    struct stream_pair streams;
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    size_t written = 0;
    size_t got = 0;
    uint8_t *out = malloc(LENGTH);
    uint8_t *in = malloc(LENGTH);
    assert_non_null(out);
    assert_non_null(in);
    memset(out, 0x5a, LENGTH);
    attr.direct = direct;
    open_streams(&streams, path, true, &attr);
    const uint64_t until = now_ms() + PATIENT_MS;
    CHECK_STATUS(rdmux_stream_read(streams.b, in, LENGTH, RDMUX_STREAM_ALL, &got), RDMUX_AGAIN);
    while (written == 0 || got == 0) {
        assert_true(now_ms() < until);
        if (written == 0) {
            enum rdmux_status status = rdmux_stream_write(streams.a, out, LENGTH, RDMUX_STREAM_LEND,
                                                          &written);
            assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        }
        if (got == 0) {
            enum rdmux_status status = rdmux_stream_read(streams.b, in, LENGTH, RDMUX_STREAM_ALL,
                                                         &got);
            assert_true(status == RDMUX_OK || status == RDMUX_AGAIN);
        }
    }
    assert_memory_equal(in, out, LENGTH);
    CHECK_OK(rdmux_stream_info(streams.b, &info));
    close_streams(&streams);
    free(out);
    free(in);
    return info.direct_read;
}

static void mapped_memory_needs_no_direct_receives(void **state)
{
    const bool is_mapped = strcmp(*state, "shm") == 0;
    assert_int_equal(direct_bytes(*state, 0) == 0, is_mapped);
    assert_true(direct_bytes(*state, 64 << 10) > 0);
    assert_int_equal(direct_bytes(*state, UINT64_MAX), 0);
}

static void a_child_process_gets_an_error_and_no_bytes(void **state)
{
    struct stream_pair streams;
    size_t moved = 0;
    uint8_t byte = 0;
    const void *bytes = NULL;
    struct rdmux_stream_info info = RDMUX_STREAM_INFO_INIT;
    open_streams(&streams, *state, true, NULL);
    CHECK_OK(rdmux_stream_write(streams.a, "x", 1, 0, &moved));
    CHECK_OK(rdmux_stream_wait(streams.b, RDMUX_STREAM_READ, PATIENT_MS));

    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const bool good = rdmux_stream_read(streams.b, &byte, 1, 0, &moved) == RDMUX_INVALID &&
                          moved == 0 && byte == 0 &&
                          rdmux_stream_peek(streams.b, &bytes, &moved) == RDMUX_INVALID &&
                          bytes == NULL && moved == 0 &&
                          rdmux_stream_consume(streams.b, 1) == RDMUX_INVALID &&
                          rdmux_stream_write(streams.b, "y", 1, 0, &moved) == RDMUX_INVALID &&
                          rdmux_stream_arm(streams.b, RDMUX_STREAM_READ) == RDMUX_INVALID &&
                          rdmux_stream_info(streams.b, &info) == RDMUX_INVALID &&
                          rdmux_stream_user(streams.b) == NULL &&
                          rdmux_stream_wait(streams.b, RDMUX_STREAM_READ, 0) == RDMUX_INVALID &&
                          rdmux_stream_shutdown(streams.b, 3) == RDMUX_INVALID &&
                          rdmux_stream_fd(streams.b) == -1 && rdmux_stream_ep(streams.b) == NULL &&
                          rdmux_stream_close(streams.b) == RDMUX_INVALID;
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    CHECK_OK(rdmux_stream_read(streams.b, &byte, 1, 0, &moved));
    assert_int_equal(byte, 'x');
    check_flow(streams.a, streams.b, 5000);
    close_streams(&streams);
}

/* A writer of a thread of its own. */
struct writer {
    pthread_t thread;
    struct rdmux_stream *stream;
    enum rdmux_status status;
};

enum { THREAD_BYTES = 1 << 18 };

static void *write_numbers(void *user)
{
    struct writer *writer = user;
    for (uint32_t i = 0; i < THREAD_BYTES / sizeof(i) && writer->status == RDMUX_OK;) {
        size_t done = 0;
        writer->status = rdmux_stream_write(writer->stream, &i, sizeof(i), 0, &done);
        if (writer->status == RDMUX_AGAIN) {
            writer->status = rdmux_stream_wait(writer->stream, RDMUX_STREAM_WRITE, PATIENT_MS);
        } else if (writer->status == RDMUX_OK && done != sizeof(i)) {
            writer->status = RDMUX_IO; /* the ring's size is a multiple of 4 */
        } else {
            i++;
        }
    }
    return NULL;
}

static void read_numbers(struct rdmux_stream *stream)
{
    for (uint32_t i = 0; i < THREAD_BYTES / sizeof(i); i++) {
        uint32_t number = ~i;
        size_t got = 0;
        while (rdmux_stream_read(stream, &number, sizeof(number), RDMUX_STREAM_ALL, &got) ==
               RDMUX_AGAIN) {
            CHECK_OK(rdmux_stream_wait(stream, RDMUX_STREAM_READ, PATIENT_MS));
        }
        assert_int_equal(got, sizeof(number));
        assert_int_equal(number, i);
    }
}

static void *read_in_thread(void *user)
{
    read_numbers(user);
    return NULL;
}

static void a_serialized_stream_has_a_reader_and_a_writer(void **state)
{
    struct stream_pair streams;
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    attr.flags = RDMUX_STREAM_SERIALIZED;
    open_streams(&streams, *state, true, &attr);
    struct writer a = { .stream = streams.a };
    struct writer b = { .stream = streams.b };
    pthread_t reader;
    assert_int_equal(pthread_create(&a.thread, NULL, write_numbers, &a), 0);
    assert_int_equal(pthread_create(&b.thread, NULL, write_numbers, &b), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_in_thread, streams.a), 0);

    read_numbers(streams.b);

    pthread_join(reader, NULL);
    pthread_join(a.thread, NULL);
    pthread_join(b.thread, NULL);
    assert_int_equal(a.status, RDMUX_OK);
    assert_int_equal(b.status, RDMUX_OK);
    close_streams(&streams);
}

static void a_lost_peer_frees_lent_buffers(void **state)
{
    enum { LENT = 1 << 20 };
    struct stream_pair streams;
    uint8_t *out = calloc(1, LENT);
    uint8_t *in = calloc(1, LENT);
    size_t moved = 0;
    struct rdmux_stream_attr attr = RDMUX_STREAM_ATTR_INIT;
    attr.linger_ms = RDMUX_OFF;
    open_streams(&streams, *state, true, &attr);
    CHECK_STATUS(rdmux_stream_write(streams.a, out, LENT, RDMUX_STREAM_LEND, &moved), RDMUX_AGAIN);
    CHECK_STATUS(rdmux_stream_read(streams.a, in, LENT, RDMUX_STREAM_ALL, &moved), RDMUX_AGAIN);

    CHECK_OK(rdmux_stream_close(streams.b));
    streams.b = NULL;

    CHECK_OK(rdmux_stream_wait(streams.a, RDMUX_STREAM_END, PATIENT_MS));
    CHECK_STATUS(rdmux_stream_write(streams.a, out, LENT, RDMUX_STREAM_LEND, &moved),
                 RDMUX_PEER_GONE);
    CHECK_STATUS(rdmux_stream_read(streams.a, in, LENT, RDMUX_STREAM_ALL, &moved), RDMUX_PEER_GONE);
    free(out);
    free(in);
    close_streams(&streams);
}

static void a_write_cut_off_by_close_is_no_end(void **state)
{
    enum { LENT = 1 << 20 };
    struct stream_pair streams;
    uint8_t *out = calloc(1, LENT);
    size_t moved = 0;
    enum rdmux_status status;
    open_streams(&streams, *state, true, NULL);
    CHECK_STATUS(rdmux_stream_write(streams.a, out, LENT, RDMUX_STREAM_LEND, &moved), RDMUX_AGAIN);

    (void)rdmux_stream_close(streams.a);
    streams.a = NULL;
    free(out);

    uint64_t got = 0;
    static uint8_t bytes[65536];
    do {
        status = rdmux_stream_read(streams.b, bytes, sizeof(bytes), 0, &moved);
        got += moved;
        if (status == RDMUX_AGAIN) {
            CHECK_OK(rdmux_stream_wait(streams.b, RDMUX_STREAM_READ, PATIENT_MS));
        }
    } while (status == RDMUX_AGAIN || (status == RDMUX_OK && moved != 0));
    assert_int_equal(status, RDMUX_PEER_GONE);
    assert_true(got < LENT);
    close_streams(&streams);
}

#define CASES(path)                                                                     \
    cmocka_unit_test_prestate(a_wrong_argument_is_invalid_and_named, path),             \
        cmocka_unit_test_prestate(empty_reads_and_writes_return_at_once, path),         \
        cmocka_unit_test_prestate(a_stream_keeps_a_pointer_and_counts, path),           \
        cmocka_unit_test_prestate(mapped_memory_needs_no_direct_receives, path),        \
        cmocka_unit_test_prestate(a_child_process_gets_an_error_and_no_bytes, path),    \
        cmocka_unit_test_prestate(a_serialized_stream_has_a_reader_and_a_writer, path), \
        cmocka_unit_test_prestate(a_lost_peer_frees_lent_buffers, path),                \
        cmocka_unit_test_prestate(a_write_cut_off_by_close_is_no_end, path)

int main(void)
{
    static char tcp[] = "tcp";
    static char shm[] = "shm";
    const struct CMUnitTest tests[] = { CASES(tcp), CASES(shm) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
