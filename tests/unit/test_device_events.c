/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* How a fabric handles the events of its devices: it logs them, and reopens a device that has gone.
 * The device is tcp with an event descriptor. */
#include "tests/unit/api_pair.h"

#include "providers/registry.h"

#include <errno.h>
#include <sys/eventfd.h>

enum { EVENTS_MAX = 4, TURN_MS = 20 };

static struct device {
    const struct rdmux_provider_ops *tcp;
    struct rdmux_provider_ops ops;
    struct rdmux_provider_event events[EVENTS_MAX];
    size_t count;
    size_t next;
    size_t asked; /* async_event */
    size_t opened;
    int fd;
} device;

static enum rdmux_status device_domain_open(struct rdmux_provider_domain *domain,
                                            const struct rdmux_local_path *path)
{
    device.opened++;
    return device.tcp->domain_open(domain, path);
}

static int device_domain_fd(struct rdmux_provider_domain *domain)
{
    (void)domain;
    return device.fd;
}

static enum rdmux_status device_async_event(struct rdmux_provider_domain *domain,
                                            struct rdmux_provider_event *out)
{
    (void)domain;
    device.asked++;
    if (device.next == device.count) {
        uint64_t count;
        assert_true(read(device.fd, &count, sizeof(count)) == sizeof(count) || errno == EAGAIN);
        return RDMUX_AGAIN;
    }
    *out = device.events[device.next++];
    return RDMUX_OK;
}

static void tell(uint32_t reason, const char *text)
{
    const uint64_t one = 1;
    assert_true(device.count < EVENTS_MAX);
    struct rdmux_provider_event *event = &device.events[device.count++];
    event->reason = reason;
    (void)snprintf(event->text, sizeof(event->text), "%s", text);
    assert_int_equal(write(device.fd, &one, sizeof(one)), sizeof(one));
}

/* Endpoint a has the device, and progresses only by its calls. */
static void set_scene(struct pair *pair, struct logbook *book)
{
    memset(pair, 0, sizeof(*pair));
    memset(&device, 0, sizeof(device));
    device.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(device.fd >= 0);
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_DEFAULT_PLUGINS |
                 RDMUX_FABRIC_NO_SERVICE_THREAD | RDMUX_FABRIC_NO_WORKER_THREAD;
    attr.paths = "tcp";
    attr.log = logbook_write;
    attr.log_user = book;
    attr.log_level = RDMUX_LOG_INFO;
    CHECK_OK(rdmux_fabric_open(&attr, &pair->fabric_a));
    for (size_t i = 0; i < pair->fabric_a->registry.count; i++) {
        struct rdmux_provider_entry *entry = &pair->fabric_a->registry.entries[i];
        if (strcmp(entry->name, "tcp") == 0) {
            device.tcp = entry->ops;
            entry->ops = &device.ops;
        }
    }
    if (device.tcp == NULL) {
        fail_msg("there is no tcp");
        return;
    }
    device.ops = *device.tcp;
    device.ops.domain_open = device_domain_open;
    device.ops.domain_fd = device_domain_fd;
    device.ops.async_event = device_async_event;
    pair->fabric_b = open_fabric("tcp", 0, NULL);
    pair->cq_a = create_cq(pair->fabric_a);
    pair->cq_b = create_cq(pair->fabric_b);
    pair->listener = listen_here(pair->fabric_b, NULL, pair->address);
    connect_more(pair, NULL, &pair->a, &pair->b);
    assert_int_equal(device.opened, 1);
    logbook_clear(book);
}

static void clear_scene(struct pair *pair)
{
    close_pair(pair);
    close(device.fd);
}

static void reconnect(struct pair *pair)
{
    CHECK_OK(rdmux_ep_close(pair->a));
    CHECK_OK(rdmux_ep_close(pair->b));
    connect_more(pair, NULL, &pair->a, &pair->b);
    check_messages(pair);
}

static void the_state_changes_of_a_device_are_logged_and_it_stays_open(void **state)
{
    (void)state;
    struct pair pair;
    struct logbook book = LOGBOOK_INIT;
    set_scene(&pair, &book);
    tell(RDMUX_REASON_PORT_DOWN, "port 1 is down");
    tell(RDMUX_REASON_USABLE, "port 1 is up");

    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));

    assert_int_equal(device.next, 2);
    assert_int_equal(logbook_count(&book, "tcp"), 2);
    assert_int_equal(logbook_count(&book, ": port 1 is down"), 1);
    assert_int_equal(logbook_count(&book, ": port 1 is up"), 1);
    check_messages(&pair);
    reconnect(&pair);
    assert_int_equal(device.opened, 1);
    clear_scene(&pair);
}

