/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The receiving end of a copy: takes records (protocol.h) and writes files below one directory,
 * never outside it.
 *
 * Paths are checked part by part. Every directory on the way is opened without following symbolic
 * links, whatever their origin. So neither the sender nor the directory's contents can lead a write
 * outside. A link is made only if it is relative and any ".." in it are leading and stay inside.
 * Permission bits are kept; set-user-id and similar bits are not.
 *
 * A file is written without a name (O_TMPFILE), or under a random name if the file system does not
 * support that. It gets its name when its checksum is right, so no other receiver for the same
 * directory can name it earlier. It counts as stored only if the name then leads to this very file.
 *
 * In a copy of version 2 (protocol.h) the sender first asks which entries it has to send. The answers
 * tell it whether a file of a path, size, time and mode is there, or one with a checksum, and nothing
 * more about contents. Mode and time of a file that stays, and its hard links, are changed only for a
 * sender that has shown its contents by their checksum, or has sent them. A file that is cut off is
 * kept for its sender (receiver_park.h).
 *
 * The receiver is independent of rdmux. Only one thread may use it at a time.
 */
#ifndef RDMUX_TOOL_RECEIVER_H
#define RDMUX_TOOL_RECEIVER_H

#include "protocol.h"

#include <sys/stat.h>

struct receiver;
struct park;

enum { RECEIVER_DEPTH_MAX = 128 }; /* parts of a path */

enum receiver_outcome {
    RECEIVER_MORE,  /* success so far */
    RECEIVER_DONE,  /* END was read and its counts were right */
    RECEIVER_FAILED /* the text has the reason; the unfinished file is removed, calls are refused */
};

/* root: an open directory of the caller's, which must stay open as long as the receiver. Returns
 * NULL if memory is short. */
struct receiver *receiver_create(int root);

/* Makes the receiver take a copy of version 2. It keeps and continues unfinished files in `park`,
 * which may be NULL, for senders of this origin. Returns false if memory is short. */
bool receiver_use_version_2(struct receiver *receiver, struct park *park, const char *origin);

/* Removes an unfinished file, or lets the park keep it if the receiver has not failed. NULL is allowed. */
void receiver_destroy(struct receiver *receiver);

/* Returns the reason that forbids a link at `path` to `target`, NULL if there is none. A valid
 * target has leading ".." that stay inside, then names without "..". Each such name lies inside; if
 * it is a link itself, the same holds for its target. */
const char *receiver_check_link(const char *path, const char *target);

/*
 * Processes some of the whole records in a message, for a few milliseconds at most.
 * taken   Bytes processed, which may be 0 while contents are compared, or while there is no room
 *         for answers. The caller passes the rest in further calls, before the next message.
 */
enum receiver_outcome receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length,
                                    size_t *taken);

/* Answers that the caller has to send to the sender, in COPY_ANSWER messages; *length is 0 if there
 * are none. They are valid until receiver_forget_answers() or receiver_take(). */
const uint8_t *receiver_answers(const struct receiver *receiver, size_t *length);
void receiver_forget_answers(struct receiver *receiver); /* they were sent */
bool receiver_has_room(const struct receiver *receiver); /* for one more answer */

/* Describes where a file or directory is. */
void receiver_place_of(const struct stat *status, struct proto_place *out);

const char *receiver_error(const struct receiver *receiver); /* "" unless it has failed */
uint64_t receiver_files(const struct receiver *receiver);    /* files finished */
uint64_t receiver_bytes(const struct receiver *receiver);    /* bytes written */

#endif
