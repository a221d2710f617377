/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* A program of the project that contains rdmux; it is not built. */
int main(void)
{
    return 0;
}
