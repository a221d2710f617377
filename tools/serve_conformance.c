/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Serves `rdmux conformance --peer`: starts a process that runs the target's side of cases. It is a
 * process of its own because cases fork, and kill the processes they forked. It listens on a port
 * of its own for the client, which proves itself by a secret. */
#include "serve.h"

#include "auth.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BACKLOG = 4,
    FIRST_FREE = 5, /* above the descriptors that the process expects at fixed numbers */
};

/* Opens a listening socket at the server's own address, on a port of the system's choice. Returns
 * -1 with errno set on failure. */
static int listen_beside(const struct server *server, uint32_t *port)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM,
                                     .ai_flags = AI_NUMERICHOST | AI_PASSIVE };
    char address[RDMUX_ADDRESS_MAX];
    struct addrinfo *found = NULL;
    struct sockaddr_storage name;
    socklen_t length = sizeof(name);
    if (rdmux_listener_address(server->listener, address, sizeof(address)) != RDMUX_OK) {
        errno = EINVAL;
        return -1;
    }
    char *colon = strrchr(address, ':');
    char *host = address[0] == '[' ? address + 1 : address;
    colon[address[0] == '[' ? -1 : 0] = '\0';
    if (getaddrinfo(host, "0", &wanted, &found) != 0) {
        errno = EADDRNOTAVAIL;
        return -1;
    }
    const int off = 0;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && found->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (fd >= 0 && (bind(fd, found->ai_addr, found->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
                    getsockname(fd, (struct sockaddr *)(void *)&name, &length) != 0)) {
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    if (fd >= 0) {
        struct sockaddr_in ip;
        memcpy(&ip, &name, sizeof(ip)); /* both families have the port at the same offset */
        *port = ntohs(ip.sin_port);
    }
    return fd;
}

/* Starts the process. The caller closes both descriptors in the server. Returns an errno value. */
static int spawn_session(int listener, int secret, pid_t *out)
{
    static char name[] = "rdmux";
    static char command[] = TOOL_SESSION_NAME;
    char *const arguments[] = { name, command, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t pipe_signal;
    pid_t pid = -1;
    /* Keeps the descriptors clear of the numbers that they are moved to. */
    int from[2] = { fcntl(listener, F_DUPFD_CLOEXEC, FIRST_FREE),
                    fcntl(secret, F_DUPFD_CLOEXEC, FIRST_FREE) };
    sigemptyset(&none);
    sigemptyset(&pipe_signal);
    sigaddset(&pipe_signal, SIGPIPE);
    sigaddset(&pipe_signal, SIGXFSZ);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    int error = from[0] < 0 || from[1] < 0 ? EMFILE : 0;
    if (error == 0 &&
        (posix_spawn_file_actions_adddup2(&actions, from[0], TOOL_SESSION_LISTENER) != 0 ||
         posix_spawn_file_actions_adddup2(&actions, from[1], TOOL_SESSION_SECRET) != 0 ||
         posix_spawnattr_setsigmask(&attr, &none) != 0 ||
         posix_spawnattr_setsigdefault(&attr, &pipe_signal) != 0 ||
         posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF) != 0)) {
        error = ENOMEM;
    }
    if (error == 0) {
        error = posix_spawn(&pid, "/proc/self/exe", &actions, &attr, arguments, environ);
    }
    for (size_t i = 0; i < 2; i++) {
        if (from[i] >= 0) {
            close(from[i]);
        }
    }
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    *out = pid;
    return error;
}

/* Passes the secret by a pipe, because every user can read a command line. */
static int start_session(const struct server *server, struct proto_conformance_ready *ready,
                         pid_t *out)
{
    int ends[2];
    if (getrandom(ready->secret, sizeof(ready->secret), 0) != (ssize_t)sizeof(ready->secret) ||
        pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    int error = 0;
    int listener = listen_beside(server, &ready->port);
    if (listener < 0 ||
        write(ends[1], ready->secret, sizeof(ready->secret)) != (ssize_t)sizeof(ready->secret)) {
        error = errno;
    } else {
        error = spawn_session(listener, ends[0], out);
    }
    if (listener >= 0) {
        close(listener);
    }
    close(ends[0]);
    close(ends[1]);
    return error;
}

/* Returns a free slot for one more process of this origin, which may have at most half of the
 * slots. NULL: none. */
static struct served_session *place_for(struct server *server, const char *origin)
{
    struct served_session *free_place = NULL;
    unsigned held = 0;
    for (size_t i = 0; i < SERVE_SESSIONS_MAX; i++) {
        struct served_session *session = &server->sessions[i];
        if (session->pid == 0) {
            free_place = session;
        } else {
            held += strcmp(session->origin, origin) == 0 ? 1 : 0;
        }
    }
    return held < SERVE_SESSIONS_MAX / 2 ? free_place : NULL;
}

void serve_conformance_begin(struct served *client)
{
    struct server *server = client->server;
    struct proto_conformance_ready ready;
    if (tool_auth() != NULL) {
        serve_refuse(client,
                     "conformance cases listen without authentication, so this server, which "
                     "has --auth, does not run them; start another one without");
        return;
    }
    serve_conformance_reap(server);
    struct served_session *session = place_for(server, client->origin);
    if (session == NULL) {
        serve_refuse(client, "%d conformance runs are under way, or %d of this address; try later",
                     SERVE_SESSIONS_MAX, SERVE_SESSIONS_MAX / 2);
        return;
    }
    int error = start_session(server, &ready, &session->pid);
    if (error != 0) {
        session->pid = 0;
        serve_refuse(client, "cannot start a process for the cases: %s", strerror(error));
        return;
    }
    memcpy(session->origin, client->origin, sizeof(session->origin));
    serve_log(client, "conformance cases run in a process on port %u", (unsigned)ready.port);
    if (serve_send_control(client,
                           proto_conformance_ready_encode(&ready, serve_control_buffer(client)))) {
        serve_end(client);
    }
}

void serve_conformance_reap(struct server *server)
{
    for (size_t i = 0; i < SERVE_SESSIONS_MAX; i++) {
        struct served_session *session = &server->sessions[i];
        if (session->pid > 0 && waitpid(session->pid, NULL, WNOHANG) == session->pid) {
            session->pid = 0;
        }
    }
}
