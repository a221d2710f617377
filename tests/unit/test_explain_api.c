/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Why an endpoint has its path: both sides explain it alike, also when there is no path, as structs
 * and as JSON. */
#include "tests/unit/api_pair.h"
#include "tests/unit/fair_time.h"

#include <ctype.h>
#include <pthread.h>

/* ----------------------------------------------------------------------------------------- JSON */

/* A JSON reader that only checks validity. */
static const char *skip_value(const char *at);

static const char *skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at)
{
    if (*at != '"') {
        return NULL;
    }
    for (at++; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) {
            return NULL; /* the end of the text, or a control character */
        }
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                for (int i = 0; i < 4; i++) {
                    at++;
                    if (!isxdigit((unsigned char)*at)) {
                        return NULL;
                    }
                }
            } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
                return NULL;
            }
        }
    }
    return at + 1;
}

static const char *skip_number(const char *at)
{
    size_t digits = strspn(at, "0123456789");
    return digits == 0 || (digits > 1 && *at == '0') ? NULL : at + digits;
}

/* Members of an object (with names) or of an array. */
static const char *skip_members(const char *at, char end, bool names)
{
    at = skip_space(at + 1);
    if (*at == end) {
        return at + 1;
    }
    for (;;) {
        if (names) {
            at = skip_string(skip_space(at));
            if (at == NULL || *(at = skip_space(at)) != ':') {
                return NULL;
            }
            at++;
        }
        at = skip_value(skip_space(at));
        if (at == NULL) {
            return NULL;
        }
        at = skip_space(at);
        if (*at == end) {
            return at + 1;
        }
        if (*at != ',') {
            return NULL;
        }
        at++;
    }
}

static const char *skip_value(const char *at)
{
    static const char *const words[] = { "true", "false", "null" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(words); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    switch (*at) {
    case '{':
        return skip_members(at, '}', true);
    case '[':
        return skip_members(at, ']', false);
    case '"':
        return skip_string(at);
    default:
        return skip_number(at);
    }
}

static bool is_json(const char *text)
{
    const char *end = skip_value(skip_space(text));
    return end != NULL && *skip_space(end) == '\0';
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

/* Checks that the JSON agrees with the structs. */
static void check_json(struct rdmux_explanation *explanation)
{
    const char *json = NULL;
    const char *again = NULL;
    CHECK_OK(rdmux_explanation_json(explanation, &json));
    CHECK_OK(rdmux_explanation_json(explanation, &again));
    assert_ptr_equal(json, again);
    if (!is_json(json)) {
        fail_msg("this is no JSON: %s", json);
    }
    assert_non_null(
        strstr(json, explanation->chosen == UINT32_MAX ? "\"chosen\":null" : "\"chosen\":{"));
    assert_int_equal(count_of(json, "\"stage\":"), explanation->candidate_count);
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        char part[128];
        (void)snprintf(part, sizeof(part), "\"reason\":\"%s\"",
                       rdmux_reason_name((enum rdmux_reason)explanation->candidates[i]->reason));
        assert_non_null(strstr(json, part));
        (void)snprintf(part, sizeof(part), "\"provider\":\"%.60s\"",
                       explanation->candidates[i]->provider);
        assert_non_null(strstr(json, part));
    }
}

static void the_tests_json_reader_refuses_text_that_is_not_json(void **state)
{
    (void)state;
    static const char *const good[] = { "{}", "[]", "{\"a\":[1,{\"b\":null}],\"c\":\"\\u00e4\\n\"}",
                                        " [ true , false ] ", "0" };
    static const char *const bad[] = { "",        "{",  "{\"a\"}", "[1,]",  "{\"a\":1,}", "\"",
                                       "\"\\x\"", "01", "{a:1}",   "[] []", "\"\n\"" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(good); i++) {
        assert_true(is_json(good[i]));
    }
    for (size_t i = 0; i < RDMUX_COUNT_OF(bad); i++) {
        assert_false(is_json(bad[i]));
    }
}

/* ----------------------------------------------------------------------------------- both sides */

static const struct rdmux_candidate *candidate_of(const struct rdmux_explanation *explanation,
                                                  const char *provider)
{
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        if (strcmp(explanation->candidates[i]->provider, provider) == 0) {
            return explanation->candidates[i];
        }
    }
    return NULL;
}

