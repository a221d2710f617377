/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * What a copy does about each entry of the source.
 *
 * In version 2 the server is asked about the entries some way ahead, so a tree that is there already
 * costs one round trip for hundreds of files. The answers decide what is sent.
 */
#include "copy.h"

#include "receiver.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* An answer that no server gives: the entry is dealt with, nothing is to be sent. */
enum { ANSWER_SETTLED = 255 };

static struct source_entry *entry_at(struct sender *sender, uint32_t index)
{
    return &sender->list.entries[index];
}

static void tell_failed(struct sender *sender, uint32_t index, const char *what, int error)
{
    char path[PROTO_PATH_MAX];
    (void)source_path(&sender->list, index, path, sizeof(path));
    copy_tell_failed(sender, path, what, error);
}

static void tell_skipped(struct sender *sender, uint32_t index, enum copy_skip kind, const char *why)
{
    char path[PROTO_PATH_MAX];
    (void)source_path(&sender->list, index, path, sizeof(path));
    copy_tell_skipped(sender, kind, path, why);
}

/* Writes the path at the receiver. Returns its length, 0 after a failure that ends the copy. */
static size_t far_path(struct sender *sender, uint32_t index, char out[PROTO_PATH_MAX])
{
    size_t length = strlen(sender->target);
    memcpy(out, sender->target, length);
    length += source_path(&sender->list, index, out + length, PROTO_PATH_MAX - length);
    if (length >= PROTO_PATH_MAX) {
        progress_clear(&sender->progress);
        client_fail(&sender->client, "cannot send \"%s%.3000s\": %s%s", sender->options->source,
                    out + strlen(sender->target), strerror(ENAMETOOLONG),
                    copy_remedy(ENAMETOOLONG));
        return 0;
    }
    return length;
}

/* -------------------------------------------------------------------------------------- records */

/* FILE, DIRECTORY and DIRECTORY_END. */
static bool add_entry(struct sender *sender, enum proto_record kind, uint32_t mode, uint32_t index)
{
    char path[PROTO_PATH_MAX];
    size_t length = far_path(sender, index, path);
    uint8_t *payload = length > 0 ? copy_add_record(sender, kind, 4 + length) : NULL;
    if (payload == NULL) {
        return false;
    }
    proto_store32(payload, mode);
    memcpy(payload + 4, path, length);
    return true;
}

/* FILE_AT with an offset, and DIRECTORY_DONE. */
static bool add_dated_entry(struct sender *sender, enum proto_record kind,
                            const struct proto_attributes *attributes, uint64_t offset,
                            uint32_t index)
{
    char path[PROTO_PATH_MAX];
    size_t fixed = kind == PROTO_RECORD_FILE_AT ? PROTO_FILE_AT_SIZE : PROTO_ATTRIBUTES_SIZE;
    size_t length = far_path(sender, index, path);
    uint8_t *payload = length > 0 ? copy_add_record(sender, kind, fixed + length) : NULL;
    if (payload == NULL) {
        return false;
    }
    proto_attributes_encode(attributes, payload);
    if (kind == PROTO_RECORD_FILE_AT) {
        proto_store64(payload + PROTO_ATTRIBUTES_SIZE, offset);
    }
    memcpy(payload + fixed, path, length);
    return true;
}

/* The end of a record with two texts. Their lengths are elsewhere in it. */
static void put_texts(uint8_t *out, const char *path, size_t length, const char *other,
                      size_t other_length)
{
    memcpy(out, path, length);
    memcpy(out + length, other, other_length);
}

/* LINK, LINK_AT and HARD_LINK: with attributes if they are not NULL. */
static bool add_link(struct sender *sender, enum proto_record kind,
                     const struct proto_attributes *attributes, uint32_t index, const char *other)
{
    char path[PROTO_PATH_MAX];
    size_t fixed = attributes != NULL ? PROTO_LINK_AT_SIZE : 4;
    size_t other_length = strlen(other);
    size_t length = far_path(sender, index, path);
    uint8_t *payload = length > 0 ? copy_add_record(sender, kind, fixed + length + other_length)
                                  : NULL;
    if (payload == NULL) {
        return false;
    }
    if (attributes != NULL) {
        proto_attributes_encode(attributes, payload);
    }
    proto_store32(payload + fixed - 4, (uint32_t)length);
    put_texts(payload + fixed, path, length, other, other_length);
    return true;
}

