/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux serve: the server side of explain, perf, copy and conformance, for many clients in one
 * thread with one completion queue.
 *
 * The loop has three modes. While no client is served, it sleeps in poll(2) on the queue, the
 * listener and the signals. While a client is served, it sleeps in rdmux_cq_wait() and checks the
 * other descriptors every look_period_ns. If a client's test asked for it, the loop spins as long
 * as traffic flows.
 */
#include "serve.h"

#include "json.h"
#include "options.h"
#include "outcome.h"
#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const char command_name[] = "serve";

enum {
    CLIENTS_DEFAULT = 64,
    CLIENTS_MAX = 1024,
    IDLE_SECONDS_DEFAULT = 60,
    IDLE_SECONDS_MAX = 1000000,
    DEPTH_DEFAULT = 64, /* of an endpoint whose client sent none */
    DEPTH_MIN = 16,
    DEPTH_SPARE = 16, /* extra depth for control messages and acknowledgements */
    COMPLETIONS = 64, /* maximum taken by one poll */
    ACCEPTS = 8,      /* maximum per look */
    LOOK_MS = 20,
    TRAFFIC_CALLS = 16, /* system calls for an endpoint between two looks: more than an idle one's */
    IDLE_MS = 1000,
    TURNS_PER_CLOCK = 256,
};
static const uint64_t look_period_ns = UINT64_C(1000000) * LOOK_MS;
/* How long the server spins after the last traffic, and after one-sided traffic, which is visible
 * only while it does not spin. */
static const uint64_t spin_time_ns = UINT64_C(100000000);
static const uint64_t one_sided_spin_time_ns = UINT64_C(3000000000);
static const uint64_t ending_time_ns = UINT64_C(5000000000); /* limit for an orderly end */
static const uint64_t memory_per_client_max = UINT64_C(80) << 20;
static const uint64_t memory_max = UINT64_C(1) << 30;

/* ----------------------------------------------------------------------------- life of a client */

/* Prints a line on standard error, if the limit allows one more. */
static void print_line(struct server *server, const char *line)
{
    uint64_t now_ns = timer_clock_ns();
    uint64_t left_out = log_limit_left_out(&server->log, now_ns);
    if (left_out > 0) {
        fprintf(stderr, "rdmux serve: %llu more lines were left out\n",
                (unsigned long long)left_out);
    }
    if (line != NULL && log_limit_take(&server->log, now_ns)) {
        fputs("rdmux serve: ", stderr);
        text_print(stderr, line);
        fputc('\n', stderr);
    }
}

