/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of the receiver. receiver.c takes the records, receiver_path.c has paths and names,
 * receiver_file.c writes files, receiver_ask.c answers questions. */
#ifndef RDMUX_TOOL_RECEIVER_INTERNAL_H
#define RDMUX_TOOL_RECEIVER_INTERNAL_H

#include "receiver.h"
#include "receiver_park.h"
#include "tool.h"

#include <sys/stat.h>

enum {
    MODE_MASK = 0777, /* without set-user-id, set-group-id and sticky bits */

    /* Cost of records, and the limit of one call of receiver_take(), which is some milliseconds at
     * most. */
    COST_RECORD = 1, /* and once more for each directory opened */
    COST_ENTRY = 4,  /* for creating, renaming or looking up an entry */
    COST_MAX = 256,
    COST_BYTES_SHIFT = 12, /* one unit for 4 KiB of data */
};

/* A file that HARD_LINK may name. */
struct leader {
    dev_t device;
    ino_t inode;
};

struct receiver {
    int root;
    unsigned version; /* of the copy */
    bool begun;       /* version 2: BEGIN was taken */
    bool failed;
    char error[PROTO_TEXT_MAX];
    uint64_t files;
    uint64_t bytes;
    unsigned cost; /* cost so far of this call of receiver_take() */

    /* The directory used last, so that many files in it need no lookup of each part of the path. */
    int directory; /* -1: none */
    char directory_path[PROTO_PATH_MAX];

    /* The file being written; -1: none. It has no name, or a temporary name in file_directory if
     * the file system does not support files without one. */
    int file;
    int file_directory; /* a descriptor of its own, not the cached one */
    struct proto_attributes file_attributes;
    uint64_t file_offset;
    bool file_ends_in_hole; /* its length may be less than file_offset */
    char file_path[PROTO_PATH_MAX];
    char temporary[TEMPORARY_NAME_MAX]; /* "": none */
    struct checksum *checksum;

    /* Version 2. */
    uint32_t flags; /* of BEGIN */
    struct park *park;
    char *origin;
    struct partial promised[PROTO_RESUMES_MAX]; /* offered by an answer */
    unsigned promised_count;
    struct leader *leaders;
    size_t leader_count;
    size_t leader_room;
    int compared; /* the file whose contents are compared; -1: none */
    struct checksum *compared_checksum;
    uint8_t answers[PROTO_ANSWERS_MAX]; /* not sent yet */
    size_t answers_length;
};

/* receiver.c: both mark the receiver as failed and return RECEIVER_FAILED. */
enum receiver_outcome receiver_fail(struct receiver *receiver, const char *format, ...)
    TOOL_PRINTF(2, 3);
enum receiver_outcome receiver_fail_errno(struct receiver *receiver, const char *what,
                                          const char *path, int error);

/* receiver_path.c: copies a path out of a message and refuses paths that could lead outside.
 * Returns NULL if the path is valid, else the problem. */
const char *receiver_read_path(const uint8_t *bytes, size_t length, char out[PROTO_PATH_MAX]);

/* Copies what a link contains. */
const char *receiver_read_target(const uint8_t *bytes, size_t length, char out[PROTO_PATH_MAX]);

const char *receiver_name_of(const char *path); /* the last part */
const char *receiver_tail_of(const char *path); /* for error texts: the end of a long path */

/* Opens one directory of a path without following symbolic links. Returns -1 with errno set on
 * failure. */
int receiver_open_part(int parent, const char *name);

/* Makes receiver->directory the directory that holds `path`. Returns false with errno set on
 * failure. */
bool receiver_enter_parent(struct receiver *receiver, const char *path);
void receiver_forget_directory(struct receiver *receiver);

/* Makes a name that nobody can predict. Returns false with errno set on failure. */
bool receiver_temporary_name(char out[TEMPORARY_NAME_MAX]);

/* Gives the entry `temporary` of a directory its name, by the rule of PROTO_BEGIN_NO_CLOBBER.
 * Returns false with errno set on failure; the temporary name is then still there. */
bool receiver_store_name(const struct receiver *receiver, int directory, const char *temporary,
                         const char *name);

/* receiver_file.c: the file being written. */
enum receiver_outcome receiver_begin_file(struct receiver *receiver,
                                          const struct proto_attributes *attributes,
                                          uint64_t offset, const char *path);
enum receiver_outcome receiver_write(struct receiver *receiver, const uint8_t *bytes, size_t length);
enum receiver_outcome receiver_add_hole(struct receiver *receiver, uint64_t length);
enum receiver_outcome receiver_end_file(struct receiver *receiver, const uint8_t *expected);
void receiver_abandon_file(struct receiver *receiver);
void receiver_keep_file(struct receiver *receiver); /* for its sender, if that is possible */

/* Sets the time of an open file or directory. */
bool receiver_set_time(int file, const struct proto_attributes *attributes);

bool receiver_add_leader(struct receiver *receiver, const struct stat *status);
bool receiver_has_leader(const struct receiver *receiver, const struct stat *status);

/* receiver_ask.c: BEGIN and ASK. */
enum receiver_outcome receiver_begin(struct receiver *receiver, const uint8_t *payload,
                                     size_t length);
enum receiver_outcome receiver_ask(struct receiver *receiver, const uint8_t *payload, size_t length);

/* Continues the comparison of contents that receiver_ask() has begun with this record. */
enum receiver_outcome receiver_compare(struct receiver *receiver, const uint8_t *payload,
                                       size_t length);

#endif
