/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "client.h"

#include "outcome.h"
#include "timer.h"

#include <assert.h>
#include <stdarg.h>
#include <string.h>

enum {
    END_TIMEOUT_MS = 2000,
    ERROR_WAIT_NS = 100000000,
};

bool client_is_control(const struct rdmux_wc *wc)
{
    return wc->opcode == RDMUX_WC_RECV && wc->status == RDMUX_OK &&
           (wc->flags & RDMUX_WC_HAS_IMM) != 0 && wc->imm == PROTO_IMM_CONTROL && wc->length != 0;
}

static void explain_missing_path(void)
{
    struct rdmux_explanation *explanation = NULL;
    if (rdmux_last_explanation(&explanation) == RDMUX_OK) {
        tool_print_explanation(stderr, explanation);
        rdmux_explanation_free(explanation);
    }
}

static int connect_failed(struct client *client, enum rdmux_status status)
{
    client->failed = true;
    if (client->told != NULL && atomic_exchange(client->told, true)) {
        return tool_exit_code(status);
    }
    if (status == RDMUX_REFUSED) {
        tool_refused(client->command, client->address);
    } else {
        tool_error(client->command, "cannot connect to %s: %s: %s", client->address,
                   rdmux_status_name(status), tool_last_error());
    }
    if (status == RDMUX_NO_PATH) {
        explain_missing_path();
    }
    return tool_exit_code(status);
}

/* Connects over client->fabric and client->cq. */
static int open_endpoint(struct client *client, struct rdmux_ep_attr *attr, uint32_t depth)
{
    uint8_t hello[PROTO_HELLO_SIZE];
    proto_hello_encode(&(struct proto_hello){ .depth = depth }, hello);
    attr->private_data = hello;
    attr->private_length = sizeof(hello);
    enum rdmux_status status = rdmux_connect(client->fabric, client->cq, client->address, attr,
                                             TOOL_CONNECT_TIMEOUT_MS, &client->ep);
    attr->private_data = NULL;
    attr->private_length = 0;
    if (status != RDMUX_OK) {
        return connect_failed(client, status);
    }
    client->info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
    status = rdmux_ep_info(client->ep, &client->info);
    if (status != RDMUX_OK) {
        client_fail_call(client, "ask for the endpoint's path", status);
        return TOOL_FAILED;
    }
    return TOOL_OK;
}

int client_open_over(struct client *client, const char *command, const char *address,
                     struct rdmux_ep_attr *attr, uint32_t depth, struct rdmux_fabric *fabric,
                     struct rdmux_cq *cq)
{
    *client = (struct client){ .command = command,
                               .address = address,
                               .fabric = fabric,
                               .cq = cq,
                               .borrows = true,
                               .told = client->told };
    return open_endpoint(client, attr, depth);
}

int client_open(struct client *client, const char *command, const char *address,
                struct rdmux_ep_attr *attr, uint32_t depth)
{
    *client = (struct client){ .command = command, .address = address };
    if (tool_refuses_address(command, address)) {
        client->failed = true;
        return TOOL_USAGE;
    }
    int code = tool_fabric_open(command, &client->fabric);
    if (code != TOOL_OK) {
        client->failed = true;
        return code;
    }
    enum rdmux_status status = rdmux_cq_create(client->fabric, NULL, &client->cq);
    if (status != RDMUX_OK) {
        client_fail_call(client, "create a completion queue", status);
        return TOOL_FAILED;
    }
    return open_endpoint(client, attr, depth);
}

void client_end(struct client *client)
{
    if (client->ep == NULL) {
        return;
    }
    if (!client->failed) {
        /* The work is done and confirmed, so a failure caused by a server that leaves first is
         * ignored. */
        enum rdmux_status status = rdmux_ep_shutdown(client->ep, END_TIMEOUT_MS);
        (void)status;
    }
    rdmux_ep_close(client->ep);
    client->ep = NULL;
}

void client_close(struct client *client)
{
    client_end(client);
    if (!client->borrows) {
        rdmux_cq_destroy(client->cq);
        rdmux_fabric_close(client->fabric);
    }
    client->cq = NULL;
    client->fabric = NULL;
}

