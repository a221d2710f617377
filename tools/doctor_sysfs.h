/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Reads the files that `rdmux doctor` judges, below one root: the machine's own, or a folder with a
 * copy of a machine's files (sys/, proc/, dev/, ...). Paths are relative to the root, and no link
 * leads out of it.
 *
 * A tree may be broken or hostile, so every read is bounded. Files are cut, folders are listed up
 * to a limit, and only regular files are read. A name read from a file is refused if it could be
 * more than one component of a path.
 */
#ifndef RDMUX_TOOL_DOCTOR_SYSFS_H
#define RDMUX_TOOL_DOCTOR_SYSFS_H

#include "tool.h"

enum {
    DOCTOR_NAME_MAX = 64,    /* bytes of a device's name with its NUL (IB_DEVICE_NAME_MAX) */
    DOCTOR_VALUE_MAX = 256,  /* bytes of a one-line attribute */
    DOCTOR_CPU_MAX = 8192,   /* CPUs that a set can hold; CPUs above are left out */
    DOCTOR_LIST_MAX = 16384, /* entries of a folder that are read */
};

/* The root of all reads. */
struct doctor_root {
    int fd;
    bool live; /* the machine itself, not a copy */
};

/* Opens dir, or the machine's own root if it is NULL. Returns 0 or an errno value. */
int doctor_root_open(const char *dir, struct doctor_root *out);
void doctor_root_close(struct doctor_root *root);

/* Returns whether the path leads to something. */
bool doctor_exists(const struct doctor_root *root, const char *format, ...) TOOL_PRINTF(2, 3);

bool doctor_is_folder(const struct doctor_root *root, const char *format, ...) TOOL_PRINTF(2, 3);

/* Opens for reading and writing, as a program would, and closes. Returns 0 or an errno value. */
int doctor_try_open(const struct doctor_root *root, const char *format, ...) TOOL_PRINTF(2, 3);

/* Reads a file's first size - 1 bytes, up to a NUL, without trailing blanks. Returns 0, or an errno
 * value with out empty. */
int doctor_read(const struct doctor_root *root, char *out, size_t size, const char *format, ...)
    TOOL_PRINTF(4, 5);

/* Reads a file's first line as a name that is valid as a component of a path. Returns false, with
 * out empty, if it is not such a name. */
bool doctor_read_name(const struct doctor_root *root, char out[DOCTOR_NAME_MAX], const char *format,
                      ...) TOOL_PRINTF(3, 4);

/* Reads a number, decimal or with 0x. Returns false, with *out unchanged, if the file does not
 * begin with one. */
bool doctor_read_number(const struct doctor_root *root, uint64_t *out, const char *format, ...)
    TOOL_PRINTF(3, 4);

/* Reads up to size raw bytes; returns how many. */
size_t doctor_read_bytes(const struct doctor_root *root, void *out, size_t size, const char *format,
                         ...) TOOL_PRINTF(4, 5);

/* Reads the last component of a symbolic link's target. Returns false, with out empty, if there is
 * none. */
bool doctor_read_link(const struct doctor_root *root, char out[DOCTOR_NAME_MAX], const char *format,
                      ...) TOOL_PRINTF(3, 4);

/* The names in a folder, without those that begin with a dot, "eth2" before "eth10". */
struct doctor_names {
    char **items;
    size_t count;
};

/* Lists a folder; the list is empty if there is no such folder. Free it with
 * doctor_names_free(). */
struct doctor_names doctor_list(const struct doctor_root *root, const char *format, ...)
    TOOL_PRINTF(2, 3);
void doctor_names_free(struct doctor_names *names);

/* A set of CPUs. */
struct doctor_cpus {
    uint64_t words[DOCTOR_CPU_MAX / 64];
};

/* Reads a list such as "0-3,8,10-11" as far as it is valid; returns how many CPUs are in the
 * set. */
size_t doctor_cpus_parse(const char *text, struct doctor_cpus *out);
bool doctor_cpus_overlap(const struct doctor_cpus *one, const struct doctor_cpus *other);
bool doctor_cpus_contain(const struct doctor_cpus *all, const struct doctor_cpus *part);

/* Copies a name for a command that a user may type: unchanged, or quoted for the shell if it has
 * characters other than letters, digits and ._:@%+-. Cut if size is too small. */
const char *doctor_quote(const char *name, char *out, size_t size);

#endif
