/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Checks memory that an application registers. Software providers copy it in this process, so an
 * unreadable page would crash the process within the library, long after the call that named it.
 */
#include "api/object/mapping.h"

#include "api/base/error.h"
#include "api/system/system.h"

#include <inttypes.h>

enum rdmux_status rdmux_mapping_check(const void *addr, size_t length, bool writes)
{
    uint64_t at = 0;
    const char *fault = rdmux_memory_fault(addr, length, writes, &at);
    return fault == NULL
               ? RDMUX_OK
               : rdmux_fail(RDMUX_INVALID, "region: the memory at 0x%" PRIx64 " %s", at, fault);
}
