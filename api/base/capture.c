/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writes a capture: a pcap-ng file (draft-ietf-opsawg-pcapng) in the byte order of this machine. */
#include "api/base/capture.h"

#include "api/base/bytes.h"
#include "api/base/error.h"
#include "api/base/secrets.h"
#include "api/system/system.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    CAPTURE_MIB = 1 << 20,
    CAPTURE_LIMIT_DEFAULT = 1024, /* MiB that a fabric writes, unless the setting has another number */
    CAPTURE_LIMIT_MAX = 1 << 30,

    PCAPNG_SECTION = 0x0a0d0d0a,
    PCAPNG_INTERFACE = 1,
    PCAPNG_PACKET = 6,
    PCAPNG_BYTE_ORDER = 0x1a2b3c4d,
    PCAPNG_LINK_UPPER_PDU = 252, /* LINKTYPE_WIRESHARK_UPPER_PDU */
    PCAPNG_COMMENT = 1,
    PCAPNG_NAME = 2,       /* of an interface */
    PCAPNG_PROGRAM = 4,    /* of a section */
    PCAPNG_RESOLUTION = 9, /* of an interface's times: 9 = ns */
    PCAPNG_FLAGS = 2,      /* of a packet: 1 incoming, 2 outgoing */

    /* Tags in front of a packet of this link type, all big-endian (epan/exported_pdu.h). */
    PDU_END = 0,
    PDU_DISSECTOR = 12,
    PDU_IPV4_SOURCE = 20,
    PDU_IPV4_TARGET = 21,
    PDU_IPV6_SOURCE = 22,
    PDU_IPV6_TARGET = 23,
    PDU_PORT_TYPE = 24,
    PDU_PORT_SOURCE = 25,
    PDU_PORT_TARGET = 26,
    PDU_PORT_TCP = 2,

    CAPTURE_TEXT_MAX = 128,
    CAPTURE_ENVELOPE_MAX = 256, /* bytes of a packet's block around its frame, at most */
    CAPTURE_BLOCK_MAX = RDMUX_CAPTURE_FRAME_MAX + CAPTURE_ENVELOPE_MAX,
};

struct rdmux_capture {
    struct rdmux_capture_options options; /* first: rdmux_capture_of() relies on it */
    int fd;
    pthread_mutex_t lock; /* a leaf of the lock order; guards the members below */
    bool is_over;
    uint64_t room; /* bytes that may still be written */
    size_t size;   /* of the block that is composed */
    uint8_t block[CAPTURE_BLOCK_MAX];
};

static_assert(offsetof(struct rdmux_capture, options) == 0, "rdmux_capture_of() relies on it");

/* --------------------------------------------------------------------------------------- blocks */

static void block_put(struct rdmux_capture *capture, const void *bytes, size_t size)
{
    assert(size <= sizeof(capture->block) - capture->size);
    if (size != 0) {
        memcpy(capture->block + capture->size, bytes, size);
    }
    capture->size += size;
}

static void block_put16(struct rdmux_capture *capture, uint16_t number)
{
    block_put(capture, &number, sizeof(number));
}

static void block_put32(struct rdmux_capture *capture, uint32_t number)
{
    block_put(capture, &number, sizeof(number));
}

static void block_pad(struct rdmux_capture *capture)
{
    static const uint8_t zeros[3];
    block_put(capture, zeros, (4 - capture->size % 4) % 4);
}

static size_t block_begin(struct rdmux_capture *capture, uint32_t type)
{
    size_t at = capture->size;
    block_put32(capture, type);
    block_put32(capture, 0); /* block_end() writes the length */
    return at;
}

static void block_end(struct rdmux_capture *capture, size_t at)
{
    const uint32_t size = (uint32_t)(capture->size - at + 4);
    block_put32(capture, size);
    rdmux_store_host32(capture->block + at + 4, size);
}

