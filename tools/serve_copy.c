/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Server side of copy: receives messages of records and passes them to the receiver, which writes
 * the files. */
#include "serve.h"

#include <inttypes.h>
#include <stdlib.h>

static uint8_t *buffer(const struct served_copy *copy, uint32_t index)
{
    return copy->base + (size_t)index * PROTO_COPY_CHUNK;
}

static bool post_receive(struct served *client, uint32_t index)
{
    struct served_copy *copy = client->copy;
    enum rdmux_status status = rdmux_recv(client->ep, buffer(copy, index), PROTO_COPY_CHUNK,
                                          copy->mr, client);
    if (status != RDMUX_OK) {
        serve_drop(client, "post a receive", status);
        return false;
    }
    return true;
}

void serve_copy_begin(struct served *client, const struct proto_copy_request *request)
{
    const struct server *server = client->server;
    if (server->receive_directory < 0) {
        serve_refuse(client,
                     "this server takes no files; start it with \"rdmux serve --receive DIR\"");
        return;
    }
    if (request->checksum != checksum_algorithm) {
        serve_refuse(client,
                     "this server was built with %s checksums, the client with others; build both "
                     "with OpenSSL, "
                     "or both without",
                     checksum_name);
        return;
    }
    struct served_copy *copy = calloc(1, sizeof(*copy));
    if (copy == NULL) {
        serve_refuse(client, "the server is out of memory");
        return;
    }
    client->copy = copy;
    copy->version = request->version < 2 ? 1 : PROTO_COPY_VERSION;
    size_t length = (size_t)PROTO_COPY_RECEIVES * PROTO_COPY_CHUNK;
    if (!serve_reserve(client, length)) {
        return;
    }
    copy->receiver = receiver_create(server->receive_directory);
    enum rdmux_status status = rdmux_mr_alloc(server->fabric, length, RDMUX_ACCESS_LOCAL_WRITE,
                                              &copy->mr);
    if (status != RDMUX_OK) { /* the limit on file sizes applies to it, too */
        serve_refuse(client, "the server has no memory for a copy: %s", rdmux_last_error());
        return;
    }
    if (copy->receiver == NULL ||
        (copy->version >= 2 &&
         !receiver_use_version_2(copy->receiver, server->park, client->origin))) {
        serve_refuse(client, "the server is out of memory for a copy");
        return;
    }
    copy->base = rdmux_mr_addr(copy->mr);
    serve_log(client, "copy of %" PRIu64 " files, %" PRIu64 " bytes", request->files,
              request->bytes);
    serve_run(client, WORK_COPY, false);
    for (uint32_t i = 0; i < PROTO_COPY_RECEIVES; i++) {
        if (!post_receive(client, i)) {
            return;
        }
    }
    serve_send_control(client, proto_copy_ready_encode(copy->version, serve_control_buffer(client)));
}

static void finish(struct served *client)
{
    struct served_copy *copy = client->copy;
    copy->done = true;
    struct proto_copy_result result = {
        .files = receiver_files(copy->receiver),
        .bytes = receiver_bytes(copy->receiver),
    };
    serve_log(client, "received %" PRIu64 " files, %" PRIu64 " bytes, every %s right", result.files,
              result.bytes, checksum_name);
    serve_send_control(client, proto_copy_result_encode(&result, serve_control_buffer(client)));
}

/* Sends the answers that the receiver has. Returns false if that has to wait, or has failed. */
static bool send_answers(struct served *client)
{
    struct served_copy *copy = client->copy;
    size_t length = 0;
    const uint8_t *answers = receiver_answers(copy->receiver, &length);
    if (length == 0) {
        return true;
    }
    if (copy->answers_under_way == SERVE_ANSWERS) {
        return false;
    }
    uint8_t *message = copy->answers[copy->next_answer];
    enum rdmux_status status = rdmux_send_imm(client->ep, message,
                                              proto_copy_answers_encode(answers, length, message),
                                              NULL, PROTO_IMM_CONTROL, client, 0);
    if (status != RDMUX_OK) {
        serve_drop(client, "send answers", status);
        return false;
    }
    copy->next_answer = (copy->next_answer + 1) % SERVE_ANSWERS;
    copy->answers_under_way++;
    receiver_forget_answers(copy->receiver);
    return true;
}

