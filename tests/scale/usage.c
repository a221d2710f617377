/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "usage.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { LINE = 4096 };

/* Before each block of a fabric. */
union header {
    size_t size;
    max_align_t align;
};

static _Atomic int64_t bytes;
static _Atomic int64_t blocks;

static void *allocate(void *user, size_t size)
{
    (void)user;
    union header *header = malloc(sizeof(*header) + size);
    if (header == NULL) {
        return NULL;
    }
    header->size = size;
    atomic_fetch_add(&bytes, (int64_t)size);
    atomic_fetch_add(&blocks, 1);
    return header + 1;
}

static void release(void *user, void *memory)
{
    (void)user;
    if (memory == NULL) {
        return;
    }
    union header *header = (union header *)memory - 1;
    atomic_fetch_sub(&bytes, (int64_t)header->size);
    atomic_fetch_sub(&blocks, 1);
    free(header);
}

void usage_count_memory(struct rdmux_fabric_attr *attr)
{
    attr->allocate = allocate;
    attr->release = release;
}

static FILE *open_or_end(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    return file;
}

/* The number behind a name at the beginning of a line, such as "RssAnon:   12 kB". */
static void take_number(const char *line, const char *name, int64_t *out)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) == 0) {
        *out = strtoll(line + length, NULL, 10);
    }
}

static void read_status(struct usage *out)
{
    char line[LINE];
    int64_t anonymous = 0;
    int64_t shared = 0;
    FILE *file = open_or_end("/proc/self/status");
    while (fgets(line, sizeof(line), file) != NULL) {
        take_number(line, "RssAnon:", &anonymous);
        take_number(line, "RssShmem:", &shared);
        take_number(line, "Threads:", &out->threads);
    }
    fclose(file);
    out->resident_bytes = anonymous * 1024;
    out->shared_bytes = shared * 1024;
}

static void read_mappings(struct usage *out)
{
    char line[LINE];
    FILE *file = open_or_end("/proc/self/maps");
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *rights = strchr(line, ' ');
        out->mappings++;
        out->shared_mappings += rights != NULL && strlen(rights) > 4 && rights[4] == 's';
    }
    fclose(file);
}

static void read_descriptors(struct usage *out)
{
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL) {
        perror("/proc/self/fd");
        exit(1);
    }
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        out->descriptors += entry->d_name[0] != '.';
    }
    closedir(folder);
    out->descriptors--; /* the folder's own */
}

struct usage usage_read(void)
{
    struct usage usage = { .library_bytes = atomic_load(&bytes),
                           .library_blocks = atomic_load(&blocks) };
    read_status(&usage);
    read_mappings(&usage);
    read_descriptors(&usage);
    return usage;
}

double usage_processor_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

uint64_t usage_raise_descriptors(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        perror("getrlimit");
        exit(1);
    }
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    return files.rlim_cur;
}
