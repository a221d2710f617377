/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Files of copies that were cut off, kept for a while so that their senders can continue them.
 *
 * A kept file is as it was while it was received: open, and without a name where the file system
 * allows that. So it cannot be named by anybody, and the kernel removes it with the process. Only a
 * client of the same origin (address or authenticated identity) gets it back, and only for a file
 * of the same path, size and time.
 *
 * Only one thread may use a park at a time.
 */
#ifndef RDMUX_TOOL_RECEIVER_PARK_H
#define RDMUX_TOOL_RECEIVER_PARK_H

#include "protocol.h"

enum {
    PARK_MAX = 32, /* files, of all origins; beyond, an origin with the most loses its oldest */
    PARK_BYTES_MIN = 1 << 20, /* a shorter beginning is not worth keeping */
    PARK_SECONDS = 3600,
    TEMPORARY_NAME_MAX = 48,
};

struct partial {
    int file;                           /* -1: none */
    int directory;                      /* that of its temporary name; -1: it has no name */
    char temporary[TEMPORARY_NAME_MAX]; /* "": none */
    struct checksum *checksum;          /* of its first `offset` bytes */
    uint64_t offset;
    struct proto_attributes attributes; /* of the source, as the sender has described it */
    char *path;
    char *origin;
    uint64_t since_ns;
};

struct park;

struct park *park_create(void);       /* NULL: out of memory */
void park_destroy(struct park *park); /* drops all files; NULL is allowed */
void partial_drop(struct partial *partial);

/* Keeps the file, or drops it. Either way *partial is empty afterwards. */
void park_keep(struct park *park, struct partial *partial);

/* Hands over the file that was kept for this origin, path, size and time. Returns false if there is
 * none. */
bool park_take(struct park *park, const char *origin, const char *path,
               const struct proto_attributes *attributes, struct partial *out);

/* Drops all files, as their room is needed. Returns false if there were none. */
bool park_clear(struct park *park);

/* Drops the files that have been kept for PARK_SECONDS. */
void park_expire(struct park *park, uint64_t now_ns);

#endif
