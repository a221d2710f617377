/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which messages a peer may send on the control channel of a connected endpoint, and what happens
 * to a peer that sends others. Endpoint b sends them over the real channel. */
#include "api/progress/cq_owner.h"
#include "api/session/control.h"
#include "tests/unit/api_pair.h"

#include "negotiation/control_channel.h"
#include "negotiation/message.h"

#include <sys/epoll.h>

enum { UNKNOWN = 0x3e, NOBODY = 77777 };

static const char *const all_paths[] = { "tcp", "shm" };

static void say_frame(struct pair *pair, const void *frame, size_t size)
{
    assert_true(rdmux_cq_enter(pair->cq_b));
    CHECK_OK(rdmux_channel_send(pair->b->channel, frame, size));
    rdmux_cq_leave(pair->cq_b);
}

static void say_message(struct pair *pair, const struct rdmux_message *message)
{
    uint8_t frame[RDMUX_MESSAGE_MAX];
    say_frame(pair, frame, rdmux_message_encode(message, frame));
}

/* Checks that a's endpoint ends with this status, and that its text has this part. */
static void check_end(struct pair *pair, enum rdmux_status expected, const char *part)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    expect_entry(pair->cq_a, RDMUX_WC_DISCONNECTED, expected);
    CHECK_OK(rdmux_ep_info(pair->a, &info));
    assert_int_equal(info.status, expected);
    if (strstr(info.text, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", info.text, part);
    }
}

static void check_message_ends(const struct rdmux_message *message, enum rdmux_status expected,
                               const char *part)
{
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        say_message(&pair, message);
        check_end(&pair, expected, part);
        close_pair(&pair);
    }
}

static void check_frame_ends(uint8_t type, size_t length)
{
    uint8_t frame[64] = { 0 };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        rdmux_frame_header_encode((enum rdmux_frame_type)type, 0, length, frame);
        say_frame(&pair, frame, RDMUX_FRAME_HEADER_SIZE + length);
        check_end(&pair, RDMUX_PROTOCOL, "breaks the protocol");
        close_pair(&pair);
    }
}

static void a_frame_out_of_its_turn_ends_the_endpoint(void **state)
{
    (void)state;
    check_message_ends(&(struct rdmux_message){ .type = RDMUX_FRAME_ENDED }, RDMUX_PROTOCOL,
                       "ENDED without END");
    check_message_ends(&(struct rdmux_message){ .type = RDMUX_FRAME_REJECT, .status = 3 },
                       RDMUX_PROTOCOL, "after the handshake");
}

static void a_frame_that_cannot_be_read_ends_the_endpoint(void **state)
{
    (void)state;
    check_frame_ends(UNKNOWN, 0);
    check_frame_ends(RDMUX_FRAME_IMPORT, 3);
    check_frame_ends(RDMUX_FRAME_HEARTBEAT, 1);
    check_frame_ends(RDMUX_FRAME_SILENT, 3);
}

static void the_cause_that_a_peer_reports_is_the_status_of_the_end(void **state)
{
    (void)state;
    struct rdmux_message fault = { .type = RDMUX_FRAME_FAULT, .text = "it is so" };
    static const struct {
        uint32_t told;
        enum rdmux_status expected;
    } cases[] = {
        { RDMUX_DENIED, RDMUX_DENIED },
        { RDMUX_LENGTH, RDMUX_LENGTH },
        { RDMUX_IO, RDMUX_IO },
        { NOBODY, RDMUX_IO }, /* of a later version */
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        fault.status = cases[i].told;
        check_message_ends(&fault, cases[i].expected, "told by the peer: it is so");
    }
    check_message_ends(&(struct rdmux_message){ .type = RDMUX_FRAME_FAULT }, RDMUX_PROTOCOL,
                       "breaks the protocol"); /* no reason to end */
    struct rdmux_message end = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    check_message_ends(&end, RDMUX_PEER_GONE, "the peer closed its endpoint");
    (void)snprintf(end.text, sizeof(end.text), "tired");
    check_message_ends(&end, RDMUX_PEER_GONE, "tired");
}

/* A peer whose request was refused ends, and may report its end before the refusal is processed
 * here. */
static void an_earlier_fault_of_the_path_is_the_status_of_the_end(void **state)
{
    (void)state;
    const struct rdmux_message end = { .type = RDMUX_FRAME_END, .status = RDMUX_PEER_GONE };
    uint8_t frame[RDMUX_MESSAGE_MAX];
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        assert_true(rdmux_cq_enter(pair.cq_a));
        rdmux_provider_failed(pair.a->path, RDMUX_INVALID, "no such memory");
        rdmux_ep_message(pair.a, frame, rdmux_message_encode(&end, frame));
        rdmux_cq_leave(pair.cq_a);
        check_end(&pair, RDMUX_INVALID, "no such memory");
        close_pair(&pair);
    }
}

/* When an endpoint closes a region that it asked for, answers arrive that no call waits for. */
static void messages_about_unknown_imports_and_regions_are_ignored(void **state)
{
    (void)state;
    uint8_t later[RDMUX_FRAME_HEADER_SIZE + 5] = { 0 };
    static const struct rdmux_message messages[] = {
        { .type = RDMUX_FRAME_HEARTBEAT },
        { .type = RDMUX_FRAME_IMPORTED, .id = NOBODY },
        { .type = RDMUX_FRAME_REVOKE, .id = NOBODY, .region = NOBODY },
        { .type = RDMUX_FRAME_REVOKED, .id = NOBODY, .region = NOBODY },
        { .type = RDMUX_FRAME_SILENT, .id = RDMUX_SILENT_ASKS },
        { .type = RDMUX_FRAME_SILENT, .id = RDMUX_SILENT_ANSWERS },
    };
    for (size_t i = 0; i < RDMUX_COUNT_OF(all_paths); i++) {
        struct pair pair;
        open_pair(&pair, all_paths[i], NULL);
        for (size_t k = 0; k < RDMUX_COUNT_OF(messages); k++) {
            say_message(&pair, &messages[k]);
            check_messages(&pair);
        }
        rdmux_frame_header_encode((enum rdmux_frame_type)UNKNOWN, RDMUX_FRAME_OPTIONAL, 5, later);
        say_frame(&pair, later, sizeof(later));
        check_messages(&pair);
        close_pair(&pair);
    }
}

