/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Fabrics that authenticate, their keys and certificates, and a man in the middle between two
 * peers. */
#ifndef RDMUX_TESTS_AUTH_SCENE_H
#define RDMUX_TESTS_AUTH_SCENE_H

#include "negotiation/auth.h"
#include "tests/unit/api_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/stat.h>

enum { FILE_NAME_MAX = 160 };

#define KEY_ONE "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define KEY_TWO "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100"

/* ---------------------------------------------------------------------------------------- files */

/* A folder for the files of one program; the program removes it at its end. */
static char auth_folder[FILE_NAME_MAX / 2];

static inline int make_auth_folder(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(auth_folder, sizeof(auth_folder), "%.60s/auth.XXXXXX", tmp == NULL ? "/tmp" : tmp);
    return mkdtemp(auth_folder) == NULL ? -1 : 0;
}

static inline int remove_auth_folder(void **state)
{
    char command[FILE_NAME_MAX];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", auth_folder);
    return system(command); /* NOLINT(cert-env33-c,concurrency-mt-unsafe): our own folder */
}

static inline void name_file(const char *name, char out[FILE_NAME_MAX])
{
    snprintf(out, FILE_NAME_MAX, "%s/%s", auth_folder, name);
}

/* Writes a file that only this user may read. */
static inline const char *write_file(const char *name, const char *text, char out[FILE_NAME_MAX])
{
    name_file(name, out);
    int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(close(fd), 0);
    return out;
}

/* -------------------------------------------------------------------------------------- fabrics */

static inline struct rdmux_fabric_auth psk_of(const char *key_file)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_PSK;
    auth.key_file = key_file;
    return auth;
}

static inline struct rdmux_fabric_attr attr_with(const char *paths,
                                                 const struct rdmux_fabric_auth *auth,
                                                 struct logbook *book, struct meter *meter)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = paths;
    attr.auth = auth;
    attr.clock_ns = SLOW_CLOCK > 1 ? slow_clock_ns : NULL;
    if (book != NULL) {
        attr.log = logbook_write;
        attr.log_user = book;
        attr.log_level = RDMUX_LOG_WARN;
    }
    if (meter != NULL) {
        attr.allocate = meter_allocate;
        attr.release = meter_release;
        attr.allocate_user = meter;
    }
    return attr;
}

/* Opens a pair that is not connected yet. With a NULL auth, that side does not authenticate. */
static inline void open_auth_sides(struct pair *pair, const char *paths,
                                   const struct rdmux_fabric_auth *auth_a,
                                   const struct rdmux_fabric_auth *auth_b, struct logbook *book_b)
{
    struct rdmux_fabric_attr attr_a = attr_with(paths, auth_a, NULL, NULL);
    struct rdmux_fabric_attr attr_b = attr_with(paths, auth_b, book_b, NULL);
    memset(pair, 0, sizeof(*pair));
    CHECK_OK(rdmux_fabric_open(&attr_a, &pair->fabric_a));
    CHECK_OK(rdmux_fabric_open(&attr_b, &pair->fabric_b));
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
}

/* Connects; the call must fail with this status and an error text that contains this part. */
static inline void expect_refusal(struct pair *pair, const char *address,
                                  enum rdmux_status expected, const char *part)
{
    struct rdmux_ep *ep = NULL;
    enum rdmux_status status = rdmux_connect(pair->fabric_a, pair->cq_a, address, NULL, PATIENT_MS,
                                             &ep);
    if (status != expected || strstr(rdmux_last_error(), part) == NULL) {
        fail_msg("connect: %s: %s; expected %s and \"%s\"", rdmux_status_name(status),
                 rdmux_last_error(), rdmux_status_name(expected), part);
    }
    assert_null(ep);
}

/* Checks that the listener shows no peer. */
static inline void expect_nobody(struct pair *pair)
{
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    CHECK_STATUS(rdmux_listener_next(pair->listener, 0, &peer), RDMUX_AGAIN);
}

static inline void wait_for_line(struct logbook *book, const char *part)
{
    uint64_t until = now_ms() + PATIENT_MS;
    while (logbook_count(book, part) == 0) {
        if (now_ms() > until) {
            fail_msg("the log never said \"%s\"; last: %s", part,
                     book->count == 0 ? "" : book->lines[(book->count - 1) % LOGBOOK_LINES]);
        }
        pause_ms(1);
    }
}

/* --------------------------------------------------------------------------------- certificates */

