/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "doctor_sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_SIZE = 1024 };

/* ------------------------------------------------------------------------------------- the root */

int doctor_root_open(const char *dir, struct doctor_root *out)
{
    int fd = open(dir != NULL ? dir : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    *out = (struct doctor_root){ .fd = fd, .live = dir == NULL };
    return 0;
}

void doctor_root_close(struct doctor_root *root)
{
    (void)close(root->fd);
    root->fd = -1;
}

static bool format_path(char out[PATH_SIZE], const char *format, va_list arguments)
    TOOL_PRINTF(2, 0);

static bool format_path(char out[PATH_SIZE], const char *format, va_list arguments)
{
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    int length = vsnprintf(out, PATH_SIZE, format, arguments);
    return length >= 0 && length < PATH_SIZE;
}

/* Opens a path below the root. Links in a copied tree are followed as if its root were "/", so they
 * stay inside. Kernels before 5.6, and containers that forbid openat2(2), follow them as on the
 * machine itself. */
static int open_below(const struct doctor_root *root, const char *path, int flags)
{
    if (root->live) {
        return openat(root->fd, path, flags | O_CLOEXEC);
    }
    struct open_how how = {
        .flags = (unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    int fd = -1;
    int tries = 64;
    do {
        fd = (int)syscall(SYS_openat2, root->fd, path, &how, sizeof(how));
    } while (fd < 0 && errno == EAGAIN && --tries > 0); /* a concurrent rename disturbed a ".." */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = openat(root->fd, path, flags | O_CLOEXEC);
    }
    return fd;
}

bool doctor_exists(const struct doctor_root *root, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int fd = format_path(path, format, arguments) ? open_below(root, path, O_PATH) : -1;
    va_end(arguments);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

bool doctor_is_folder(const struct doctor_root *root, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int fd = format_path(path, format, arguments) ? open_below(root, path, O_PATH | O_DIRECTORY)
                                                  : -1;
    va_end(arguments);
    if (fd >= 0) {
        (void)close(fd);
    }
    return fd >= 0;
}

int doctor_try_open(const struct doctor_root *root, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    if (!fits) {
        return ENAMETOOLONG;
    }
    int fd = open_below(root, path, O_RDWR | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return errno;
    }
    (void)close(fd);
    return 0;
}

/* -------------------------------------------------------------------------------------- reading */

/* Opens a regular file. Refuses a device, a pipe or a folder, because reading it may block or have
 * side effects. Returns -1 with errno set on failure. */
static int open_file(const struct doctor_root *root, const char *path)
{
    int fd = open_below(root, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat facts;
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode)) {
        (void)close(fd);
        errno = EINVAL;
        return -1;
    }
    return fd;
}

/* Reads up to size bytes; *length is the number read. Returns 0, or an errno value if nothing could
 * be read. */
static int read_path(const struct doctor_root *root, const char *path, char *out, size_t size,
                     size_t *length)
{
    *length = 0;
    int fd = open_file(root, path);
    if (fd < 0) {
        return errno;
    }
    int error = 0;
    while (*length < size) {
        ssize_t got = read(fd, out + *length, size - *length);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            error = got < 0 ? errno : 0;
            break;
        }
        *length += (size_t)got;
    }
    (void)close(fd);
    return *length > 0 ? 0 : error;
}

static int read_text(const struct doctor_root *root, const char *path, char *out, size_t size)
{
    size_t length = 0;
    int error = read_path(root, path, out, size - 1, &length);
    out[length] = '\0';
    length = strlen(out);
    while (length > 0 && isspace((unsigned char)out[length - 1]) != 0) {
        length--;
    }
    out[length] = '\0';
    return error;
}

int doctor_read(const struct doctor_root *root, char *out, size_t size, const char *format, ...)
{
    char path[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    out[0] = '\0';
    return fits ? read_text(root, path, out, size) : ENAMETOOLONG;
}

static bool is_one_component(const char *name)
{
    return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strchr(name, '/') == NULL;
}

/* Copies a name if it is valid as a component of a path. */
static bool take_name(const char *name, char out[DOCTOR_NAME_MAX])
{
    out[0] = '\0';
    size_t length = strlen(name);
    if (!is_one_component(name) || length >= DOCTOR_NAME_MAX) {
        return false;
    }
    memcpy(out, name, length + 1);
    return true;
}

bool doctor_read_name(const struct doctor_root *root, char out[DOCTOR_NAME_MAX], const char *format,
                      ...)
{
    char path[PATH_SIZE];
    char text[DOCTOR_VALUE_MAX];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    out[0] = '\0';
    if (!fits || read_text(root, path, text, sizeof(text)) != 0) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    return take_name(text, out);
}

bool doctor_read_number(const struct doctor_root *root, uint64_t *out, const char *format, ...)
{
    char path[PATH_SIZE];
    char text[DOCTOR_VALUE_MAX];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    if (!fits || read_text(root, path, text, sizeof(text)) != 0 || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    unsigned long long value = strtoull(text, NULL, strncmp(text, "0x", 2) == 0 ? 16 : 10);
    if (errno != 0) {
        return false;
    }
    *out = value;
    return true;
}

size_t doctor_read_bytes(const struct doctor_root *root, void *out, size_t size, const char *format,
                         ...)
{
    char path[PATH_SIZE];
    size_t length = 0;
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    return fits && read_path(root, path, out, size, &length) == 0 ? length : 0;
}

bool doctor_read_link(const struct doctor_root *root, char out[DOCTOR_NAME_MAX], const char *format,
                      ...)
{
    char path[PATH_SIZE];
    char target[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    out[0] = '\0';
    int fd = fits ? open_below(root, path, O_PATH | O_NOFOLLOW) : -1;
    if (fd < 0) {
        return false;
    }
    ssize_t length = readlinkat(fd, "", target, sizeof(target) - 1);
    (void)close(fd);
    if (length <= 0) {
        return false;
    }
    target[length] = '\0';
    const char *slash = strrchr(target, '/');
    return take_name(slash != NULL ? slash + 1 : target, out);
}

/* -------------------------------------------------------------------------------------- folders */

static int compare_names(const void *one, const void *other)
{
    return strverscmp(*(char *const *)one, *(char *const *)other);
}

/* Adds a name. Returns false if memory is short. */
static bool add_name(struct doctor_names *names, size_t *room, const char *name)
{
    if (names->count == *room) {
        size_t more = *room > 0 ? *room * 2 : 16;
        char **items = realloc(names->items, more * sizeof(*items));
        if (items == NULL) {
            return false;
        }
        names->items = items;
        *room = more;
    }
    names->items[names->count] = strdup(name);
    if (names->items[names->count] == NULL) {
        return false;
    }
    names->count++;
    return true;
}

struct doctor_names doctor_list(const struct doctor_root *root, const char *format, ...)
{
    struct doctor_names names = { .items = NULL };
    size_t room = 0;
    char path[PATH_SIZE];
    va_list arguments;
    va_start(arguments, format);
    bool fits = format_path(path, format, arguments);
    va_end(arguments);
    int fd = fits ? open_below(root, path, O_RDONLY | O_DIRECTORY) : -1;
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return names;
    }
    const struct dirent *entry = NULL;
    while (names.count < DOCTOR_LIST_MAX && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] != '.' && !add_name(&names, &room, entry->d_name)) {
            break;
        }
    }
    (void)closedir(folder);
    if (names.count > 0) {
        qsort(names.items, names.count, sizeof(*names.items), compare_names);
    }
    return names;
}

void doctor_names_free(struct doctor_names *names)
{
    for (size_t i = 0; i < names->count; i++) {
        free(names->items[i]);
    }
    free(names->items);
    *names = (struct doctor_names){ .items = NULL };
}

/* ----------------------------------------------------------------------------------------- CPUs */

size_t doctor_cpus_parse(const char *text, struct doctor_cpus *out)
{
    size_t count = 0;
    memset(out, 0, sizeof(*out));
    const char *at = text;
    while (*at >= '0' && *at <= '9') {
        char *end = NULL;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (*end == '-' && end[1] >= '0' && end[1] <= '9') {
            last = strtoul(end + 1, &end, 10);
        }
        for (unsigned long cpu = first; cpu <= last && cpu < DOCTOR_CPU_MAX; cpu++) {
            uint64_t bit = UINT64_C(1) << (cpu % 64);
            count += (out->words[cpu / 64] & bit) == 0 ? 1 : 0;
            out->words[cpu / 64] |= bit;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return count;
}

bool doctor_cpus_overlap(const struct doctor_cpus *one, const struct doctor_cpus *other)
{
    for (size_t i = 0; i < TOOL_COUNT_OF(one->words); i++) {
        if ((one->words[i] & other->words[i]) != 0) {
            return true;
        }
    }
    return false;
}

bool doctor_cpus_contain(const struct doctor_cpus *all, const struct doctor_cpus *part)
{
    for (size_t i = 0; i < TOOL_COUNT_OF(all->words); i++) {
        if ((part->words[i] & ~all->words[i]) != 0) {
            return false;
        }
    }
    return true;
}

/* -------------------------------------------------------------------------------------- quoting */

const char *doctor_quote(const char *name, char *out, size_t size)
{
    size_t length = 0;
    if (name[0] != '\0' &&
        name[strspn(name,
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:@%+-")] ==
            '\0') {
        (void)snprintf(out, size, "%s", name);
        return out;
    }
    out[length++] = '\'';
    for (const char *at = name; *at != '\0' && length + 6 < size; at++) {
        if (*at == '\'') {
            memcpy(out + length, "'\\''", 4);
            length += 4;
        } else {
            out[length++] = *at;
        }
    }
    out[length++] = '\'';
    out[length] = '\0';
    return out;
}