static bool add_question(struct sender *sender, enum proto_ask kind, uint32_t index,
                         const uint8_t *checksum, const char *other)
{
    char path[PROTO_PATH_MAX];
    size_t other_length = strlen(other);
    size_t length = far_path(sender, index, path);
    uint8_t *payload = length > 0 ? copy_add_record(sender, PROTO_RECORD_ASK,
                                                    PROTO_ASK_SIZE + length + other_length)
                                  : NULL;
    if (payload == NULL) {
        return false;
    }
    struct source_entry *entry = entry_at(sender, index);
    memset(payload, 0, PROTO_ASK_SIZE);
    proto_attributes_encode(&entry->attributes, payload);
    proto_store32(payload + PROTO_ATTRIBUTES_SIZE, (uint32_t)kind);
    proto_store32(payload + PROTO_ATTRIBUTES_SIZE + 4, (uint32_t)length);
    if (checksum != NULL) {
        memcpy(payload + PROTO_ATTRIBUTES_SIZE + 8, checksum, CHECKSUM_SIZE_MAX);
    }
    put_texts(payload + PROTO_ASK_SIZE, path, length, other, other_length);
    entry->answer = 0;
    sender->questions[(sender->oldest_question + sender->question_count++) %
                      COPY_QUESTIONS_MAX] = index;
    return true;
}

/* ------------------------------------------------------------------------------------ questions */

/* Tells the server that links to the file follow, if it can remember one more. */
static void announce_links(struct sender *sender, uint32_t index)
{
    struct source_entry *entry = entry_at(sender, index);
    entry->attributes.flags = 0;
    if (entry->linked && sender->leaders < PROTO_LEADERS_MAX) {
        entry->attributes.flags = PROTO_ENTRY_LINKED;
        sender->leaders++;
    }
}

/* Computes the checksum of a file. *settled: it could not be read, which was told. */
static bool compute_checksum(struct sender *sender, uint32_t index, uint8_t out[CHECKSUM_SIZE_MAX],
                             bool *settled)
{
    int error = ENOMEM;
    *settled = false;
    int file = source_open(&sender->list, index);
    if (file < 0) {
        *settled = true;
        tell_failed(sender, index, "open", errno);
        return true;
    }
    bool good = checksum_begin(sender->checksum) &&
                copy_add_contents(sender, file, UINT64_MAX, &error) &&
                checksum_end(sender->checksum, out);
    close(file);
    if (!good && error != 0) {
        *settled = true;
        tell_failed(sender, index, "read", error);
        return true;
    }
    return good;
}

static bool ask_contents(struct sender *sender, uint32_t index)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    bool settled = false;
    if (!compute_checksum(sender, index, sum, &settled)) {
        return false;
    }
    if (settled) {
        entry_at(sender, index)->answer = ANSWER_SETTLED;
        return true;
    }
    announce_links(sender, index);
    if (sender->list.root < 0) {
        memcpy(sender->last_sum, sum, sizeof(sum));
        sender->has_sum = true;
    }
    return add_question(sender, PROTO_ASK_CONTENTS, index, sum, "");
}

static bool ask_file(struct sender *sender, uint32_t index)
{
    return sender->options->checksum ? ask_contents(sender, index)
                                     : add_question(sender, PROTO_ASK_FILE, index, NULL, "");
}

/* Reads a link and checks that it may be copied. *settled: it may not, or cannot be read, which was
 * told. Returns false after a failure that ends the copy. */
static bool read_link(struct sender *sender, uint32_t index, char target[PROTO_PATH_MAX],
                      bool *settled)
{
    char path[PROTO_PATH_MAX];
    *settled = true;
    if (far_path(sender, index, path) == 0) {
        return false;
    }
    if (source_read_link(&sender->list, index, target) < 0) {
        tell_failed(sender, index, "read the link", errno);
        return true;
    }
    const char *wrong = receiver_check_link(path, target);
    if (wrong != NULL) {
        tell_skipped(sender, index, SKIP_OUTSIDE, wrong);
        return true;
    }
    *settled = false;
    return true;
}

