/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Thousands of clients that send a valid introduction and then nothing: their cost, and whether
 * they keep good clients out. Without authentication any client can repeat an OFFER; with it, the
 * holder of a key can send any number. */
#include "negotiation/tls.h"
#include "tests/unit/auth_scene.h"
#include "tests/unit/listener_scene.h"

#include "api/core/ep.h"
#include "api/core/fabric.h"
#include "tests/unit/descriptors.h"

enum {
    STRANGER_MAX = 64 << 10, /* bytes that one may cost */
    WITHIN_MS = 1000,        /* a good one */
    INTRODUCED = 2500,       /* less where descriptors are few: each is two of this process */
    HOSTS = 20,              /* source addresses, if there are several */
    GOOD = 10,
    /* All of them: if the backlog is full, the kernel drops a first packet, which is sent again
     * after a second. */
    BACKLOG = 65535,
};

/* Pages of this process that are in memory, in bytes. */
static size_t resident(void)
{
    size_t all = 0;
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%zu %zu", &all, &pages), 2); /* NOLINT(cert-err34-c) */
    assert_int_equal(fclose(file), 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t room_for_introduced(void)
{
    size_t third = raise_descriptors() / 3;
    return third < INTRODUCED ? third : INTRODUCED;
}

/* Good clients connect one after the other while the others stay. Returns the time of the
 * slowest. */
static uint64_t connect_good_ones(struct pair *pair)
{
    uint64_t longest = 0;
    for (size_t i = 0; i < GOOD; i++) {
        struct rdmux_ep *a = NULL;
        struct rdmux_ep *b = NULL;
        uint64_t begin = now_ms();
        struct span span = span_begin();
        connect_more(pair, NULL, &a, &b);
        uint64_t took = now_ms() - begin;
        /* A sanitizer slows this process, which has both sides, more than the flood does. */
        check_span("a good connection beside thousands", span, 0,
                   SLACK == 1 ? (uint64_t)WITHIN_MS : (uint64_t)PATIENT_MS);
        longest = took > longest ? took : longest;
        CHECK_OK(rdmux_ep_close(a));
        CHECK_OK(rdmux_ep_close(b));
    }
    return longest;
}

/* Checks their cost by the pages that they have made resident; sanitizers keep more than that. */
static void check_cost(size_t before, size_t held, size_t count, uint64_t longest)
{
    size_t now = resident();
    size_t each = now > before && held != 0 ? (now - before) / held : 0;
    print_message(
        "# %zu have introduced themselves, %zu are held; the slowest of %d good ones took "
        "%llu ms; one costs %zu bytes\n",
        count, held, (int)GOOD, (unsigned long long)longest, each);
    if (SLACK == 1) {
        assert_true(each <= STRANGER_MAX);
    }
}

static void good_peers_connect_beside_thousands_that_repeat_an_offer(void **state)
{
    size_t count = room_for_introduced();
    int *fds = calloc(count, sizeof(*fds));
    uint8_t *opening = malloc(OPENING_MAX);
    struct rdmux_listen_attr attr = RDMUX_LISTEN_ATTR_INIT;
    attr.backlog = BACKLOG;
    struct scene *scene = set_scene(&attr);
    (void)state;
    assert_non_null(fds);
    assert_non_null(opening);
    size_t opening_size = make_opening(scene->pair.fabric_a, opening);
    check_good_connection(&scene->pair); /* makes the objects that are made once */
    size_t descriptors = open_descriptors();
    size_t metered = atomic_load(&scene->meter.bytes);
    size_t before = resident();
    for (size_t i = 0; i < count; i++) {
        char from[32];
        snprintf(from, sizeof(from), "127.0.1.%zu", 1 + i % HOSTS);
        fds[i] = dial_from(scene->pair.address, from);
        send_bytes(fds[i], opening, opening_size);
    }

    uint64_t longest = connect_good_ones(&scene->pair);

    size_t held = open_descriptors() - descriptors - count;
    check_cost(before, held, count, longest);
    assert_true(held >= count / 2); /* else it was no flood */
    size_t allocated = atomic_load(&scene->meter.bytes) - metered;
    size_t allocated_each = held != 0 ? allocated / held : 0;
    print_message("# %zu bytes allocated for each\n", allocated_each);
    assert_in_range(allocated_each, 1, STRANGER_MAX);
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    free(fds);
    free(opening);
    clear_scene(scene);
}

/* Opens a connection that authenticates as the fabric's identity, introduces itself and sends
 * nothing more. */
static int introduce_secured(struct rdmux_fabric *fabric, const char *address,
                             const uint8_t *opening, size_t size)
{
    struct rdmux_tls *tls = NULL;
    int fd = dial_from(address, "127.0.0.1");
    uint64_t until = now_ms() + PATIENT_MS;
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    CHECK_OK(rdmux_tls_create(fabric->auth, RDMUX_ROLE_CONNECT, fd, NULL, &tls));
    for (size_t sent = 0; sent < size;) {
        size_t done = 0;
        enum rdmux_status status = rdmux_tls_send(tls, opening + sent, size - sent, &done);
        if (status == RDMUX_AGAIN) {
            struct pollfd look = { .fd = fd,
                                   .events = rdmux_tls_wants_room(tls) ? POLLOUT : POLLIN };
            assert_true(poll(&look, 1, PATIENT_MS) > 0);
            assert_true(now_ms() < until);
            continue;
        }
        CHECK_OK(status);
        sent += done;
    }
    rdmux_tls_destroy(tls);
    return fd;
}

static void one_identity_does_not_keep_out_another_at_the_same_address(void **state)
{
    size_t count = room_for_introduced();
    char file[FILE_NAME_MAX];
    int *fds = calloc(count, sizeof(*fds));
    uint8_t *opening = malloc(OPENING_MAX);
    struct pair pair = { .a = NULL };
    struct rdmux_fabric *eve = NULL;
    (void)state;
    assert_non_null(fds);
    assert_non_null(opening);
    struct rdmux_fabric_auth auth = psk_of(
        write_file("k", "anna:" KEY_ONE "\neve:" KEY_TWO "\n", file));
    open_auth_sides(&pair, "tcp", &auth, &auth, NULL);
    /* Even on a slow machine, the last client comes before the first has timed out. */
    struct rdmux_listen_attr listen_attr = RDMUX_LISTEN_ATTR_INIT;
    listen_attr.accept_timeout_ms = 1000 * PATIENT_MS;
    rdmux_listener_close(pair.listener);
    pair.listener = listen_here(pair.fabric_b, &listen_attr, pair.address);
    auth.identity = "eve";
    struct rdmux_fabric_attr attr = attr_with("tcp", &auth, NULL, NULL);
    CHECK_OK(rdmux_fabric_open(&attr, &eve));
    size_t opening_size = make_opening(eve, opening);
    check_good_connection(&pair);
    size_t descriptors = open_descriptors();
    size_t before = resident();
    for (size_t i = 0; i < count; i++) {
        fds[i] = introduce_secured(eve, pair.address, opening, opening_size);
    }

    uint64_t longest = connect_good_ones(&pair);

    size_t held = open_descriptors() - descriptors - count;
    check_cost(before, held, count, longest);
    assert_true(held >= count / 2);
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    free(fds);
    free(opening);
    close_pair(&pair);
    CHECK_OK(rdmux_fabric_close(eve));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_peers_connect_beside_thousands_that_repeat_an_offer),
        cmocka_unit_test(one_identity_does_not_keep_out_another_at_the_same_address),
    };
    return cmocka_run_group_tests_name("introduced_flood", tests, make_auth_folder,
                                       remove_auth_folder);
}
