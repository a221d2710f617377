/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * rdmux_memory_fault() for Linux, which asks /proc.
 *
 * Cost, Linux 6.18: 4 us of CPU per call (open, one query for each mapping of the span, close),
 * however many mappings there are. Without queries 20 us in a small process, and 0.5 us more for
 * each mapping below the span.
 */
#include "api/system/system.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    READABLE = 1 << 0,
    WRITABLE = 1 << 1,
    COVERING_OR_NEXT = 1 << 4,
    TEXT_SIZE = 4096, /* the kernel returns no more of the file per read */
};

/* struct procmap_query of linux/fs.h, which many systems' headers lack. */
struct query {
    uint64_t size;
    uint64_t flags;
    uint64_t addr;
    uint64_t start;
    uint64_t end;
    uint64_t rights;
    uint64_t page_size;
    uint64_t offset;
    uint64_t inode;
    uint32_t device[2];
    uint32_t name_size;
    uint32_t build_id_size;
    uint64_t name_addr;
    uint64_t build_id_addr;
};
#define QUERY _IOWR('f', 17, struct query)
/* What ioctl(2) takes for a request: an int in POSIX, so in musl. */
#ifdef __GLIBC__
typedef unsigned long ioctl_request;
#else
typedef int ioctl_request;
#endif

struct mapping {
    uint64_t start;
    uint64_t end;
    uint32_t rights;
};

/* /proc/self/maps, read from its beginning. */
struct reader {
    int fd;
    bool asks; /* the kernel supports queries */
    size_t length;
    size_t at;
    char text[TEXT_SIZE + 1];
};

enum found {
    FOUND,
    NO_MORE,
    UNKNOWN, /* /proc gives no answer */
};

/* Finds the mapping that contains the address, else the next one. */
static enum found ask_kernel(const struct reader *reader, uint64_t addr, struct mapping *out)
{
    struct query query = { .size = sizeof(query), .flags = COVERING_OR_NEXT, .addr = addr };
    if (ioctl(reader->fd, (ioctl_request)QUERY, &query) != 0) {
        return errno == ENOENT ? NO_MORE : UNKNOWN;
    }
    *out = (struct mapping){ query.start, query.end, (uint32_t)query.rights };
    return FOUND;
}

static bool fill_mapping(struct reader *reader)
{
    size_t rest = reader->length - reader->at;
    memmove(reader->text, reader->text + reader->at, rest);
    reader->at = 0;
    reader->length = rest;
    ssize_t got;
    do {
        got = read(reader->fd, reader->text + rest, TEXT_SIZE - rest);
    } while (got < 0 && errno == EINTR);
    reader->length += got > 0 ? (size_t)got : 0;
    reader->text[reader->length] = '\0';
    return got > 0;
}

/* Reads the next line: START-END rwxp OFFSET DEVICE INODE NAME. */
static enum found read_line(struct reader *reader, struct mapping *out)
{
    char *end;
    while ((end = strchr(reader->text + reader->at, '\n')) == NULL) {
        if (!fill_mapping(reader)) {
            return reader->length == 0 ? NO_MORE : UNKNOWN;
        }
    }
    char read_right;
    char write_right;
    int fields = sscanf(reader->text + reader->at, "%" SCNx64 "-%" SCNx64 " %c%c", &out->start,
                        &out->end, &read_right, &write_right);
    reader->at = (size_t)(end + 1 - reader->text);
    out->rights = (read_right == 'r' ? READABLE : 0U) | (write_right == 'w' ? WRITABLE : 0U);
    return fields == 4 ? FOUND : UNKNOWN;
}

static enum found find_mapping(struct reader *reader, uint64_t addr, struct mapping *out)
{
    if (reader->asks) {
        enum found found = ask_kernel(reader, addr, out);
        if (found != UNKNOWN) {
            return found;
        }
        reader->asks = false;
    }
    enum found found;
    do {
        found = read_line(reader, out);
    } while (found == FOUND && out->end <= addr);
    return found;
}

/* Returns whether the address may become stack. The main thread's stack grows when touched, so
 * addresses below its mapping count as mapped. */
static bool is_stack_to_be(const struct mapping *next, uint64_t addr)
{
    uint64_t on_stack = getauxval(AT_RANDOM); /* bytes that the kernel put on the stack */
    struct rlimit limit;
    if (on_stack < next->start || on_stack >= next->end || getrlimit(RLIMIT_STACK, &limit) != 0) {
        return false;
    }
    return limit.rlim_cur == RLIM_INFINITY || next->end - addr <= limit.rlim_cur;
}

static const char *find_fault(struct reader *reader, uint64_t last, bool writes, uint64_t *at)
{
    for (;;) {
        struct mapping mapping;
        enum found found = find_mapping(reader, *at, &mapping);
        if (found == UNKNOWN) {
            return NULL;
        }
        if (found == NO_MORE || (mapping.start > *at && !is_stack_to_be(&mapping, *at))) {
            return "is not mapped";
        }
        if (mapping.start > *at) {
            *at = mapping.start;
        }
        if ((mapping.rights & READABLE) == 0) {
            return "cannot be read";
        }
        if (writes && (mapping.rights & WRITABLE) == 0) {
            return "cannot be written, as the region's access demands";
        }
        if (mapping.end - 1 >= last) {
            return NULL;
        }
        *at = mapping.end;
    }
}

const char *rdmux_memory_fault(const void *addr, size_t length, bool writes, uint64_t *at)
{
    struct reader reader = { .asks = true };
    reader.fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (reader.fd < 0) {
        return NULL;
    }
    *at = (uintptr_t)addr;
    const char *fault = find_fault(&reader, *at + (length - 1), writes, at);
    close(reader.fd);
    return fault;
}
