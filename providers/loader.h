/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens plug-in files and judges what they bring. */
#ifndef RDMUX_PROVIDERS_LOADER_H
#define RDMUX_PROVIDERS_LOADER_H

#include <rdmux/provider.h>

#include <stddef.h>

enum { RDMUX_REFUSAL_PLACE_MAX = 1024 };

/* Why a plug-in or one of its providers was refused. Peers see text and hint, too: they name no
 * folder of this machine. */
struct rdmux_refusal {
    uint32_t reason; /* RDMUX_REASON_BAD_PLUGIN or RDMUX_REASON_NO_LIBRARY */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    char place[RDMUX_REFUSAL_PLACE_MAX]; /* for the log alone: the object that is to blame, "" = the plug-in */
};

/*
 * Loads the file at path, if its owners and theirs of the folders above it are trusted (trust.h), for ever: it is never unloaded, as its code may have left threads, exit
 * handlers or driver libraries behind. *out is what it exports, of our ABI; its tables are not
 * judged yet.
 * Errors  RDMUX_NO_PATH: refused, *refusal says why
 */
enum rdmux_status rdmux_plugin_load(const char *path, const struct rdmux_plugin **out,
                                    struct rdmux_refusal *refusal);

/*
 * Is this a table the core can work with: ABI number and size, a valid name, big enough objects,
 * every operation set? Whether the name is taken is the registry's to say.
 * Errors  RDMUX_NO_PATH: no, *refusal says why
 */
enum rdmux_status rdmux_provider_check(const struct rdmux_provider_ops *ops,
                                       struct rdmux_refusal *refusal);

/* The file that librdmux.so was loaded from, "" if the library is part of a program or of another
 * library: those have no folder of plug-ins. size at least PATH_MAX. */
void rdmux_library_file(char *out, size_t size);
/* The folder that is searched without being named, "" = none: rdmux/ beside librdmux.so, or in a
 * program with rights of its file the one that was compiled in. size at least PATH_MAX. */
void rdmux_plugin_folder(char *out, size_t size);

#endif
