/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Selects the TLS session that carries the bytes of a path. */
#include "api/base/stream.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "api/system/system.h"
#include "negotiation/control_channel.h"
#include "negotiation/path_secret.h"

#include <string.h>

bool rdmux_paths_are_encrypted(const struct rdmux_fabric *fabric)
{
    return fabric->auth != NULL;
}

enum rdmux_status rdmux_path_stream(struct rdmux_provider_ep *path, int socket, uint32_t index,
                                    struct rdmux_path_stream **out)
{
    const struct rdmux_ep *ep = path->ep;
    if (ep->fabric->auth == NULL) {
        *out = NULL;
        return RDMUX_OK;
    }
    if (ep->negotiated.path_attr.shared_socket >= 0) {
        *out = rdmux_channel_carry_data(ep->channel);
        return RDMUX_OK;
    }
    uint8_t key[RDMUX_DATA_KEY_SIZE];
    if (!rdmux_data_key(ep->secrets->secret, ep->negotiated.attempt, index, key)) {
        return rdmux_fail(RDMUX_NO_MEMORY, "no memory for a digest");
    }
    enum rdmux_status status = rdmux_tls_create_data(ep->fabric->auth, ep->negotiated.role, socket,
                                                     key, out);
    rdmux_wipe(key, sizeof(key));
    return status;
}
