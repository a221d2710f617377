/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Where secrets are stored, and that no copy remains: the process searches its own memory for their
 * bytes, as an attacker with a core dump or a freed page would. */
#include "tests/unit/auth_scene.h"

#include "api/core/fabric.h"
#include "api/core/mr.h"
#include "api/core/remote.h"
#include "negotiation/path_secret.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum {
    MASK = 0xa5,
    SECRET_MAX = 32,
    CHUNK = 1 << 20,
    LARGEST = 64 << 20, /* larger mappings are a sanitizer's */
    TOKEN_RANDOM_AT = 40,
};

/* Masked, so that this copy is not found itself. */
struct wanted {
    const char *name;
    size_t size;
    uint8_t masked[SECRET_MAX];
};

static void want(struct wanted *wanted, const char *name, const uint8_t *bytes, size_t size)
{
    bool varied = false;
    wanted->name = name;
    wanted->size = size;
    for (size_t i = 0; i < size; i++) {
        wanted->masked[i] = bytes[i] ^ MASK;
        varied = varied || bytes[i] != bytes[0];
    }
    assert_true(varied); /* else it is none */
}

static bool is_at(const struct wanted *wanted, const uint8_t *bytes)
{
    for (size_t i = 0; i < wanted->size; i++) {
        if ((bytes[i] ^ MASK) != wanted->masked[i]) {
            return false;
        }
    }
    return true;
}

/* The next place in [place, end) with the first byte of what is wanted, or NULL. */
static const uint8_t *next_first(const struct wanted *wanted, const uint8_t *place,
                                 const uint8_t *end)
{
    return place < end ? memchr(place, wanted->masked[0] ^ MASK, (size_t)(end - place)) : NULL;
}

/* Counts the places in [first, end), read through mem into a chunk that is not part of it. */
static size_t count_between(int mem, uint64_t first, uint64_t end, const struct wanted *wanted,
                            uint8_t *chunk)
{
    size_t count = 0;
    for (uint64_t at = first; at < end; at += CHUNK - SECRET_MAX) {
        size_t size = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        ssize_t got = pread(mem, chunk, size, (off_t)at);
        size_t places = got < (ssize_t)wanted->size ? 0 : (size_t)got - wanted->size + 1;
        const uint8_t *place = chunk;
        while ((place = next_first(wanted, place, chunk + places)) != NULL) {
            if (is_at(wanted, place)) {
                printf("# %s at 0x%llx, in the mapping from 0x%llx\n", wanted->name,
                       (unsigned long long)at + (unsigned long long)(place - chunk),
                       (unsigned long long)first);
                count++;
            }
            place++;
        }
        if (size < CHUNK) {
            break;
        }
    }
    return count;
}

/* The thread sanitizer's own memory is too much to read, and a search of memory shows it no
 * race. */
#if defined(__SANITIZE_THREAD__)
static void need_search(void)
{
    skip();
}
#else
static void need_search(void)
{
}
#endif

/* The flags that /proc/self/smaps shows of the page, "" where it shows none. */
static void flags_of(const void *page, char flags[512])
{
    char line[512];
    bool here = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    flags[0] = '\0';
    assert_non_null(smaps);
    while (fgets(line, sizeof(line), smaps) != NULL) {
        unsigned long long first;
        unsigned long long end;
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
            here = (uintptr_t)page >= first && (uintptr_t)page < end;
        } else if (here && strncmp(line, "VmFlags:", 8) == 0) {
            (void)snprintf(flags, 512, "%s", line + 8);
        }
    }
    assert_int_equal(fclose(smaps), 0);
}

/* Is this mapping not in core dumps? */
static bool is_left_out(unsigned long long first)
{
    char flags[512];
    flags_of((const void *)(uintptr_t)first, flags); /* NOLINT(performance-no-int-to-ptr) */
    return strstr(flags, " dd") != NULL;
}

/* Counts the occurrences of the bytes in memory that this process can write to; dumped: only those
 * that a core dump contains. */
static size_t count_where(const struct wanted *wanted, bool dumped)
{
    size_t count = 0;
    char line[512];
    uint8_t *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FILE *maps = fopen("/proc/self/maps", "re");
    int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    assert_ptr_not_equal(chunk, MAP_FAILED);
    assert_non_null(maps);
    assert_true(mem >= 0);
    while (fgets(line, sizeof(line), maps) != NULL) {
        unsigned long long first;
        unsigned long long end;
        char rights[8];
        if (sscanf(line, "%llx-%llx %4s", &first, &end, rights) != 3 || rights[0] != 'r' ||
            rights[1] != 'w' || end - first > LARGEST) {
            continue;
        }
        size_t before = count;
        uint64_t hole = (uintptr_t)chunk; /* the kernel may have joined it with its neighbours */
        if (hole >= first && hole < end) {
            count += count_between(mem, first, hole, wanted, chunk);
            count += count_between(mem, hole + CHUNK, end, wanted, chunk);
        } else {
            count += count_between(mem, first, end, wanted, chunk);
        }
        if (dumped && count != before && is_left_out(first)) {
            count = before;
        }
    }
    assert_int_equal(close(mem), 0);
    assert_int_equal(fclose(maps), 0);
    assert_int_equal(munmap(chunk, CHUNK), 0);
    return count;
}

