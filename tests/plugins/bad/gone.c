/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The library that run.sh deletes. */
int gone_library_call(void);

int gone_library_call(void)
{
    return 0;
}
