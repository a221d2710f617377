/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux_explain() and the answers it may get at its address: from a listener without threads, from
 * a program that speaks another protocol, from one that says nothing or breaks off. */
#include "api/object/offer.h"
#include "tests/unit/api_pair.h"

#include <pthread.h>

static const uint8_t nothing[1];

/* Takes one connection, sends these bytes, and closes it. */
struct answerer {
    pthread_t thread;
    int listener;
    const void *bytes;
    size_t size;
    char address[RDMUX_ADDRESS_MAX];
};

static void *answer_once(void *argument)
{
    struct answerer *pending = argument;
    char heard[4096];
    int socket = accept4(pending->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket >= 0) {
        ssize_t got = recv(socket, heard, sizeof(heard), 0); /* closing with bytes unread would
                                                              * reset the connection */
        ssize_t sent = got <= 0 ? 0 : send(socket, pending->bytes, pending->size, MSG_NOSIGNAL);
        (void)sent;
        (void)shutdown(socket, SHUT_WR);
        while (recv(socket, heard, sizeof(heard), 0) > 0) {
        }
        close(socket);
    }
    return NULL;
}

static void listen_as(struct answerer *pending, const void *bytes, size_t size)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(here);
    pending->bytes = bytes;
    pending->size = size;
    pending->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(pending->listener, (struct sockaddr *)&here, length), 0);
    assert_int_equal(listen(pending->listener, 1), 0);
    assert_int_equal(getsockname(pending->listener, (struct sockaddr *)&here, &length), 0);
    (void)snprintf(pending->address, sizeof(pending->address), "127.0.0.1:%u", ntohs(here.sin_port));
    assert_int_equal(pthread_create(&pending->thread, NULL, answer_once, pending), 0);
}

static void check_answer(const void *bytes, size_t size, enum rdmux_status expected,
                         const char *part)
{
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_explanation *explanation = NULL;
    struct answerer pending;
    listen_as(&pending, bytes, size);

    CHECK_STATUS(rdmux_explain(fabric, pending.address, NULL, PATIENT_MS, &explanation), expected);

    assert_null(explanation);
    if (strstr(rdmux_last_error(), part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", rdmux_last_error(), part);
    }
    assert_int_equal(pthread_join(pending.thread, NULL), 0);
    close(pending.listener);
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void an_answer_in_another_protocol_is_reported_as_such(void **state)
{
    (void)state;
    static const char http[] = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n";
    check_answer(http, sizeof(http) - 1, RDMUX_PROTOCOL, "does not speak rdmux");
}

static void a_listener_that_hangs_up_is_reported_as_gone(void **state)
{
    (void)state;
    check_answer(nothing, 0, RDMUX_PEER_GONE, "closed the connection");
}

static void half_a_hello_is_reported_as_a_peer_that_is_gone(void **state)
{
    (void)state;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    struct rdmux_hello hello = { 0 };
    uint8_t frame[RDMUX_HELLO_SIZE];
    rdmux_hello_fill(fabric, &hello);
    rdmux_hello_encode(&hello, frame);
    check_answer(frame, sizeof(frame) / 2, RDMUX_PEER_GONE, "closed the connection");
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* The call itself does all of the listener's work. A timeout of -1 waits forever. */
static void a_fabric_without_threads_explains_its_own_listener(void **state)
{
    (void)state;
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_fabric *fabric = open_fabric(
        "tcp", RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD, NULL);
    struct rdmux_listener *listener = listen_here(fabric, NULL, address);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(rdmux_explain(fabric, address, NULL, i == 0 ? -1 : PATIENT_MS, &explanation));
        assert_int_equal(explanation->status, RDMUX_OK);
        assert_true(explanation->chosen < explanation->candidate_count);
        rdmux_explanation_free(explanation);
    }
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void an_address_without_a_host_is_refused(void **state)
{
    (void)state;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    CHECK_STATUS(rdmux_explain(fabric, ":7471", NULL, PATIENT_MS, &explanation), RDMUX_INVALID);
    assert_non_null(strstr(rdmux_last_error(), "HOST:PORT"));
    assert_null(explanation);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_in_another_protocol_is_reported_as_such),
        cmocka_unit_test(a_listener_that_hangs_up_is_reported_as_gone),
        cmocka_unit_test(half_a_hello_is_reported_as_a_peer_that_is_gone),
        cmocka_unit_test(a_fabric_without_threads_explains_its_own_listener),
        cmocka_unit_test(an_address_without_a_host_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