static size_t count_copies(const struct wanted *wanted)
{
    return count_where(wanted, false);
}

static void check_gone(const struct wanted *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t copies = count_copies(&wanted[i]);
        if (copies != 0) {
            fail_msg("%zu copies of %s are left", copies, wanted[i].name);
        }
    }
}

static void check_kept_apart(const void *secret, const char *name)
{
    char flags[512];
    flags_of(secret, flags);
    if (flags[0] == '\0') {
        puts("# /proc/self/smaps has no VmFlags here");
        return;
    }
    if (strstr(flags, " dd") == NULL || strstr(flags, " wf") == NULL) {
        fail_msg("%s: core dumps have it, or a fork: %s", name, flags);
    }
}

/* Connects, exports, imports, and ends; records all secrets meanwhile. Returns their number. */
static size_t live_and_end(struct pair *pair, struct wanted *wanted)
{
    size_t count = 0;
    struct rdmux_mr *mr = NULL;
    struct rdmux_remote *remote = NULL;
    struct rdmux_token token;
    connect_more(pair, NULL, &pair->a, &pair->b);
    CHECK_OK(rdmux_mr_alloc(pair->fabric_b, 4096, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_OK(rdmux_remote_import(pair->a, &token, PATIENT_MS, &remote));
    want(&wanted[count++], "a token", token.bytes + TOKEN_RANDOM_AT, 16);
    explicit_bzero(&token, sizeof(token));
    want(&wanted[count++], "a connection's secret", pair->b->secrets->secret, RDMUX_SECRET_SIZE);
    check_kept_apart(mr->secrets, "a region's token");
    check_kept_apart(pair->a->secrets, "a connection's secret");
    if (pair->fabric_b->auth != NULL) {
        CHECK_OK(rdmux_mr_export_to(mr, "alice", &token));
        want(&wanted[count++], "a grant", token.bytes + TOKEN_RANDOM_AT, 16);
        want(&wanted[count++], "a grant's secret", mr->secrets->grant, RDMUX_SECRET_SIZE);
        explicit_bzero(&token, sizeof(token));
    }
    for (size_t i = 0; i < 2; i++) {
        assert_true(count_copies(&wanted[i]) > 0); /* else the search is none */
    }
    check_message(pair->a, pair->cq_a, pair->b, pair->cq_b, 5);
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    return count;
}

static void the_secrets_of_a_closed_connection_are_wiped(void **state)
{
    need_search();
    (void)state;
    static const char *const paths[] = { "tcp", "shm" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(paths); i++) {
        struct wanted wanted[4];
        struct pair pair;
        open_sides(&pair, paths[i], 0, 0);
        size_t count = live_and_end(&pair, wanted);
        close_pair(&pair);
        check_gone(wanted, count);
    }
}

static void the_secrets_of_authenticated_peers_are_wiped(void **state)
{
    need_search();
    (void)state;
    char name[FILE_NAME_MAX];
    struct wanted wanted[5];
    struct pair pair;
    uint8_t key[32];
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)(i % 16 * 0x11);
    }
    struct rdmux_fabric_auth auth = psk_of(write_file("keys", "alice:" KEY_ONE "\n", name));
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    size_t count = live_and_end(&pair, wanted);
    want(&wanted[count++], "a pre-shared key", key, sizeof(key));
    explicit_bzero(key, sizeof(key));
    assert_true(count_copies(&wanted[count - 1]) > 0);
    close_pair(&pair);
    check_gone(wanted, count);
}

