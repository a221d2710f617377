/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "peer.h"

#include "random.h"
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LINES_SIZE = 16384, /* more than the lines of an ENDED */
    END_LINES = 4,      /* numbers, failure, file, step */
    CONNECT_MS = 10000, /* limit for a runner to make the connections of a case */
    GREETING_MS = 5000, /* limit for a runner to send the secret on one */
    LOOK_MS = 1,        /* interval at which the session checks its process */
    GREETING_SIZE = PEER_SECRET_SIZE + 1,
    PROVIDER_MAX = 64,
    NEWLINE_MARK = 1, /* stands for a newline within a line */
};

/* ----------------------------------------------------------------------------- bytes and lines */

static bool write_all(int fd, const void *bytes, size_t length)
{
    const uint8_t *at = bytes;
    while (length > 0) {
        ssize_t count = send(fd, at, length, MSG_NOSIGNAL);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        at += count;
        length -= (size_t)count;
    }
    return true;
}

static bool read_all(int fd, void *bytes, size_t length, int timeout_ms)
{
    uint8_t *at = bytes;
    while (length > 0) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        int ready = poll(&wait, 1, timeout_ms);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        ssize_t count = ready == 1 ? recv(fd, at, length, 0) : -1;
        if (count <= 0) {
            return false;
        }
        at += count;
        length -= (size_t)count;
    }
    return true;
}

static bool say(int fd, const char *format, ...) PRINTF_LIKE(2, 3);
static bool say(int fd, const char *format, ...)
{
    char text[LINES_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return length > 0 && (size_t)length < sizeof(text) && write_all(fd, text, (size_t)length);
}

/* Lines received so far. */
struct lines {
    char *bytes; /* LINES_SIZE */
    size_t used;
};

/* Reads the available bytes, waiting up to timeout_ms. Returns false if the connection has ended or
 * the peer sends too much. */
static bool lines_read(struct lines *lines, int fd, int timeout_ms)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    if (poll(&wait, 1, timeout_ms) <= 0) {
        return true;
    }
    ssize_t count = recv(fd, lines->bytes + lines->used, LINES_SIZE - lines->used, 0);
    if (count < 0 && errno == EINTR) {
        return true;
    }
    if (count <= 0) {
        return false;
    }
    lines->used += (size_t)count;
    return true;
}

/* Returns the end of the count-th line, NULL until it has arrived. */
static char *lines_end(const struct lines *lines, unsigned count)
{
    char *at = lines->bytes;
    char *newline = NULL;
    for (unsigned i = 0; i < count; i++) {
        newline = memchr(at, '\n', lines->used - (size_t)(at - lines->bytes));
        if (newline == NULL) {
            return NULL;
        }
        at = newline + 1;
    }
    return newline;
}

static void lines_drop(struct lines *lines, const char *end)
{
    size_t taken = (size_t)(end - lines->bytes) + 1;
    lines->used -= taken;
    memmove(lines->bytes, lines->bytes + taken, lines->used);
}

static void replace(char *text, char from, char to)
{
    for (; *text != '\0'; text++) {
        *text = *text == from ? to : *text;
    }
}

/* Both programs must agree on this version, because a case is named by its indices. */
static void write_version(char *out, size_t size)
{
    size_t cases = 0;
    for (size_t i = 0; i < suite_count; i++) {
        cases += suites[i]->count;
    }
    (void)snprintf(out, size, "rdmux-conformance %s %zu %zu\n", rdmux_version(), suite_count, cases);
}

/* --------------------------------------------------------------------------------- the runner */

static int greet(const struct peer *peer, char letter)
{
    const int one = 1;
    uint8_t greeting[GREETING_SIZE];
    int fd = socket(peer->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    memcpy(greeting, peer->secret, PEER_SECRET_SIZE);
    greeting[PEER_SECRET_SIZE] = (uint8_t)letter;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (const struct sockaddr *)(const void *)&peer->address, peer->address_length) !=
            0 ||
        !write_all(fd, greeting, sizeof(greeting))) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

bool peer_open(struct peer *peer, const char **why)
{
    char version[128];
    char theirs[128] = "";
    peer->used = 0;
    peer->lines = malloc(LINES_SIZE);
    peer->control = peer->lines == NULL ? -1 : greet(peer, 'C');
    if (peer->control < 0) {
        *why = peer->lines == NULL ? "out of memory" : strerror(errno);
        free(peer->lines);
        return false;
    }
    write_version(version, sizeof(version));
    if (!read_all(peer->control, theirs, strlen(version), CONNECT_MS)) {
        *why = "the session there does not answer";
    } else if (strcmp(version, theirs) != 0) {
        *why = "the other host has another version of rdmux";
    } else {
        return true;
    }
    peer_close(peer);
    return false;
}

