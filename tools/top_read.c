/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "top_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

enum {
    FILE_BYTES_MAX = sizeof(struct rdmux_stats_header) +
                     RDMUX_STATS_ENDPOINTS_MAX * sizeof(struct rdmux_stats_entry)
};

/* -------------------------------------------------------------------------------------- checks */

bool top_check(const void *bytes, size_t size, char reason[TOP_REASON_MAX])
{
    struct rdmux_stats_header header;
    if (size < sizeof(header)) {
        snprintf(reason, TOP_REASON_MAX, "it has %zu bytes, a header has %zu", size, sizeof(header));
        return false;
    }
    memcpy(&header, bytes, sizeof(header));
    if (memcmp(header.magic, RDMUX_STATS_MAGIC, sizeof(header.magic) - 1) != 0) {
        snprintf(reason, TOP_REASON_MAX, "it is not a file of rdmux");
        return false;
    }
    if (memcmp(header.magic, RDMUX_STATS_MAGIC, sizeof(header.magic)) != 0) {
        snprintf(reason, TOP_REASON_MAX, "another version of rdmux has written it");
        return false;
    }
    size_t room = (size - sizeof(header)) / sizeof(struct rdmux_stats_entry);
    if (header.count > RDMUX_STATS_ENDPOINTS_MAX || header.count != room ||
        (size - sizeof(header)) % sizeof(struct rdmux_stats_entry) != 0) {
        snprintf(reason, TOP_REASON_MAX, "it has %zu bytes, which do not fit %u endpoints", size,
                 (unsigned)header.count);
        return false;
    }
    if (header.pid <= 0) {
        snprintf(reason, TOP_REASON_MAX, "it names process %d", (int)header.pid);
        return false;
    }
    return true;
}

