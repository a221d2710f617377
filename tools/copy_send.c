/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The connection of a copy, and the records in it.
 *
 * Files are read directly into the send buffers, many small files to a buffer, so a tree of small
 * files costs no round trip per file.
 */
#include "copy.h"

#include "timer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum {
    ROOM_MIN = 4096, /* a buffer with less room than this for file data is sent as it is */
    RESULT_TIMEOUT_MS = 60000, /* the receiver may still have a buffer full of files to write */
};
static const uint64_t keep_alive_ns = UINT64_C(500000000);

static bool fail_malformed(struct sender *sender)
{
    progress_clear(&sender->progress);
    client_fail(&sender->client, "%s: the server sent a malformed message", sender->client.address);
    return false;
}

/* Takes one answer. The first is that of BEGIN. Returns false if it is none that was due. */
static bool take_answer(struct sender *sender, const struct proto_copy_answer *answer)
{
    bool places = answer->code == PROTO_ANSWER_TARGET || answer->code == PROTO_ANSWER_INTO;
    if (sender->placed == 0) {
        if (!places || (answer->code == PROTO_ANSWER_INTO && sender->name[0] == '\0')) {
            return false;
        }
        sender->placed = answer->code;
        return true;
    }
    if (places || sender->question_count == 0) {
        return false;
    }
    uint32_t index = sender->questions[sender->oldest_question];
    struct source_entry *entry = &sender->list.entries[index];
    if (answer->code == PROTO_ANSWER_RESUME) {
        if (entry->kind != SOURCE_FILE || sender->resume_count == PROTO_RESUMES_MAX ||
            answer->offset == 0) {
            return false;
        }
        sender->resumes[sender->resume_count++] = (struct copy_resume){
            .index = index,
            .answer = *answer,
        };
    }
    entry->answer = answer->code;
    sender->oldest_question = (sender->oldest_question + 1) % COPY_QUESTIONS_MAX;
    sender->question_count--;
    return true;
}

static bool take_answers(struct sender *sender, const struct proto_message *message)
{
    size_t at = 0;
    while (at < message->length) {
        struct proto_copy_answer answer;
        if (!proto_copy_answer_decode(message, &at, &answer) || !take_answer(sender, &answer)) {
            return fail_malformed(sender);
        }
    }
    return true;
}

static bool take_message(struct sender *sender, const struct rdmux_wc *wc)
{
    struct proto_message message;
    if (!client_is_control(wc) || !proto_open(wc->context, (size_t)wc->length, &message)) {
        return fail_malformed(sender);
    }
    if (sender->version == 0 && proto_copy_ready_decode(&message, &sender->version)) {
        return true;
    }
    if (sender->version >= 2 && message.type == PROTO_COPY_ANSWER) {
        /* If this fails, the endpoint has ended. The queue has the reason, which may be the server's
         * own text, behind this message. */
        enum rdmux_status status = rdmux_recv(sender->client.ep, wc->context, PROTO_CONTROL_MAX,
                                              NULL, wc->context);
        (void)status;
        return take_answers(sender, &message);
    }
    if (sender->version > 0 && !sender->result_here &&
        proto_copy_result_decode(&message, &sender->result)) {
        sender->result_here = true;
        return true;
    }
    progress_clear(&sender->progress);
    client_fail_message(&sender->client, &message);
    return false;
}

/* Takes the available completions, waiting up to timeout_ms for the first. On failure prints the
 * error and returns false. */
static bool pump(struct sender *sender, int timeout_ms)
{
    struct rdmux_wc wc[16];
    size_t count = 0;
    enum rdmux_status status = rdmux_cq_wait(sender->client.cq, wc, TOOL_COUNT_OF(wc), timeout_ms,
                                             &count);
    if (status != RDMUX_OK && status != RDMUX_TIMED_OUT && status != RDMUX_AGAIN) {
        client_fail_call(&sender->client, "wait for completions", status);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (wc[i].status != RDMUX_OK || wc[i].opcode == RDMUX_WC_DISCONNECTED) {
            progress_clear(&sender->progress);
            client_fail_completion(&sender->client, &wc[i], count - i);
            return false;
        }
        if (wc[i].opcode == RDMUX_WC_SEND) {
            *(bool *)wc[i].context = false;
        } else if (wc[i].opcode == RDMUX_WC_RECV && !take_message(sender, &wc[i])) {
            return false;
        }
    }
    return true;
}