void peer_close(struct peer *peer)
{
    if (peer->control >= 0) {
        (void)close(peer->control);
    }
    peer->control = -1;
    free(peer->lines);
    peer->lines = NULL;
}

bool peer_start(struct peer *peer, size_t suite, size_t test, const char *provider,
                const struct run_options *options, const struct provider_caps *caps, int *sync,
                int *second)
{
    if (peer->control < 0 ||
        !say(peer->control,
             "RUN %zu %zu %" PRIu64 " %d %d %d %u %d %" PRIx64 " %" PRIx64 " %s %u %s\n", suite,
             test, options->seed, options->sleeps, options->quick, options->thorough,
             options->patience, caps->known, caps->native, caps->emulated, provider,
             options->limit_s, options->sequence == NULL ? "all" : options->sequence)) {
        return false;
    }
    *sync = greet(peer, 'S');
    *second = *sync < 0 ? -1 : greet(peer, 'A');
    return *second >= 0;
}

void peer_kill(struct peer *peer)
{
    if (peer->control >= 0) {
        (void)say(peer->control, "KILL\n");
    }
}

static void copy_line(char *to, size_t size, const char *from)
{
    (void)snprintf(to, size, "%s", from);
    replace(to, NEWLINE_MARK, '\n');
    for (; *to != '\0'; to++) { /* the other host may say anything, and this goes to a terminal */
        unsigned char byte = (unsigned char)*to;
        *to = (byte < ' ' && byte != '\n') || byte > '~' ? '?' : *to;
    }
}

static void lose(struct peer *peer, struct peer_end *out)
{
    if (peer->control >= 0) {
        (void)close(peer->control);
    }
    peer->control = -1;
    *out = (struct peer_end){ .failed = true };
    (void)snprintf(out->text, sizeof(out->text), "the session on the other host is lost");
}

bool peer_take_end(struct peer *peer, struct peer_end *out)
{
    struct lines lines = { peer->lines, peer->used };
    bool connected = peer->control >= 0 && lines_read(&lines, peer->control, 0);
    peer->used = lines.used;
    char *end = lines_end(&lines, END_LINES);
    if (end == NULL) {
        if (!connected || lines.used == LINES_SIZE) {
            lose(peer, out);
            return true;
        }
        return false;
    }
    int failed = 0;
    int consequence = 0;
    int killed = 0;
    *out = (struct peer_end){ .failed = false };
    *end = '\0';
    char *rest = NULL;
    const char *numbers = strtok_r(lines.bytes, "\n", &rest);
    if (sscanf(numbers, "ENDED %d %d %d %d %d", &failed, &consequence, &killed, &out->wait_status,
               &out->line) != 5) {
        lose(peer, out);
        return true;
    }
    out->failed = failed != 0;
    out->consequence = consequence != 0;
    out->killed = killed != 0;
    /* Each line begins with a space, so that none is empty. */
    copy_line(out->text, sizeof(out->text), strtok_r(NULL, "\n", &rest) + 1);
    copy_line(out->file, sizeof(out->file), strtok_r(NULL, "\n", &rest) + 1);
    copy_line(out->what, sizeof(out->what), rest + 1);
    lines_drop(&lines, end);
    peer->used = lines.used;
    return true;
}

/* -------------------------------------------------------------------------------- the session */

struct session {
    int listener;
    const uint8_t *secret;
    int control;
    struct lines lines;
};

/* Returns the next connection that sends the secret and this letter; closes others. Returns -1 if
 * none came. */
