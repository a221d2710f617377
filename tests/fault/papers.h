/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The files that lives need: a key, a certificate, a folder with a plug-in. In a folder of their own. */
#ifndef RDMUX_TESTS_FAULT_PAPERS_H
#define RDMUX_TESTS_FAULT_PAPERS_H

#include <rdmux/rdmux.h>

#include <stdbool.h>

bool papers_write(void);
void papers_remove(void);
/* Of RDMUX_AUTH_PSK or RDMUX_AUTH_CERT; the strings stay. */
struct rdmux_fabric_auth papers_auth(uint32_t method);
/* A folder with a file FAULT_PLUGIN in it. */
const char *papers_plugins(void);

#endif
