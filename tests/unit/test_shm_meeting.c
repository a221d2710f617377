/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How two processes meet for shared memory, out of the reach of other users. */
#include "tests/unit/shm_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUTSIDER = 65534 /* the user nobody */ };

/* The outcome of an outsider; its exit status. */
enum fate {
    REFUSED = 0,   /* the kernel let him not connect */
    CONNECTED = 1, /* and the owner now has his message */
    NOT_FOUND = 2,
    FAILED = 3,
};

/* Returns the name under which the acceptor of this pair listens, as the kernel shows it to every
 * user. */
static bool find_address(const uint8_t *description, struct sockaddr_un *out, socklen_t *length)
{
    enum { NAME_AT = 8, NAME_SIZE = 16 };
    char digits[2 * NAME_SIZE + 1];
    char line[512];
    bool found = false;
    for (size_t i = 0; i < NAME_SIZE; i++) {
        (void)snprintf(digits + 2 * i, 3, "%02x", description[NAME_AT + i]);
    }
    FILE *file = fopen("/proc/net/unix", "re");
    while (file != NULL && !found && fgets(line, sizeof(line), file) != NULL) {
        const char *name = strstr(line, digits);
        if (name == NULL) {
            continue;
        }
        while (name > line && name[-1] != ' ') {
            name--;
        }
        size_t size = strcspn(name, "\n");
        memset(out, 0, sizeof(*out));
        out->sun_family = AF_UNIX;
        memcpy(out->sun_path, name, size);
        *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size + (*name == '/'));
        if (*name == '@') {
            out->sun_path[0] = '\0';
        }
        found = true;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return found;
}

/* Makes a TCP socket whose close() waits, by unread bytes and SO_LINGER. */
static int make_lingering(int *other)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t length = sizeof(address);
    const struct linger linger = { .l_onoff = 1, .l_linger = 3 };
    static const uint8_t bytes[4096];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) != 0 ||
        connect(fd, (struct sockaddr *)&address, length) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) != 0) {
        return -1;
    }
    *other = accept(listener, NULL, NULL);
    while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
    }
    return fd;
}

/* Another user of the host connects to every listener it finds, and leaves a descriptor there whose
 * last close() waits. */
static enum fate attack(const uint8_t *description)
{
    struct sockaddr_un address;
    socklen_t length = 0;
    int other = -1;
    if (setgroups(0, NULL) != 0 || setresgid(OUTSIDER, OUTSIDER, OUTSIDER) != 0 ||
        setresuid(OUTSIDER, OUTSIDER, OUTSIDER) != 0) {
        return FAILED;
    }
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
    int lingering = make_lingering(&other);
    if (fd < 0 || lingering < 0) {
        return FAILED;
    }
    if (!find_address(description, &address, &length)) {
        return NOT_FOUND;
    }
    if (connect(fd, (struct sockaddr *)&address, length) != 0) {
        return errno == EACCES ? REFUSED : FAILED;
    }
    const uint8_t byte = 0;
    enum rdmux_status status = rdmux_shm_socket_send(fd, &byte, 1, &lingering, 1);
    (void)close(lingering); /* the owner's is the last */
    return status == RDMUX_OK ? CONNECTED : FAILED;
}

/* Runs play(user) in a child. Returns its exit status. */
static int in_child(int (*play)(const void *user), const void *user)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(play(user));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void needs_root(const char *why)
{
    if (geteuid() != 0) {
        print_message("needs root %s\n", why);
        skip();
    }
}

static int attack_in_child(const void *description)
{
    return (int)attack(description);
}

static void another_user_cannot_reach_the_acceptor(void **state)
{
    (void)state;
    needs_root("to play another user");
    mode_t before = umask(0); /* as daemons have it */
    struct shm_pair *pair = shm_pair_open();
    (void)umask(before);
    uint8_t description[RDMUX_DESCRIPTION_MAX];
    size_t size = sizeof(description);
    assert_int_equal(rdmux_shm_ep_describe(&pair->ends[1].ep->base, description, &size), RDMUX_OK);

    int fate = in_child(attack_in_child, description);

    assert_int_equal(fate, REFUSED);
    assert_int_equal(rdmux_shm_ep_connect(&pair->ends[1].ep->base, description, size),
                     RDMUX_IN_PROGRESS);
    shm_pair_close(pair);
}