static bool ask_link(struct sender *sender, uint32_t index)
{
    char target[PROTO_PATH_MAX];
    bool settled = false;
    if (!read_link(sender, index, target, &settled)) {
        return false;
    }
    if (settled) {
        entry_at(sender, index)->answer = ANSWER_SETTLED;
        return true;
    }
    return add_question(sender, PROTO_ASK_LINK, index, NULL, target);
}

static bool ask(struct sender *sender, uint32_t index)
{
    const struct source_entry *entry = entry_at(sender, index);
    char first[PROTO_PATH_MAX];
    if (entry->kind == SOURCE_LINK) {
        return ask_link(sender, index);
    }
    if (entry->kind != SOURCE_FILE) {
        return true;
    }
    if (entry->first == index) {
        return ask_file(sender, index);
    }
    size_t length = far_path(sender, entry->first, first);
    if (length == 0) {
        return false;
    }
    first[length] = '\0';
    return add_question(sender, PROTO_ASK_SAME, index, NULL, first);
}

/* Asks about further entries once half of those asked about are dealt with. */
static bool ask_ahead(struct sender *sender, uint32_t index)
{
    if (sender->asked > index + COPY_ASK_AHEAD / 2 || sender->asked == sender->list.count) {
        return true;
    }
    while (sender->asked < sender->list.count && sender->asked - index < COPY_ASK_AHEAD) {
        if (!ask(sender, sender->asked)) {
            return false;
        }
        sender->asked++;
    }
    return copy_flush(sender);
}

/* ---------------------------------------------------------------------------------------- files */

/* Takes the offer to continue the file out of the table. Returns false if there is none. */
static bool take_resume(struct sender *sender, uint32_t index, struct proto_copy_answer *out)
{
    for (unsigned i = 0; i < sender->resume_count; i++) {
        if (sender->resumes[i].index == index) {
            *out = sender->resumes[i].answer;
            sender->resumes[i] = sender->resumes[--sender->resume_count];
            return true;
        }
    }
    return false;
}

/* Compares the beginning of the file with what the server has of it. Sets *offset to where the file
 * is to be continued: 0 if they differ. The checksum then has the bytes before it. */
static bool find_offset(struct sender *sender, int file, const struct proto_copy_answer *resume,
                        uint64_t *offset, int *error)
{
    uint8_t sum[CHECKSUM_SIZE_MAX];
    *offset = 0;
    *error = ENOMEM;
    if (!checksum_begin(sender->checksum) ||
        !copy_add_contents(sender, file, resume->offset, error)) {
        return false;
    }
    *error = ENOMEM;
    if (!checksum_peek(sender->checksum, sum)) {
        return false;
    }
    if (memcmp(sum, resume->checksum, sizeof(sum)) == 0) {
        *offset = resume->offset;
        return true;
    }
    return checksum_begin(sender->checksum);
}

static bool add_file_end(struct sender *sender)
{
    uint8_t *payload = copy_add_record(sender, PROTO_RECORD_FILE_END, CHECKSUM_SIZE_MAX);
    if (payload == NULL) {
        return false;
    }
    if (!checksum_end(sender->checksum, sender->last_sum)) {
        client_fail(&sender->client, "cannot compute a checksum: out of memory");
        return false;
    }
    memcpy(payload, sender->last_sum, CHECKSUM_SIZE_MAX);
    sender->has_sum = sender->list.root < 0;
    sender->done.files++;
    return true;
}

/* A file could not be read to its end. */
static bool cancel(struct sender *sender, uint32_t index, int error)
{
    if (error == 0) {
        return false;
    }
    tell_failed(sender, index, "read", error);
    if (sender->version < 2) {
        client_fail(&sender->client, "the server is of an older version, which cannot leave out a "
                                     "file that has begun; the copy ends here");
        return false;
    }
    return copy_add_record(sender, PROTO_RECORD_FILE_CANCEL, 0) != NULL;
}