uint8_t *client_control_buffer(struct client *client)
{
    assert(client->control_used < CLIENT_CONTROL_SENDS);
    return client->control[client->control_used];
}

bool client_send_control(struct client *client, size_t length)
{
    const uint8_t *message = client_control_buffer(client);
    client->control_used++;
    uint64_t give_up_ns = timer_clock_ns() + UINT64_C(1000000) * TOOL_CONNECT_TIMEOUT_MS;
    for (;;) {
        enum rdmux_status status = rdmux_send_imm(client->ep, message, length, NULL,
                                                  PROTO_IMM_CONTROL, NULL, RDMUX_UNSIGNALED);
        if (status == RDMUX_OK) {
            return true;
        }
        if (status != RDMUX_AGAIN || timer_clock_ns() > give_up_ns) {
            client_fail_call(client, "send a control message", status);
            return false;
        }
        /* Unsignaled requests are still in flight. Only progress is made here; the caller takes the
         * completions. */
        struct rdmux_wc none;
        rdmux_cq_poll(client->cq, &none, 0);
    }
}

void client_fail(struct client *client, const char *format, ...)
{
    if (client->failed) {
        return;
    }
    client->failed = true;
    if (client->told != NULL && atomic_exchange(client->told, true)) {
        return;
    }
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    tool_error(client->command, "%s", text);
}

void client_fail_call(struct client *client, const char *what, enum rdmux_status status)
{
    outcome_cause(status);
    client_fail(client, "%s: cannot %s: %s: %s", client->address, what, rdmux_status_name(status),
                rdmux_last_error());
}

/* Prints the text of an ERROR message among count entries. *ended: the endpoint's last entry was
 * seen. */
static bool find_error_message(struct client *client, const struct rdmux_wc *wc, size_t count,
                               bool *ended)
{
    for (size_t i = 0; i < count; i++) {
        struct proto_message message;
        struct proto_error error;
        if (client_is_control(&wc[i]) &&
            proto_open(wc[i].context, (size_t)wc[i].length, &message) &&
            proto_error_decode(&message, &error)) {
            client_fail_message(client, &message);
            return true;
        }
        *ended = *ended || wc[i].opcode == RDMUX_WC_DISCONNECTED;
    }
    return false;
}

/* A server that gives up sends the reason before it ends the connection. A request that fails
 * earlier must not hide this text. */
static bool server_said_why(struct client *client, const struct rdmux_wc *wc, size_t count)
{
    bool ended = false;
    bool found = find_error_message(client, wc, count, &ended);
    uint64_t give_up_ns = timer_clock_ns() + ERROR_WAIT_NS;
    while (!found && !ended && timer_clock_ns() < give_up_ns) {
        struct rdmux_wc more[8];
        size_t more_count = 0;
        if (rdmux_cq_wait(client->cq, more, TOOL_COUNT_OF(more), 10, &more_count) == RDMUX_OK) {
            found = find_error_message(client, more, more_count, &ended);
        }
    }
    return found;
}

void client_fail_completion(struct client *client, const struct rdmux_wc *wc, size_t count)
{
    if (client->failed || server_said_why(client, wc, count)) {
        return;
    }
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    if (rdmux_ep_info(client->ep, &info) != RDMUX_OK) {
        info.text[0] = '\0';
        info.status = wc->status;
    }
    enum rdmux_status cause = info.status != RDMUX_OK ? (enum rdmux_status)info.status
                                                      : (enum rdmux_status)wc->status;
    if (cause == RDMUX_OK) {
        client_fail(
            client, "%s: the server ended the connection before the work was done; its own output tells why",
            client->address);
        return;
    }
    outcome_cause(cause);
    client_fail(
        client,
        "%s: the connection failed while it was in use: %s%s%s; is the server still running?",
        client->address, rdmux_status_name(cause), info.text[0] != '\0' ? ": " : "", info.text);
}

void client_fail_message(struct client *client, const struct proto_message *message)
{
    struct proto_error error;
    if (proto_error_decode(message, &error)) {
        client_fail(client, "%s: the server says: %s", client->address, error.text);
    } else {
        client_fail(client,
                    "%s: the server sent a message of type %u that does not belong here; is it "
                    "another version "
                    "of \"rdmux serve\"?",
                    client->address, (unsigned)message->type);
    }
}