struct certified_key {
    X509 *certificate;
    EVP_PKEY *key;
};

static inline void add_extension(X509 *certificate, X509 *issuer, int which, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, which, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

/* names: subject alternative names, NULL for none. usage: extended key usage, NULL for any.
 * valid_days: from now; below 0: expired. authority: NULL for a self-signed certificate. */
static inline struct certified_key make_certificate(const char *common_name, const char *names,
                                                    const char *usage, int valid_days,
                                                    const struct certified_key *authority)
{
    static long serial = 1;
    struct certified_key made = { .certificate = X509_new(), .key = EVP_EC_gen("P-256") };
    assert_non_null(made.certificate);
    assert_non_null(made.key);
    X509 *issuer = authority == NULL ? made.certificate : authority->certificate;
    X509_NAME *subject = X509_get_subject_name(made.certificate);
    X509_set_version(made.certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.certificate), serial++);
    X509_gmtime_adj(X509_getm_notBefore(made.certificate), -200L * 86400);
    X509_gmtime_adj(X509_getm_notAfter(made.certificate), 86400L * valid_days);
    X509_set_pubkey(made.certificate, made.key);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)common_name, -1,
                               -1, 0);
    X509_set_issuer_name(made.certificate, X509_get_subject_name(issuer));
    if (authority == NULL) {
        add_extension(made.certificate, issuer, NID_basic_constraints, "critical,CA:TRUE");
    }
    if (names != NULL) {
        add_extension(made.certificate, issuer, NID_subject_alt_name, names);
    }
    if (usage != NULL) {
        add_extension(made.certificate, issuer, NID_ext_key_usage, usage);
    }
    assert_true(X509_sign(made.certificate, authority == NULL ? made.key : authority->key,
                          EVP_sha256()) > 0);
    return made;
}

static inline void free_certificate(struct certified_key *made)
{
    X509_free(made->certificate);
    EVP_PKEY_free(made->key);
}

/* The file names of one side. */
struct certificate_files {
    char certificate[FILE_NAME_MAX];
    char key[FILE_NAME_MAX];
    char authority[FILE_NAME_MAX];
};

static inline FILE *create_file(const char *stem, const char *ending, char out[FILE_NAME_MAX])
{
    char name[FILE_NAME_MAX / 2];
    snprintf(name, sizeof(name), "%.60s.%s", stem, ending);
    write_file(name, "", out);
    FILE *file = fopen(out, "w");
    assert_non_null(file);
    return file;
}

