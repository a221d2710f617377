/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "copy_source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file with several names. */
struct source_link {
    dev_t device;
    ino_t inode;
    uint32_t index;
};

void source_attributes(const struct stat *status, struct proto_attributes *out)
{
    *out = (struct proto_attributes){
        .mode = (uint32_t)status->st_mode & 07777,
        .size = S_ISREG(status->st_mode) ? (uint64_t)status->st_size : 0,
        .seconds = status->st_mtim.tv_sec,
        .nanoseconds = (uint32_t)status->st_mtim.tv_nsec,
    };
}

/* Makes room for one more element, at least. Returns NULL with errno set on failure. */
static void *grow(void *array, size_t *room, size_t needed, size_t element)
{
    if (needed <= *room) {
        return array;
    }
    size_t more = *room < 512 ? 1024 : 2 * *room;
    more = more < needed ? needed : more;
    void *grown = realloc(array, more * element);
    if (grown != NULL) {
        *room = more;
    }
    return grown;
}

static bool keep_name(struct source_list *list, const char *name, size_t *out)
{
    size_t length = strlen(name) + 1;
    char *names = grow(list->names, &list->names_room, list->names_length + length, 1);
    if (names == NULL) {
        return false;
    }
    list->names = names;
    memcpy(names + list->names_length, name, length);
    *out = list->names_length;
    list->names_length += length;
    return true;
}

static bool keep_link(struct source_list *list, const struct stat *status, uint32_t index)
{
    struct source_link *links = grow(list->links, &list->link_room, list->link_count + 1,
                                     sizeof(*links));
    if (links == NULL) {
        return false;
    }
    list->links = links;
    links[list->link_count++] = (struct source_link){
        .device = status->st_dev,
        .inode = status->st_ino,
        .index = index,
    };
    return true;
}

/* Appends an entry. name: NULL takes none. Returns false with errno set on failure. */
static bool append(struct source_list *list, enum source_kind kind, uint32_t parent,
                   const char *name, const struct stat *status)
{
    size_t room = list->room;
    if (list->count == UINT32_MAX - 1) {
        errno = EOVERFLOW;
        return false;
    }
    struct source_entry *entries = grow(list->entries, &room, (size_t)list->count + 1,
                                        sizeof(*entries));
    if (entries == NULL) {
        return false;
    }
    list->entries = entries;
    list->room = room > UINT32_MAX ? UINT32_MAX : (uint32_t)room;
    uint32_t index = list->count;
    struct source_entry *entry = &entries[index];
    *entry = (struct source_entry){
        .parent = parent,
        .first = index,
        .current = index,
        .kind = (uint8_t)kind,
        .sparse = kind == SOURCE_FILE && status->st_blocks < status->st_size / 512,
    };
    source_attributes(status, &entry->attributes);
    if (name != NULL && !keep_name(list, name, &entry->name)) {
        return false;
    }
    if (kind == SOURCE_FILE) {
        list->files++;
        list->bytes += entry->attributes.size;
        if (status->st_nlink > 1 && !keep_link(list, status, index)) {
            return false;
        }
    }
    list->count++;
    return true;
}

size_t source_path(const struct source_list *list, uint32_t index, char *out, size_t size)
{
    const struct source_entry *entry = &list->entries[index];
    if (index == 0) {
        out[0] = '\0';
        return 0;
    }
    size_t length = source_path(list, entry->parent, out, size);
    if (entry->kind == SOURCE_DIRECTORY_END || length >= size) {
        return length;
    }
    return length + (size_t)snprintf(out + length, size - length, "/%s", list->names + entry->name);
}

/* The path of an entry that is not in the list. */
static void path_below(const struct source_list *list, uint32_t directory, const char *name,
                       char out[PATH_MAX])
{
    size_t length = source_path(list, directory, out, PATH_MAX);
    if (name != NULL && length < PATH_MAX) {
        snprintf(out + length, PATH_MAX - length, "/%s", name);
    }
}

static void report_failure(const struct source_list *list, uint32_t directory, const char *name,
                           const char *what, int error)
{
    char path[PATH_MAX];
    path_below(list, directory, name, path);
    list->listener->failed(list->listener->user, path, what, error);
}

static void report_special(const struct source_list *list, uint32_t directory, const char *name,
                           const char *why)
{
    char path[PATH_MAX];
    path_below(list, directory, name, path);
    list->listener->special(list->listener->user, path, why);
}

static int not_dots(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static bool list_directory(struct source_list *list, uint32_t index, int fd);

static bool list_subdirectory(struct source_list *list, uint32_t parent, int directory,
                              const char *name, const struct stat *status)
{
    uint32_t index = list->count;
    if (!append(list, SOURCE_DIRECTORY, parent, name, status)) {
        return false;
    }
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        report_failure(list, index, NULL, "open", errno);
        return append(list, SOURCE_DIRECTORY_END, index, NULL, status);
    }
    bool good = list_directory(list, index, fd);
    close(fd);
    return good && append(list, SOURCE_DIRECTORY_END, index, NULL, status);
}

