/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* What a copy has to send: a list of the entries of a file or a tree, in the order in which they
 * are sent, sorted by name in each directory. No link is followed but the source itself. */
#ifndef RDMUX_TOOL_COPY_SOURCE_H
#define RDMUX_TOOL_COPY_SOURCE_H

#include "protocol.h"

#include <sys/stat.h>
#include <sys/types.h>

enum source_kind {
    SOURCE_FILE,
    SOURCE_LINK,
    SOURCE_DIRECTORY,
    SOURCE_DIRECTORY_END, /* its parent is the directory */
};

/* What the receiver has of an entry, once it was dealt with. */
enum source_state {
    SOURCE_LEFT_OUT,  /* nothing that links could be made to */
    SOURCE_UNCHANGED, /* the file, by its size and time */
    SOURCE_SHOWN,     /* the file, by its contents */
    SOURCE_SENT,
};

struct source_entry {
    size_t name; /* offset in the list's names */
    uint32_t parent;
    uint32_t first; /* the first entry of the same file (hard link); its own index if it is that */
    uint32_t current; /* of a first entry: the one that links are made to */
    uint8_t kind;     /* enum source_kind */
    uint8_t state;    /* enum source_state */
    uint8_t answer;   /* enum proto_answer; 0: none yet */
    bool linked;      /* the list has other names of the file */
    bool sparse;
    struct proto_attributes attributes;
};

/* Told of entries that are not in the list. `path` begins with a slash, or is empty for the source
 * itself. */
struct source_listener {
    void (*failed)(void *user, const char *path, const char *what, int error);
    void (*special)(void *user, const char *path, const char *why);
    void *user;
};

struct source_list {
    const char *source;
    const struct source_listener *listener;
    struct source_entry *entries;
    uint32_t count;
    uint32_t room;
    char *names;
    size_t names_length;
    size_t names_room;
    struct source_link *links; /* while the list is made */
    size_t link_count;
    size_t link_room;
    int root;      /* the source, if it is a directory; else -1 */
    int directory; /* the directory opened last; -1: none */
    uint32_t directory_index;
    uint64_t files;
    uint64_t bytes;
};

/* Makes the list of a source whose status is `status`. Returns false with errno set on failure;
 * source_list_free() is due in any case. */
bool source_list_make(struct source_list *list, const char *source, const struct stat *status,
                      const struct source_listener *listener);
void source_list_free(struct source_list *list);

/* Writes the path of an entry below the source, see struct source_listener. Returns its length, 0
 * for the source itself, and size or more if it does not fit. */
size_t source_path(const struct source_list *list, uint32_t index, char *out, size_t size);

/* Opens a file for reading, without following a link that has replaced a part of its path. Returns
 * -1 with errno set on failure. */
int source_open(struct source_list *list, uint32_t index);

/* Reads a symbolic link. Returns its length, or -1 with errno set. */
ssize_t source_read_link(struct source_list *list, uint32_t index, char out[PROTO_PATH_MAX]);

void source_attributes(const struct stat *status, struct proto_attributes *out);

#endif