static bool fail_timeout(struct sender *sender, const char *what, int timeout_ms)
{
    client_fail(&sender->client, "%s: the server has not %s for %d s; is it stopped or overloaded?",
                sender->client.address, what, timeout_ms / 1000);
    return false;
}

static uint64_t after_ms(int timeout_ms)
{
    return timer_clock_ns() + UINT64_C(1000000) * (uint64_t)timeout_ms;
}

static uint8_t *buffer(const struct sender *sender)
{
    return sender->base + (size_t)sender->current * PROTO_COPY_CHUNK;
}

bool copy_flush(struct sender *sender)
{
    if (sender->fill == 0) {
        return true;
    }
    enum rdmux_status status = RDMUX_OK;
    while ((status = rdmux_send(sender->client.ep, buffer(sender), sender->fill, sender->mr,
                                &sender->busy[sender->current], 0)) == RDMUX_AGAIN) {
        if (!pump(sender, 1000)) {
            return false;
        }
    }
    if (status != RDMUX_OK) {
        progress_clear(&sender->progress);
        /* The endpoint may have ended because the server gave up; the queue then holds its
         * reason. */
        if (pump(sender, 100)) {
            client_fail_call(&sender->client, "send", status);
        }
        return false;
    }
    sender->busy[sender->current] = true;
    sender->current = (sender->current + 1) % COPY_BUFFERS;
    sender->fill = 0;
    sender->holes = 0;
    sender->last_flush_ns = timer_clock_ns();
    if (!pump(sender, 0)) {
        return false;
    }
    while (sender->busy[sender->current]) {
        if (!pump(sender, 1000)) {
            return false;
        }
    }
    progress_update(&sender->progress, sender->processed);
    return true;
}

bool copy_keep_alive(struct sender *sender)
{
    if (sender->version < 2 || timer_clock_ns() - sender->last_flush_ns < keep_alive_ns) {
        return true;
    }
    return copy_add_record(sender, PROTO_RECORD_NOTHING, 0) != NULL && copy_flush(sender);
}

uint8_t *copy_add_record(struct sender *sender, enum proto_record kind, size_t length)
{
    if (sender->fill + PROTO_RECORD_HEADER_SIZE + length > PROTO_COPY_CHUNK && !copy_flush(sender)) {
        return NULL;
    }
    uint8_t *record = buffer(sender) + sender->fill;
    proto_store32(record, (uint32_t)kind);
    proto_store32(record + 4, (uint32_t)length);
    sender->fill += PROTO_RECORD_HEADER_SIZE + length;
    return record + PROTO_RECORD_HEADER_SIZE;
}

