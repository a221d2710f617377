/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The primitives of api/system, over Linux. */
#include "tests/unit/system_contract.h"

int main(void)
{
    return cmocka_run_group_tests(system_contract, NULL, NULL);
}
