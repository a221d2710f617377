/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* plugin_opener WORD [FOLDER]: opens a fabric with its default plug-ins, and with those of the
 * folder. */
#include "plugin_opener.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <string.h>
#include <sys/auxv.h>

static bool named;

static void look_at(void *word, enum rdmux_log_level level, const char *line)
{
    (void)level;
    named = named || strstr(line, word) != NULL;
}

int main(int argc, char **argv)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.log = look_at;
    attr.log_user = argv[1];
    attr.log_level = RDMUX_LOG_DEBUG;
    attr.provider_dir = argc > 2 ? argv[2] : NULL;
    if (argc < 2 || rdmux_fabric_open(&attr, &fabric) != RDMUX_OK ||
        rdmux_fabric_close(fabric) != RDMUX_OK) {
        return OPENER_FAILED;
    }
    return (named ? OPENER_NAMED : OPENER_QUIET) + (getauxval(AT_SECURE) != 0 ? OPENER_SECURE : 0);
}
