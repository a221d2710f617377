/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Provider registry of a fabric: the library's providers, and those of plug-ins. */
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
    char name[RDMUX_NAME_MAX];   /* of the provider, or the plug-in's file name */
    char source[RDMUX_NAME_MAX]; /* as rdmux_path_info.source */
    uint32_t reason;             /* of an absent one: NO_LIBRARY, BAD_PLUGIN */
    /* 1: a filter of the fabric or the environment names it (RDMUX_PROVIDER_ON_REQUEST). */
    uint32_t is_named;
    char text[RDMUX_TEXT_MAX];
    char hint[RDMUX_TEXT_MAX];
};

/* Of one fabric. */
struct rdmux_registry {
    struct rdmux_fabric *fabric; /* whose log and memory are used */
    struct rdmux_provider_entry entries[RDMUX_FABRIC_PROVIDERS_MAX];
    size_t count;
    size_t plugins; /* loaded, of the program and of files */
};

/*
 * Fills the registry: the library's providers, then attr->builtin, then the plug-ins (files *.so,
 * sorted by name) in rdmux_plugin_folder(), in attr->provider_dir and in environment_dir, then
 * attr->plugins. The first provider of a name wins. Refused plug-ins and providers become entries
 * without a table that say why, except a file's provider whose name attr->builtin has. So do ib,
 * roce and iwarp if no plug-in provides them.
 * built_in         The library's providers; NULL ends the list.
 * attr             Full-size structure, every field is present. With
 *                  RDMUX_FABRIC_NO_DEFAULT_PLUGINS no folder is searched.
 * environment_dir  NULL or "": none.
 * Errors           RDMUX_NO_MEMORY. A bad plug-in is no error.
 */
enum rdmux_status rdmux_registry_fill(struct rdmux_registry *registry, struct rdmux_fabric *fabric,
                                      const struct rdmux_provider_ops *const *built_in,
                                      const struct rdmux_fabric_attr *attr,
                                      const char *environment_dir);
/* The last step of rdmux_registry_fill(): adds an entry with a reason for each of ib, roce and
 * iwarp that no plug-in provides, so that every explanation lists them. */
void rdmux_registry_add_absent(struct rdmux_registry *registry);
/* Fills an offer: probes every provider, and adds absent ones with their reason. offer->filter[1] is
 * the endpoint's filter, which may name a provider that has paths on request only. [may sleep] */
void rdmux_registry_offer_paths(const struct rdmux_registry *registry, struct rdmux_offer *offer);

#endif