/* Checks that both sides report the same about a pair of paths, with `ours` and `the peer's`
 * swapped. */
static void check_same_story(const struct rdmux_explanation *a, const struct rdmux_explanation *b)
{
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->chosen, b->chosen);
    assert_int_equal(a->candidate_count, b->candidate_count);
    for (uint32_t i = 0; i < a->candidate_count; i++) {
        const struct rdmux_candidate *ours = a->candidates[i];
        const struct rdmux_candidate *theirs = b->candidates[i];
        assert_string_equal(ours->provider, theirs->provider);
        assert_string_equal(ours->device, theirs->peer_device);
        assert_string_equal(ours->peer_device, theirs->device);
        assert_int_equal(ours->rank, theirs->rank);
        assert_int_equal(ours->reason, theirs->reason);
        assert_int_equal(ours->stage, theirs->stage);
        assert_int_equal(ours->security, theirs->security);
        assert_int_equal(ours->cost_ns, theirs->cost_ns);
        assert_int_equal(ours->native, theirs->native);
        assert_int_equal(ours->emulated, theirs->emulated);
        assert_string_equal(ours->text, theirs->text);
    }
}

static void check_order(const struct rdmux_explanation *explanation)
{
    uint32_t last = 0;
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        uint32_t rank = explanation->candidates[i]->rank;
        assert_true(rank == 0 || (rank == last + 1 && last == i));
        last = rank;
        assert_string_not_equal(explanation->candidates[i]->text, "");
        assert_int_equal(explanation->candidates[i]->size, sizeof(struct rdmux_candidate));
    }
}

static void both_sides_give_the_same_explanation(void **state)
{
    (void)state;
    static const struct {
        const char *paths;
        const char *chosen;
    } cases[] = { { NULL, "shm" }, { "tcp", "tcp" }, { "shm", "shm" }, { "!shm", "tcp" } };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct pair pair;
        struct rdmux_explanation *a = NULL;
        struct rdmux_explanation *b = NULL;
        open_pair(&pair, cases[i].paths, NULL);

        CHECK_OK(rdmux_ep_explanation(pair.a, &a));
        CHECK_OK(rdmux_ep_explanation(pair.b, &b));

        check_same_story(a, b);
        check_order(a);
        assert_int_equal(a->status, RDMUX_OK);
        assert_true(a->chosen < a->candidate_count);
        const struct rdmux_candidate *chosen = a->candidates[a->chosen];
        assert_string_equal(chosen->provider, cases[i].chosen);
        assert_int_equal(chosen->reason, RDMUX_REASON_CHOSEN);
        assert_int_equal(chosen->stage, RDMUX_STAGE_COMMIT);
        struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
        CHECK_OK(rdmux_ep_info(pair.a, &info));
        assert_string_equal(info.provider, chosen->provider);
        assert_string_equal(info.device, chosen->device);
        assert_int_equal(info.security, chosen->security);
        assert_int_equal(info.native, chosen->native);
        assert_int_equal(info.emulated, chosen->emulated);
        assert_string_equal(a->peer_address, pair.address);
        assert_non_null(strstr(a->text, cases[i].chosen));
        for (const char *const *name =
                 (const char *const[]){ "shm", "ib", "roce", "iwarp", "tcp", NULL };
             *name != NULL; name++) {
            assert_non_null(candidate_of(a, *name)); /* every provider has a line */
        }
        check_json(a);
        check_json(b);
        close_pair(&pair);
        assert_string_not_equal(a->text, ""); /* it outlives its endpoint and fabric */
        check_json(a);
        rdmux_explanation_free(a);
        rdmux_explanation_free(b);
    }
    rdmux_explanation_free(NULL);
}