static void only_a_problem_of_a_device_is_a_warning(void **state)
{
    (void)state;
    struct pair pair;
    struct logbook book = LOGBOOK_INIT;
    set_scene(&pair, &book);
    pair.fabric_a->hooks.log_level = RDMUX_LOG_WARN;
    tell(RDMUX_REASON_USABLE, "port 1 is up");
    tell(RDMUX_REASON_NONE, "the client reregisters");
    tell(RDMUX_REASON_PORT_DOWN, "port 1 is down");

    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));

    assert_int_equal(logbook_total(&book), 1);
    assert_int_equal(logbook_count(&book, "port 1 is down"), 1);
    clear_scene(&pair);
}

static void a_removed_device_reports_no_more_events_and_is_opened_anew(void **state)
{
    (void)state;
    struct pair pair;
    struct logbook book = LOGBOOK_INIT;
    set_scene(&pair, &book);
    tell(RDMUX_REASON_NO_DEVICE, "unplugged");
    tell(RDMUX_REASON_USABLE, "from nowhere");

    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));
    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));

    assert_int_equal(logbook_count(&book, "unplugged"), 1);
    assert_int_equal(logbook_count(&book, "from nowhere"), 0);
    assert_int_equal(device.asked, 1);
    device.next = device.count;
    reconnect(&pair);
    assert_int_equal(device.opened, 2);
    reconnect(&pair);
    assert_int_equal(device.opened, 2);
    clear_scene(&pair);
}

/* Both sides try, and a's side ends with this. */
static void connect_in_vain(struct pair *pair, enum rdmux_status expected)
{
    struct rdmux_wc wc = { 0 };
    uint64_t until = now_ms() + PATIENT_MS;
    CHECK_STATUS(rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, NULL, 0, &pair->a),
                 RDMUX_IN_PROGRESS);
    while (wc.opcode != RDMUX_WC_CONNECTED) {
        assert_true(now_ms() < until);
        assert_int_not_equal(rdmux_accept(pair->listener, pair->cq_b, NULL, TURN_MS, &pair->b),
                             RDMUX_OK);
        CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
        (void)rdmux_cq_poll(pair->cq_a, &wc, 1);
    }
    assert_int_equal(wc.status, expected);
}

static void lose_device(struct pair *pair)
{
    device.next = device.count = 0;
    tell(RDMUX_REASON_NO_DEVICE, "unplugged");
    CHECK_OK(rdmux_fabric_progress(pair->fabric_a));
    assert_int_equal(device.next, 1);
}

/* Devices that are gone keep their places, as endpoints may still be on them. */
static void a_cq_without_a_place_for_another_device_reports_it(void **state)
{
    (void)state;
    struct pair pair;
    struct logbook book = LOGBOOK_INIT;
    struct rdmux_explanation *explanation = NULL;
    const char *json = NULL;
    set_scene(&pair, &book);
    for (size_t i = 1; i < RDMUX_CQ_DOMAINS_MAX; i++) {
        lose_device(&pair);
        reconnect(&pair);
    }
    assert_int_equal(device.opened, RDMUX_CQ_DOMAINS_MAX);
    lose_device(&pair);
    CHECK_OK(rdmux_ep_close(pair.a));
    CHECK_OK(rdmux_ep_close(pair.b));

    connect_in_vain(&pair, RDMUX_NO_PATH);

    CHECK_OK(rdmux_ep_explanation(pair.a, &explanation));
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    assert_non_null(strstr(json, "attached to 16 devices already"));
    rdmux_explanation_free(explanation);
    CHECK_OK(rdmux_ep_close(pair.a));
    pair.a = NULL;
    CHECK_OK(rdmux_cq_destroy(pair.cq_a));
    pair.cq_a = create_cq(pair.fabric_a); /* has places again */
    connect_more(&pair, NULL, &pair.a, &pair.b);
    check_messages(&pair);
    clear_scene(&pair);
}

/* A descriptor that is readable without an event costs one check and wakes no thread. */
static void a_readable_descriptor_without_an_event_has_no_effect(void **state)
{
    (void)state;
    struct pair pair;
    struct logbook book = LOGBOOK_INIT;
    const uint64_t one = 1;
    set_scene(&pair, &book);
    assert_int_equal(write(device.fd, &one, sizeof(one)), sizeof(one));

    CHECK_OK(rdmux_fabric_progress(pair.fabric_a));

    assert_int_equal(device.asked, 1);
    assert_int_equal(logbook_total(&book), 0);
    check_messages(&pair);
    clear_scene(&pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_changes_of_a_device_are_logged_and_it_stays_open),
        cmocka_unit_test(only_a_problem_of_a_device_is_a_warning),
        cmocka_unit_test(a_removed_device_reports_no_more_events_and_is_opened_anew),
        cmocka_unit_test(a_cq_without_a_place_for_another_device_reports_it),
        cmocka_unit_test(a_readable_descriptor_without_an_event_has_no_effect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