/* Adds the record that begins the file. Returns false on failure; *error as in copy.h. */
static bool begin_file(struct sender *sender, uint32_t index, int file, uint64_t *offset, int *error)
{
    struct source_entry *entry = entry_at(sender, index);
    const struct proto_attributes asked = entry->attributes;
    struct stat status;
    *offset = 0;
    if (fstat(file, &status) != 0) {
        *error = errno;
        return false;
    }
    if (!S_ISREG(status.st_mode)) {
        *error = EINVAL; /* something else has replaced it */
        return false;
    }
    source_attributes(&status, &entry->attributes);
    announce_links(sender, index);
    bool changed = asked.size != entry->attributes.size ||
                   asked.seconds != entry->attributes.seconds ||
                   asked.nanoseconds != entry->attributes.nanoseconds;
    struct proto_copy_answer resume = { .offset = 0 };
    bool offered = take_resume(sender, index, &resume);
    *error = ENOMEM;
    if (offered && !changed && resume.offset <= entry->attributes.size) {
        if (!find_offset(sender, file, &resume, offset, error)) {
            return false;
        }
    } else if (!checksum_begin(sender->checksum)) {
        return false;
    }
    *error = 0;
    return sender->version < 2
               ? add_entry(sender, PROTO_RECORD_FILE, entry->attributes.mode, index)
               : add_dated_entry(sender, PROTO_RECORD_FILE_AT, &entry->attributes, *offset, index);
}

static void tell_resumed(struct sender *sender, uint32_t index, uint64_t offset)
{
    sender->done.resumed_files++;
    sender->done.resumed_bytes += offset;
    sender->processed += offset;
    if (sender->options->verbose) {
        char path[PROTO_PATH_MAX];
        (void)source_path(&sender->list, index, path, sizeof(path));
        progress_clear(&sender->progress);
        tool_notice(sender->client.command, "continued \"%s%s\" behind %" PRIu64 " bytes",
                    sender->options->source, path, offset);
    }
}

static bool send_open_file(struct sender *sender, uint32_t index, int file)
{
    struct source_entry *entry = entry_at(sender, index);
    uint64_t offset = 0;
    int error = 0;
    if (!begin_file(sender, index, file, &offset, &error)) {
        if (error != 0) {
            tell_failed(sender, index, "read", error);
        }
        return error != 0;
    }
    if (offset > 0) {
        tell_resumed(sender, index, offset);
    }
    const struct tally before = sender->done;
    bool sparse = sender->version >= 2 && entry->sparse;
    if (!copy_send_contents(sender, file, offset, sparse, &error)) {
        return cancel(sender, index, error);
    }
    sender->done.bytes += offset + sender->done.sent_bytes - before.sent_bytes +
                          sender->done.hole_bytes - before.hole_bytes;
    entry->state = entry->attributes.flags != 0 ? SOURCE_SENT : SOURCE_LEFT_OUT;
    return add_file_end(sender);
}

static bool send_file(struct sender *sender, uint32_t index)
{
    int file = source_open(&sender->list, index);
    if (file < 0) {
        struct proto_copy_answer unused;
        tell_failed(sender, index, "open", errno);
        (void)take_resume(sender, index, &unused);
        return true;
    }
    bool good = send_open_file(sender, index, file);
    close(file);
    return good;
}

/* Counts and tells an entry that stays as it is, by the answer. */
static void leave_entry(struct sender *sender, uint32_t index)
{
    const struct source_entry *entry = entry_at(sender, index);
    sender->processed += entry->attributes.size;
    switch (entry->answer) {
    case PROTO_ANSWER_UNCHANGED:
        tell_skipped(sender, index, SKIP_UNCHANGED, "it is there unchanged");
        break;
    case PROTO_ANSWER_NEWER:
        tell_skipped(sender, index, SKIP_NEWER, "what is there is newer (--update)");
        break;
    case PROTO_ANSWER_EXISTS:
        tell_skipped(sender, index, SKIP_EXISTING, "something is there (--no-clobber)");
        break;
    default:
        break; /* told already */
    }
}

static bool is_to_be_sent(const struct source_entry *entry)
{
    return entry->answer == PROTO_ANSWER_SEND || entry->answer == PROTO_ANSWER_RESUME;
}

