/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The files that lives need, in a folder of their own: a key, a certificate, a folder with a
 * plug-in. It is the runtime folder, too, in which fabrics share their counts. */
#ifndef RDMUX_TESTS_FAULT_PAPERS_H
#define RDMUX_TESTS_FAULT_PAPERS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

bool papers_write(void);
void papers_remove(void);
/* Returns the options of RDMUX_AUTH_PSK or RDMUX_AUTH_CERT; the strings stay valid. */
struct rdmux_fabric_auth papers_auth(uint32_t method);
/* Returns a folder that contains a file FAULT_PLUGIN. */
const char *papers_plugins(void);

#endif
