/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Opens plug-in files and judges what they bring. */
#ifndef RDMUX_PROVIDERS_LOADER_H
#define RDMUX_PROVIDERS_LOADER_H

#include <rdmux/provider.h>

#include <stddef.h>

/* Why a plug-in or one of its providers was refused. Peers see text and hint, too: they name no
 * folder of this machine. */
struct rdmux_refusal {
    uint32_t reason; /* RDMUX_REASON_BAD_PLUGIN or RDMUX_REASON_NO_LIBRARY */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
};

/*
 * Loads the file at path for ever: it is never unloaded, as its code may have left threads, exit
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

/* The folder that librdmux.so was loaded from, "" if the library is part of the program. size at
 * least PATH_MAX. */
void rdmux_library_folder(char *out, size_t size);

#endif