/* The path of the place's file, as this process sees it. */
static void path_of(const struct shm_place *place, char *out, size_t size)
{
    static const char *const directories[] = { NULL, "/dev/shm", "/tmp" };
    char user[32];
    (void)snprintf(user, sizeof(user), "/run/user/%u", (unsigned)geteuid());
    int used = snprintf(out, size, "%s/rdmux-",
                        place->directory == SHM_DIRECTORY_USER ? user
                                                               : directories[place->directory]);
    for (size_t i = 0; i < SHM_NAME_SIZE; i++) {
        used += snprintf(out + used, size - (size_t)used, "%02x", place->name[i]);
    }
}

enum { PATH_SIZE = 108 };

static bool is_there(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

static struct shm_place random_place(void)
{
    struct shm_place place = { .directory = SHM_DIRECTORY_TEMPORARY };
    assert_int_equal(getentropy(place.name, sizeof(place.name)), 0);
    return place;
}

/* A listener of another user stands at the alleged place of the peer's socket. A client that
 * connected would have the other user's bytes in its queue, and would have to close it. */
static void a_connector_does_not_connect_to_another_users_socket(void **state)
{
    (void)state;
    needs_root("to play another user");
    struct shm_place place = random_place();
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = -1;
    int trap = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    path_of(&place, address.sun_path, sizeof(address.sun_path));
    assert_int_equal(bind(trap, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(trap, 4), 0);

    assert_int_equal(chmod(address.sun_path, 0777), 0);
    enum rdmux_status if_open_to_all = rdmux_shm_meeting_connect(&place, getpid(), &fd);
    assert_int_equal(chmod(address.sun_path, 0600), 0);
    assert_int_equal(lchown(address.sun_path, OUTSIDER, OUTSIDER), 0);
    enum rdmux_status if_of_another = rdmux_shm_meeting_connect(&place, getpid(), &fd);

    assert_int_equal(if_open_to_all, RDMUX_DENIED);
    assert_int_equal(if_of_another, RDMUX_DENIED);
    assert_int_equal(accept(trap, NULL, NULL), -1);
    assert_int_equal(errno, EAGAIN);
    (void)close(trap);
    assert_int_equal(unlink(address.sun_path), 0);
}

static void a_link_is_not_followed(void **state)
{
    (void)state;
    struct shm_place place = random_place();
    struct shm_place target = random_place();
    char link[PATH_SIZE];
    char path[PATH_SIZE];
    int listener = -1;
    int fd = -1;
    assert_int_equal(rdmux_shm_meeting_listen(&target, &listener), RDMUX_OK);
    path_of(&target, path, sizeof(path));
    path_of(&place, link, sizeof(link));
    assert_int_equal(symlink(path, link), 0);

    enum rdmux_status status = rdmux_shm_meeting_connect(&place, getpid(), &fd);

    assert_int_equal(status, RDMUX_DENIED);
    assert_int_equal(unlink(link), 0);
    rdmux_shm_meeting_remove(&target);
    (void)close(listener);
}

static void the_socket_file_exists_only_while_it_is_needed(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct shm_pair *unconnected = shm_pair_open();
    path_of(&unconnected->ends[1].ep->setup.meeting, path, sizeof(path));
    bool while_open = is_there(path);
    shm_pair_close(unconnected);
    bool when_closed = is_there(path);
    struct shm_pair *connected = shm_pair_connect();
    path_of(&connected->ends[1].ep->setup.meeting, path, sizeof(path));
    bool when_connected = is_there(path);
    shm_pair_close(connected);

    assert_true(while_open);
    assert_false(when_closed);
    assert_false(when_connected);
}

/* Makes the remains of a killed process: a socket file without a listener. */
static void make_leftover(struct shm_place *place, char *path)
{
    int listener = -1;
    assert_int_equal(rdmux_shm_meeting_listen(place, &listener), RDMUX_OK);
    (void)close(listener);
    path_of(place, path, PATH_SIZE);
    assert_true(is_there(path));
}

static void make_old(const char *path)
{
    const struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static void an_acceptor_removes_the_file_of_a_killed_process(void **state)
{
    (void)state;
    struct shm_place old = random_place();
    struct shm_place young = random_place();
    struct shm_place in_use = random_place();
    char paths[3][PATH_SIZE];
    int listener = -1;
    make_leftover(&old, paths[0]);
    make_old(paths[0]);
    make_leftover(&young, paths[1]);
    assert_int_equal(rdmux_shm_meeting_listen(&in_use, &listener), RDMUX_OK);
    path_of(&in_use, paths[2], PATH_SIZE);
    make_old(paths[2]);

    struct shm_pair *pair = shm_pair_open(); /* its domain cleans */

    assert_false(is_there(paths[0]));
    assert_true(is_there(paths[1]));
    assert_true(is_there(paths[2]));
    assert_int_equal(accept(listener, NULL, NULL), -1); /* and nothing was queued there */
    assert_int_equal(errno, EAGAIN);
    shm_pair_close(pair);
    rdmux_shm_meeting_remove(&young);
    rdmux_shm_meeting_remove(&in_use);
    (void)close(listener);
}

static void a_directory_in_which_others_may_remove_files_is_not_used(void **state)
{
    (void)state;
    static const struct {
        mode_t mode;
        bool safe;
    } cases[] = {
        { 0700, true }, { 0755, true }, { 01777, true }, { 0777, false }, { 0775, false }
    };
    char path[] = "/tmp/meeting-XXXXXX";
    assert_non_null(mkdtemp(path));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(chmod(path, cases[i].mode), 0);
        assert_int_equal(rdmux_shm_directory_is_safe(path), cases[i].safe);
    }
    if (geteuid() == 0) {
        assert_int_equal(chmod(path, 0755), 0);
        assert_int_equal(chown(path, OUTSIDER, OUTSIDER), 0);
        assert_false(rdmux_shm_directory_is_safe(path));
    }
    assert_int_equal(rmdir(path), 0);
    assert_false(rdmux_shm_directory_is_safe(path));
}

/* ------------------------------------------------------------------------------ namespaces */

enum { NOT_ALLOWED = 77 };

/* Covers the named directories by empty ones with this mode, for this process only. */
static bool cover(const char *const *paths, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        return false;
    }
    for (; *paths != NULL; paths++) {
        if (mount("none", *paths, "tmpfs", 0, options) != 0) {
            return false;
        }
    }
    return true;
}

static const char *const all[] = { "/run", "/dev/shm", "/tmp", NULL };

static void skip_unless_allowed(int result)
{
    if (result == NOT_ALLOWED) {
        print_message("needs the right to make a mount namespace\n");
        skip();
    }
}

/* From another mount namespace, whose directories are others. */
static int connect_from_elsewhere(const void *user)
{
    const struct shm_place *place = user;
    char path[PATH_SIZE];
    int fd = -1;
    if (!cover(all, "mode=1777")) {
        return NOT_ALLOWED;
    }
    path_of(place, path, sizeof(path));
    return !is_there(path) && rdmux_shm_meeting_connect(place, getppid(), &fd) == RDMUX_OK ? 0 : 1;
}

static void a_peer_in_another_mount_namespace_is_reached(void **state)
{
    (void)state;
    struct shm_place place = random_place();
    int listener = -1;
    int fd = -1;
    assert_int_equal(rdmux_shm_meeting_listen(&place, &listener), RDMUX_OK);

    int result = in_child(connect_from_elsewhere, &place);

    fd = accept(listener, NULL, NULL);
    rdmux_shm_meeting_remove(&place);
    (void)close(listener);
    skip_unless_allowed(result);
    assert_int_equal(result, 0);
    assert_true(fd >= 0);
    (void)close(fd);
}

/* /dev/shm is open to all, so /tmp it is; then that, too. */
static int listen_where_it_is_safe(const void *user)
{
    static const char *const shared[] = { "/run", "/dev/shm", NULL };
    struct shm_place place = random_place();
    int listener = -1;
    (void)user;
    if (!cover(shared, "mode=0777")) {
        return NOT_ALLOWED;
    }
    if (rdmux_shm_meeting_listen(&place, &listener) != RDMUX_OK ||
        place.directory != SHM_DIRECTORY_TEMPORARY) {
        return 1;
    }
    rdmux_shm_meeting_remove(&place);
    if (!cover(all, "mode=0777")) {
        return NOT_ALLOWED;
    }
    return !rdmux_shm_meeting_is_possible() &&
                   rdmux_shm_meeting_listen(&place, &listener) == RDMUX_IO &&
                   strstr(fake_error, "/dev/shm") != NULL
               ? 0
               : 2;
}

static void the_first_directory_that_is_safe_is_used(void **state)
{
    (void)state;

    int result = in_child(listen_where_it_is_safe, NULL);

    skip_unless_allowed(result);
    assert_int_equal(result, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_user_cannot_reach_the_acceptor),
        cmocka_unit_test(a_connector_does_not_connect_to_another_users_socket),
        cmocka_unit_test(a_link_is_not_followed),
        cmocka_unit_test(the_socket_file_exists_only_while_it_is_needed),
        cmocka_unit_test(an_acceptor_removes_the_file_of_a_killed_process),
        cmocka_unit_test(a_directory_in_which_others_may_remove_files_is_not_used),
        cmocka_unit_test(a_peer_in_another_mount_namespace_is_reached),
        cmocka_unit_test(the_first_directory_that_is_safe_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
