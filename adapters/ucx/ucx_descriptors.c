/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapters/ucx/ucx_descriptors.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Kinds of relocations that fill a table of imported functions. */
#if defined(__x86_64__)
enum { IMPORT_LAZY = R_X86_64_JUMP_SLOT, IMPORT_NOW = R_X86_64_GLOB_DAT };
#elif defined(__aarch64__)
enum { IMPORT_LAZY = R_AARCH64_JUMP_SLOT, IMPORT_NOW = R_AARCH64_GLOB_DAT };
#else
enum { IMPORT_LAZY = -1, IMPORT_NOW = -1 };
#endif

/* ------------------------------------------------------------------------------ the calls of UCX */

static int socket_closing(int domain, int type, int protocol)
{
    return socket(domain, type | SOCK_CLOEXEC, protocol);
}

static int accept_closing(int fd, struct sockaddr *address, socklen_t *length)
{
    return accept4(fd, address, length, SOCK_CLOEXEC);
}

static int pipe_closing(int fds[2])
{
    return pipe2(fds, O_CLOEXEC);
}

static int epoll_closing(int size)
{
    (void)size;
    return epoll_create1(EPOLL_CLOEXEC);
}

static int timer_closing(int clock, int flags)
{
    return timerfd_create(clock, flags | TFD_CLOEXEC);
}

static int event_closing(unsigned int count, int flags)
{
    return eventfd(count, flags | EFD_CLOEXEC);
}

static int open_closing(const char *path, int flags, ...)
{
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return open(path, flags | O_CLOEXEC, mode);
}

struct replacement {
    const char *name;
    void (*function)(void);
};

static const struct replacement replacements[] = {
    { "socket", (void (*)(void))socket_closing },
    { "accept", (void (*)(void))accept_closing },
    { "pipe", (void (*)(void))pipe_closing },
    { "epoll_create", (void (*)(void))epoll_closing },
    { "timerfd_create", (void (*)(void))timer_closing },
    { "eventfd", (void (*)(void))event_closing },
    { "open", (void (*)(void))open_closing },
    { "open64", (void (*)(void))open_closing },
};
enum { REPLACEMENT_COUNT = sizeof(replacements) / sizeof(replacements[0]) };

/* ------------------------------------------------------------------------------------ the tables */

/* A loaded library. */
struct image {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * lazy; /* tables of relocations, and their bytes */
    size_t lazy_size;
    const ElfW(Rela) * now;
    size_t now_size;
    uintptr_t sealed; /* what the loader has made read-only again */
    size_t sealed_size;
};

static bool is_of_ucx(const char *path)
{
    static const char *const names[] = { "libucs.so", "libuct.so", "libucp.so" };
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(name, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

static struct image read_image(const struct dl_phdr_info *info)
{
    struct image image = { .base = info->dlpi_addr };
    const ElfW(Dyn) *entry = NULL;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type == PT_DYNAMIC) {
            entry = (const ElfW(Dyn) *)(image.base + header->p_vaddr);
        } else if (header->p_type == PT_GNU_RELRO) {
            image.sealed = image.base + header->p_vaddr;
            image.sealed_size = header->p_memsz;
        }
    }
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            image.symbols = (const ElfW(Sym) *)entry->d_un.d_ptr;
            break;
        case DT_STRTAB:
            image.names = (const char *)entry->d_un.d_ptr;
            break;
        case DT_JMPREL:
            image.lazy = (const ElfW(Rela) *)entry->d_un.d_ptr;
            break;
        case DT_PLTRELSZ:
            image.lazy_size = entry->d_un.d_val;
            break;
        case DT_RELA:
            image.now = (const ElfW(Rela) *)entry->d_un.d_ptr;
            break;
        case DT_RELASZ:
            image.now_size = entry->d_un.d_val;
            break;
        default:
            break;
        }
    }
    return image;
}

/* Writes an entry of a table, also one that the loader has sealed. */
static bool write_entry(const struct image *image, uintptr_t at, uintptr_t value)
{
    const uintptr_t page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    void *page = (void *)(at & ~(page_size - 1));
    const bool is_sealed = at >= image->sealed && at - image->sealed < image->sealed_size;
    if (is_sealed && mprotect(page, page_size, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    *(uintptr_t *)at = value;
    return !is_sealed || mprotect(page, page_size, PROT_READ) == 0;
}

static size_t replace_in(const struct image *image, const ElfW(Rela) * table, size_t size)
{
    size_t done = 0;
    for (size_t i = 0; table != NULL && i < size / sizeof(*table); i++) {
        const int kind = (int)ELF64_R_TYPE(table[i].r_info);
        if (kind != IMPORT_LAZY && kind != IMPORT_NOW) {
            continue;
        }
        const char *name = image->names + image->symbols[ELF64_R_SYM(table[i].r_info)].st_name;
        for (size_t k = 0; k < REPLACEMENT_COUNT; k++) {
            if (strcmp(name, replacements[k].name) == 0) {
                done += write_entry(image, image->base + table[i].r_offset,
                                    (uintptr_t)replacements[k].function);
            }
        }
    }
    return done;
}

static int visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    size_t *done = argument;
    (void)size;
    if (IMPORT_LAZY >= 0 && is_of_ucx(info->dlpi_name)) {
        const struct image image = read_image(info);
        *done += replace_in(&image, image.lazy, image.lazy_size);
        *done += replace_in(&image, image.now, image.now_size);
    }
    return 0;
}

size_t rdmux_ucx_close_on_exec(void)
{
    size_t done = 0;
    (void)dl_iterate_phdr(visit, &done);
    return done;
}