/* A file that is asked about by itself. */
static bool do_file(struct sender *sender, uint32_t index)
{
    struct source_entry *entry = entry_at(sender, index);
    if (!copy_wait_answer(sender, &entry->answer)) {
        return false;
    }
    if (is_to_be_sent(entry)) {
        return send_file(sender, index);
    }
    if (entry->answer == PROTO_ANSWER_UNCHANGED) {
        entry->state = entry->attributes.flags != 0 ? SOURCE_SHOWN : SOURCE_UNCHANGED;
    }
    leave_entry(sender, index);
    return true;
}

/* Shows the server the contents of a file that is there unchanged, as it makes links to no others. */
static bool show_contents(struct sender *sender, uint32_t index)
{
    struct source_entry *entry = entry_at(sender, index);
    uint8_t answer = entry->answer;
    if (!ask_contents(sender, index) || !copy_wait_answer(sender, &entry->answer)) {
        return false;
    }
    if (entry->answer == PROTO_ANSWER_UNCHANGED && entry->attributes.flags != 0) {
        entry->state = SOURCE_SHOWN;
    }
    entry->answer = answer;
    return true;
}

/* A further name of a file. */
static bool do_hard_link(struct sender *sender, uint32_t index)
{
    struct source_entry *entry = entry_at(sender, index);
    struct source_entry *first = entry_at(sender, entry->first);
    struct source_entry *current = entry_at(sender, first->current);
    if (!copy_wait_answer(sender, &entry->answer)) {
        return false;
    }
    bool there = entry->answer == PROTO_ANSWER_UNCHANGED && current == first;
    if ((there && current->state != SOURCE_SENT) || entry->answer == PROTO_ANSWER_NEWER ||
        entry->answer == PROTO_ANSWER_EXISTS) {
        leave_entry(sender, index);
        return true;
    }
    if (current->state == SOURCE_UNCHANGED && !show_contents(sender, first->current)) {
        return false;
    }
    if (current->state == SOURCE_SHOWN || current->state == SOURCE_SENT) {
        char path[PROTO_PATH_MAX];
        size_t length = far_path(sender, first->current, path);
        if (length == 0 || !add_link(sender, PROTO_RECORD_HARD_LINK, NULL, index, path)) {
            return false;
        }
        sender->done.hard_links++;
        sender->processed += entry->attributes.size;
        return true;
    }
    /* The names before this one were left out. */
    first->current = index;
    return ask_file(sender, index) && do_file(sender, index);
}

static bool do_link(struct sender *sender, uint32_t index)
{
    struct source_entry *entry = entry_at(sender, index);
    char target[PROTO_PATH_MAX];
    bool settled = false;
    if (!copy_wait_answer(sender, &entry->answer)) {
        return false;
    }
    if (!is_to_be_sent(entry)) {
        leave_entry(sender, index);
        return true;
    }
    if (!read_link(sender, index, target, &settled) || settled) {
        return settled && !sender->client.failed;
    }
    sender->done.links++;
    return sender->version < 2
               ? add_link(sender, PROTO_RECORD_LINK, NULL, index, target)
               : add_link(sender, PROTO_RECORD_LINK_AT, &entry->attributes, index, target);
}

static bool do_entry(struct sender *sender, uint32_t index)
{
    const struct source_entry *entry = entry_at(sender, index);
    switch (entry->kind) {
    case SOURCE_FILE:
        return entry->first == index || sender->version < 2 ? do_file(sender, index)
                                                            : do_hard_link(sender, index);
    case SOURCE_LINK:
        return do_link(sender, index);
    case SOURCE_DIRECTORY:
        sender->done.directories++;
        return add_entry(sender, PROTO_RECORD_DIRECTORY, entry->attributes.mode, index);
    default:
        return sender->version < 2
                   ? add_entry(sender, PROTO_RECORD_DIRECTORY_END, entry->attributes.mode, index)
                   : add_dated_entry(sender, PROTO_RECORD_DIRECTORY_DONE, &entry->attributes, 0,
                                     index);
    }
}

bool copy_send_entries(struct sender *sender)
{
    for (uint32_t index = 0; index < sender->list.count; index++) {
        if (sender->version < 2) {
            entry_at(sender, index)->answer = PROTO_ANSWER_SEND;
        } else if (!ask_ahead(sender, index)) {
            return false;
        }
        if (!do_entry(sender, index)) {
            return false;
        }
    }
    return true;
}
