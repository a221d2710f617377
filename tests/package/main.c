/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The smallest user of an installed rdmux. */
#include <rdmux/provider.h>
#include <rdmux/rdmux.h>

#include <stdio.h>

int main(void)
{
    struct rdmux_fabric *fabric = NULL;
    enum rdmux_status status = rdmux_fabric_open(NULL, &fabric);
    if (status != RDMUX_OK) {
        (void)fprintf(stderr, "fabric: %s\n", rdmux_last_error());
        return 1;
    }
    if (rdmux_fabric_close(fabric) != RDMUX_OK) {
        return 1;
    }
    printf("%s\n", rdmux_version());
    return 0;
}
