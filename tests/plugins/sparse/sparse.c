/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The toy provider as a fabric with less: its path lacks what RDMUX_SPARSE names, such as
 * "SEND,SEND_IMM,READ". The core then refuses these, and the conformance suite has to judge what is
 * left by the rules that it can keep.
 */
#include "../toy/toy.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint64_t capability;
} capabilities[] = {
    { "SEND", RDMUX_CAP_SEND },     { "SEND_IMM", RDMUX_CAP_SEND_IMM },
    { "WRITE", RDMUX_CAP_WRITE },   { "WRITE_IMM", RDMUX_CAP_WRITE_IMM },
    { "READ", RDMUX_CAP_READ },     { "ATOMICS", RDMUX_CAP_FETCH_ADD | RDMUX_CAP_COMPARE_SWAP },
    { "PLACED", RDMUX_CAP_PLACED }, { "SRQ", RDMUX_CAP_SRQ },
    { "FENCE", RDMUX_CAP_FENCE },
};

/* What the list names; a name that is none is no capability, and then no path is usable. */
static bool read_list(const char *at, uint64_t *out)
{
    *out = 0;
    while (*at != '\0') {
        size_t length = strcspn(at, ",");
        uint64_t found = 0;
        for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++) {
            if (strlen(capabilities[i].name) == length &&
                memcmp(capabilities[i].name, at, length) == 0) {
                found = capabilities[i].capability;
            }
        }
        if (found == 0) {
            return false;
        }
        *out |= found;
        at += length + (at[length] == ',');
    }
    return true;
}

static enum rdmux_status sparse_probe(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                      size_t max, size_t *count)
{
    const char *list = getenv("RDMUX_SPARSE");
    uint64_t lacking = 0;
    if (!read_list(list == NULL ? "" : list, &lacking)) {
        rdmux_provider_error("sparse: RDMUX_SPARSE has a name that is no capability: %s", list);
        return RDMUX_INVALID;
    }
    enum rdmux_status status = toy_provider.probe(fabric, out, max, count);
    for (size_t i = 0; status == RDMUX_OK && i < *count && i < max; i++) {
        out[i].native &= ~lacking;
        out[i].emulated &= ~lacking;
    }
    return status;
}

RDMUX_API const struct rdmux_plugin *rdmux_plugin(void);

const struct rdmux_plugin *rdmux_plugin(void)
{
    static struct rdmux_provider_ops sparse_provider;
    static const struct rdmux_provider_ops *const providers[] = { &sparse_provider };
    static const struct rdmux_plugin plugin = {
        .abi = RDMUX_PROVIDER_ABI,
        .count = 1,
        .providers = providers,
    };
    sparse_provider = toy_provider;
    sparse_provider.name = "sparse";
    sparse_provider.probe = sparse_probe;
    return &plugin;
}
