/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "papers.h"

#include "device.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER_MAX = 256, NAME_MAX_HERE = FOLDER_MAX + 32 };

static char folder[FOLDER_MAX];
static char psk_file[NAME_MAX_HERE];
static char key_file[NAME_MAX_HERE];
static char certificate_file[NAME_MAX_HERE];
static char plugin_file[NAME_MAX_HERE];

/* Creates a file that only this user may read, as keys require. */
static FILE *create(const char *name, char out[NAME_MAX_HERE])
{
    (void)snprintf(out, NAME_MAX_HERE, "%s/%s", folder, name);
    mode_t before = umask(077);
    FILE *file = fopen(out, "we");
    (void)umask(before);
    return file;
}

static bool write_text(const char *name, const char *text, char out[NAME_MAX_HERE])
{
    FILE *file = create(name, out);
    bool written = file != NULL && fputs(text, file) >= 0;
    return file != NULL && fclose(file) == 0 && written;
}

/* Makes a self-signed certificate for the loopback address and name, so that it is its own
 * authority. */
static X509 *certify(EVP_PKEY *key)
{
    static const struct {
        int which;
        const char *value;
    } extensions[] = {
        { NID_basic_constraints, "critical,CA:TRUE" },
        { NID_subject_alt_name, "IP:127.0.0.1,DNS:localhost" },
    };
    X509 *made = X509_new();
    X509V3_CTX context;
    X509V3_set_ctx(&context, made, made, NULL, NULL, 0);
    bool good = X509_set_version(made, 2) == 1 &&
                X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_ASC,
                                           (const unsigned char *)"fault", -1, -1, 0) == 1 &&
                X509_set_issuer_name(made, X509_get_subject_name(made)) == 1 &&
                ASN1_INTEGER_set(X509_get_serialNumber(made), 1) == 1 &&
                X509_gmtime_adj(X509_getm_notBefore(made), -86400L) != NULL &&
                X509_gmtime_adj(X509_getm_notAfter(made), 86400L) != NULL &&
                X509_set_pubkey(made, key) == 1;
    for (size_t i = 0; good && i < sizeof(extensions) / sizeof(extensions[0]); i++) {
        X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, extensions[i].which,
                                                        extensions[i].value);
        good = extension != NULL && X509_add_ext(made, extension, -1) == 1;
        X509_EXTENSION_free(extension);
    }
    if (!good || X509_sign(made, key, EVP_sha256()) <= 0) {
        X509_free(made);
        return NULL;
    }
    return made;
}

static bool write_certificate(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = key == NULL ? NULL : certify(key);
    FILE *keys = create("certificate.key", key_file);
    FILE *certificates = create("certificate.pem", certificate_file);
    bool written = certificate != NULL && keys != NULL && certificates != NULL &&
                   PEM_write_PrivateKey(keys, key, NULL, NULL, 0, NULL, NULL) == 1 &&
                   PEM_write_X509(certificates, certificate) == 1;
    written = keys != NULL && fclose(keys) == 0 && written;
    written = certificates != NULL && fclose(certificates) == 0 && written;
    X509_free(certificate);
    EVP_PKEY_free(key);
    return written;
}

bool papers_write(void)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(folder, sizeof(folder), "%.200s/fault.XXXXXX", tmp == NULL ? "/tmp" : tmp);
    if (mkdtemp(folder) == NULL) {
        folder[0] = '\0';
        return false;
    }
    (void)setenv("XDG_RUNTIME_DIR", folder, 1);
    return write_text("psk",
                      "anna:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n",
                      psk_file) &&
           write_certificate() && write_text(FAULT_PLUGIN, "", plugin_file);
}

void papers_remove(void)
{
    char counts[sizeof(folder) + 8];
    if (folder[0] != '\0') {
        (void)unlink(psk_file);
        (void)unlink(key_file);
        (void)unlink(certificate_file);
        (void)unlink(plugin_file);
        (void)snprintf(counts, sizeof(counts), "%s/rdmux", folder);
        (void)rmdir(counts);
        (void)rmdir(folder);
    }
}

struct rdmux_fabric_auth papers_auth(uint32_t method)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = method;
    auth.key_file = method == RDMUX_AUTH_PSK ? psk_file : key_file;
    auth.cert_file = method == RDMUX_AUTH_PSK ? NULL : certificate_file;
    auth.ca_file = auth.cert_file;
    return auth;
}

const char *papers_plugins(void)
{
    return folder;
}