void serve_log(struct served *client, const char *format, ...)
{
    char text[640];
    char line[640 + RDMUX_ADDRESS_MAX + 32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    snprintf(line, sizeof(line), "client %llu (%s): %s", (unsigned long long)client->id,
             client->address, text);
    print_line(client->server, line);
}

/* Logs a peer that did not become a client. */
static void log_turned_away(struct server *server, const struct rdmux_peer *peer, const char *why)
{
    char line[RDMUX_ADDRESS_MAX + RDMUX_TEXT_MAX];
    snprintf(line, sizeof(line), "%s turned away: %s", peer->address, why);
    print_line(server, line);
}

static void unlink_client(struct served *client)
{
    struct server *server = client->server;
    if (client->previous != NULL) {
        client->previous->next = client->next;
    } else {
        server->clients = client->next;
    }
    if (client->next != NULL) {
        client->next->previous = client->previous;
    }
    server->client_count--;
}

static void leave_running(struct served *client)
{
    if (client->state == SERVED_RUNNING) {
        client->server->running_count--;
        client->server->spin_count -= client->spins ? 1 : 0;
        serve_copy_forget(client);
    }
}

static void free_work(struct served *client)
{
    serve_perf_free(client);
    serve_copy_free(client);
    client->server->memory_reserved -= client->memory_reserved;
    client->memory_reserved = 0;
}

/* Closes the endpoint. The client stays readable until free_closed(), because entries already
 * polled may name it. */
static void close_client(struct served *client)
{
    if (client->state == SERVED_CLOSED) {
        return;
    }
    struct server *server = client->server;
    leave_running(client);
    client->state = SERVED_CLOSED;
    rdmux_ep_close(client->ep);
    client->ep = NULL;
    unlink_client(client);
    client->next = server->closed;
    server->closed = client;
}

static void free_closed(struct server *server)
{
    while (server->closed != NULL) {
        struct served *client = server->closed;
        server->closed = client->next;
        free_work(client);
        free(client);
    }
}

void serve_evict(struct served *client, const char *why)
{
    serve_log(client, "evicted: %s", why);
    close_client(client);
    free_work(client);
}

bool serve_reserve(struct served *client, uint64_t bytes)
{
    struct server *server = client->server;
    struct served *victim = NULL;
    while (bytes <= memory_per_client_max && server->memory_reserved + bytes > memory_max &&
           (victim = serve_choose(server, client->origin, bytes, client)) != NULL) {
        serve_evict(victim, "another client needs the memory");
    }
    if (bytes > memory_per_client_max || server->memory_reserved + bytes > memory_max) {
        serve_refuse(
            client, "the server has no room for %llu MiB more; use a smaller --size or --depth, or try later",
            (unsigned long long)(bytes >> 20));
        return false;
    }
    server->memory_reserved += bytes;
    client->memory_reserved += bytes;
    return true;
}

void serve_run(struct served *client, enum served_work work, bool spins)
{
    client->state = SERVED_RUNNING;
    client->work = work;
    client->spins = spins;
    client->deadline_ns = 0;
    client->active_ns = client->server->now_ns;
    client->server->running_count++;
    client->server->spin_count += spins ? 1 : 0;
}

uint8_t *serve_control_buffer(struct served *client)
{
    return client->control_out[client->control_out_used % SERVE_CONTROL_SENDS];
}

bool serve_send_control(struct served *client, size_t length)
{
    const uint8_t *message = serve_control_buffer(client);
    client->control_out_used++;
    enum rdmux_status status = rdmux_send_imm(client->ep, message, length, NULL, PROTO_IMM_CONTROL,
                                              client, RDMUX_UNSIGNALED);
    if (status != RDMUX_OK) {
        serve_drop(client, "send a control message", status);
        return false;
    }
    return true;
}

void serve_refuse(struct served *client, const char *format, ...)
{
    if (client->state == SERVED_ENDING || client->state == SERVED_CLOSED) {
        return;
    }
    char text[PROTO_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    serve_log(client, "refused: %s", text);
    leave_running(client);
    client->state = SERVED_ENDING;
    if (serve_send_control(client, proto_error_encode(text, serve_control_buffer(client)))) {
        serve_end(client);
    }
}

void serve_end(struct served *client)
{
    leave_running(client);
    client->state = SERVED_ENDING;
    client->deadline_ns = timer_clock_ns() + ending_time_ns;
    enum rdmux_status status = rdmux_ep_shutdown(client->ep, 0);
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        close_client(client);
    }
}

void serve_drop(struct served *client, const char *what, enum rdmux_status status)
{
    serve_log(client, "dropped: cannot %s: %s: %s", what, rdmux_status_name(status),
              rdmux_last_error());
    close_client(client);
}

/* ----------------------------------------------------------------------------------- connecting */

static void connected(struct served *client, enum rdmux_status outcome)
{
    if (outcome != RDMUX_OK) {
        /* A client that only wanted the explanation also ends this way, so it is not logged. */
        close_client(client);
        return;
    }
    client->state = SERVED_ASKED;
    client->deadline_ns = timer_clock_ns() + client->server->idle_ns;
    /* Posts one receive: data cannot come before the request has told which receives it needs. */
    enum rdmux_status status = rdmux_recv(client->ep, client->control_in,
                                          sizeof(client->control_in), NULL, client);
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (status == RDMUX_PEER_GONE && rdmux_ep_info(client->ep, &info) == RDMUX_OK &&
        info.status == RDMUX_OK) {
        close_client(client); /* it only wanted the explanation, and ended in order */
    } else if (status != RDMUX_OK) {
        serve_drop(client, "post a receive", status);
    }
}

static void accept_peer(struct server *server, const struct rdmux_peer *peer)
{
    char origin[SERVE_ORIGIN_MAX];
    server->now_ns = timer_clock_ns();
    serve_origin(peer->address, peer->identity, origin);
    if (server->client_count >= server->clients_max) {
        struct served *victim = serve_choose(server, origin, 0, NULL);
        if (victim == NULL) {
            log_turned_away(server, peer, "as many clients as --max-clients allows are busy");
            rdmux_reject(server->listener, peer->id, PROTO_REJECT_BUSY, NULL, 0);
            return;
        }
        serve_evict(victim, "another client needs the room");
    }
    struct served *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        log_turned_away(server, peer, "out of memory");
        rdmux_reject(server->listener, peer->id, PROTO_REJECT_BUSY, NULL, 0);
        return;
    }
    client->server = server;
    client->id = ++server->next_id;
    client->state = SERVED_CONNECTING;
    client->active_ns = server->now_ns;
    memcpy(client->address, peer->address, sizeof(client->address));
    memcpy(client->origin, origin, sizeof(client->origin));

    struct proto_hello hello = { .depth = DEPTH_DEFAULT };
    if (peer->private_length <= RDMUX_PRIVATE_DATA_MAX) {
        /* Not an rdmux client: the default applies until its first message shows what it is. */
        (void)proto_hello_decode(peer->private_data, peer->private_length, &hello);
    }
    uint32_t depth = (hello.depth < DEPTH_MIN ? DEPTH_MIN : hello.depth) + DEPTH_SPARE;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.send_depth = depth;
    attr.recv_depth = depth;
    attr.peer = peer->id;
    attr.user = client;
    enum rdmux_status status = rdmux_accept(server->listener, server->cq, &attr, 0, &client->ep);
    if (status != RDMUX_OK && status != RDMUX_IN_PROGRESS) {
        log_turned_away(server, peer, rdmux_last_error());
        free(client);
        return;
    }
    client->next = server->clients;
    if (client->next != NULL) {
        client->next->previous = client;
    }
    server->clients = client;
    server->client_count++;
    if (status == RDMUX_OK) {
        connected(client, RDMUX_OK); /* no event follows */
    }
}

