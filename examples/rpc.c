/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Remote calls: one server, many clients, one pool of receives.
 *
 *   rpc [PORT [CLIENTS]]        serves until SIGTERM, or until CLIENTS clients have come and gone
 *   rpc HOST:PORT [CALLS]       makes CALLS calls and checks the answers
 *
 * The server posts its receives to a shared receive queue, so its memory does not grow with the
 * number of clients. An answer is built where its request arrived; when the answer has been sent,
 * the buffer is posted again. Each client keeps up to WINDOW calls under way.
 */
#include <rdmux/rdmux.h>

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 256, CLIENTS = 64, WINDOW = 16, WAIT_MS = 10000, IDLE_MS = 500 };
enum method { CALL_ADD = 1, CALL_MULTIPLY = 2, RESULT = 3, ERROR = 4 };

struct message { /* a request, or its answer with the result in a */
    uint64_t id;
    uint64_t method;
    uint64_t a;
    uint64_t b;
};

static void check(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "rpc: %s: %s\n", what, rdmux_last_error());
        exit(1);
    }
}

/* ---------------------------------------------------------------------------------- the server */

struct server {
    struct rdmux_cq *cq;
    struct rdmux_srq *srq;
    struct rdmux_listener *listener;
    struct rdmux_mr *mr;
    struct message buffers[BUFFERS];
    struct rdmux_ep *eps[CLIENTS];
    unsigned ep_count;
    unsigned long clients_gone, answered;
};

static volatile sig_atomic_t stopping;

static void stop(int signal_number)
{
    (void)signal_number;
    stopping = 1;
}

static void offer(struct server *server, struct message *buffer)
{
    check(rdmux_srq_recv(server->srq, buffer, sizeof(*buffer), server->mr, buffer), "receive");
}

static void execute(struct message *message, uint64_t length)
{
    if (length == sizeof(*message) && message->method == CALL_ADD) {
        message->a += message->b;
        message->method = RESULT;
    } else if (length == sizeof(*message) && message->method == CALL_MULTIPLY) {
        message->a *= message->b;
        message->method = RESULT;
    } else {
        message->method = ERROR;
    }
}

static void drop_client(struct server *server, struct rdmux_ep *ep)
{
    unsigned index = 0;
    while (server->eps[index] != ep) {
        index++;
    }
    server->eps[index] = server->eps[--server->ep_count];
    rdmux_ep_close(ep);
    server->clients_gone++;
}

static void handle(struct server *server, const struct rdmux_wc *wc)
{
    struct message *buffer = wc->context;
    if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        drop_client(server, wc->ep); /* its requests have completed before */
        return;
    }
    if (wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK) {
        execute(buffer, wc->length);
        /* The queue is never full: it has room for as many answers as there are buffers. */
        if (rdmux_send(wc->ep, buffer, sizeof(*buffer), server->mr, buffer, 0) == RDMUX_OK) {
            server->answered++;
            return;
        }
        fprintf(stderr, "rpc: answer: %s\n", rdmux_last_error());
    }
    if (wc->opcode == RDMUX_WC_RECV || wc->opcode == RDMUX_WC_SEND) {
        offer(server, buffer);
    }
}

static void serve(struct server *server, unsigned long clients)
{
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.srq = server->srq;
    attr.send_depth = BUFFERS;
    while (!stopping && (clients == 0 || server->clients_gone < clients)) {
        struct pollfd fds[2] = { { .fd = rdmux_cq_fd(server->cq), .events = POLLIN },
                                 { .fd = -1, .events = POLLIN } };
        struct rdmux_ep *ep;
        struct rdmux_wc wc;
        while (server->ep_count < CLIENTS &&
               rdmux_accept(server->listener, server->cq, &attr, 0, &ep) == RDMUX_OK) {
            server->eps[server->ep_count++] = ep;
        }
        if (server->ep_count < CLIENTS) { /* else the next client waits until one has gone */
            fds[1].fd = rdmux_listener_fd(server->listener);
        }
        while (rdmux_cq_poll(server->cq, &wc, 1) == 1) {
            handle(server, &wc);
        }
        if (rdmux_cq_arm(server->cq) == RDMUX_OK) {
            poll(fds, 2, IDLE_MS);
        }
    }
}