static int accept_greeted(const struct session *session, char letter)
{
    uint64_t deadline = now_ns() + UINT64_C(1000000) * CONNECT_MS;
    while (now_ns() < deadline) {
        const int one = 1;
        uint8_t greeting[GREETING_SIZE];
        struct pollfd wait = { .fd = session->listener, .events = POLLIN };
        if (poll(&wait, 1, CONNECT_MS) != 1) {
            continue;
        }
        int fd = accept4(session->listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        if (read_all(fd, greeting, sizeof(greeting), GREETING_MS) &&
            memcmp(greeting, session->secret, PEER_SECRET_SIZE) == 0 &&
            greeting[PEER_SECRET_SIZE] == (uint8_t)letter) {
            (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            return fd;
        }
        (void)close(fd);
    }
    return -1;
}

/* A case as RUN gives it. */
struct run_order {
    const struct conformance_case *test;
    struct run_options options;
    struct provider_caps caps;
    char provider[PROVIDER_MAX];
    char sequence[SEQUENCE_TEXT_MAX];
};

static bool read_order(const char *line, struct run_order *out)
{
    size_t suite = 0;
    size_t test = 0;
    int flags[4] = { 0 };
    *out = (struct run_order){ .test = NULL };
    if (sscanf(line, "RUN %zu %zu %" SCNu64 " %d %d %d %u %d %" SCNx64 " %" SCNx64 " %63s %u %4095s",
               &suite, &test, &out->options.seed, &flags[0], &flags[1], &flags[2],
               &out->options.patience, &flags[3], &out->caps.native, &out->caps.emulated,
               out->provider, &out->options.limit_s, out->sequence) != 13 ||
        suite >= suite_count || test >= suites[suite]->count || out->options.patience == 0 ||
        out->options.patience > 1000) {
        return false;
    }
    out->test = &suites[suite]->cases[test];
    if (strcmp(out->sequence, "all") != 0) {
        if (!sequence_is_valid(out->sequence)) {
            return false;
        }
        out->options.sequence = out->sequence;
    }
    out->options.sleeps = flags[0] != 0;
    out->options.quick = flags[1] != 0;
    out->options.thorough = flags[2] != 0;
    out->caps.known = flags[3] != 0;
    return true;
}

static bool tell_end(const struct session *session, struct report *report, bool killed,
                     int wait_status)
{
    static char text[REPORT_TEXT_MAX];
    static char what[512];
    (void)snprintf(text, sizeof(text), "%s", report->text);
    (void)snprintf(what, sizeof(what), "%s", report->what == NULL ? "" : report->what);
    replace(text, '\n', NEWLINE_MARK);
    replace(what, '\n', NEWLINE_MARK);
    return say(session->control, "ENDED %d %d %d %d %d\n %s\n %s\n %s\n", report->failed,
               report->consequence, killed, wait_status, report->line, text,
               report->file == NULL ? "" : report->file, what);
}

/* Waits until the process ends or the runner asks to kill it. Returns false if the runner is
 * gone. */
static bool watch(struct session *session, pid_t pid, bool *killed, int *wait_status)
{
    bool connected = true;
    *killed = false;
    for (;;) {
        if (waitpid(pid, wait_status, WNOHANG) == pid) {
            (void)kill(-pid, SIGKILL); /* processes that it may have left */
            return connected;
        }
        connected = connected && lines_read(&session->lines, session->control, LOOK_MS);
        char *end = lines_end(&session->lines, 1);
        if (!connected || end != NULL) {
            *killed = true;
            (void)kill(-pid, SIGKILL);
        }
        if (end != NULL) {
            lines_drop(&session->lines, end);
        }
    }
}

/* Returns false if the session is over. */
static bool run_order(struct session *session, const struct run_order *order)
{
    struct shared *shared = shared_map();
    struct start start = {
        .test = order->test,
        .provider = order->provider,
        .options = &order->options,
        .shared = shared,
        .index = 1,
        .sync = accept_greeted(session, 'S'),
        .others = { session->control, session->listener },
        .remote = true,
    };
    start.socket = start.sync < 0 ? -1 : accept_greeted(session, 'A');
    bool killed = false;
    int wait_status = 0;
    bool connected = false;
    if (shared != NULL && start.socket >= 0) {
        shared->caps = order->caps;
        pid_t pid = start_side(&start);
        if (pid > 0) {
            (void)close(start.sync);
            (void)close(start.socket);
            start.sync = start.socket = -1;
            connected = watch(session, pid, &killed, &wait_status) &&
                        tell_end(session, &shared->reports[1], killed, wait_status);
        }
    }
    for (size_t i = 0; i < 2; i++) {
        int fd = i == 0 ? start.sync : start.socket;
        if (fd >= 0) {
            (void)close(fd);
        }
    }
    if (shared != NULL) {
        shared_unmap(shared);
    }
    return connected;
}

static void serve_runner(struct session *session)
{
    bool connected = true;
    while (connected) {
        char *end = lines_end(&session->lines, 1);
        if (end == NULL) {
            connected = lines_read(&session->lines, session->control, -1) &&
                        session->lines.used < LINES_SIZE;
            continue;
        }
        static struct run_order order;
        *end = '\0';
        bool is_order = read_order(session->lines.bytes, &order);
        bool is_late = strcmp(session->lines.bytes, "KILL") == 0; /* it had ended by then */
        lines_drop(&session->lines, end);
        connected = is_late || (is_order && run_order(session, &order));
    }
}

int peer_session(int listener, const uint8_t secret[PEER_SECRET_SIZE])
{
    struct session session = { .listener = listener, .secret = secret };
    char version[128];
    session.lines.bytes = malloc(LINES_SIZE);
    session.control = session.lines.bytes == NULL ? -1 : accept_greeted(&session, 'C');
    write_version(version, sizeof(version));
    if (session.control < 0 || !write_all(session.control, version, strlen(version))) {
        free(session.lines.bytes);
        return 1;
    }
    serve_runner(&session);
    (void)close(session.control);
    free(session.lines.bytes);
    return 0;
}
