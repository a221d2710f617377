/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The far end of a copy: takes records (protocol.h) and writes files below one directory, never
 * outside it.
 *
 * Paths are checked part by part and every directory on the way is opened without following
 * symbolic links, whoever made them, so neither the sender nor what lies in the directory can lead
 * a write outside. A link is made only if it is relative and begins with as many ".." as stay
 * inside, none later. Permission bits are kept, set-user-id and the like are not.
 *
 * A file is written without a name (O_TMPFILE), or where the file system has no such files under a
 * random one, and gets its name when its checksum is right. So no other receiver for the same
 * directory can name it before. It counts as stored only if the name then leads to this very file.
 *
 * Knows nothing of rdmux: bytes come in, files come out. One thread at a time.
 */
#ifndef RDMUX_TOOL_RECEIVER_H
#define RDMUX_TOOL_RECEIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct receiver;

enum { RECEIVER_DEPTH_MAX = 128 }; /* parts of a path */

enum receiver_outcome {
    RECEIVER_MORE,  /* all is well so far */
    RECEIVER_DONE,  /* END was read and its counts were right */
    RECEIVER_FAILED /* the text tells why; the unfinished file is gone, the receiver takes no more */
};

/* root: the directory, open, the caller's; stays open as long as the receiver. NULL: no memory. */
struct receiver *receiver_create(int root);

/* Removes an unfinished file. NULL is allowed. */
void receiver_destroy(struct receiver *receiver);

/* What forbids a link at `path` to `target`, NULL if nothing does. It may have leading ".." that
 * stay inside, then names without "..": each such name lies inside, and if it is a link itself the
 * same holds for that one. */
const char *receiver_check_link(const char *path, const char *target);

/*
 * Takes some of the whole records in a message, so many that it takes a few milliseconds at most.
 * taken   Bytes of them. The caller gives the rest by further calls, before the next message.
 */
enum receiver_outcome receiver_take(struct receiver *receiver, const uint8_t *bytes, size_t length,
                                    size_t *taken);

const char *receiver_error(const struct receiver *receiver); /* "" unless it has failed */
uint64_t receiver_files(const struct receiver *receiver);    /* finished */
uint64_t receiver_bytes(const struct receiver *receiver);    /* written */

#endif