static void set_stalled(struct served *client, bool stalled)
{
    struct served_copy *copy = client->copy;
    if (stalled && !copy->stalled) {
        client->server->waiting_count -= copy->waiting;
    } else if (!stalled && copy->stalled) {
        client->server->waiting_count += copy->waiting;
    }
    copy->stalled = stalled;
}

/* Answers are the only signaled sends of a copy. */
static void answer_is_sent(struct served *client)
{
    struct served_copy *copy = client->copy;
    if (copy->answers_under_way > 0) {
        copy->answers_under_way--;
        set_stalled(client, false);
        (void)send_answers(client); /* those that had to wait */
    }
}

void serve_copy_completion(struct served *client, const struct rdmux_wc *wc)
{
    struct served_copy *copy = client->copy;
    if (wc->opcode == RDMUX_WC_SEND) {
        answer_is_sent(client);
        return;
    }
    if (wc->opcode != RDMUX_WC_RECV) {
        if (wc->opcode == RDMUX_WC_RECV_WRITE_IMM) {
            serve_refuse(client, "a notice came that does not belong to a copy");
        }
        return;
    }
    if ((wc->flags & RDMUX_WC_HAS_IMM) != 0 || copy->done) {
        serve_refuse(client, "a message came that does not belong to a copy");
        return;
    }
    copy->lengths[copy->next_receive] = (uint32_t)wc->length;
    copy->next_receive = (copy->next_receive + 1) % PROTO_COPY_RECEIVES;
    copy->waiting++;
    client->server->waiting_count += copy->stalled ? 0 : 1;
}

static void message_taken(struct served_copy *copy, struct server *server)
{
    copy->oldest = (copy->oldest + 1) % PROTO_COPY_RECEIVES;
    copy->taken = 0;
    copy->waiting--;
    server->waiting_count--;
}

/* Processes the next records of the oldest message. */
static enum receiver_outcome take_some(struct served *client)
{
    struct served_copy *copy = client->copy;
    uint32_t index = copy->oldest;
    size_t taken = 0;
    enum receiver_outcome outcome = receiver_take(copy->receiver, buffer(copy, index) + copy->taken,
                                                  copy->lengths[index] - copy->taken, &taken);
    client->active_ns = client->server->now_ns;
    copy->taken += taken;
    return outcome;
}

void serve_copy_step(struct served *client)
{
    struct served_copy *copy = client->copy;
    if (copy->waiting == 0 || copy->stalled) {
        return;
    }
    if (copy->done) {
        serve_refuse(client, "a message came that does not belong to a copy");
        return;
    }
    if (!receiver_has_room(copy->receiver) && !send_answers(client)) {
        if (client->state == SERVED_RUNNING) {
            set_stalled(client, true);
        }
        return;
    }
    uint32_t index = copy->oldest;
    switch (take_some(client)) {
    case RECEIVER_MORE:
        if (copy->taken == copy->lengths[index]) {
            message_taken(copy, client->server);
            /* Answers that cannot be sent now are sent when one under way has completed. */
            if (post_receive(client, index)) {
                (void)send_answers(client);
            }
        }
        break;
    case RECEIVER_DONE:
        message_taken(copy, client->server);
        finish(client);
        break;
    case RECEIVER_FAILED:
        serve_refuse(client, "%s", receiver_error(copy->receiver));
        break;
    }
}

void serve_copy_take_rest(struct served *client)
{
    struct served_copy *copy = client->copy;
    /* A message of data is one step; the bound is for those of many small records. */
    enum { STEPS_MAX = 2 * PROTO_COPY_RECEIVES };
    set_stalled(client, false);
    for (unsigned i = 0; i < STEPS_MAX && copy->waiting > 0 && !copy->done; i++) {
        if (take_some(client) != RECEIVER_MORE) {
            return;
        }
        if (copy->taken == copy->lengths[copy->oldest]) {
            message_taken(copy, client->server);
        }
    }
}

void serve_copy_forget(struct served *client)
{
    if (client->copy != NULL) {
        set_stalled(client, false);
        client->server->waiting_count -= client->copy->waiting;
        client->copy->waiting = 0;
    }
}

void serve_copy_free(struct served *client)
{
    if (client->copy != NULL) {
        rdmux_mr_deregister(client->copy->mr);
        receiver_destroy(client->copy->receiver);
        free(client->copy);
        client->copy = NULL;
    }
}