/* Accepts only some of the waiting connections, so that a crowd does not delay the clients for
 * long. */
static void accept_some(struct server *server)
{
    for (unsigned i = 0; i < ACCEPTS; i++) {
        struct rdmux_peer peer = RDMUX_PEER_INIT;
        if (rdmux_listener_next(server->listener, 0, &peer) != RDMUX_OK) {
            return;
        }
        accept_peer(server, &peer);
    }
    server->next_look_ns = 0; /* more may be waiting */
}

/* ---------------------------------------------------------------------------------- completions */

static void take_request(struct served *client, const struct rdmux_wc *wc)
{
    struct proto_message message;
    struct proto_perf_request perf;
    struct proto_copy_request copy;
    bool control = (wc->flags & RDMUX_WC_HAS_IMM) != 0 && wc->imm == PROTO_IMM_CONTROL;
    if (!control || !proto_open(client->control_in, (size_t)wc->length, &message)) {
        serve_refuse(client,
                     "this is not the protocol of \"rdmux serve\", or another version of it");
    } else if (proto_perf_request_decode(&message, &perf)) {
        serve_perf_begin(client, &perf);
    } else if (proto_copy_request_decode(&message, &copy)) {
        serve_copy_begin(client, &copy);
    } else if (proto_conformance_request_decode(&message)) {
        serve_conformance_begin(client);
    } else {
        serve_refuse(client, "the request of type %u is malformed or not known here",
                     (unsigned)message.type);
    }
}

static void ended(struct served *client, const struct rdmux_wc *wc)
{
    if (wc->status != RDMUX_OK) {
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        bool known = rdmux_ep_info(client->ep, &info) == RDMUX_OK;
        serve_log(client, "ended: %s%s%s", rdmux_status_name((enum rdmux_status)wc->status),
                  known && info.text[0] != '\0' ? ": " : "", known ? info.text : "");
    }
    if (client->state == SERVED_RUNNING && client->work == WORK_COPY) {
        serve_copy_take_rest(client);
    }
    close_client(client);
}

static void take_completion(const struct rdmux_wc *wc)
{
    struct served *client = wc->opcode < RDMUX_WC_CONNECTED ? wc->context : rdmux_ep_user(wc->ep);
    if (client == NULL || client->state == SERVED_CLOSED) {
        return;
    }
    client->active_ns = client->server->now_ns;
    if (wc->opcode == RDMUX_WC_CONNECTED) {
        connected(client, (enum rdmux_status)wc->status);
        return;
    }
    if (wc->opcode == RDMUX_WC_DISCONNECTED) {
        ended(client, wc);
        return;
    }
    /* A failed request is followed by DISCONNECTED; a failed import is handled separately. */
    if (wc->status != RDMUX_OK && wc->opcode != RDMUX_WC_REMOTE_READY) {
        return;
    }
    switch (client->state) {
    case SERVED_ASKED:
        if (wc->opcode == RDMUX_WC_RECV) {
            take_request(client, wc);
        }
        break;
    case SERVED_RUNNING:
        if (client->work == WORK_PERF) {
            serve_perf_completion(client, wc);
        } else {
            serve_copy_completion(client, wc);
        }
        break;
    case SERVED_CONNECTING:
    case SERVED_ENDING:
    case SERVED_CLOSED:
        break;
    }
}

