/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The explanation of this thread's last set-up. */
#ifndef RDMUX_API_SETUP_LAST_EXPLANATION_H
#define RDMUX_API_SETUP_LAST_EXPLANATION_H

#include "api/core/fabric.h"

/* Keeps an explanation for rdmux_last_explanation(), and takes ownership. NULL clears it. */
void rdmux_set_last_explanation(struct rdmux_explanation *explanation);

#endif