static void run_server(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *port,
                       unsigned long clients)
{
    static struct server server;
    struct rdmux_srq_attr attr = RDMUX_SRQ_ATTR_INIT;
    char address[RDMUX_ADDRESS_MAX];
    attr.depth = BUFFERS;
    server.cq = cq;
    check(rdmux_mr_register(fabric, server.buffers, sizeof(server.buffers),
                            RDMUX_ACCESS_LOCAL_WRITE, &server.mr),
          "register");
    check(rdmux_srq_create(fabric, cq, &attr, &server.srq), "create a shared receive queue");
    for (unsigned i = 0; i < BUFFERS; i++) {
        offer(&server, &server.buffers[i]);
    }
    snprintf(address, sizeof(address), ":%s", port);
    check(rdmux_listen(fabric, address, NULL, &server.listener), "listen");
    check(rdmux_listener_address(server.listener, address, sizeof(address)), "address");
    printf("listening on %s\n", address);
    fflush(stdout);
    serve(&server, clients);
    printf("answered %lu calls of %lu clients\n", server.answered, server.clients_gone);
    while (server.ep_count > 0) {
        drop_client(&server, server.eps[0]);
    }
    rdmux_listener_close(server.listener);
    check(rdmux_srq_destroy(server.srq), "destroy the shared receive queue");
    rdmux_mr_deregister(server.mr);
}

/* ---------------------------------------------------------------------------------- the client */

static void ask(struct rdmux_ep *ep, uint64_t calls, uint64_t answered, uint64_t *asked)
{
    while (*asked < calls && *asked - answered < WINDOW) {
        struct message request = { .id = *asked, .a = *asked, .b = *asked + 7 };
        request.method = *asked % 2 == 0 ? CALL_ADD : CALL_MULTIPLY;
        enum rdmux_status status = rdmux_send(ep, &request, sizeof(request), NULL, NULL,
                                              RDMUX_INLINE | RDMUX_UNSIGNALED);
        if (status == RDMUX_AGAIN) {
            return; /* WRITABLE follows */
        }
        check(status, "send");
        ++*asked;
    }
}

/* The server answers a client's calls in their order. */
static bool is_right(const struct message *answer, uint64_t length, uint64_t id)
{
    uint64_t expected = id % 2 == 0 ? id + (id + 7) : id * (id + 7);
    return length == sizeof(*answer) && answer->id == id && answer->method == RESULT &&
           answer->a == expected;
}

static void run_client(struct rdmux_fabric *fabric, struct rdmux_cq *cq, const char *address,
                       uint64_t calls)
{
    struct rdmux_ep *ep;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct message answers[WINDOW];
    uint64_t asked = 0, answered = 0;
    check(rdmux_connect(fabric, cq, address, NULL, WAIT_MS, &ep), "connect");
    for (unsigned i = 0; i < WINDOW; i++) {
        check(rdmux_recv(ep, &answers[i], sizeof(answers[i]), NULL, &answers[i]), "receive");
    }
    while (answered < calls) {
        struct rdmux_wc wc;
        size_t count;
        ask(ep, calls, answered, &asked);
        check(rdmux_cq_wait(cq, &wc, 1, WAIT_MS, &count), "wait");
        if (wc.opcode == RDMUX_WC_DISCONNECTED) {
            check(rdmux_ep_info(ep, &info), "info");
            fprintf(stderr, "rpc: the server has gone: %s\n", info.text);
            exit(1);
        }
        if (wc.opcode == RDMUX_WC_RECV && wc.status == RDMUX_OK) {
            if (!is_right(wc.context, wc.length, answered)) {
                fprintf(stderr, "rpc: call %ju has a wrong answer\n", (uintmax_t)answered);
                exit(1);
            }
            check(rdmux_recv(ep, wc.context, sizeof(answers[0]), NULL, wc.context), "receive");
            answered++;
        }
    }
    check(rdmux_ep_info(ep, &info), "info");
    printf("%ju calls answered over %s\n", (uintmax_t)answered, info.provider);
    check(rdmux_ep_shutdown(ep, WAIT_MS), "shutdown");
    rdmux_ep_close(ep);
}

int main(int argc, char **argv)
{
    if (argc > 3) {
        fprintf(stderr, "usage: rpc [PORT [CLIENTS]] | rpc HOST:PORT [CALLS]\n");
        return 2;
    }
    unsigned long number = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct sigaction action = { .sa_handler = stop };
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    check(rdmux_fabric_open(NULL, &fabric), "open");
    check(rdmux_cq_create(fabric, NULL, &cq), "create a completion queue");
    if (argc > 1 && strchr(argv[1], ':') != NULL) {
        run_client(fabric, cq, argv[1], argc > 2 ? number : 10000);
    } else {
        sigaction(SIGTERM, &action, NULL);
        run_server(fabric, cq, argc > 1 ? argv[1] : "7471", number);
    }
    check(rdmux_cq_destroy(cq), "destroy the completion queue");
    check(rdmux_fabric_close(fabric), "close");
    return 0;
}
