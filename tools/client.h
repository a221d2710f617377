/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The client's side of a connection to `rdmux serve`: connect, control messages, errors in
 * words. */
#ifndef RDMUX_TOOL_CLIENT_H
#define RDMUX_TOOL_CLIENT_H

#include "protocol.h"
#include "tool.h"

enum {
    CLIENT_CONTROL_SENDS = 4
}; /* control messages a client sends in the life of a connection, at most */

struct client {
    const char *command; /* for error texts */
    const char *address;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_ep_info info;
    uint8_t control[CLIENT_CONTROL_SENDS]
                   [PROTO_CONTROL_MAX]; /* each used once, so no completion is waited for */
    unsigned control_used;
    bool failed; /* an error was printed */
};

/* Opens fabric and cq and connects. depth: what the server is told. Prints the error if it fails,
 * with every candidate path if there is no path. Returns an exit code; client_close() is due in any
 * case. */
int client_open(struct client *client, const char *command, const char *address,
                struct rdmux_ep_attr *attr, uint32_t depth);

/* Ends the connection, in order if nothing has failed, and closes everything. The regions must be
 * closed after client_end() and before client_close(). */
void client_end(struct client *client);
void client_close(struct client *client);

/* A buffer for the next control message. */
uint8_t *client_control_buffer(struct client *client);

/* Sends the message that was encoded into client_control_buffer(). False: it failed and was
 * told. */
bool client_send_control(struct client *client, size_t length);

/* A control message of the server; wc->context is its buffer. */
bool client_is_control(const struct rdmux_wc *wc);

/* Prints the error once and marks the client as failed. */
void client_fail(struct client *client, const char *format, ...) TOOL_PRINTF(2, 3);

/* For a call that failed: "cannot WHAT: STATUS: text". */
void client_fail_call(struct client *client, const char *what, enum rdmux_status status);

/* For a completion with a status other than OK, or an event that ends the endpoint, the first of
 * count entries of which the others were not looked at. Every receive's context must be its
 * buffer. */
void client_fail_completion(struct client *client, const struct rdmux_wc *wc, size_t count);

/* For a control message that is not the one expected: prints the server's error text, or that it is
 * none of the protocol. */
void client_fail_message(struct client *client, const struct proto_message *message);

#endif
