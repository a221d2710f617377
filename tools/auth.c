/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "auth.h"

#include "tool.h"

enum { AUTH_NONE, AUTH_PSK, AUTH_CERT };

/* Static, because a process runs one command only. */
static struct {
    unsigned method; /* AUTH_* */
    const char *key_file;
    const char *identity;
    const char *cert_file;
    const char *ca_file;
    const char *trusted;
    bool require_encryption;
    struct option_list peers;
    struct rdmux_fabric_auth auth;
} given;

static const char *const methods[] = { "none", "psk", "cert", NULL };

static const struct option_spec options[] = {
    { .name = "auth",
      .kind = OPTION_CHOICE,
      .choice = &given.method,
      .argument = "METHOD",
      .choices = methods,
      .help = "none, psk (a pre-shared key) or cert (certificates)" },
    { .name = "key-file",
      .kind = OPTION_TEXT,
      .text = &given.key_file,
      .argument = "FILE",
      .help = "psk: lines IDENTITY:KEY, hexadecimal; cert: the private key, PEM; mode 0600" },
    { .name = "identity",
      .kind = OPTION_TEXT,
      .text = &given.identity,
      .argument = "NAME",
      .help = "psk: the identity to connect with; default: that of the first line" },
    { .name = "cert-file",
      .kind = OPTION_TEXT,
      .text = &given.cert_file,
      .argument = "FILE",
      .help = "cert: the certificate of this side and its chain, PEM" },
    { .name = "ca-file",
      .kind = OPTION_TEXT,
      .text = &given.ca_file,
      .argument = "FILE",
      .help = "cert: the authorities that vouch for peers, PEM" },
    { .name = "peer",
      .kind = OPTION_LIST,
      .list = &given.peers,
      .argument = "NAME",
      .help = "admit this identity; those that are not named are refused" },
    { .name = "require-encryption",
      .kind = OPTION_FLAG,
      .flag = &given.require_encryption,
      .help = "only paths that others cannot read, and those of --trusted" },
    { .name = "trusted",
      .kind = OPTION_TEXT,
      .text = &given.trusted,
      .argument = "LIST",
      .help = "paths that no one else can read, such as \"shm,ib\"; default: shm" },
};

const struct option_spec *tool_auth_options(size_t *count)
{
    *count = TOOL_COUNT_OF(options);
    return options;
}

bool tool_auth_check(const char *command)
{
    if (given.method != AUTH_NONE) {
        return true; /* the library checks the combination */
    }
    const char *idle = given.key_file != NULL     ? "key-file"
                       : given.identity != NULL   ? "identity"
                       : given.cert_file != NULL  ? "cert-file"
                       : given.ca_file != NULL    ? "ca-file"
                       : given.peers.count != 0   ? "peer"
                       : given.require_encryption ? "require-encryption"
                       : given.trusted != NULL    ? "trusted"
                                                  : NULL;
    if (idle != NULL) {
        tool_error(command, "--%s is of no use without --auth psk or --auth cert", idle);
    }
    return idle == NULL;
}

const struct rdmux_fabric_auth *tool_auth(void)
{
    if (given.method == AUTH_NONE) {
        return NULL;
    }
    struct rdmux_fabric_auth *auth = &given.auth;
    *auth = (struct rdmux_fabric_auth)RDMUX_FABRIC_AUTH_INIT;
    auth->method = given.method == AUTH_PSK ? RDMUX_AUTH_PSK : RDMUX_AUTH_CERT;
    auth->flags = given.require_encryption ? RDMUX_AUTH_REQUIRE_ENCRYPTION : 0;
    auth->key_file = given.key_file;
    auth->identity = given.identity;
    auth->cert_file = given.cert_file;
    auth->ca_file = given.ca_file;
    auth->peers = given.peers.values;
    auth->peer_count = given.peers.count;
    auth->trusted = given.trusted;
    return auth;
}
