/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A shared object that is no plug-in of rdmux. */
int some_other_function(void);

int some_other_function(void)
{
    return 0;
}
