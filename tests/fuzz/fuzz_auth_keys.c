/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Key files: the bytes of a file are refused, or every decoded key is valid. */
#include "api/core/fabric.h"
#include "driver.h"

#include "negotiation/auth.h"

#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rdmux_fabric fabric; /* without hooks: the system allocates */
    struct rdmux_auth_key *keys = NULL;
    size_t count = 0;
    if (rdmux_auth_keys_parse(&fabric, "keys", (const char *)data, size, &keys, &count) !=
        RDMUX_OK) {
        require(keys == NULL);
        return 0;
    }
    require(count > 0);
    for (size_t i = 0; i < count; i++) {
        size_t length = strnlen(keys[i].identity, sizeof(keys[i].identity));
        require(length > 0 && length < sizeof(keys[i].identity));
        require(keys[i].size >= RDMUX_AUTH_KEY_MIN && keys[i].size <= RDMUX_AUTH_KEY_MAX);
        for (size_t j = 0; j < i; j++) {
            require(strcmp(keys[i].identity, keys[j].identity) != 0);
        }
    }
    rdmux_secret_unmap(keys, count * sizeof(*keys));
    return 0;
}