static void an_explanation_names_the_side_whose_filter_decided(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = "tcp";
    open_sides(&pair, NULL, 0, 0);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, &attr, 0, &pair.a),
                 RDMUX_IN_PROGRESS);
    CHECK_OK(rdmux_accept(pair.listener, pair.cq_b, NULL, PATIENT_MS, &pair.b));
    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_OK);

    CHECK_OK(rdmux_ep_explanation(pair.b, &explanation));

    const struct rdmux_candidate *shm = candidate_of(explanation, "shm");
    assert_non_null(shm);
    assert_int_equal(shm->reason, RDMUX_REASON_FILTERED);
    assert_int_equal(shm->rank, 0);
    assert_non_null(strstr(shm->text, "connector"));
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void an_endpoint_in_set_up_has_an_explanation(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    open_sides(&pair, NULL, 0, 0);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, pair.address, NULL, 0, &pair.a),
                 RDMUX_IN_PROGRESS);

    CHECK_OK(rdmux_ep_explanation(pair.a, &explanation));

    assert_int_equal(explanation->status, RDMUX_IN_PROGRESS);
    assert_int_equal(explanation->chosen, UINT32_MAX);
    check_json(explanation);
    rdmux_explanation_free(explanation);
    CHECK_STATUS(rdmux_ep_explanation(pair.a, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_ep_explanation(NULL, &explanation), RDMUX_INVALID);
    assert_null(explanation);
    close_pair(&pair);
}

/* -------------------------------------------------------------------------------------- no path */

/* Connects in a thread of its own. */
struct connector {
    struct pair *pair;
    const struct rdmux_ep_attr *attr;
    enum rdmux_status status;
    struct rdmux_explanation *explanation;
    char text[RDMUX_ERROR_MAX];
};

static void *connect_here(void *argument)
{
    struct connector *connector = argument;
    struct pair *pair = connector->pair;
    connector->status = rdmux_connect(pair->fabric_a, pair->cq_a, pair->address, connector->attr,
                                      PATIENT_MS, &pair->a);
    (void)snprintf(connector->text, sizeof(connector->text), "%s", rdmux_last_error());
    if (rdmux_last_explanation(&connector->explanation) != RDMUX_OK) {
        connector->explanation = NULL;
    }
    return NULL;
}

static void connect_and_accept_without_a_path_leave_the_same_explanation(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_peer peer = RDMUX_PEER_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_explanation *b = NULL;
    attr.paths = "shm";
    struct connector connector = { .pair = &pair, .attr = &attr };
    pthread_t thread;
    open_sides(&pair, NULL, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_here, &connector), 0);
    CHECK_OK(rdmux_listener_next(pair.listener, PATIENT_MS, &peer));
    struct rdmux_ep_attr other = RDMUX_EP_ATTR_INIT;
    other.paths = "tcp";
    other.peer = peer.id;

    CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, &other, PATIENT_MS, &pair.b), RDMUX_NO_PATH);

    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(connector.status, RDMUX_NO_PATH);
    assert_null(pair.a);
    assert_null(pair.b);
    for (const char *const *name = (const char *const[]){ "shm", "tcp", NULL }; *name != NULL;
         name++) {
        /* Each candidate's reason is in the error text. */
        assert_non_null(strstr(connector.text, *name));
        assert_non_null(strstr(rdmux_last_error(), *name));
    }
    CHECK_OK(rdmux_last_explanation(&b));
    assert_non_null(connector.explanation);
    check_same_story(connector.explanation, b);
    assert_int_equal(b->status, RDMUX_NO_PATH);
    assert_int_equal(b->chosen, UINT32_MAX);
    assert_int_equal(candidate_of(b, "shm")->reason, RDMUX_REASON_FILTERED);
    assert_int_equal(candidate_of(b, "tcp")->reason, RDMUX_REASON_FILTERED);
    check_json(b);
    check_json(connector.explanation);
    rdmux_explanation_free(connector.explanation);
    rdmux_explanation_free(b);
    close_pair(&pair);
}

