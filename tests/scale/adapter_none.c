/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "adapter.h"

bool adapter_read(struct adapter_use *out)
{
    (void)out;
    return false;
}