/* ------------------------------------------------------------------------------------- the loop */

/* One-sided traffic is visible, if at all, by the system calls that serve it. A spinning server
 * makes other system calls, too, so the count is valid only while it sleeps. */
static void look_for_traffic(struct server *server, struct served *client)
{
    struct rdmux_ep_stats stats = RDMUX_EP_STATS_INIT;
    if (rdmux_ep_stats(client->ep, &stats) != RDMUX_OK) {
        return;
    }
    if (server->sleeping_looks > 1 && stats.system_calls - client->system_calls >= TRAFFIC_CALLS) {
        client->active_ns = server->now_ns;
        if (client->spins) {
            server->spin_until_ns = server->now_ns + one_sided_spin_time_ns;
        }
    }
    client->system_calls = stats.system_calls;
}

static void end_overdue(struct server *server)
{
    unsigned long long seconds = server->idle_ns / 1000000000;
    struct served *next = NULL;
    for (struct served *client = server->clients; client != NULL; client = next) {
        next = client->next;
        if (client->state == SERVED_RUNNING) {
            if (client->one_sided) {
                look_for_traffic(server, client);
            } else if (server->now_ns - client->active_ns >= server->idle_ns) {
                serve_refuse(client, "nothing came for %llu s", seconds);
            }
        } else if (client->deadline_ns == 0 || server->now_ns < client->deadline_ns) {
            continue;
        } else if (client->state == SERVED_ASKED) {
            serve_refuse(client, "no request within %llu s", seconds);
        } else {
            close_client(client);
        }
    }
}

/* Continues each copy with waiting messages by one step. */
static void step_copies(struct server *server)
{
    struct served *next = NULL;
    for (struct served *client = server->clients; client != NULL; client = next) {
        next = client->next;
        if (client->state == SERVED_RUNNING && client->work == WORK_COPY) {
            serve_copy_step(client);
        }
    }
}

/* Checks everything but the queue. Sleeps up to timeout_ms for any of the three descriptors;
 * queue_fd -1 leaves out the queue. */
static bool look(struct server *server, int queue_fd, int timeout_ms)
{
    struct pollfd fds[] = {
        { .fd = server->signal_fd, .events = POLLIN },
        { .fd = rdmux_listener_fd(server->listener), .events = POLLIN },
        { .fd = queue_fd, .events = POLLIN },
    };
    if (poll(fds, TOOL_COUNT_OF(fds), timeout_ms) < 0 && errno != EINTR) {
        tool_error(command_name, "cannot wait for events: poll: %s", strerror(errno));
        return false;
    }
    if ((fds[0].revents & POLLIN) != 0) {
        server->stop = true;
    }
    if ((fds[1].revents & POLLIN) != 0) {
        accept_some(server);
    }
    server->now_ns = timer_clock_ns();
    server->sleeping_looks++;
    end_overdue(server);
    if (server->park != NULL) {
        park_expire(server->park, server->now_ns);
    }
    serve_conformance_reap(server);
    print_line(server, NULL);
    return true;
}

/* While no client is served: arms the queue and sleeps until any descriptor is ready. */
static bool rest(struct server *server)
{
    enum rdmux_status status = rdmux_cq_arm(server->cq);
    if (status == RDMUX_AGAIN) {
        return look(server, -1, 0);
    }
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot arm the completion queue: %s: %s",
                   rdmux_status_name(status), rdmux_last_error());
        return false;
    }
    return look(server, rdmux_cq_fd(server->cq), IDLE_MS);
}

/* Returns whether a client whose test asked for spinning has traffic. */
static bool spins(const struct server *server)
{
    return server->spin_count > 0 && server->now_ns < server->spin_until_ns;
}

/* Takes the available completions. Sleeps first if a client is served and no client has a reason to
 * spin. *looks: whether the clock was read. On failure prints the error and returns false. */