static void the_last_explanation_belongs_to_the_thread_and_its_last_call(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    struct rdmux_explanation *first = NULL;
    struct rdmux_explanation *second = NULL;
    attr.paths = "!shm,!tcp";
    struct connector connector = { .pair = &pair, .attr = &attr };
    pthread_t thread;
    struct rdmux_ep *none = NULL;
    open_sides(&pair, NULL, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, connect_here, &connector), 0);
    CHECK_STATUS(rdmux_accept(pair.listener, pair.cq_b, NULL, 300, &none), RDMUX_TIMED_OUT);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(connector.status, RDMUX_NO_PATH);
    assert_non_null(connector.explanation);
    rdmux_explanation_free(connector.explanation);
    CHECK_STATUS(rdmux_last_explanation(&first), RDMUX_AGAIN); /* this thread has had none */
    assert_null(first);

    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    CHECK_STATUS(
        rdmux_adopt(pair.fabric_a, pair.cq_a, ends[0], RDMUX_ROLE_CONNECT, &attr, 0, &pair.a),
        RDMUX_IN_PROGRESS);
    CHECK_STATUS(
        rdmux_adopt(pair.fabric_b, pair.cq_b, ends[1], RDMUX_ROLE_ACCEPT, NULL, PATIENT_MS, &none),
        RDMUX_NO_PATH);

    CHECK_OK(rdmux_last_explanation(&first));
    CHECK_OK(rdmux_last_explanation(&second));
    assert_ptr_not_equal(first, second); /* each its own */
    check_same_story(first, second);
    rdmux_explanation_free(first);
    check_json(second);
    rdmux_explanation_free(second);
    expect_entry(pair.cq_a, RDMUX_WC_CONNECTED, RDMUX_NO_PATH);
    CHECK_OK(rdmux_ep_explanation(pair.a, &first)); /* of an endpoint connected in the background */
    assert_int_equal(first->status, RDMUX_NO_PATH);
    check_json(first);
    rdmux_explanation_free(first);
    CHECK_STATUS(rdmux_connect(pair.fabric_a, pair.cq_a, "127.0.0.1:1", NULL, PATIENT_MS, &none),
                 RDMUX_REFUSED);
    CHECK_STATUS(rdmux_last_explanation(&first), RDMUX_AGAIN);
    CHECK_STATUS(rdmux_last_explanation(NULL), RDMUX_INVALID);
    close(ends[0]);
    close(ends[1]);
    close_pair(&pair);
}

/* --------------------------------------------------------------------------- without connecting */

static void explain_lists_the_paths_that_connect_would_try(void **state)
{
    (void)state;
    static const char *const filters[] = { NULL, "tcp", "shm", "!shm" };
    for (size_t i = 0; i < RDMUX_COUNT_OF(filters); i++) {
        struct pair pair;
        struct rdmux_explanation *before = NULL;
        struct rdmux_explanation *after = NULL;
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.paths = filters[i];
        open_sides(&pair, NULL, 0, 0);

        CHECK_OK(rdmux_explain(pair.fabric_a, pair.address, &attr, PATIENT_MS, &before));

        struct rdmux_peer peer = RDMUX_PEER_INIT;
        CHECK_STATUS(rdmux_listener_next(pair.listener, 0, &peer),
                     RDMUX_AGAIN); /* the application saw nothing of it */
        assert_int_equal(before->status, RDMUX_OK);
        check_order(before);
        check_json(before);
        connect_more(&pair, &attr, &pair.a, &pair.b);
        CHECK_OK(rdmux_ep_explanation(pair.a, &after));
        assert_int_equal(before->candidate_count, after->candidate_count);
        assert_int_equal(before->chosen, after->chosen);
        assert_string_equal(before->peer_address, after->peer_address);
        for (uint32_t k = 0; k < before->candidate_count; k++) {
            assert_string_equal(before->candidates[k]->provider, after->candidates[k]->provider);
            assert_int_equal(before->candidates[k]->reason, after->candidates[k]->reason);
            assert_int_equal(before->candidates[k]->rank, after->candidates[k]->rank);
            assert_int_equal(before->candidates[k]->cost_ns, after->candidates[k]->cost_ns);
        }
        rdmux_explanation_free(before);
        rdmux_explanation_free(after);
        close_pair(&pair);
    }
}

