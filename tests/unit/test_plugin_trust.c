/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Which plug-ins may be loaded into a process: not from folders and files that other users could
 * have made or changed, and not into programs with rights that their user lacks. */
#include "tests/unit/fake_fabric.h"
#include "tests/unit/support/plugin_opener.h"

#include "providers/binding.h"
#include "providers/registry.h"
#include "providers/trust.h"
#include "shm/shm_provider.h"
#include "tcp_fallback/tcp_provider.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const struct rdmux_provider_ops *const built_in[] = { &rdmux_shm_provider,
                                                             &rdmux_tcp_provider, NULL };

enum {
    STRANGER = 65534,
    NAME_SIZE = 96,
};

/* This program has a copy of rdmux of its own, to which no plug-in is bound: with this check
 * replaced, a trusted plug-in is opened all the same. */
enum rdmux_status __wrap_rdmux_binding_check(struct rdmux_refusal *refusal);

enum rdmux_status __wrap_rdmux_binding_check(struct rdmux_refusal *refusal)
{
    (void)refusal;
    return RDMUX_OK;
}

/* ------------------------------------------------------------------------------------- folders */

/* SCRATCH/way/plug-ins/trap.so, and the files that a test adds. */
struct tree {
    char scratch[32];
    char way[NAME_SIZE];
    char folder[NAME_SIZE];
    char file[NAME_SIZE];
};