/* Reads a file of this user into bytes. Returns its size; -1, with the reason, if it is refused. */
static ssize_t read_file(int folder, const char *name, char *bytes, char reason[TOP_REASON_MAX])
{
    struct stat info;
    errno = 0; /* the caller tells ENOENT from the refusals below */
    /* without O_NONBLOCK a FIFO would keep this process waiting */
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        snprintf(reason, TOP_REASON_MAX, "%s",
                 errno == ELOOP ? "it is a symbolic link" : strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    ssize_t size = -1;
    if (!S_ISREG(info.st_mode)) {
        snprintf(reason, TOP_REASON_MAX, "it is not a file");
    } else if (info.st_uid != geteuid()) {
        snprintf(reason, TOP_REASON_MAX, "it belongs to user %u", (unsigned)info.st_uid);
    } else if ((info.st_mode & 077) != 0) {
        snprintf(reason, TOP_REASON_MAX, "others have access to it: its mode is %03o",
                 (unsigned)info.st_mode & 0777);
    } else if (info.st_size > FILE_BYTES_MAX) {
        snprintf(reason, TOP_REASON_MAX, "it has %lld bytes, more than %d", (long long)info.st_size,
                 (int)FILE_BYTES_MAX);
    } else {
        size = 0;
        ssize_t got = 1;
        while (got > 0 && size < FILE_BYTES_MAX) {
            got = read(fd, bytes + size, (size_t)(FILE_BYTES_MAX - size));
            size += got > 0 ? got : 0;
        }
        if (got < 0) {
            snprintf(reason, TOP_REASON_MAX, "%s", strerror(errno));
            size = -1;
        }
    }
    close(fd);
    return size;
}

/* -------------------------------------------------------------------------------------- reading */

static void refuse(struct top_sample *sample, const char *file, const char *reason)
{
    if (sample->refused_count < TOP_REFUSED_MAX) {
        struct top_refused *refused = &sample->refused[sample->refused_count++];
        snprintf(refused->file, sizeof(refused->file), "%s", file);
        snprintf(refused->reason, sizeof(refused->reason), "%s", reason);
    }
}

static bool add_endpoint(struct top_sample *sample, const char *file,
                         const struct rdmux_stats_header *header,
                         const struct rdmux_stats_entry *entry)
{
    if (sample->count == sample->room) {
        size_t room = 2 * sample->room + 64;
        struct top_endpoint *endpoints = realloc(sample->endpoints, room * sizeof(*endpoints));
        if (endpoints == NULL) {
            return false;
        }
        sample->endpoints = endpoints;
        sample->room = room;
    }
    struct top_endpoint *endpoint = &sample->endpoints[sample->count++];
    *endpoint = (struct top_endpoint){
        .entry = *entry,
        .pid = header->pid,
        .written_ns = header->written_ns,
    };
    snprintf(endpoint->file, sizeof(endpoint->file), "%s", file);
    snprintf(endpoint->command, sizeof(endpoint->command), "%.*s", (int)sizeof(header->command) - 1,
             header->command);
    endpoint->entry.provider[sizeof(entry->provider) - 1] = '\0';
    endpoint->entry.device[sizeof(entry->device) - 1] = '\0';
    endpoint->entry.peer_address[sizeof(entry->peer_address) - 1] = '\0';
    return true;
}

/* Returns whether the process that a file is from is gone. That of another pid namespace cannot be
 * looked up. */
static bool is_gone(int32_t pid, uint64_t start_ticks, uint64_t pid_space)
{
    return pid_space == rdmux_stats_pid_space() && rdmux_stats_start_of(pid) != start_ticks;
}

static bool take_file(int folder, const char *name, char *bytes, struct top_sample *out)
{
    char reason[TOP_REASON_MAX];
    struct rdmux_stats_header header;
    ssize_t size = read_file(folder, name, bytes, reason);
    if (size < 0 && errno == ENOENT) {
        return true; /* its process has closed the fabric meanwhile */
    }
    if (size < 0 || !top_check(bytes, (size_t)size, reason)) {
        refuse(out, name, reason);
        return true;
    }
    memcpy(&header, bytes, sizeof(header));
    if (is_gone(header.pid, header.start_ticks, header.pid_space)) {
        out->cleaned += unlinkat(folder, name, 0) == 0 ? 1 : 0;
        return true;
    }
    out->processes++;
    out->left_out += header.left_out;
    for (uint32_t i = 0; i < header.count; i++) {
        struct rdmux_stats_entry entry;
        memcpy(&entry, bytes + sizeof(header) + i * sizeof(entry), sizeof(entry));
        if (!add_endpoint(out, name, &header, &entry)) {
            return false;
        }
    }
    return true;
}

/* A file that was being written when its process was killed: "PID-NUMBER.new". */
static void clean_unfinished(int folder, const char *name, struct top_sample *out)
{
    struct stat info;
    int pid = atoi(name);
    if (pid > 0 && rdmux_stats_start_of(pid) == 0 &&
        fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_uid == geteuid()) {
        out->cleaned += unlinkat(folder, name, 0) == 0 ? 1 : 0;
    }
}

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

/* -1, with the reason, or "" if there is no folder. */
static int open_folder(const char *path, char reason[TOP_REASON_MAX])
{
    struct stat info;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    reason[0] = '\0';
    if (folder < 0) {
        if (errno != ENOENT) {
            snprintf(reason, TOP_REASON_MAX, "%s", strerror(errno));
        }
        return -1;
    }
    if (fstat(folder, &info) != 0) {
        snprintf(reason, TOP_REASON_MAX, "%s", strerror(errno));
    } else if (info.st_uid != geteuid()) {
        snprintf(reason, TOP_REASON_MAX, "it belongs to user %u", (unsigned)info.st_uid);
    } else if ((info.st_mode & 077) != 0) {
        snprintf(reason, TOP_REASON_MAX, "others have access to it: its mode is %03o",
                 (unsigned)info.st_mode & 0777);
    } else {
        return folder;
    }
    close(folder);
    return -1;
}

bool top_read(const char *path, struct top_sample *out, char reason[TOP_REASON_MAX])
{
    *out = (struct top_sample){ .count = 0 };
    int folder = open_folder(path, reason);
    if (folder < 0) {
        return reason[0] == '\0';
    }
    char *bytes = malloc(FILE_BYTES_MAX);
    DIR *files = fdopendir(folder);
    bool done = bytes != NULL && files != NULL;
    for (struct dirent *file; done && (file = readdir(files)) != NULL;) {
        if (ends_with(file->d_name, RDMUX_STATS_SUFFIX)) {
            done = take_file(folder, file->d_name, bytes, out);
        } else if (ends_with(file->d_name, ".new")) {
            clean_unfinished(folder, file->d_name, out);
        }
    }
    if (!done) {
        snprintf(reason, TOP_REASON_MAX, "out of memory");
        top_free(out);
    }
    free(bytes);
    if (files != NULL) {
        closedir(files);
    } else {
        close(folder);
    }
    return done;
}

void top_free(struct top_sample *sample)
{
    free(sample->endpoints);
    *sample = (struct top_sample){ .count = 0 };
}

/* --------------------------------------------------------------------------------------- rates */

static const struct top_endpoint *find_earlier(const struct top_sample *earlier,
                                               const struct top_endpoint *endpoint)
{
    for (size_t i = 0; i < earlier->count; i++) {
        if (earlier->endpoints[i].entry.endpoint == endpoint->entry.endpoint &&
            strcmp(earlier->endpoints[i].file, endpoint->file) == 0) {
            return &earlier->endpoints[i];
        }
    }
    return NULL;
}

static double rate(uint64_t before, uint64_t now, double seconds)
{
    return now > before ? (double)(now - before) / seconds : 0;
}

static int by_rate(const void *a, const void *b)
{
    const struct top_endpoint *left = a;
    const struct top_endpoint *right = b;
    double left_rate = left->sent_per_second + left->received_per_second;
    double right_rate = right->sent_per_second + right->received_per_second;
    if (left_rate != right_rate) {
        return left_rate > right_rate ? -1 : 1;
    }
    if (left->pid != right->pid) {
        return left->pid < right->pid ? -1 : 1;
    }
    return left->entry.endpoint < right->entry.endpoint ? -1 : 1;
}

void top_compare(const struct top_sample *earlier, struct top_sample *sample)
{
    for (size_t i = 0; i < sample->count; i++) {
        struct top_endpoint *now = &sample->endpoints[i];
        const struct top_endpoint *before = find_earlier(earlier, now);
        if (before == NULL || now->written_ns <= before->written_ns) {
            continue;
        }
        double seconds = (double)(now->written_ns - before->written_ns) / 1e9;
        now->sent_per_second = rate(before->entry.bytes_sent, now->entry.bytes_sent, seconds);
        now->received_per_second = rate(before->entry.bytes_received, now->entry.bytes_received,
                                        seconds);
        now->requests_per_second = rate(before->entry.requests, now->entry.requests, seconds);
    }
    if (sample->count > 1) {
        qsort(sample->endpoints, sample->count, sizeof(*sample->endpoints), by_rate);
    }
}
