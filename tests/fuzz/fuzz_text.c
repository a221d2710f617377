/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Text of users, the environment and peers: path filters, addresses, RDMUX_LOG, RDMUX_PATHS. Byte 0
 * picks the kind; the rest is the text. A refusal has an error text, and an accepted value is
 * within its bounds.
 */
#include "api/core/fabric.h"
#include "driver.h"

#include "api/base/address.h"
#include "negotiation/filter.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void require(bool holds)
{
    if (!holds) {
        abort();
    }
}

static void try_filter(const char *text)
{
    static const char *const names[] = { "tcp", "shm", "roce", "auto", "" };
    const char *word = NULL;
    enum rdmux_status status = rdmux_filter_check(text, &word);
    if (status != RDMUX_OK) {
        require(status == RDMUX_INVALID && word >= text && word <= text + strlen(text));
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        /* A peer's filter is used without a check of its words. */
        bool allows = rdmux_filter_allows(text, names[i]);
        bool by_name = rdmux_filter_names(text, names[i]);
        require(status != RDMUX_OK || !by_name || strstr(text, names[i]) != NULL);
        require(status != RDMUX_OK || strchr(text, '!') != NULL || !by_name || allows);
    }
}

static void try_address(const char *text)
{
    struct rdmux_address_text address;
    struct addrinfo *found = NULL;
    char out[RDMUX_ADDRESS_MAX];
    memset(&address, 0x7f, sizeof(address));
    if (rdmux_address_split(text, &address) != RDMUX_OK) {
        require(strstr(rdmux_last_error(), "address") != NULL);
        return;
    }
    require(memchr(address.host, '\0', sizeof(address.host)) != NULL);
    require(memchr(address.port, '\0', sizeof(address.port)) != NULL);
    require(strspn(address.port, "0123456789") == strlen(address.port) && address.port[0] != '\0' &&
            strtoul(address.port, NULL, 10) <= 65535);
    if (rdmux_address_resolve(&address, false, true, &found) == RDMUX_OK) {
        require(rdmux_address_format(found->ai_addr, found->ai_addrlen, out));
        require(memchr(out, '\0', sizeof(out)) != NULL);
        freeaddrinfo(found);
    }
}

/* Opens a fabric that reads the environment. Logs go to no file, as the target must create none. */
static void try_environment(const char *name, char *text)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    struct rdmux_fabric *fabric = NULL;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS | RDMUX_FABRIC_NO_SERVICE_THREAD |
                 RDMUX_FABRIC_NO_WORKER_THREAD;
    if (strcmp(name, "RDMUX_LOG") == 0 && strchr(text, ':') != NULL) {
        *strchr(text, ':') = '\0';
    }
    require(setenv(name, text, 1) == 0);
    enum rdmux_status status = rdmux_fabric_open(&attr, &fabric);
    require(unsetenv(name) == 0);
    if (status == RDMUX_OK) {
        require(rdmux_fabric_close(fabric) == RDMUX_OK);
        return;
    }
    require(status == RDMUX_INVALID && strstr(rdmux_last_error(), name) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    char *text = malloc(size); /* exactly as long as the text with its end */
    require(text != NULL);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    switch (data[0] % 8) {
    case 0:
        try_environment("RDMUX_LOG", text);
        break;
    case 1:
        try_environment("RDMUX_PATHS", text);
        break;
    case 2:
    case 3:
    case 4:
        try_filter(text);
        break;
    default:
        try_address(text);
        break;
    }
    free(text);
    return 0;
}