static void copy_file(const char *from_path, const char *to_path, mode_t mode)
{
    int from = open(from_path, O_RDONLY | O_CLOEXEC);
    int to = open(to_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    struct stat file;
    assert_true(from >= 0 && to >= 0);
    assert_int_equal(fstat(from, &file), 0);
    for (off_t at = 0; at < file.st_size;) {
        assert_true(sendfile(to, from, &at, (size_t)(file.st_size - at)) > 0);
    }
    assert_int_equal(fchmod(to, mode), 0);
    assert_int_equal(close(from), 0);
    assert_int_equal(close(to), 0);
}

static void in(const char *folder, const char *name, char out[NAME_SIZE])
{
    assert_in_range(snprintf(out, NAME_SIZE, "%s/%s", folder, name), 1, NAME_SIZE - 1);
}

static void make_folder(const char *path)
{
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(chmod(path, 0755), 0);
}

static void make_tree(struct tree *tree)
{
    strcpy(tree->scratch, "/tmp/rdmux-trust.XXXXXX");
    assert_non_null(mkdtemp(tree->scratch));
    assert_int_equal(chmod(tree->scratch, 0755), 0);
    in(tree->scratch, "way", tree->way);
    in(tree->way, "plug-ins", tree->folder);
    in(tree->folder, "trap.so", tree->file);
    make_folder(tree->way);
    make_folder(tree->folder);
    int file = open(tree->file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    assert_true(file >= 0);
    assert_int_equal(write(file, "no library", 10), 10);
    assert_int_equal(close(file), 0);
}

static void drop_tree(struct tree *tree)
{
    char command[NAME_SIZE];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", tree->scratch);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): a test's own folder */
}

/* ------------------------------------------------------------------------------------ registry */

static const struct rdmux_provider_entry *entry_of(struct fake_fabric *fake, const char *name)
{
    for (size_t i = 0; i < fake->fabric.registry.count; i++) {
        if (strcmp(fake->fabric.registry.entries[i].name, name) == 0) {
            return &fake->fabric.registry.entries[i];
        }
    }
    return NULL;
}

/* Checks that the plug-in is loaded from the folder, or that the text that says why not contains
 * this word. */
static void check_folder(const char *folder, const char *word)
{
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    char name[NAME_SIZE];
    attr.provider_dir = folder;
    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);
    (void)snprintf(name, sizeof(name), "%s/", strrchr(folder, '/') + 1);

    const struct rdmux_provider_entry *file = entry_of(fake, "trap.so");
    const struct rdmux_provider_entry *refused = entry_of(fake, name);
    if (word == NULL) {
        assert_null(refused);
        assert_non_null(file);
        assert_non_null(strstr(file->text, "file too short")); /* dlopen has seen it */
    } else {
        const struct rdmux_provider_entry *entry = refused != NULL ? refused : file;
        assert_non_null(entry);
        assert_int_equal(entry->reason, RDMUX_REASON_BAD_PLUGIN);
        if (strstr(entry->text, word) == NULL) {
            fail_msg("%s: not because of '%s': %s", folder, word, entry->text);
        }
        assert_null(strstr(entry->text, "/tmp")); /* a peer reads it */
        assert_true(entry->hint[0] != '\0');
        if (refused != NULL) {
            assert_int_equal(entry_of(fake, "ib")->reason, RDMUX_REASON_BAD_PLUGIN);
            assert_non_null(strstr(entry_of(fake, "ib")->text, word));
        }
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void check_file(const char *path, const char *word)
{
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.plugins = &path;
    attr.plugin_count = 1;
    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);

    const struct rdmux_provider_entry *entry = entry_of(fake, strrchr(path, '/') + 1);
    assert_non_null(entry);
    if (strstr(entry->text, word) == NULL) {
        fail_msg("%s: not because of '%s': %s", path, word, entry->text);
    }
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_plug_in_that_no_other_user_may_write_to_is_loaded(void **state)
{
    (void)state;
    struct tree tree;
    char path[NAME_SIZE];
    make_tree(&tree);

    check_folder(tree.folder, NULL);
    check_file(tree.file, "file too short");
    in(tree.way, "./../way//plug-ins/./trap.so", path);
    check_file(path, "file too short");
    assert_int_equal(chmod(tree.way, 01777), 0); /* like /tmp */
    check_folder(tree.folder, NULL);
    check_file(tree.file, "file too short");

    drop_tree(&tree);
}

static void a_plug_in_that_others_may_write_to_is_refused(void **state)
{
    (void)state;
    struct tree tree;
    static const mode_t open_modes[] = { 0775, 0757, 0777, 02775 };
    make_tree(&tree);

    for (size_t i = 0; i < RDMUX_COUNT_OF(open_modes); i++) {
        assert_int_equal(chmod(tree.folder, open_modes[i]), 0);
        check_folder(tree.folder, "the folder of plug-ins may be written to by others");
        check_file(tree.file, "a folder above it may be written to by others");
        assert_int_equal(chmod(tree.folder, 0755), 0);
        assert_int_equal(chmod(tree.way, open_modes[i]), 0);
        check_folder(tree.folder, "a folder above it may be written to by others");
        check_file(tree.file, "a folder above it may be written to by others");
        assert_int_equal(chmod(tree.way, 0755), 0);
        assert_int_equal(chmod(tree.file, open_modes[i]), 0);
        check_folder(tree.folder, "the file may be written to by others");
        check_file(tree.file, "the file may be written to by others");
        assert_int_equal(chmod(tree.file, 0644), 0);
    }
    /* Others may add a file to it, and all that is in it would be loaded. */
    assert_int_equal(chmod(tree.folder, 01777), 0);
    check_folder(tree.folder, "the folder of plug-ins may be written to by others");

    drop_tree(&tree);
}

static void a_plug_in_that_another_user_owns_is_refused(void **state)
{
    (void)state;
    struct tree tree;
    if (geteuid() != 0) {
        puts("# only root can give a file away");
        skip();
    }
    make_tree(&tree);

    assert_int_equal(chown(tree.folder, STRANGER, (gid_t)-1), 0);
    check_folder(tree.folder, "the folder of plug-ins belongs to user 65534");
    check_file(tree.file, "a folder above it belongs to user 65534");
    assert_int_equal(chown(tree.folder, 0, (gid_t)-1), 0);
    assert_int_equal(chown(tree.way, STRANGER, (gid_t)-1), 0);
    check_folder(tree.folder, "a folder above it belongs to user 65534");
    check_file(tree.file, "a folder above it belongs to user 65534");
    assert_int_equal(chown(tree.way, 0, (gid_t)-1), 0);
    assert_int_equal(chown(tree.file, STRANGER, (gid_t)-1), 0);
    check_folder(tree.folder, "the file belongs to user 65534");
    check_file(tree.file, "the file belongs to user 65534");
    assert_int_equal(chown(tree.file, 0, (gid_t)-1), 0);
    /* A group with members other than root does not own anything. */
    assert_int_equal(chown(tree.folder, (uid_t)-1, STRANGER), 0);
    check_folder(tree.folder, NULL);

    drop_tree(&tree);
}

static void a_symbolic_link_is_followed_and_each_folder_on_its_way_is_checked(void **state)
{
    (void)state;
    struct tree tree;
    char shut[NAME_SIZE];
    char link[NAME_SIZE];
    char file_link[NAME_SIZE];
    make_tree(&tree);
    in(tree.scratch, "link", link);
    in(tree.scratch, "shut", shut);
    make_folder(shut);
    in(shut, "other.so", file_link);

    assert_int_equal(symlink("way/../way/plug-ins", link), 0);
    check_folder(link, NULL);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink(tree.folder, link), 0);
    check_folder(link, NULL);
    assert_int_equal(symlink("../link/trap.so", file_link), 0);
    check_file(file_link, "file too short");
    assert_int_equal(chmod(tree.way, 0775), 0); /* only on the path of the link */
    check_folder(link, "a folder above it may be written to by others");
    check_file(file_link, "a folder above it may be written to by others");
    assert_int_equal(chmod(tree.way, 0755), 0);
    if (geteuid() == 0) {
        assert_int_equal(lchown(link, STRANGER, (gid_t)-1), 0);
        check_folder(link, "a symbolic link on its path belongs to user 65534");
        check_file(file_link, "a symbolic link on its path belongs to user 65534");
    }
    assert_int_equal(unlink(link), 0);
    assert_int_equal(symlink("link", link), 0);
    check_folder(link, "Too many levels of symbolic links");

    drop_tree(&tree);
}

static void a_path_that_is_no_file_is_refused(void **state)
{
    (void)state;
    struct tree tree;
    char path[NAME_SIZE];
    make_tree(&tree);

    in(tree.folder, "pipe.so", path); /* dlopen would wait for a writer */
    assert_int_equal(mkfifo(path, 0600), 0);
    check_file(path, "no regular file");
    check_file(tree.folder, "no regular file");
    in(tree.folder, "absent.so", path);
    check_file(path, "cannot open: No such file");
    in(tree.file, "more.so", path);
    check_file(path, "cannot open: Not a directory");

    drop_tree(&tree);
}

enum verdict {
    GOOD,
    BAD,
    NO_CHROOT,
};

/* Returns the verdict on the file of a process whose root folder is the scratch folder. */
static enum verdict judge_within(const char *root, const char *path)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rdmux_refusal refusal;
        char out[PATH_MAX];
        if (chroot(root) != 0 || chdir("/") != 0) {
            _exit(NO_CHROOT);
        }
        _exit(rdmux_trust_check(path, RDMUX_TRUST_FILE, out, &refusal) == RDMUX_OK ? GOOD : BAD);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (enum verdict)WEXITSTATUS(status);
}

/* In a user namespace without root all that is root's belongs to another number, the root folder too. */
static void the_owner_of_the_root_folder_is_trusted_and_no_other_user(void **state)
{
    (void)state;
    enum { OTHER = STRANGER - 1 };
    struct tree tree;
    if (geteuid() != 0) {
        puts("# only root can give a file away");
        skip();
    }
    make_tree(&tree);
    assert_int_equal(chown(tree.scratch, STRANGER, (gid_t)-1), 0);
    assert_int_equal(chown(tree.way, STRANGER, (gid_t)-1), 0);
    assert_int_equal(chown(tree.file, STRANGER, (gid_t)-1), 0);

    enum verdict owner = judge_within(tree.scratch, "/way/plug-ins/trap.so");
    assert_int_equal(chown(tree.file, OTHER, (gid_t)-1), 0);
    enum verdict other = judge_within(tree.scratch, "/way/plug-ins/trap.so");

    drop_tree(&tree);
    if (owner == NO_CHROOT) {
        puts("# this root may not change the root folder");
        skip();
    }
    assert_int_equal(owner, GOOD);
    assert_int_equal(other, BAD);
}

/* ------------------------------------------------------------------------------------ programs */

/* Runs the program as this user (0: as now) with this argv[0]; returns how it ended. */
static int run(const char *file, const char *name, uid_t user, const char *word, const char *folder)
{
    char *const environment[] = { NULL };
    char *arguments[4] = { NULL };
    const char *const texts[] = { name, word, folder };
    int status = 0;
    for (size_t i = 0; i < 3 && texts[i] != NULL; i++) {
        arguments[i] = strdup(texts[i]);
        assert_non_null(arguments[i]);
    }
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (user != 0 && (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)) {
            _exit(126);
        }
        (void)execve(file, arguments, environment);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    for (size_t i = 0; i < 3; i++) {
        free(arguments[i]);
    }
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A folder as the attacker makes it: SCRATCH/rdmux with the trap in it, and a program beside. */
static void set_trap(struct tree *tree, const char *program, mode_t mode, char name[NAME_SIZE],
                     char copy[NAME_SIZE])
{
    char folder[NAME_SIZE];
    char trap[NAME_SIZE];
    make_tree(tree);
    in(tree->scratch, "rdmux", folder);
    in(folder, "trap.so", trap);
    in(tree->scratch, "librdmux.so", name);
    in(tree->scratch, "program", copy);
    make_folder(folder);
    copy_file(TRAP_FILE, trap, 0755);
    copy_file(program, copy, mode);
}

static void a_statically_linked_program_searches_no_folder_by_its_name(void **state)
{
    (void)state;
    struct tree tree;
    char name[NAME_SIZE];
    char copy[NAME_SIZE];
    char folder[NAME_SIZE];
    set_trap(&tree, STATIC_OPENER_FILE, 0755, name, copy);
    in(tree.scratch, "rdmux", folder);

    int unnamed = run(copy, name, 0, folder, NULL);
    int shared = run(OPENER_FILE, name, 0, folder, folder);

    drop_tree(&tree);
    assert_int_equal(unnamed, OPENER_QUIET);
    assert_int_equal(shared, OPENER_TRAPPED); /* else the trap is no test */
}

static void a_statically_linked_program_runs_no_code_of_a_plug_in(void **state)
{
    (void)state;
    struct tree tree;
    char name[NAME_SIZE];
    char copy[NAME_SIZE];
    char folder[NAME_SIZE];
    set_trap(&tree, STATIC_OPENER_FILE, 0755, name, copy);
    in(tree.scratch, "rdmux", folder);

    int refused = run(copy, name, 0, "trap.so: BAD_PLUGIN: this copy of rdmux is linked into",
                      folder);

    drop_tree(&tree);
    assert_int_equal(refused, OPENER_NAMED);
}

static void a_setuid_program_loads_nothing_that_its_user_chooses(void **state)
{
    (void)state;
    struct tree tree;
    char name[NAME_SIZE];
    char copy[NAME_SIZE];
    char folder[NAME_SIZE];
    if (geteuid() != 0) {
        puts("# only root can make a setuid program of root's");
        skip();
    }
    set_trap(&tree, STATIC_OPENER_FILE, 04755, name, copy);
    in(tree.scratch, "rdmux", folder);

    int by_name = run(copy, name, STRANGER, folder, NULL);
    int by_folder = run(copy, name, STRANGER, folder, folder);

    drop_tree(&tree);
    if (by_name == OPENER_QUIET) {
        puts("# /tmp is mounted nosuid");
        skip();
    }
    assert_int_equal(by_name, OPENER_QUIET + OPENER_SECURE);
    assert_int_equal(by_folder,
                     OPENER_NAMED + OPENER_SECURE); /* the log says that it is not searched */
}

static void a_setuid_program_does_not_search_beside_the_library(void **state)
{
    (void)state;
    struct tree tree;
    char name[NAME_SIZE];
    char copy[NAME_SIZE];
    if (geteuid() != 0) {
        puts("# only root can make a setuid program of root's");
        skip();
    }
    set_trap(&tree, OPENER_FILE, 0755, name, copy);
    int plain = run(copy, name, STRANGER, LIBRARY_FOLDER "/rdmux", NULL);
    assert_int_equal(chmod(copy, 04755), 0);
    int secure = run(copy, name, STRANGER, LIBRARY_FOLDER "/rdmux", NULL);

    drop_tree(&tree);
    if (plain != OPENER_NAMED || secure < OPENER_QUIET || (secure & OPENER_SECURE) == 0) {
        printf("# no plug-in beside the library, no way to it for user %d, or /tmp is mounted "
               "nosuid\n",
               STRANGER);
        skip();
    }
    assert_int_equal(secure, OPENER_QUIET + OPENER_SECURE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plug_in_that_no_other_user_may_write_to_is_loaded),
        cmocka_unit_test(a_plug_in_that_others_may_write_to_is_refused),
        cmocka_unit_test(a_plug_in_that_another_user_owns_is_refused),
        cmocka_unit_test(a_symbolic_link_is_followed_and_each_folder_on_its_way_is_checked),
        cmocka_unit_test(a_path_that_is_no_file_is_refused),
        cmocka_unit_test(the_owner_of_the_root_folder_is_trusted_and_no_other_user),
        cmocka_unit_test(a_statically_linked_program_searches_no_folder_by_its_name),
        cmocka_unit_test(a_statically_linked_program_runs_no_code_of_a_plug_in),
        cmocka_unit_test(a_setuid_program_loads_nothing_that_its_user_chooses),
        cmocka_unit_test(a_setuid_program_does_not_search_beside_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
