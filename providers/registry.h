/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The providers of a fabric: those built in, and those of plug-ins. */
#ifndef RDMUX_PROVIDERS_REGISTRY_H
#define RDMUX_PROVIDERS_REGISTRY_H

#include "negotiation/offer.h"

#include <rdmux/provider.h>

#include <stddef.h>
#include <stdint.h>

enum { RDMUX_FABRIC_PROVIDERS_MAX = 32 };

/* One provider as the registry sees it. */
struct rdmux_provider_entry {
    /* NULL: named but absent, or a plug-in that was refused. */
    const struct rdmux_provider_ops *ops;
    char name[RDMUX_NAME_MAX]; /* of the provider, or the plug-in's file name */
    uint32_t reason;           /* of an absent one: NO_LIBRARY, BAD_PLUGIN */
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
};

/* Of one fabric. */
struct rdmux_registry {
    struct rdmux_fabric *fabric; /* whose log and memory are used */
    struct rdmux_provider_entry entries[RDMUX_FABRIC_PROVIDERS_MAX];
    size_t count;
};

/*
 * Fills it: the built-in providers, then the plug-ins (files *.so by name) in rdmux/ beside librdmux.so,
 * in attr->provider_dir, in environment_dir, then attr->plugins. The first provider of a name wins. What
 * was refused, and ib, roce and iwarp where nobody provides them, become entries without table that say
 * why.
 * built_in         The library's own; NULL ends the list.
 * attr             All of its fields are there. RDMUX_FABRIC_NO_DEFAULT_PLUGINS leaves built-in
 *                  ones and attr->plugins.
 * environment_dir  NULL or "": none.
 * Errors           RDMUX_NO_MEMORY. A plug-in that is no good is none.
 */
enum rdmux_status rdmux_registry_fill(struct rdmux_registry *registry, struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *const *built_in,
                                      const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir);
/* The last part of it: ib, roce and iwarp are in every explanation, with the reason why nobody
 * provides them. */
void rdmux_registry_add_absent(struct rdmux_registry *registry);
/* An offer's paths: probe of every provider, absent ones with their reason. [may sleep] */
void rdmux_registry_offer_paths(const struct rdmux_registry *registry, struct rdmux_offer *offer);

#endif