/* Secrets beyond the OpenSSL session that it opened, while the connection lives. */
static void a_core_dump_of_a_live_connection_has_no_lasting_secret(void **state)
{
    need_search();
    (void)state;
    char name[FILE_NAME_MAX];
    char flags[512];
    struct wanted wanted[4];
    struct pair pair;
    struct rdmux_mr *mr = NULL;
    struct rdmux_remote *remote = NULL;
    struct rdmux_token token;
    uint8_t key[32];
    uint8_t data_key[RDMUX_DATA_KEY_SIZE];
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)(i % 16 * 0x11);
    }
    struct rdmux_fabric_auth auth = psk_of(write_file("keys", "alice:" KEY_ONE "\n", name));
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    connect_more(&pair, NULL, &pair.a, &pair.b);
    CHECK_OK(rdmux_mr_alloc(pair.fabric_b, 4096, RDMUX_ACCESS_REMOTE_WRITE, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    CHECK_OK(rdmux_remote_import(pair.a, &token, PATIENT_MS, &remote));
    check_message(pair.a, pair.cq_a, pair.b, pair.cq_b, 5);
    want(&wanted[0], "a pre-shared key", key, sizeof(key));
    want(&wanted[1], "a connection's secret", pair.b->secrets->secret, RDMUX_SECRET_SIZE);
    assert_true(rdmux_data_key(pair.b->secrets->secret, pair.b->negotiated.attempt, 0, data_key));
    want(&wanted[2], "a data socket's key", data_key, sizeof(data_key));
    want(&wanted[3], "a token", token.bytes + TOKEN_RANDOM_AT, 16);
    explicit_bzero(key, sizeof(key));
    explicit_bzero(data_key, sizeof(data_key));
    explicit_bzero(&token, sizeof(token));

    flags_of(pair.b->secrets, flags);
    for (size_t i = 0; i < RDMUX_COUNT_OF(wanted) && flags[0] != '\0'; i++) {
        size_t copies = count_where(&wanted[i], true);
        if (copies != 0) {
            fail_msg("%zu copies of %s are in core dumps", copies, wanted[i].name);
        }
    }
    rdmux_remote_close(remote);
    rdmux_mr_deregister(mr);
    close_pair(&pair);
}

/* Also while its region lives on. */
static void a_revoked_token_is_wiped(void **state)
{
    need_search();
    (void)state;
    struct wanted wanted;
    struct rdmux_token token;
    struct rdmux_mr *mr = NULL;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    CHECK_OK(rdmux_mr_alloc(fabric, 4096, RDMUX_ACCESS_REMOTE_READ, &mr));
    CHECK_OK(rdmux_mr_export(mr, &token));
    want(&wanted, "a revoked token", token.bytes + TOKEN_RANDOM_AT, 16);
    explicit_bzero(&token, sizeof(token));
    assert_true(count_copies(&wanted) > 0);

    CHECK_OK(rdmux_mr_revoke(mr));

    check_gone(&wanted, 1);
    rdmux_mr_deregister(mr);
    CHECK_OK(rdmux_fabric_close(fabric));
}

/* ------------------------------------------------------------------------------------ the pages */

static void pieces_of_secret_memory_are_separate_zeroed_and_wiped(void **state)
{
    (void)state;
    enum { COUNT = 100 }; /* some pages of them */
    uint8_t *pieces[COUNT];
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            pieces[i] = rdmux_secret_allocate(fabric);
            assert_non_null(pieces[i]);
            for (size_t j = 0; j < RDMUX_SECRET_PIECE; j++) {
                assert_int_equal(pieces[i][j], 0);
            }
            memset(pieces[i], (int)i + 1, RDMUX_SECRET_PIECE);
        }
        for (size_t i = 0; i < COUNT; i++) {
            assert_int_equal(pieces[i][0], i + 1);
            assert_int_equal(pieces[i][RDMUX_SECRET_PIECE - 1], i + 1);
        }
        for (size_t i = 0; i < COUNT; i++) {
            rdmux_secret_release(fabric, pieces[(i * 37 + round) % COUNT]);
        }
        assert_null(fabric->hooks.secrets);
    }
    /* While others of its page live on, a piece is wiped by itself. */
    pieces[0] = rdmux_secret_allocate(fabric);
    pieces[1] = rdmux_secret_allocate(fabric);
    assert_non_null(pieces[0]);
    assert_non_null(pieces[1]);
    memset(pieces[1], 0x3c, RDMUX_SECRET_PIECE);
    rdmux_secret_release(fabric, pieces[1]);
    for (size_t j = 0; j < RDMUX_SECRET_PIECE; j++) {
        assert_int_equal(pieces[1][j], 0);
    }
    rdmux_secret_release(fabric, pieces[0]);
    rdmux_secret_release(fabric, NULL);
    CHECK_OK(rdmux_fabric_close(fabric));
}

static void a_child_does_not_inherit_secrets(void **state)
{
    (void)state;
    int status = 0;
    struct rdmux_fabric *fabric = open_fabric("tcp", 0, NULL);
    uint8_t *piece = rdmux_secret_allocate(fabric);
    assert_non_null(piece);
    memset(piece, 0x77, RDMUX_SECRET_PIECE);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(piece[0] | piece[RDMUX_SECRET_PIECE - 1]);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(piece[0], 0x77);
    rdmux_secret_release(fabric, piece);
    CHECK_OK(rdmux_fabric_close(fabric));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_secrets_of_a_closed_connection_are_wiped),
        cmocka_unit_test(the_secrets_of_authenticated_peers_are_wiped),
        cmocka_unit_test(a_core_dump_of_a_live_connection_has_no_lasting_secret),
        cmocka_unit_test(a_revoked_token_is_wiped),
        cmocka_unit_test(pieces_of_secret_memory_are_separate_zeroed_and_wiped),
        cmocka_unit_test(a_child_does_not_inherit_secrets),
    };
    return cmocka_run_group_tests(tests, make_auth_folder, remove_auth_folder);
}