static bool list_entry(struct source_list *list, uint32_t parent, int directory, const char *name)
{
    struct stat status;
    if (fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
        report_failure(list, parent, name, "look at", errno);
        return true;
    }
    if (S_ISDIR(status.st_mode)) {
        return list_subdirectory(list, parent, directory, name, &status);
    }
    if (!S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode)) {
        report_special(list, parent, name, "it is neither a file, a directory nor a link");
        return true;
    }
    if (proto_is_unfinished_name(name, strlen(name))) {
        report_special(list, parent, name, "it is an unfinished file of another copy");
        return true;
    }
    return append(list, S_ISREG(status.st_mode) ? SOURCE_FILE : SOURCE_LINK, parent, name, &status);
}

static bool list_directory(struct source_list *list, uint32_t index, int fd)
{
    struct dirent **entries = NULL;
    int count = scandirat(fd, ".", &entries, not_dots, alphasort);
    if (count < 0) {
        report_failure(list, index, NULL, "list", errno);
        return true;
    }
    bool good = true;
    for (int i = 0; i < count; i++) {
        good = good && list_entry(list, index, fd, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return good;
}

static int compare_links(const void *left, const void *right)
{
    const struct source_link *a = left;
    const struct source_link *b = right;
    if (a->device != b->device) {
        return a->device < b->device ? -1 : 1;
    }
    if (a->inode != b->inode) {
        return a->inode < b->inode ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

/* Finds the names that belong to one file. */
static void group_links(struct source_list *list)
{
    if (list->link_count > 1) {
        qsort(list->links, list->link_count, sizeof(*list->links), compare_links);
    }
    for (size_t i = 1; i < list->link_count; i++) {
        const struct source_link *link = &list->links[i];
        const struct source_link *before = link - 1;
        if (link->device == before->device && link->inode == before->inode) {
            struct source_entry *entry = &list->entries[link->index];
            entry->first = list->entries[before->index].first;
            entry->linked = true;
            list->entries[entry->first].linked = true;
        }
    }
    free(list->links);
    list->links = NULL;
}

bool source_list_make(struct source_list *list, const char *source, const struct stat *status,
                      const struct source_listener *listener)
{
    *list = (struct source_list){
        .source = source,
        .listener = listener,
        .root = -1,
        .directory = -1,
    };
    if (S_ISREG(status->st_mode)) {
        return append(list, SOURCE_FILE, 0, NULL, status);
    }
    list->root = open(source, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list->root < 0 || !append(list, SOURCE_DIRECTORY, 0, NULL, status) ||
        !list_directory(list, 0, list->root)) {
        return false;
    }
    group_links(list);
    return append(list, SOURCE_DIRECTORY_END, 0, NULL, status);
}

void source_list_free(struct source_list *list)
{
    if (list->root >= 0) {
        close(list->root);
    }
    if (list->directory >= 0) {
        close(list->directory);
    }
    free(list->links);
    free(list->names);
    free(list->entries);
}

/* Opens a directory of the list from the root on. */
static int open_directory(const struct source_list *list, uint32_t index)
{
    const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    if (index == 0) {
        return openat(list->root, ".", flags);
    }
    int parent = open_directory(list, list->entries[index].parent);
    if (parent < 0) {
        return -1;
    }
    int directory = openat(parent, list->names + list->entries[index].name, flags);
    int error = errno;
    close(parent);
    errno = error;
    return directory;
}

/* Makes list->directory the one that holds the entry. */
static bool enter_directory(struct source_list *list, uint32_t index)
{
    uint32_t parent = list->entries[index].parent;
    if (list->directory >= 0 && list->directory_index == parent) {
        return true;
    }
    if (list->directory >= 0) {
        close(list->directory);
    }
    list->directory = open_directory(list, parent);
    list->directory_index = parent;
    return list->directory >= 0;
}

int source_open(struct source_list *list, uint32_t index)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    if (index == 0) {
        return open(list->source, flags); /* follows a link, as the user has named it */
    }
    return enter_directory(list, index)
               ? openat(list->directory, list->names + list->entries[index].name, flags | O_NOFOLLOW)
               : -1;
}

ssize_t source_read_link(struct source_list *list, uint32_t index, char out[PROTO_PATH_MAX])
{
    if (!enter_directory(list, index)) {
        return -1;
    }
    ssize_t length = readlinkat(list->directory, list->names + list->entries[index].name, out,
                                PROTO_PATH_MAX - 1);
    if (length >= 0) {
        out[length] = '\0';
    }
    return length;
}