/* ---------------------------------------------------------------------------- repeated messages */

/* How many bytes of the control channel wait for b, which does not look at them. */
static size_t bytes_for_b(const struct pair *pair)
{
    uint8_t bytes[1024];
    ssize_t size = recv(rdmux_channel_socket(pair->b->channel), bytes, sizeof(bytes),
                        MSG_PEEK | MSG_DONTWAIT);
    return size < 0 ? 0 : (size_t)size;
}

/* After the loss of a channel, REVOKE is sent again. REVOKED says that no request uses the region,
 * so it waits for the requests that do. */
static void a_repeated_revocation_is_answered_when_no_access_is_under_way(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    struct rdmux_wc wc = { 0 };
    uint64_t word = 0;
    open_sides(&pair, "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, RDMUX_FABRIC_NO_SERVICE_THREAD);
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_mr_alloc(pair.fabric_b, sizeof(word), RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_STATUS(rdmux_remote_import(pair.a, &token, 0, &remote), RDMUX_IN_PROGRESS);
    while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0) {
        CHECK_OK(rdmux_fabric_progress(pair.fabric_a));
        CHECK_OK(rdmux_fabric_progress(pair.fabric_b));
    }
    assert_int_equal(wc.opcode, RDMUX_WC_REMOTE_READY);
    CHECK_OK(rdmux_read(pair.a, &word, sizeof(word), NULL, remote, 0, CONTEXT(1), 0));

    const struct rdmux_message revoke = { .type = RDMUX_FRAME_REVOKE, .id = 1, .region = mr->id };
    for (int i = 0; i < 2; i++) {
        say_message(&pair, &revoke);
        CHECK_OK(rdmux_fabric_progress(pair.fabric_a));
        assert_int_equal(rdmux_cq_poll(pair.cq_a, &wc, 1), 0);
        assert_int_equal(bytes_for_b(&pair), 0);
    }

    while (rdmux_cq_poll(pair.cq_a, &wc, 1) == 0) {
        (void)rdmux_cq_poll(pair.cq_b, NULL, 0);
    }
    assert_int_equal(wc.opcode, RDMUX_WC_READ);
    assert_int_equal(wc.status, RDMUX_OK);
    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));
    assert_int_equal(bytes_for_b(&pair), RDMUX_FRAME_HEADER_SIZE + 16); /* one REVOKED */
    CHECK_OK(rdmux_ep_close(pair.a));
    pair.a = NULL;
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

/* ----------------------------------------------------------------------------------- its memory */

enum { BIT = 256, UNREAD = 1 << 20, ROUNDS = 40000, ROOM_MAX = 4 << 20 };

/* A peer that never reads all that waits for it, and keeps asking. */
static void a_channel_to_a_slow_reader_keeps_only_its_unsent_bytes(void **state)
{
    (void)state;
    static const uint8_t bytes[BIT];
    uint8_t got[BIT];
    struct meter meter = { 0 };
    struct rdmux_fabric *fabric = open_metered_fabric("tcp", RDMUX_FABRIC_NO_SERVICE_THREAD, NULL,
                                                      &meter);
    struct rdmux_channel *channel = NULL;
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    int waiter = epoll_create1(EPOLL_CLOEXEC);
    assert_true(waiter >= 0);
    CHECK_OK(rdmux_channel_create(fabric, sockets[0], waiter, NULL, true, &channel));
    const size_t before = atomic_load(&meter.bytes);
    while (!rdmux_channel_is_sending(channel)) { /* until the kernel takes no more */
        CHECK_OK(rdmux_channel_send(channel, bytes, BIT));
    }
    for (size_t i = 0; i < UNREAD / BIT; i++) {
        CHECK_OK(rdmux_channel_send(channel, bytes, BIT));
    }

    for (size_t i = 0; i < ROUNDS; i++) {
        assert_int_equal(recv(sockets[1], got, BIT, MSG_WAITALL), BIT);
        CHECK_OK(rdmux_channel_send(channel, bytes, BIT));
    }

    assert_true(rdmux_channel_is_sending(channel));
    assert_in_range(atomic_load(&meter.bytes) - before, 1, ROOM_MAX);
    while (rdmux_channel_is_sending(channel)) {
        assert_int_equal(recv(sockets[1], got, BIT, MSG_WAITALL), BIT);
        CHECK_OK(rdmux_channel_flush(channel));
    }
    assert_int_equal(atomic_load(&meter.bytes), before);
    rdmux_channel_destroy(channel);
    close(sockets[1]);
    close(waiter);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_out_of_its_turn_ends_the_endpoint),
        cmocka_unit_test(a_frame_that_cannot_be_read_ends_the_endpoint),
        cmocka_unit_test(the_cause_that_a_peer_reports_is_the_status_of_the_end),
        cmocka_unit_test(an_earlier_fault_of_the_path_is_the_status_of_the_end),
        cmocka_unit_test(messages_about_unknown_imports_and_regions_are_ignored),
        cmocka_unit_test(a_repeated_revocation_is_answered_when_no_access_is_under_way),
        cmocka_unit_test(a_channel_to_a_slow_reader_keeps_only_its_unsent_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