static inline void write_certificate_files(const char *stem, const struct certified_key *own,
                                           const struct certified_key *authority,
                                           struct certificate_files *out)
{
    FILE *file = create_file(stem, "pem", out->certificate);
    assert_int_equal(PEM_write_X509(file, own->certificate), 1);
    fclose(file);
    file = create_file(stem, "key", out->key);
    assert_int_equal(PEM_write_PrivateKey(file, own->key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    file = create_file(stem, "ca", out->authority);
    assert_int_equal(PEM_write_X509(file, authority->certificate), 1);
    fclose(file);
}

static inline struct rdmux_fabric_auth cert_of(const struct certificate_files *papers)
{
    struct rdmux_fabric_auth auth = RDMUX_FABRIC_AUTH_INIT;
    auth.method = RDMUX_AUTH_CERT;
    auth.cert_file = papers->certificate;
    auth.key_file = papers->key;
    auth.ca_file = papers->authority;
    return auth;
}

/* ---------------------------------------------------------------------------- man in the middle */

/* Relays bytes between connectors and a listener, and changes one byte in each direction of every
 * connection, or of the first connection only. */
struct middle {
    pthread_t thread;
    int listening;
    _Atomic bool stop;
    char address[RDMUX_ADDRESS_MAX]; /* of the man in the middle */
    char target[RDMUX_ADDRESS_MAX];  /* of the listener */
    size_t from_connector_at; /* index of the byte to change in this direction; SIZE_MAX: none */
    size_t from_acceptor_at;
    bool first_only;   /* change a byte of the control channel only */
    size_t joins_only; /* connections from this number on pass no byte after JOIN; 0: all do */
    _Atomic size_t changed;
    _Atomic uint64_t seen; /* bytes relayed, both directions */
    /* The first bytes relayed, of all connections, so that a test can look for secrets in them. */
    pthread_mutex_t lock;
    uint8_t tape[65536];
    size_t taped;
};

static inline bool relay_bytes(struct middle *middle, int from, int to, size_t *count,
                               size_t change_at, size_t most)
{
    uint8_t bytes[4096];
    ssize_t got = recv(from, bytes, most < sizeof(bytes) ? most : sizeof(bytes), MSG_DONTWAIT);
    if (got <= 0) {
        return got < 0 && errno == EAGAIN;
    }
    if (change_at >= *count && change_at < *count + (size_t)got) {
        bytes[change_at - *count] ^= 0x01;
        atomic_fetch_add(&middle->changed, 1);
    }
    *count += (size_t)got;
    atomic_fetch_add(&middle->seen, (uint64_t)got);
    pthread_mutex_lock(&middle->lock);
    size_t room = sizeof(middle->tape) - middle->taped;
    size_t part = (size_t)got < room ? (size_t)got : room;
    memcpy(middle->tape + middle->taped, bytes, part);
    middle->taped += part;
    pthread_mutex_unlock(&middle->lock);
    return send(to, bytes, (size_t)got, MSG_NOSIGNAL) == got;
}

enum { MIDDLE_CONNECTIONS = 8 };

static inline void *run_middle(void *user)
{
    struct middle *middle = user;
    struct {
        int near;
        int far;
        size_t up;
        size_t down;
    } passing[MIDDLE_CONNECTIONS];
    size_t count = 0;
    while (!atomic_load(&middle->stop)) {
        struct pollfd look[1 + 2 * MIDDLE_CONNECTIONS] = { { .fd = middle->listening,
                                                             .events = POLLIN } };
        for (size_t i = 0; i < count; i++) {
            look[1 + 2 * i] = (struct pollfd){ .fd = passing[i].near, .events = POLLIN };
            look[2 + 2 * i] = (struct pollfd){ .fd = passing[i].far, .events = POLLIN };
        }
        poll(look, (nfds_t)(1 + 2 * count), 20);
        int near = count == MIDDLE_CONNECTIONS
                       ? -1
                       : accept4(middle->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (near >= 0) {
            passing[count].near = near;
            passing[count].far = dial_raw(middle->target);
            passing[count].up = 0;
            passing[count].down = 0;
            count++;
        }
        for (size_t i = 0; i < count; i++) {
            bool joins_only = middle->joins_only != 0 && i >= middle->joins_only;
            size_t most = joins_only ? RDMUX_JOIN_SIZE : SIZE_MAX;
            if (joins_only && passing[i].up >= RDMUX_JOIN_SIZE) {
                continue;
            }
            bool spared = middle->first_only && i > 0;
            size_t up_at = spared ? SIZE_MAX : middle->from_connector_at;
            size_t down_at = spared ? SIZE_MAX : middle->from_acceptor_at;
            if (passing[i].near >= 0 && (!relay_bytes(middle, passing[i].near, passing[i].far,
                                                      &passing[i].up, up_at, most) ||
                                         !relay_bytes(middle, passing[i].far, passing[i].near,
                                                      &passing[i].down, down_at, most))) {
                close(passing[i].near);
                close(passing[i].far);
                passing[i].near = -1;
                passing[i].far = -1;
            }
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (passing[i].near >= 0) {
            close(passing[i].near);
            close(passing[i].far);
        }
    }
    return NULL;
}

static inline void start_middle(struct middle *middle, const char *target)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(here);
    pthread_mutex_init(&middle->lock, NULL);
    snprintf(middle->target, sizeof(middle->target), "%s", target);
    middle->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(middle->listening >= 0);
    assert_int_equal(bind(middle->listening, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(listen(middle->listening, 64), 0);
    assert_int_equal(getsockname(middle->listening, (struct sockaddr *)&here, &length), 0);
    snprintf(middle->address, sizeof(middle->address), "127.0.0.1:%u", ntohs(here.sin_port));
    assert_int_equal(pthread_create(&middle->thread, NULL, run_middle, middle), 0);
}

static inline void stop_middle(struct middle *middle)
{
    atomic_store(&middle->stop, true);
    pthread_join(middle->thread, NULL);
    close(middle->listening);
}

/* Tells whether these bytes were relayed in clear. */
static inline bool was_overheard(struct middle *middle, const void *bytes, size_t size)
{
    pthread_mutex_lock(&middle->lock);
    bool found = memmem(middle->tape, middle->taped, bytes, size) != NULL;
    pthread_mutex_unlock(&middle->lock);
    return found;
}

#endif
