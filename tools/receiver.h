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
 * The receiver is independent of rdmux. Only one thread may use it at a time.
 */
#ifndef RDMUX_TOOL_RECEIVER_H
#define RDMUX_TOOL_RECEIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct receiver;

enum { RECEIVER_DEPTH_MAX = 128 }; /* parts of a path */

enum receiver_outcome {
    RECEIVER_MORE,  /* success so far */
    RECEIVER_DONE,  /* END was read and its counts were right */
    RECEIVER_FAILED /* the text has the reason; the unfinished file is removed, calls are refused */
};

/* root: an open directory of the caller's, which must stay open as long as the receiver. Returns
 * NULL if memory is short. */
struct receiver *receiver_create(int root);

/* Removes an unfinished file. NULL is allowed. */
void receiver_destroy(struct receiver *receiver);

/* Returns the reason that forbids a link at `path` to `target`, NULL if there is none. A valid
 * target has leading ".." that stay inside, then names without "..". Each such name lies inside; if
 * it is a link itself, the same holds for its target. */
const char *receiver_check_link(const char *path, const char *target);

/*
 * Processes some of the whole records in a message, for a few milliseconds at most.
 * taken   Bytes processed. The caller passes the rest in further calls, before the next message.
 */
enum receiver_outcome receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length,
                                    size_t *taken);

const char *receiver_error(const struct receiver *receiver); /* "" unless it has failed */
uint64_t receiver_files(const struct receiver *receiver);    /* files finished */
uint64_t receiver_bytes(const struct receiver *receiver);    /* bytes written */

#endif