static void explain_returns_no_path_with_an_explanation(void **state)
{
    (void)state;
    struct pair pair;
    struct rdmux_explanation *explanation = NULL;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.paths = "ib,roce";
    open_sides(&pair, NULL, 0, 0);

    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, &attr, PATIENT_MS, &explanation),
                 RDMUX_NO_PATH);

    assert_non_null(explanation);
    assert_int_equal(explanation->status, RDMUX_NO_PATH);
    assert_int_equal(explanation->chosen, UINT32_MAX);
    check_json(explanation);
    rdmux_explanation_free(explanation);
    close_pair(&pair);
}

static void explain_fails_as_connect_does(void **state)
{
    (void)state;
    struct pair pair;
    open_sides(&pair, "tcp", 0, 0);
    struct rdmux_explanation *explanation = NULL;
    int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(here);
    char address[RDMUX_ADDRESS_MAX];
    assert_int_equal(bind(silent, (struct sockaddr *)&here, length), 0);
    assert_int_equal(listen(silent, 4), 0);
    assert_int_equal(getsockname(silent, (struct sockaddr *)&here, &length), 0);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(here.sin_port));
    struct span span = span_begin();

    CHECK_STATUS(rdmux_explain(pair.fabric_a, address, NULL, 200, &explanation), RDMUX_TIMED_OUT);

    check_span("explain", span, 190, 700 * SLACK);
    close(silent);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, address, NULL, PATIENT_MS, &explanation),
                 RDMUX_REFUSED);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, 0, &explanation), RDMUX_INVALID);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, -2, &explanation), RDMUX_INVALID);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, NULL, NULL, 100, &explanation), RDMUX_INVALID);
    CHECK_STATUS(rdmux_explain(NULL, pair.address, NULL, 100, &explanation), RDMUX_INVALID);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, pair.address, NULL, 100, NULL), RDMUX_INVALID);
    CHECK_STATUS(rdmux_explain(pair.fabric_a, "nobody.invalid:1", NULL, PATIENT_MS, &explanation),
                 RDMUX_INVALID);
    assert_null(explanation);
    close_pair(&pair);
}

static void a_thousand_explanations_do_not_change_the_listener(void **state)
{
    (void)state;
    enum { COUNT = 1000, WARM_UP = 10 };
    struct meter meter = { .bytes = 0 };
    struct rdmux_fabric *client = open_fabric("tcp", 0, NULL);
    struct rdmux_fabric *server = open_metered_fabric("tcp", 0, NULL, &meter);
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_listener *listener = listen_here(server, NULL, address);
    size_t before = 0;
    for (size_t i = 0; i < COUNT; i++) {
        struct rdmux_explanation *explanation = NULL;
        CHECK_OK(rdmux_explain(client, address, NULL, PATIENT_MS, &explanation));
        rdmux_explanation_free(explanation);
        before = i == WARM_UP ? atomic_load(&meter.pieces) : before;
    }

    uint64_t until = now_ms() + PATIENT_MS; /* the last ones are still to be seen to leave */
    while (atomic_load(&meter.pieces) > before + 4) {
        assert_true(now_ms() < until);
        pause_ms(1);
    }
    rdmux_listener_close(listener);
    CHECK_OK(rdmux_fabric_close(server));
    CHECK_OK(rdmux_fabric_close(client));
    assert_int_equal(atomic_load(&meter.pieces), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tests_json_reader_refuses_text_that_is_not_json),
        cmocka_unit_test(both_sides_give_the_same_explanation),
        cmocka_unit_test(an_explanation_names_the_side_whose_filter_decided),
        cmocka_unit_test(an_endpoint_in_set_up_has_an_explanation),
        cmocka_unit_test(connect_and_accept_without_a_path_leave_the_same_explanation),
        cmocka_unit_test(the_last_explanation_belongs_to_the_thread_and_its_last_call),
        cmocka_unit_test(explain_lists_the_paths_that_connect_would_try),
        cmocka_unit_test(explain_returns_no_path_with_an_explanation),
        cmocka_unit_test(explain_fails_as_connect_does),
        cmocka_unit_test(a_thousand_explanations_do_not_change_the_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
