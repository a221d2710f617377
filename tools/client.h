/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Client side of a connection to `rdmux serve`: connecting, control messages, error texts. */
#ifndef RDMUX_TOOL_CLIENT_H
#define RDMUX_TOOL_CLIENT_H

#include "protocol.h"
#include "tool.h"

#include <stdatomic.h>

enum {
    CLIENT_CONTROL_SENDS = 4
}; /* most control messages that a client sends during one connection */

struct client {
    const char *command; /* for error texts */
    const char *address;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_ep_info info;
    uint8_t control[CLIENT_CONTROL_SENDS]
                   [PROTO_CONTROL_MAX]; /* each used once, so no completion is awaited */
    unsigned control_used;
    bool failed;       /* an error was printed */
    bool borrows;      /* fabric and cq belong to the caller */
    atomic_bool *told; /* of several clients that fail together, one prints its error; may be NULL */
};

/* Opens fabric and cq and connects. depth: the queue depth told to the server. On failure prints
 * the error, and every candidate path if there is no path. Returns an exit code; the caller must
 * call client_close() in any case. */
int client_open(struct client *client, const char *command, const char *address,
                struct rdmux_ep_attr *attr, uint32_t depth);

/* The same over the caller's fabric and cq, which stay open. */
int client_open_over(struct client *client, const char *command, const char *address,
                     struct rdmux_ep_attr *attr, uint32_t depth, struct rdmux_fabric *fabric,
                     struct rdmux_cq *cq);

/* client_end() ends the connection, in order if nothing has failed. client_close() closes
 * everything. The caller closes its regions between the two calls. */
void client_end(struct client *client);
void client_close(struct client *client);

/* Returns a buffer for the next control message. */
uint8_t *client_control_buffer(struct client *client);

/* Sends the message encoded into client_control_buffer(). Returns false if that failed and the
 * error was printed. */
bool client_send_control(struct client *client, size_t length);

/* Returns whether wc is a control message of the server; wc->context is its buffer. */
bool client_is_control(const struct rdmux_wc *wc);

/* Prints the error once and marks the client as failed. */
void client_fail(struct client *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* Reports a failed call: "cannot WHAT: STATUS: text". */
void client_fail_call(struct client *client, const char *what, enum rdmux_status status);

/* Reports a completion with a status other than OK, or an event that ends the endpoint. wc is the
 * first of count entries; the entries behind it were not looked at. The context of every receive
 * must be its buffer. */
void client_fail_completion(struct client *client, const struct rdmux_wc *wc, size_t count);

/* Reports an unexpected control message: prints the server's error text, or that the message is not
 * of the protocol. */
void client_fail_message(struct client *client, const struct proto_message *message);

#endif