bool copy_wait_answer(struct sender *sender, const uint8_t *answer)
{
    if (*answer == 0 && !copy_flush(sender)) {
        return false;
    }
    while (*answer == 0) {
        if (!pump(sender, 1000)) {
            return false;
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------------- contents */

/* Reads at `offset` as much as fits into the current buffer, and at most `limit` bytes, as a DATA
 * record. *length is 0 at the end of the file. */
static bool send_part(struct sender *sender, int file, uint64_t offset, uint64_t limit,
                      size_t *length, int *error)
{
    *error = 0;
    if (sender->fill + PROTO_RECORD_HEADER_SIZE + ROOM_MIN > PROTO_COPY_CHUNK &&
        !copy_flush(sender)) {
        return false;
    }
    uint8_t *record = buffer(sender) + sender->fill;
    uint8_t *data = record + PROTO_RECORD_HEADER_SIZE;
    uint64_t room = PROTO_COPY_CHUNK - sender->fill - PROTO_RECORD_HEADER_SIZE;
    ssize_t count = -1;
    do {
        count = pread(file, data, (size_t)(room < limit ? room : limit), (off_t)offset);
    } while (count < 0 && errno == EINTR);
    if (count < 0 || !checksum_add(sender->checksum, data, (size_t)count)) {
        *error = count < 0 ? errno : ENOMEM;
        return false;
    }
    *length = (size_t)count;
    if (count > 0) {
        proto_store32(record, PROTO_RECORD_DATA);
        proto_store32(record + 4, (uint32_t)count);
        sender->fill += PROTO_RECORD_HEADER_SIZE + (size_t)count;
        sender->done.sent_bytes += (uint64_t)count;
        sender->processed += (uint64_t)count;
    }
    return true;
}

static bool send_hole(struct sender *sender, uint64_t length, int *error)
{
    static const uint8_t zeros[16384];
    *error = 0;
    while (length > 0) {
        uint64_t part = length < PROTO_HOLE_MAX ? length : PROTO_HOLE_MAX;
        uint8_t *payload = copy_add_record(sender, PROTO_RECORD_HOLE, 8);
        if (payload == NULL) {
            return false;
        }
        proto_store64(payload, part);
        for (uint64_t added = 0; added < part; added += sizeof(zeros)) {
            uint64_t rest = part - added;
            if (!checksum_add(sender->checksum, zeros,
                              rest < sizeof(zeros) ? (size_t)rest : sizeof(zeros))) {
                *error = ENOMEM;
                return false;
            }
        }
        sender->done.hole_bytes += part;
        sender->processed += part;
        sender->holes += part;
        length -= part;
        if (sender->holes >= COPY_HOLES_MAX && !copy_flush(sender)) {
            return false;
        }
    }
    return true;
}

/* Finds the data at or behind `offset`. A file without data from there on has it at its end, and a
 * file system that knows no holes has it everywhere. */
static bool find_data(int file, uint64_t offset, uint64_t *begin, uint64_t *end)
{
    *begin = offset;
    *end = UINT64_MAX;
    off_t at = lseek(file, (off_t)offset, SEEK_DATA);
    if (at < 0 && errno == ENXIO) {
        at = lseek(file, 0, SEEK_END);
        *begin = at > (off_t)offset ? (uint64_t)at : offset;
        return false;
    }
    off_t hole = at < 0 ? -1 : lseek(file, at, SEEK_HOLE);
    if (hole > at) {
        *begin = (uint64_t)at;
        *end = (uint64_t)hole;
    }
    return true;
}

bool copy_send_contents(struct sender *sender, int file, uint64_t offset, bool sparse, int *error)
{
    for (;;) {
        uint64_t begin = offset;
        uint64_t end = UINT64_MAX;
        bool more = !sparse || find_data(file, offset, &begin, &end);
        if (begin > offset && !send_hole(sender, begin - offset, error)) {
            return false;
        }
        if (!more) {
            return true;
        }
        for (offset = begin; offset < end;) {
            size_t length = 0;
            if (!send_part(sender, file, offset, end - offset, &length, error)) {
                return false;
            }
            if (length == 0) {
                return true;
            }
            offset += length;
        }
    }
}

bool copy_add_contents(struct sender *sender, int file, uint64_t length, int *error)
{
    for (uint64_t offset = 0; offset < length;) {
        *error = 0;
        if (!copy_keep_alive(sender)) {
            return false;
        }
        uint64_t rest = length - offset;
        ssize_t count = pread(file, sender->scratch,
                              rest < COPY_SCRATCH ? (size_t)rest : COPY_SCRATCH, (off_t)offset);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0 || !checksum_add(sender->checksum, sender->scratch, (size_t)count)) {
            *error = count < 0 ? errno : ENOMEM;
            return false;
        }
        if (count == 0) {
            return true; /* the file has become shorter */
        }
        offset += (uint64_t)count;
    }
    return true;
}

/* ------------------------------------------------------------------------------ begin and finish */

bool copy_prepare(struct sender *sender)
{
    struct client *client = &sender->client;
    enum rdmux_status status = rdmux_mr_alloc(client->fabric,
                                              (size_t)COPY_BUFFERS * PROTO_COPY_CHUNK,
                                              RDMUX_ACCESS_LOCAL_WRITE, &sender->mr);
    if (status != RDMUX_OK) {
        client_fail_call(client, "allocate buffers", status);
        return false;
    }
    sender->base = rdmux_mr_addr(sender->mr);
    if (client->info.max_send < PROTO_COPY_CHUNK) {
        client_fail(client, "%s: the connection allows sends of %" PRIu64 " bytes, copy needs %d",
                    client->address, client->info.max_send, PROTO_COPY_CHUNK);
        return false;
    }
    for (unsigned i = 0; i < COPY_RECEIVES; i++) {
        status = rdmux_recv(client->ep, sender->control_in[i], PROTO_CONTROL_MAX, NULL,
                            sender->control_in[i]);
        if (status != RDMUX_OK) {
            client_fail_call(client, "post a receive", status);
            return false;
        }
    }
    struct proto_copy_request request = {
        .checksum = checksum_algorithm,
        .version = PROTO_COPY_VERSION,
        .files = sender->list.files,
        .bytes = sender->list.bytes,
    };
    if (!client_send_control(client,
                             proto_copy_request_encode(&request, client_control_buffer(client)))) {
        return false;
    }
    uint64_t give_up_ns = after_ms(TOOL_CONNECT_TIMEOUT_MS);
    while (sender->version == 0) {
        if (!pump(sender, 1000)) {
            return false;
        }
        if (sender->version == 0 && timer_clock_ns() > give_up_ns) {
            return fail_timeout(sender, "answered", TOOL_CONNECT_TIMEOUT_MS);
        }
    }
    sender->last_flush_ns = timer_clock_ns();
    return true;
}

bool copy_begin(struct sender *sender)
{
    const struct copy_options *options = sender->options;
    size_t target_length = strlen(sender->target);
    size_t name_length = strlen(sender->name);
    uint32_t flags = (name_length > 0 ? PROTO_BEGIN_INTO : 0U) |
                     (options->parents ? PROTO_BEGIN_PARENTS : 0U) |
                     (options->no_clobber ? PROTO_BEGIN_NO_CLOBBER : 0U) |
                     (options->update ? PROTO_BEGIN_UPDATE : 0U);
    uint8_t *payload = copy_add_record(sender, PROTO_RECORD_BEGIN,
                                       PROTO_BEGIN_SIZE + target_length + name_length);
    if (payload == NULL) {
        return false;
    }
    proto_store32(payload, flags);
    memcpy(payload + 4, sender->place.boot_id, PROTO_BOOT_ID_SIZE);
    proto_store64(payload + 20, sender->place.device);
    proto_store64(payload + 28, sender->place.inode);
    proto_store32(payload + 36, (uint32_t)target_length);
    memcpy(payload + PROTO_BEGIN_SIZE, sender->target, target_length);
    memcpy(payload + PROTO_BEGIN_SIZE + target_length, sender->name, name_length);
    return copy_wait_answer(sender, &sender->placed);
}

bool copy_finish(struct sender *sender)
{
    const struct tally *done = &sender->done;
    uint64_t bytes = done->sent_bytes;
    uint8_t *payload = copy_add_record(sender, PROTO_RECORD_END, 16);
    if (payload == NULL) {
        return false;
    }
    proto_store64(payload, done->files);
    proto_store64(payload + 8, bytes);
    if (!copy_flush(sender)) {
        return false;
    }
    uint64_t give_up_ns = after_ms(RESULT_TIMEOUT_MS);
    while (!sender->result_here) {
        if (!pump(sender, 1000)) {
            return false;
        }
        if (!sender->result_here && timer_clock_ns() > give_up_ns) {
            return fail_timeout(sender, "confirmed the copy", RESULT_TIMEOUT_MS);
        }
    }
    if (sender->result.files != done->files || sender->result.bytes != bytes) {
        client_fail(&sender->client, "%s: the server stored %" PRIu64 " files, not %" PRIu64,
                    sender->client.address, sender->result.files, done->files);
        return false;
    }
    return true;
}
