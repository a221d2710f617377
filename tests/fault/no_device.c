/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Without the headers of rdma-core there is neither the plug-in nor the simulated adapter. */
#include "device.h"

bool device_is_possible(void)
{
    return false;
}

bool device_start(const char *options, const char **text)
{
    (void)options;
    *text = "the headers of libibverbs and librdmacm were not there when this was built";
    return false;
}

void device_port(bool up)
{
    (void)up;
}

void device_break(void)
{
}

size_t device_objects(void)
{
    return 0;
}

void device_end(void)
{
}

bool device_keeps_objects(const char *victim)
{
    (void)victim;
    return false;
}
