/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Loads plug-in files and checks the provider tables that they export. */
#ifndef RDMUX_PROVIDERS_LOADER_H
#define RDMUX_PROVIDERS_LOADER_H

#include <rdmux/provider.h>

#include <stddef.h>

enum { RDMUX_REFUSAL_PLACE_MAX = 1024 };

/* Why a plug-in or one of its providers was refused. Peers see text and hint too, so both name no
 * folder of this machine. */
struct rdmux_refusal {
    uint32_t reason; /* RDMUX_REASON_BAD_PLUGIN or RDMUX_REASON_NO_LIBRARY */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
    char place[RDMUX_REFUSAL_PLACE_MAX]; /* log only: the object at fault, "" = the plug-in */
};

/*
 * Loads the plug-in at path if trust.h accepts the file and the folders above it, and if it is bound
 * to this copy of rdmux (binding.h). A loaded plug-in
 * is never unloaded, because its code may have left threads, exit handlers or driver libraries
 * behind. *out is the plug-in's export, of this library's ABI. Its tables are not checked yet.
 * Errors  RDMUX_NO_PATH: refused, *refusal says why
 */
enum rdmux_status rdmux_plugin_load(const char *path, const struct rdmux_plugin **out,
                                    struct rdmux_refusal *refusal);

/*
 * Checks that the core can use the plug-in: ABI number, and that it has providers, whose tables are
 * not checked.
 * Errors  RDMUX_NO_PATH: no, *refusal says why
 */
enum rdmux_status rdmux_plugin_check(const struct rdmux_plugin *plugin,
                                     struct rdmux_refusal *refusal);

/*
 * Checks that the core can use the table: ABI number and size, a valid name, objects that are big
 * enough, every operation set. The registry checks whether the name is taken.
 * Errors  RDMUX_NO_PATH: no, *refusal says why
 */
enum rdmux_status rdmux_provider_check(const struct rdmux_provider_ops *ops,
                                       struct rdmux_refusal *refusal);

/* Writes the default plug-in folder, "" = none: rdmux/ beside librdmux.so, or the compiled-in
 * folder if rdmux_trust_is_secure(). size is at least PATH_MAX. */
void rdmux_plugin_folder(char *out, size_t size);

#endif