static bool take_entries(struct server *server, unsigned *turns, size_t *count, bool *looks)
{
    struct rdmux_wc wc[COMPLETIONS];
    *count = 0;
    if (server->running_count > 0 && server->waiting_count == 0 && !spins(server)) {
        enum rdmux_status status = rdmux_cq_wait(server->cq, wc, COMPLETIONS, LOOK_MS, count);
        if (status != RDMUX_OK && status != RDMUX_TIMED_OUT) {
            tool_error(command_name, "cannot wait for completions: %s: %s",
                       rdmux_status_name(status), rdmux_last_error());
            return false;
        }
        *looks = true;
    } else {
        *count = rdmux_cq_poll(server->cq, wc, COMPLETIONS);
        server->sleeping_looks = 0;
        *looks = ++*turns % TURNS_PER_CLOCK == 0 || server->waiting_count > 0;
    }
    if (*looks) {
        server->now_ns = timer_clock_ns();
    }
    if (*count > 0 && server->spin_until_ns < server->now_ns + spin_time_ns) {
        server->spin_until_ns = server->now_ns + spin_time_ns;
    }
    for (size_t i = 0; i < *count; i++) {
        take_completion(&wc[i]);
    }
    return true;
}

/* Runs until a signal. On failure prints the error and returns false. */
static bool run_loop(struct server *server)
{
    unsigned turns = 0;
    while (!server->stop) {
        size_t count = 0;
        bool looks = false;
        if (!take_entries(server, &turns, &count, &looks)) {
            return false;
        }
        if (server->waiting_count > 0) {
            step_copies(server);
        }
        free_closed(server);
        if (server->running_count == 0 && count == 0) {
            if (!rest(server)) {
                return false;
            }
            free_closed(server);
        } else if (looks && server->now_ns >= server->next_look_ns) {
            server->next_look_ns = server->now_ns + look_period_ns;
            if (!look(server, -1, 0)) {
                return false;
            }
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------- start and stop */

/* Makes SIGINT and SIGTERM readable. They are blocked before the library starts its threads, which
 * inherit the mask. On failure prints the error and returns -1. */
static int open_signals(void)
{
    sigset_t signals;
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is the client's error EFBIG */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        tool_error(command_name, "cannot watch for signals: signalfd: %s", strerror(errno));
    }
    return fd;
}

static void print_address_as_json(const char *address, const char *hint)
{
    struct json json;
    json_begin(&json, stdout);
    json_object_begin(&json, NULL);
    json_string(&json, "listening", address);
    json_bool(&json, "loopback_only", hint[0] != '\0');
    json_string(&json, "hint", hint);
    json_object_end(&json);
    json_end(&json);
    outcome_is_printed();
}

/* Says where the server listens, and, if no other host can reach that, how to open it. */
static void print_address(const char *address, bool json)
{
    char hint[RDMUX_TEXT_MAX] = "";
    if (strncmp(address, "127.", 4) == 0 || strncmp(address, "[::1]", 5) == 0) {
        snprintf(hint, sizeof(hint),
                 "only processes of this host reach that address; \"rdmux serve 0.0.0.0%.16s\" "
                 "listens on all",
                 strrchr(address, ':'));
    }
    if (json) {
        print_address_as_json(address, hint);
    } else {
        printf("listening on %s\n%s%s", address, hint, hint[0] != '\0' ? "\n" : "");
    }
    fflush(stdout);
}

/* Returns an exit code. */
static int listen_on(struct server *server, const char *address, bool json)
{
    if (tool_refuses_address(command_name, address)) {
        return TOOL_USAGE;
    }
    enum rdmux_status status = rdmux_listen(server->fabric, address, NULL, &server->listener);
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot listen on %s: %s: %s%s", address,
                   rdmux_status_name(status), rdmux_last_error(),
                   status == RDMUX_IO
                       ? "; if the port is in use, give another one, or port 0 for any free one"
                       : "");
        return tool_exit_code(status);
    }
    char actual[RDMUX_ADDRESS_MAX];
    status = rdmux_listener_address(server->listener, actual, sizeof(actual));
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot tell the address listened on: %s: %s",
                   rdmux_status_name(status), rdmux_last_error());
        return tool_exit_code(status);
    }
    print_address(actual, json);
    return TOOL_OK;
}

/* Prints the error and returns false on failure. */
static bool prepare_to_receive(struct server *server)
{
    server->park = park_create();
    if (server->park == NULL) {
        tool_error(command_name, "out of memory");
        return false;
    }
    server->sweep = sweep_begin(server->receive_directory);
    if (server->sweep == NULL) {
        tool_notice(command_name, "cannot start a thread; files left by an earlier server stay");
    }
    return true;
}

