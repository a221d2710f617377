/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Internals of `rdmux copy`: copy.c prepares and reports, copy_send.c has the connection and the
 * records, copy_entries.c decides about each entry. */
#ifndef RDMUX_TOOL_COPY_H
#define RDMUX_TOOL_COPY_H

#include "client.h"
#include "copy_source.h"
#include "progress.h"

enum {
    COPY_BUFFERS = 8,
    COPY_RECEIVES = 8,     /* the server sends SERVE_ANSWERS messages of answers, and a result */
    COPY_ASK_AHEAD = 1024, /* entries asked about before they are due */
    COPY_QUESTIONS_MAX = COPY_ASK_AHEAD + 8, /* under way */
    COPY_SCRATCH = 256 << 10,
    COPY_HOLES_MAX = 64 << 20, /* bytes of holes in a message, which take the server time, too */
    COPY_LISTED_MAX = 1000, /* skipped entries that the JSON lists; standard error has them all */
};

/* Why an entry is not sent. */
enum copy_skip {
    SKIP_UNCHANGED,
    SKIP_NEWER,
    SKIP_EXISTING,
    SKIP_SPECIAL, /* neither file, directory nor link, or an unfinished file */
    SKIP_OUTSIDE, /* a link that leads out of the tree */
    SKIP_COUNT,
};

/* What was done. */
struct tally {
    uint64_t files; /* sent */
    uint64_t directories;
    uint64_t links;
    uint64_t hard_links;
    uint64_t skipped[SKIP_COUNT];
    uint64_t failed; /* could not be read */
    uint64_t bytes;  /* of the files sent, however they came about */
    uint64_t sent_bytes;
    uint64_t hole_bytes;
    uint64_t resumed_bytes;
    uint64_t resumed_files;
};

/* A skipped entry in the JSON. */
struct copy_listed {
    enum copy_skip kind;
    char *path; /* below the source; owned */
};

struct copy_resume {
    uint32_t index;
    struct proto_copy_answer answer;
};

struct sender {
    struct client client;
    const struct copy_options *options;
    struct source_list list;

    /* The connection. */
    struct rdmux_mr *mr;
    uint8_t *base;
    bool busy[COPY_BUFFERS];
    unsigned current;
    size_t fill;    /* bytes in the current buffer */
    uint64_t holes; /* bytes of holes in it */
    uint64_t last_flush_ns;
    uint8_t control_in[COPY_RECEIVES][PROTO_CONTROL_MAX];
    uint32_t version; /* 0: the server has not answered */
    bool result_here;
    struct proto_copy_result result;
    uint8_t placed; /* the answer to BEGIN; 0: none yet */

    /* Questions under way, oldest first, as indexes of entries. */
    uint32_t questions[COPY_QUESTIONS_MAX];
    uint32_t oldest_question;
    uint32_t question_count;
    uint32_t asked; /* entries before this one were asked about */
    struct copy_resume resumes[PROTO_RESUMES_MAX];
    unsigned resume_count;
    uint32_t leaders; /* files of which the server was told that links follow */

    struct checksum *checksum;
    uint8_t last_sum[CHECKSUM_SIZE_MAX];
    bool has_sum; /* last_sum is that of the single file */
    uint8_t *scratch;
    struct progress progress;
    uint64_t processed; /* bytes, for the progress */
    struct tally done;
    struct copy_listed listed[COPY_LISTED_MAX];
    size_t listed_count;
    uint64_t unlisted;           /* skipped entries beyond those */
    char target[PROTO_PATH_MAX]; /* path at the receiver of the source */
    char name[PROTO_PATH_MAX];   /* appended to it if it is a directory there; "": never */
    struct proto_place place;    /* of the source */
};

/* copy.c: reports. `path` is below the source, see struct source_listener. */
void copy_tell_failed(struct sender *sender, const char *path, const char *what, int error);
void copy_tell_skipped(struct sender *sender, enum copy_skip kind, const char *path,
                       const char *why);
const char *copy_remedy(int error);

/* copy_send.c: the functions return false after a failure that ends the copy and was printed. */

/* Posts receives and sends the request; the server answers that it is ready or why it is not. */
bool copy_prepare(struct sender *sender);

/* Begins a record with a payload of this length in the current buffer, or in the next one if it
 * does not fit. Returns NULL on failure. */
uint8_t *copy_add_record(struct sender *sender, enum proto_record kind, size_t length);

/* Sends the current buffer and waits until the next one is free. */
bool copy_flush(struct sender *sender);

/* Shows the server from time to time that this side is alive, in a long computation. */
bool copy_keep_alive(struct sender *sender);

/* Sends BEGIN and waits for the answer. */
bool copy_begin(struct sender *sender);

/* Sends END and waits for the result. */
bool copy_finish(struct sender *sender);

/* Waits until *answer is not 0. */
bool copy_wait_answer(struct sender *sender, const uint8_t *answer);

/* Bytes of a file, from an offset to the end, as DATA and HOLE records. On false, *error is 0 if the
 * copy has failed, else the errno of reading. */
bool copy_send_contents(struct sender *sender, int file, uint64_t offset, bool sparse, int *error);

/* Adds the first `length` bytes of a file to the checksum. *error as above. */
bool copy_add_contents(struct sender *sender, int file, uint64_t length, int *error);

/* copy_entries.c: sends all entries of the list. */
bool copy_send_entries(struct sender *sender);

#endif