static void block_option(struct rdmux_capture *capture, uint16_t code, const void *value,
                         size_t size)
{
    block_put16(capture, code);
    block_put16(capture, (uint16_t)size);
    block_put(capture, value, size);
    block_pad(capture);
}

static void block_text_option(struct rdmux_capture *capture, uint16_t code, const char *text)
{
    block_option(capture, code, text, strlen(text));
}

static void block_options_end(struct rdmux_capture *capture)
{
    block_put32(capture, 0);
}

/* A section and its interface. Each fabric begins a section: a file may have those of several
 * processes, one behind the other, and packets belong to the newest one. */
static void capture_compose_section(struct rdmux_capture *capture)
{
    static const uint8_t nanoseconds = 9;
    char text[CAPTURE_TEXT_MAX];
    capture->size = 0;
    size_t at = block_begin(capture, (uint32_t)PCAPNG_SECTION);
    block_put32(capture, PCAPNG_BYTE_ORDER);
    block_put16(capture, 1); /* version 1.0 */
    block_put16(capture, 0);
    block_put32(capture, UINT32_MAX); /* the section's length is not known */
    block_put32(capture, UINT32_MAX);
    (void)snprintf(text, sizeof(text), "begun by process %d, %s", (int)getpid(),
                   rdmux_process_name());
    block_text_option(capture, PCAPNG_COMMENT, text);
    (void)snprintf(text, sizeof(text), "rdmux %s", rdmux_version());
    block_text_option(capture, PCAPNG_PROGRAM, text);
    block_options_end(capture);
    block_end(capture, at);
    at = block_begin(capture, PCAPNG_INTERFACE);
    block_put16(capture, PCAPNG_LINK_UPPER_PDU);
    block_put16(capture, 0);
    block_put32(capture, 0); /* no limit on packets */
    block_text_option(capture, PCAPNG_NAME, "rdmux");
    block_option(capture, PCAPNG_RESOLUTION, &nanoseconds, sizeof(nanoseconds));
    block_options_end(capture);
    block_end(capture, at);
}

/* ---------------------------------------------------------------------------------------- packets */

static void packet_tag(struct rdmux_capture *capture, uint16_t tag, const void *value, uint16_t size)
{
    uint8_t head[4];
    rdmux_store_be16(head, tag);
    rdmux_store_be16(head + 2, size);
    block_put(capture, head, sizeof(head));
    block_put(capture, value, size);
}

static void packet_number_tag(struct rdmux_capture *capture, uint16_t tag, uint32_t number)
{
    uint8_t value[4];
    rdmux_store_be32(value, number);
    packet_tag(capture, tag, value, sizeof(value));
}

/* One end of a socket. A socket that is not of IP, or that is gone, has no tags. */
static void packet_end(struct rdmux_capture *capture, const struct sockaddr_storage *address,
                       bool is_source)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)address;
        packet_tag(capture, is_source ? PDU_IPV4_SOURCE : PDU_IPV4_TARGET, &in->sin_addr, 4);
        packet_number_tag(capture, is_source ? PDU_PORT_SOURCE : PDU_PORT_TARGET,
                          ntohs(in->sin_port));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)address;
        packet_tag(capture, is_source ? PDU_IPV6_SOURCE : PDU_IPV6_TARGET, &in6->sin6_addr, 16);
        packet_number_tag(capture, is_source ? PDU_PORT_SOURCE : PDU_PORT_TARGET,
                          ntohs(in6->sin6_port));
    }
}

static void packet_tags(struct rdmux_capture *capture, int socket, enum rdmux_capture_way way)
{
    struct sockaddr_storage ours = { .ss_family = AF_UNSPEC };
    struct sockaddr_storage theirs = { .ss_family = AF_UNSPEC };
    socklen_t size = sizeof(ours);
    (void)getsockname(socket, (struct sockaddr *)&ours, &size);
    size = sizeof(theirs);
    (void)getpeername(socket, (struct sockaddr *)&theirs, &size);
    const bool is_out = way == RDMUX_CAPTURE_OUT;
    packet_tag(capture, PDU_DISSECTOR, "rdmux\0\0", 8);
    packet_end(capture, is_out ? &ours : &theirs, true);
    packet_end(capture, is_out ? &theirs : &ours, false);
    packet_number_tag(capture, PDU_PORT_TYPE, PDU_PORT_TCP);
    packet_tag(capture, PDU_END, NULL, 0);
}

