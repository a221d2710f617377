/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Remote calls: one server, many clients, one pool of receives.
 *
 * The server posts its receives to a shared receive queue, so its memory does not grow with the
 * number of clients. It builds an answer in the buffer of the request. A client keeps up to WINDOW
 * calls in flight and gets the answers in order.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 256, BATCH = 32, WINDOW = 16, WAIT_MS = 10000 };
enum { SEND_FLAGS = RDMUX_INLINE | RDMUX_UNSIGNALED };

struct message { /* a request for a times b; the answer has the product in a */
    uint64_t id, a, b;
};

static const char usage[] = "usage: rpc serve ADDRESS [CLIENTS]\n"
                            "       rpc call ADDRESS [CALLS]    makes CALLS calls (10000)\n"
                            "The server ends after CLIENTS clients (default: never).\n"
                            "ADDRESS is HOST:PORT, or *:PORT to serve; PORT 0: a free port.\n";

static struct rdmux_fabric *fabric;
static struct rdmux_cq *cq;

static void must(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        const char *name = rdmux_status_name(status);
        fprintf(stderr, "rpc: %s: %s %s\n", what, name, rdmux_last_error());
        exit(1);
    }
}

static void serve(const char *wanted, size_t clients)
{
    struct rdmux_listener *listener;
    struct rdmux_srq *srq;
    struct rdmux_mr *memory;
    struct rdmux_srq_attr srq_attr = RDMUX_SRQ_ATTR_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    char address[RDMUX_ADDRESS_MAX];
    size_t come = 0, gone = 0, answered = 0, size = sizeof(struct message);
    srq_attr.depth = attr.send_depth = BUFFERS;
    must(rdmux_srq_create(fabric, cq, &srq_attr, &srq), "create a shared receive queue");
    attr.srq = srq;
    must(rdmux_mr_alloc(fabric, BUFFERS * size, RDMUX_ACCESS_LOCAL_WRITE, &memory), "allocate");
    struct message *buffers = rdmux_mr_addr(memory);
    for (size_t i = 0; i < BUFFERS; i++) {
        must(rdmux_srq_recv(srq, &buffers[i], size, memory, &buffers[i]), "receive");
    }
    must(rdmux_listen(fabric, wanted, NULL, &listener), "listen");
    must(rdmux_listener_address(listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
    struct pollfd fds[2] = { { .fd = rdmux_cq_fd(cq), .events = POLLIN },
                             { .fd = rdmux_listener_fd(listener), .events = POLLIN } };
    while (come < clients || gone < come) {
        struct rdmux_ep *ep;
        struct rdmux_wc wcs[BATCH];
        enum rdmux_status status;
        size_t count = rdmux_cq_poll(cq, wcs, BATCH);
        /* Sleeps if no completion was there, unless arming reports a new one. */
        if (count == 0 && rdmux_cq_arm(cq) == RDMUX_OK) {
            poll(fds, 2, -1);
        }
        while ((status = rdmux_accept(listener, cq, &attr, 0, &ep)) == RDMUX_OK) {
            printf("client %zu connected\n", ++come);
            fflush(stdout);
        }
        must(status == RDMUX_AGAIN ? RDMUX_OK : status, "accept");
        for (const struct rdmux_wc *wc = wcs; wc < wcs + count; wc++) {
            struct message *message = wc->context;
            if (wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK) {
                message->a *= message->b;
                /* A malformed request gets an empty answer, if the client is there to take it. */
                size_t length = wc->length == size ? size : 0;
                answered += rdmux_send(wc->ep, message, length, NULL, NULL, SEND_FLAGS) == RDMUX_OK;
            }
            if (wc->opcode == RDMUX_WC_RECV) {
                must(rdmux_srq_recv(srq, message, size, memory, message), "receive");
            } else if (wc->opcode == RDMUX_WC_DISCONNECTED) {
                rdmux_ep_close(wc->ep);
                gone++;
            }
        }
    }
    printf("answered %zu calls of %zu clients\n", answered, gone);
    rdmux_listener_close(listener);
    must(rdmux_srq_destroy(srq), "destroy the shared receive queue");
    rdmux_mr_deregister(memory);
}

static void call(const char *address, size_t calls)
{
    struct rdmux_ep *ep;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct message answers[WINDOW];
    size_t asked = 0, answered = 0, size = sizeof(struct message);
    must(rdmux_connect(fabric, cq, address, NULL, WAIT_MS, &ep), "connect");
    for (size_t i = 0; i < WINDOW; i++) {
        must(rdmux_recv(ep, &answers[i], size, NULL, &answers[i]), "receive");
    }
    while (answered < calls) {
        struct rdmux_wc wc;
        size_t count;
        while (asked < calls && asked - answered < WINDOW) {
            struct message request = { .id = asked, .a = asked, .b = asked + 7 };
            enum rdmux_status status = rdmux_send(ep, &request, size, NULL, NULL, SEND_FLAGS);
            if (status == RDMUX_AGAIN) {
                break; /* the queue is full: WRITABLE will wake the client */
            }
            must(status, "send");
            asked++;
        }
        must(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
        must((enum rdmux_status)wc.status, "call"); /* all receives fail if the server is gone */
        if (wc.opcode == RDMUX_WC_RECV) {
            struct message *answer = wc.context;
            if (wc.length != size || answer->id != answered ||
                answer->a != answered * (answered + 7)) {
                fprintf(stderr, "rpc: call %zu has a wrong answer\n", answered);
                exit(1);
            }
            must(rdmux_recv(ep, answer, size, NULL, answer), "receive");
            answered++;
        }
    }
    must(rdmux_ep_info(ep, &info), "info");
    printf("%zu calls answered over %s\n", answered, info.provider);
    must(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    rdmux_ep_close(ep);
}

int main(int argc, char **argv)
{
    bool helps = argc == 2 && strcmp(argv[1], "--help") == 0;
    bool serves = argc > 2 && strcmp(argv[1], "serve") == 0;
    bool calls = argc > 2 && strcmp(argv[1], "call") == 0;
    size_t number = serves ? SIZE_MAX : 10000;
    char rest;
    if (argc > 4 || !(serves || calls) ||
        (argc == 4 && sscanf(argv[3], "%zu%c", &number, &rest) != 1)) {
        fputs(usage, helps ? stdout : stderr);
        return helps ? 0 : 2;
    }
    must(rdmux_fabric_open(NULL, &fabric), "open");
    must(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    (serves ? serve : call)(argv[2], number);
    must(rdmux_cq_destroy(cq), "destroy the completion queue");
    must(rdmux_fabric_close(fabric), "close");
    return 0;
}