struct serve_options {
    const char *address;
    const char *receive_path;
    uint64_t clients_max;
    uint64_t idle_seconds;
    bool json;
};

static int serve(const struct serve_options *options)
{
    const char *receive_path = options->receive_path;
    struct server server = { .signal_fd = -1,
                             .receive_directory = -1,
                             .receive_path = receive_path,
                             .clients_max = (unsigned)options->clients_max,
                             .idle_ns = options->idle_seconds * UINT64_C(1000000000) };
    int code = TOOL_FAILED;
    if (receive_path != NULL) {
        server.receive_directory = open(receive_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (server.receive_directory < 0) {
            tool_error(
                command_name,
                "--receive: cannot open the directory \"%s\": %s; create it, or name another",
                receive_path, strerror(errno));
            return TOOL_FAILED;
        }
    }
    server.signal_fd = open_signals(); /* the thread of the sweep inherits the mask */
    if (server.signal_fd < 0) {
        goto close_directory;
    }
    if (server.receive_directory >= 0 && !prepare_to_receive(&server)) {
        goto close_signals;
    }
    code = tool_fabric_open(command_name, &server.fabric);
    if (code != TOOL_OK) {
        goto close_signals;
    }
    code = TOOL_FAILED;
    enum rdmux_status status = rdmux_cq_create(server.fabric, NULL, &server.cq);
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot create a completion queue: %s: %s",
                   rdmux_status_name(status), rdmux_last_error());
        goto close_fabric;
    }
    code = listen_on(&server, options->address, options->json);
    if (code == TOOL_OK) {
        code = run_loop(&server) ? TOOL_OK : TOOL_FAILED;
    }
    while (server.clients != NULL) {
        close_client(server.clients);
    }
    free_closed(&server);
    rdmux_listener_close(server.listener);
    rdmux_cq_destroy(server.cq);
close_fabric:
    rdmux_fabric_close(server.fabric);
close_signals:
    sweep_end(server.sweep);
    park_destroy(server.park);
    close(server.signal_fd);
close_directory:
    if (server.receive_directory >= 0) {
        close(server.receive_directory);
    }
    return code;
}

int tool_serve_main(int argc, char **argv)
{
    struct serve_options serve_options = { .clients_max = CLIENTS_DEFAULT,
                                           .idle_seconds = IDLE_SECONDS_DEFAULT };
    const struct option_spec options[] = {
        { .name = "receive",
          .kind = OPTION_TEXT,
          .text = &serve_options.receive_path,
          .argument = "DIR",
          .help = "accept \"rdmux copy\" and store below DIR, never outside it" },
        { .name = "max-clients",
          .kind = OPTION_NUMBER,
          .number = &serve_options.clients_max,
          .min = 1,
          .max = CLIENTS_MAX,
          .argument = "N",
          .help = "most clients at a time (default 64); beyond, a new one replaces an idle\n"
                  "one of the address or identity that has the most" },
        { .name = "idle",
          .kind = OPTION_NUMBER,
          .number = &serve_options.idle_seconds,
          .min = 1,
          .max = IDLE_SECONDS_MAX,
          .argument = "SECONDS",
          .help = "end a session after this time without a request (default 60)" },
        { .name = "json",
          .kind = OPTION_FLAG,
          .flag = &serve_options.json,
          .help = "print JSON: the address, when the server is ready" },
    };
    const struct command_spec command = {
        .name = command_name,
        .authenticates = true,
        .usage = "[ADDRESS[:PORT]] [--receive DIR] [--max-clients N] [--idle SECONDS] [--json]",
        .description = "Runs the server for explain, perf, copy and conformance, with many\n"
                       "clients at once. Listens on 127.0.0.1:7471 by default; port 0 picks a\n"
                       "free one. Prints \"listening on ADDRESS:PORT\" when it is ready, and ends\n"
                       "in order on SIGINT or SIGTERM. Every process that reaches the port may\n"
                       "use the server, unless --auth is given. With --auth the server runs no\n"
                       "conformance cases.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
        .positional_max = 1,
    };
    const char *positionals[1];
    enum options_outcome outcome = options_parse(&command, argc, argv, positionals);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    serve_options.address = positionals[0] != NULL ? positionals[0] : "127.0.0.1:7471";
    return serve(&serve_options);
}