static void capture_compose_packet(struct rdmux_capture *capture, int socket,
                                   enum rdmux_capture_way way, const void *bytes, size_t kept,
                                   uint64_t length)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t time_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
    const uint32_t flags = way == RDMUX_CAPTURE_OUT ? 2 : 1;
    capture->size = 0;
    size_t at = block_begin(capture, PCAPNG_PACKET);
    block_put32(capture, 0); /* the section's only interface */
    block_put32(capture, (uint32_t)(time_ns >> 32));
    block_put32(capture, (uint32_t)time_ns);
    const size_t sizes_at = capture->size;
    block_put32(capture, 0);
    block_put32(capture, 0);
    const size_t packet_at = capture->size;
    packet_tags(capture, socket, way);
    block_put(capture, bytes, kept);
    const size_t size = capture->size - packet_at;
    const uint64_t whole = size - kept + length;
    rdmux_store_host32(capture->block + sizes_at, (uint32_t)size);
    rdmux_store_host32(capture->block + sizes_at + 4,
                       whole < INT32_MAX ? (uint32_t)whole : (uint32_t)INT32_MAX);
    block_pad(capture);
    block_option(capture, PCAPNG_FLAGS, &flags, sizeof(flags));
    block_options_end(capture);
    block_end(capture, at);
}

/* Writes the block in one piece, which keeps the blocks of several processes apart. Returns why it
 * was the last one; NULL: it was not. */
static const char *capture_write_block(struct rdmux_capture *capture)
{
    if (capture->size > capture->room) {
        capture->is_over = true;
        return "it has reached its limit (max=MIB)";
    }
    const ssize_t written = rdmux_log_write(capture->fd, capture->block, capture->size);
    capture->room -= capture->size;
    if (written == (ssize_t)capture->size) {
        return NULL;
    }
    capture->is_over = true;
    return written < 0 ? strerror(errno) : "the file system is full";
}

void rdmux_capture_write(struct rdmux_fabric *fabric, int socket, enum rdmux_capture_way way,
                         const void *bytes, size_t kept, uint64_t length)
{
    struct rdmux_capture *capture = rdmux_hooks_of(fabric)->capture;
    const char *why = NULL;
    const int before = errno;
    pthread_mutex_lock(&capture->lock);
    if (!capture->is_over) {
        capture_compose_packet(capture, socket, way, bytes, kept, length);
        why = capture_write_block(capture);
    }
    pthread_mutex_unlock(&capture->lock);
    if (why != NULL) {
        rdmux_log(fabric, RDMUX_LOG_WARN, "fabric: its capture ends: %s", why);
    }
    errno = before;
}

/* -------------------------------------------------------------------------------------- setting */

static bool capture_number(const char *text, size_t size, uint64_t most, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
        number = number * 10 + (uint64_t)(text[i] - '0');
        if (number > most) {
            return false;
        }
    }
    *out = number;
    return size != 0;
}

static bool capture_word_is(const char *text, size_t size, const char *word)
{
    return strlen(word) == size && memcmp(text, word, size) == 0;
}

