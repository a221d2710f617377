/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "conformance_peer.h"

#include "client.h"
#include "outcome.h"

#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 10000 };

static const char command_name[] = "conformance";

/* Result that the asking process passes to the runner. */
struct session_place {
    char address[RDMUX_ADDRESS_MAX]; /* the server's address, numeric */
    struct proto_conformance_ready ready;
};

/* Waits for the server's answer. On failure prints the error and returns false. */
static bool take_answer(struct client *client, const uint8_t *buffer, struct session_place *out)
{
    struct rdmux_wc wc;
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(client->cq, &wc, 1, ANSWER_MS, &count);
    if (status != RDMUX_OK) {
        client_fail_call(client, "wait for the server's answer", status);
        return false;
    }
    struct proto_message message;
    if (!client_is_control(&wc) || !proto_open(buffer, (size_t)wc.length, &message)) {
        client_fail_completion(client, &wc, count);
        return false;
    }
    if (!proto_conformance_ready_decode(&message, &out->ready)) {
        client_fail_message(client, &message);
        return false;
    }
    memcpy(out->address, client->info.peer_address, sizeof(out->address));
    out->address[sizeof(out->address) - 1] = '\0';
    return true;
}

/* Runs in a process of its own. Returns its exit code. */
static int ask(const char *address, struct session_place *out)
{
    static uint8_t buffer[PROTO_CONTROL_MAX];
    struct client client;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    int code = client_open(&client, command_name, address, &attr, 1);
    if (code != TOOL_OK) {
        client_close(&client);
        return code;
    }
    enum rdmux_status status = rdmux_recv(client.ep, buffer, sizeof(buffer), NULL, buffer);
    bool answered = false;
    if (status != RDMUX_OK) {
        client_fail_call(&client, "post a receive", status);
    } else if (client_send_control(
                   &client, proto_conformance_request_encode(client_control_buffer(&client)))) {
        answered = take_answer(&client, buffer, out);
    }
    client_close(&client);
    return answered ? TOOL_OK : TOOL_FAILED;
}

/* What the process that asks sends to the runner. */
struct answer {
    struct session_place place;
    struct outcome_kept kept;
};

static int ask_in_a_process(const char *address, struct session_place *out)
{
    int ends[2];
    struct answer answer = { .place = { .address = "" } };
    if (pipe(ends) != 0) {
        tool_error(command_name, "pipe: %s", strerror(errno));
        return TOOL_FAILED;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int code = ask(address, &answer.place);
        outcome_keep(&answer.kept);
        if (write(ends[1], &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
            code = TOOL_FAILED;
        }
        _exit(code);
    }
    close(ends[1]);
    ssize_t count = read(ends[0], &answer, sizeof(answer));
    close(ends[0]);
    int wait_status = 0;
    if (pid < 0 || waitpid(pid, &wait_status, 0) != pid || !WIFEXITED(wait_status)) {
        tool_error(command_name, "the process that asks %s has failed", address);
        return TOOL_FAILED;
    }
    if (count != (ssize_t)sizeof(answer)) {
        tool_error(command_name, "the process that asks %s has not answered", address);
        return TOOL_FAILED;
    }
    int code = WEXITSTATUS(wait_status);
    if (code != TOOL_OK) { /* the process has printed it */
        outcome_error(answer.kept.text);
        outcome_cause(answer.kept.cause);
    }
    *out = answer.place;
    return code;
}

int conformance_peer_open(const char *address, struct peer *out)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
    struct session_place place = { .address = "" };
    struct addrinfo *found = NULL;
    const char *why = NULL;
    char port[16];
    int code = ask_in_a_process(address, &place);
    if (code != TOOL_OK) {
        return code;
    }
    char *colon = strrchr(place.address, ':');
    bool brackets = place.address[0] == '[';
    if (colon != NULL) {
        colon[brackets ? -1 : 0] = '\0';
    }
    snprintf(port, sizeof(port), "%u", (unsigned)place.ready.port);
    if (getaddrinfo(place.address + brackets, port, &wanted, &found) != 0) {
        tool_error(command_name, "the address of %s is not understood: %s", address, place.address);
        return TOOL_FAILED;
    }
    *out = (struct peer){ .address_length = found->ai_addrlen };
    memcpy(&out->address, found->ai_addr, found->ai_addrlen);
    memcpy(out->secret, place.ready.secret, sizeof(out->secret));
    freeaddrinfo(found);
    if (!peer_open(out, &why)) {
        tool_error(command_name,
                   "%s: cannot connect to port %s, where the cases are to run: %s; is a firewall "
                   "in the way? The cases need any port",
                   address, port, why);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

int tool_conformance_session_main(void)
{
    uint8_t secret[PEER_SECRET_SIZE];
    if (read(TOOL_SESSION_SECRET, secret, sizeof(secret)) != (ssize_t)sizeof(secret)) {
        tool_error(TOOL_SESSION_NAME, "only \"rdmux serve\" starts this");
        return TOOL_USAGE;
    }
    close(TOOL_SESSION_SECRET);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsetenv("RDMUX_PATHS");
    return peer_session(TOOL_SESSION_LISTENER, secret);
}