static bool capture_take_word(struct rdmux_capture *capture, const char *text, size_t size)
{
    uint64_t number = 0;
    if (capture_word_is(text, size, "secrets")) {
        capture->options.has_secrets = true;
        return true;
    }
    if (capture_word_is(text, size, "decrypted")) {
        capture->options.is_decrypted = true;
        return true;
    }
    if (size > 5 && memcmp(text, "snap=", 5) == 0 &&
        capture_number(text + 5, size - 5, RDMUX_CAPTURE_SNAP_MAX, &number)) {
        capture->options.snap = (uint32_t)number;
        return true;
    }
    if (size > 4 && memcmp(text, "max=", 4) == 0 &&
        capture_number(text + 4, size - 4, CAPTURE_LIMIT_MAX, &number) && number != 0) {
        capture->room = number * CAPTURE_MIB;
        return true;
    }
    return false;
}

/* Reads the words. Returns the file's path; NULL: a word is not known, or there is no path. Words
 * have no slash, so a path with a colon can begin with "./". */
static const char *capture_take_words(struct rdmux_capture *capture, const char *setting)
{
    const size_t end = strcspn(setting, ":/");
    const char *path = setting;
    if (setting[end] == ':') {
        for (size_t at = 0; at <= end;) {
            size_t size = strcspn(setting + at, ",:");
            if (!capture_take_word(capture, setting + at, size)) {
                return NULL;
            }
            at += size + 1;
        }
        path = setting + end + 1;
    }
    return *path == '\0' ? NULL : path;
}

/* A file that is there already has to be a capture: sections can follow only there. */
static bool is_capture(int fd)
{
    struct stat info;
    uint8_t first[4];
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
        return true;
    }
    return pread(fd, first, sizeof(first), 0) == (ssize_t)sizeof(first) &&
           rdmux_load_host32(first) == (uint32_t)PCAPNG_SECTION;
}

static enum rdmux_status capture_open_file(struct rdmux_capture *capture, const char *name,
                                           const char *path)
{
    capture->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    if (capture->fd < 0) {
        return rdmux_fail(RDMUX_IO, "%s: cannot write to \"%s\": %s", name, path, strerror(errno));
    }
    if (!is_capture(capture->fd)) {
        return rdmux_fail(RDMUX_INVALID,
                          "%s: \"%s\" is there and is no capture; name another file, or remove it",
                          name, path);
    }
    capture_compose_section(capture);
    const char *why = capture_write_block(capture);
    return why == NULL ? RDMUX_OK
                       : rdmux_fail(RDMUX_IO, "%s: cannot write to \"%s\": %s", name, path, why);
}

static void capture_destroy(struct rdmux_fabric *fabric, struct rdmux_capture *capture)
{
    if (capture->fd >= 0) {
        close(capture->fd);
    }
    pthread_mutex_destroy(&capture->lock);
    rdmux_release_wiped(fabric, capture, sizeof(*capture)); /* the block may have had secrets */
}

enum rdmux_status rdmux_capture_open(struct rdmux_fabric *fabric, const char *name,
                                     const char *setting)
{
    struct rdmux_capture *capture = rdmux_allocate(fabric, sizeof(*capture));
    if (capture == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", name);
    }
    capture->fd = -1;
    capture->options.snap = RDMUX_CAPTURE_SNAP;
    capture->room = (uint64_t)CAPTURE_LIMIT_DEFAULT * CAPTURE_MIB;
    pthread_mutex_init(&capture->lock, NULL);
    const char *path = capture_take_words(capture, setting);
    enum rdmux_status
        status = path != NULL
                     ? capture_open_file(capture, name, path)
                     : rdmux_fail(
                           RDMUX_INVALID,
                           "%s \"%s\" is not [WORD,...:]FILE with the words snap=BYTES (up to %d), "
                           "max=MIB, secrets and decrypted",
                           name, setting, RDMUX_CAPTURE_SNAP_MAX);
    if (status != RDMUX_OK) {
        capture_destroy(fabric, capture);
        return status;
    }
    rdmux_hooks_of(fabric)->capture = capture;
    return RDMUX_OK;
}

void rdmux_capture_close(struct rdmux_fabric *fabric)
{
    struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    if (hooks->capture != NULL) {
        capture_destroy(fabric, hooks->capture);
        hooks->capture = NULL;
    }
}
