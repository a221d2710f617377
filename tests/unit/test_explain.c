/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Explanations: their order, their texts, and JSON that stays valid whatever a peer sends. */
#include "negotiation/explain.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ------------------------------------------------------------------------- a strict JSON reader */

/* Each returns the position after a value of its kind, NULL if there is none. RFC 8259, by
 * recursive descent. */
static const char *json_value(const char *at, unsigned depth);

static const char *json_string(const char *at)
{
    if (*at++ != '"') {
        return NULL;
    }
    while (*at != '"') {
        if ((unsigned char)*at < 0x20) {
            return NULL; /* the end, too */
        }
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                for (size_t i = 1; i <= 4; i++) {
                    if (!isxdigit((unsigned char)at[i])) {
                        return NULL;
                    }
                }
                at += 4;
            } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
                return NULL;
            }
        }
        at++;
    }
    return at + 1;
}

static const char *json_number(const char *at)
{
    if (*at == '0') {
        return at + 1;
    }
    size_t digits = strspn(at, "0123456789");
    return digits > 0 ? at + digits : NULL;
}

static const char *json_members(const char *at, char end, unsigned depth)
{
    if (*at == end) {
        return at + 1;
    }
    for (;;) {
        if (end == '}') {
            at = json_string(at);
            if (at == NULL || *at++ != ':') {
                return NULL;
            }
        }
        at = json_value(at, depth - 1);
        if (at == NULL || *at == end) {
            return at != NULL ? at + 1 : NULL;
        }
        if (*at++ != ',') {
            return NULL;
        }
    }
}

static const char *json_value(const char *at, unsigned depth)
{
    static const char *const words[] = { "true", "false", "null" };
    if (depth == 0) {
        return NULL;
    }
    if (*at == '{' || *at == '[') {
        return json_members(at + 1, *at == '{' ? '}' : ']', depth);
    }
    if (*at == '"') {
        return json_string(at);
    }
    for (size_t i = 0; i < 3; i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    return json_number(at);
}

static bool is_json(const char *text)
{
    const char *end = json_value(text, 8);
    return end != NULL && *end == '\0';
}

/* Decodes code points, which is another way than the library's table of byte ranges. */
static bool is_utf8(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    while (*c != 0) {
        size_t more = *c < 0x80 ? 0 : *c >= 0xf0 ? 3 : *c >= 0xe0 ? 2 : 1;
        static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
        uint32_t code = *c < 0x80 ? *c : *c & (0x3fu >> more);
        if ((*c >= 0x80 && *c < 0xc0) || *c >= 0xf8) {
            return false;
        }
        for (size_t i = 1; i <= more; i++) {
            if ((c[i] & 0xc0) != 0x80) {
                return false;
            }
            code = code << 6 | (c[i] & 0x3fu);
        }
        if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
            return false;
        }
        c += more + 1;
    }
    return true;
}

/* ------------------------------------------------------------------------ allocations that fail */

/* Allocations left until one fails; SIZE_MAX: none fails. */
static size_t allocations_left = SIZE_MAX;

static bool allocation_fails(void)
{
    if (allocations_left == SIZE_MAX) {
        return false;
    }
    if (allocations_left == 0) {
        return true;
    }
    allocations_left--;
    return false;
}

/* Put before the C library's by the linker, see test_explain.cmake. */
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return allocation_fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    return allocation_fails() ? NULL : __real_realloc(memory, size);
}

/* ----------------------------------------------------------------------------------- candidates */

static struct rdmux_candidate candidate(const char *provider, const char *device,
                                        enum rdmux_reason reason, uint32_t rank, const char *text)
{
    struct rdmux_candidate made = { .size = sizeof(made), .reason = (uint32_t)reason, .rank = rank };
    made.stage = RDMUX_STAGE_MATCH;
    (void)snprintf(made.provider, sizeof(made.provider), "%s", provider);
    (void)snprintf(made.device, sizeof(made.device), "%s", device);
    (void)snprintf(made.text, sizeof(made.text), "%s", text);
    return made;
}

static void names_are_those_of_the_header(void **state)
{
    (void)state;

    assert_string_equal(rdmux_reason_name(RDMUX_REASON_CHOSEN), "CHOSEN");
    assert_string_equal(rdmux_reason_name(RDMUX_REASON_OTHER_BYTE_ORDER), "OTHER_BYTE_ORDER");
    assert_string_equal(rdmux_reason_name(RDMUX_REASON_PATH_LOST), "PATH_LOST");
    assert_string_equal(rdmux_stage_name(RDMUX_STAGE_PROBE), "probe");
    assert_string_equal(rdmux_stage_name(RDMUX_STAGE_COMMIT), "commit");
    assert_string_equal(rdmux_security_name(RDMUX_SECURITY_NONE), "none");
    assert_string_equal(rdmux_security_name(RDMUX_SECURITY_SAME_USER), "same user");
    assert_string_equal(rdmux_security_name(RDMUX_SECURITY_ENCRYPTED), "encrypted");
    for (uint32_t i = 0; i <= RDMUX_REASON_PATH_LOST; i++) {
        assert_non_null(rdmux_reason_name((enum rdmux_reason)i));
        assert_string_not_equal(rdmux_reason_name((enum rdmux_reason)i), "?");
    }
}

static void an_unknown_code_has_a_name_too(void **state)
{
    (void)state;
    static const uint32_t codes[] = { RDMUX_REASON_PATH_LOST + 1, 1000, UINT32_MAX };
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_string_equal(rdmux_reason_name((enum rdmux_reason)codes[i]), "?");
        assert_string_equal(rdmux_stage_name((enum rdmux_stage)codes[i]), "?");
        assert_string_equal(rdmux_security_name((enum rdmux_security)codes[i]), "?");
    }
}

static void capabilities_have_names(void **state)
{
    (void)state;
    char list[RDMUX_TEXT_MAX];
    char little[8];

    rdmux_capability_list(RDMUX_CAP_SEND | RDMUX_CAP_TARGET_PASSIVE | UINT64_C(1) << 40, list,
                          sizeof(list));
    rdmux_capability_list(UINT64_MAX, little, sizeof(little));

    assert_string_equal(list, "send, target_passive");
    assert_string_equal(little, "send, s");
    assert_string_equal(rdmux_capability_name(RDMUX_CAP_COMPARE_SWAP), "compare_swap");
    assert_null(rdmux_capability_name(UINT64_C(1) << 40));
}

static void cleaned_text_is_utf8_without_control_characters(void **state)
{
    (void)state;
    static const struct {
        const char *from;
        const char *to;
    } cases[] = {
        { "", "" },
        { "plain ~", "plain ~" },
        { "\x01\x1f\x7f\n", "????" },
        { "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80" },
        { "\xc2\x9b"
          "1m",
          "??1m" },           /* a control sequence in one character */
        { "\xc0\xaf", "??" }, /* overlong */
        { "\xe0\x80\xaf", "???" },
        { "\xed\xa0\x80", "???" },      /* a surrogate */
        { "\xf4\x90\x80\x80", "????" }, /* beyond Unicode */
        { "\xff\xfe", "??" },
        { "\xe2\x82", "??" }, /* cut */
        { "\xf0\x9f\x98", "???" },
        { "\xc3(", "?(" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = strdup(cases[i].from);
        assert_non_null(text);

        rdmux_text_clean(text);

        assert_string_equal(text, cases[i].to);
        assert_true(is_utf8(text));
        free(text);
    }
}

static void every_two_bytes_clean_to_utf8(void **state)
{
    (void)state;
    for (unsigned first = 1; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            for (unsigned third = 0x7f; third <= 0xc0; third += 0x20) {
                char text[6] = { (char)first, (char)second, (char)third, (char)0x80, 'x', '\0' };

                rdmux_text_clean(text);

                assert_true(is_utf8(text));
            }
        }
    }
}

static void candidates_are_listed_by_rank_with_unranked_ones_last(void **state)
{
    (void)state;
    const struct rdmux_candidate candidates[] = {
        candidate("ib", "", RDMUX_REASON_NO_DEVICE, 0, "no device"),
        candidate("tcp", "", RDMUX_REASON_SLOWER, 2, ""),
        candidate("roce", "", RDMUX_REASON_NO_DEVICE, 0, "no device"),
        candidate("shm", "", RDMUX_REASON_CHOSEN, 1, "600 ns for 4096 bytes"),
    };
    static const char *const expected[] = { "shm", "tcp", "ib", "roce" };

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_OK, candidates, 4,
                                                                     "192.0.2.1:7471");

    assert_non_null(explanation);
    assert_int_equal(explanation->size, sizeof(*explanation));
    assert_int_equal(explanation->candidate_count, 4);
    assert_int_equal(explanation->chosen, 0);
    assert_string_equal(explanation->peer_address, "192.0.2.1:7471");
    assert_string_equal(explanation->text, "chosen: shm (600 ns for 4096 bytes)");
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(explanation->candidates[i]->provider, expected[i]);
        assert_int_equal(explanation->candidates[i]->size, sizeof(struct rdmux_candidate));
    }
    rdmux_explanation_free(explanation);
}

static void the_text_names_the_choice_and_the_failed_attempts_before_it(void **state)
{
    (void)state;
    struct rdmux_candidate candidates[] = {
        candidate("roce", "mlx5_0", RDMUX_REASON_CONNECT_TIMED_OUT, 1, "no answer for 2000 ms"),
        candidate("tcp", "eth0", RDMUX_REASON_CHOSEN, 2, ""),
    };
    candidates[0].stage = RDMUX_STAGE_CONNECT;
    candidates[1].stage = RDMUX_STAGE_COMMIT;

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_OK, candidates, 2, NULL);

    assert_non_null(explanation);
    assert_int_equal(explanation->chosen, 1);
    assert_string_equal(explanation->peer_address, "");
    assert_string_equal(explanation->text,
                        "chosen: tcp eth0; tried before it: roce mlx5_0: CONNECT_TIMED_OUT "
                        "(no answer for 2000 ms)");
    rdmux_explanation_free(explanation);
}

static void the_best_candidate_is_the_choice_when_nothing_was_connected(void **state)
{
    (void)state;
    const struct rdmux_candidate candidates[] = {
        candidate("shm", "", RDMUX_REASON_NONE, 1, ""),
        candidate("tcp", "", RDMUX_REASON_SLOWER, 2, ""),
    };

    struct rdmux_explanation *done = rdmux_explanation_create(RDMUX_OK, candidates, 2, "");
    struct rdmux_explanation *going_on = rdmux_explanation_create(RDMUX_IN_PROGRESS, candidates, 2,
                                                                  "");

    assert_non_null(done);
    assert_non_null(going_on);
    assert_int_equal(done->chosen, 0);
    assert_int_equal(done->candidates[0]->reason, RDMUX_REASON_CHOSEN);
    assert_int_equal(going_on->chosen, UINT32_MAX);
    assert_string_equal(going_on->text, "no path yet: 2 candidates");
    rdmux_explanation_free(done);
    rdmux_explanation_free(going_on);
}

static void the_text_names_every_candidate_when_no_path_exists(void **state)
{
    (void)state;
    struct rdmux_candidate candidates[] = {
        candidate("tcp", "eth0", RDMUX_REASON_FILTERED, 0,
                  "the connector's filter \"roce\" leaves tcp out"),
        candidate("roce", "", RDMUX_REASON_NO_DEVICE, 0, ""),
    };
    strcpy(candidates[1].peer_device, "mlx5_0");
    static const char expected[] = {
        "no path: tcp eth0: FILTERED (the connector's filter \"roce\" leaves tcp out); "
        "roce mlx5_0: NO_DEVICE"
    };
    char line[256];
    char little[24];

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, candidates, 2,
                                                                     "");
    rdmux_explain_no_path(candidates, 2, line, sizeof(line));
    rdmux_explain_no_path(candidates, 2, little, sizeof(little));

    assert_non_null(explanation);
    assert_string_equal(explanation->text, expected);
    assert_string_equal(line, expected);
    assert_string_equal(little, "no path: tcp eth0: FILT");
    rdmux_explanation_free(explanation);
}

/* A path has a pair with each of the peer's paths of its provider. */
static void the_text_tells_a_verdict_once_and_the_useful_first(void **state)
{
    (void)state;
    struct rdmux_candidate candidates[] = {
        candidate("ofi", "tcp:eth0", RDMUX_REASON_NOT_REACHABLE, 0, "of another provider"),
        candidate("ofi", "tcp:eth0", RDMUX_REASON_CONNECT_FAILED, 1, "refused"),
        candidate("ofi", "tcp:eth0", RDMUX_REASON_CONNECT_FAILED, 2, "refused"),
        candidate("ofi", "net:eth0", RDMUX_REASON_NOT_REACHABLE, 0, "of another provider"),
        candidate("ofi", "net:eth0", RDMUX_REASON_NOT_REACHABLE, 0, "of another provider"),
        candidate("ofi", "net:eth0", RDMUX_REASON_NOT_REACHABLE, 0, "of another family"),
        candidate("ucx", "tcp:eth0", RDMUX_REASON_NOT_REACHABLE, 0, "of another provider"),
        candidate("ib", "mlx5_0", RDMUX_REASON_PEER_HAS_NONE, 0, "none"),
        candidate("ib", "mlx5_1", RDMUX_REASON_PEER_HAS_NONE, 0, "none"),
    };
    char line[512];

    rdmux_explain_no_path(candidates, sizeof(candidates) / sizeof(candidates[0]), line,
                          sizeof(line));

    assert_string_equal(line, "no path: ofi tcp:eth0: CONNECT_FAILED (refused); "
                              "ofi net:eth0: NOT_REACHABLE (of another provider); "
                              "ofi net:eth0: NOT_REACHABLE (of another family); "
                              "ucx tcp:eth0: NOT_REACHABLE (of another provider); "
                              "ib mlx5_0: PEER_HAS_NONE (none); "
                              "ofi tcp:eth0: NOT_REACHABLE (of another provider)");
}

static void an_explanation_may_have_no_candidates(void **state)
{
    (void)state;
    const char *json = NULL;

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, NULL, 0, "");
    assert_non_null(explanation);
    enum rdmux_status status = rdmux_explanation_json(explanation, &json);

    assert_int_equal(status, RDMUX_OK);
    assert_string_equal(json, "{\"status\":\"RDMUX_NO_PATH\",\"chosen\":null,\"candidates\":[],"
                              "\"text\":\"no path: neither side has any\",\"peer_address\":\"\"}");
    rdmux_explanation_free(explanation);
}

static void the_text_of_another_end_names_its_status(void **state)
{
    (void)state;
    const struct rdmux_candidate candidates[] = { candidate("tcp", "", RDMUX_REASON_NONE, 1, "") };

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_TIMED_OUT, candidates, 1,
                                                                     "");

    assert_non_null(explanation);
    assert_int_equal(explanation->chosen, UINT32_MAX);
    assert_string_equal(
        explanation->text,
        "no path was chosen before the negotiation ended with RDMUX_TIMED_OUT; tcp: NONE");
    rdmux_explanation_free(explanation);
}

static void the_json_has_every_field(void **state)
{
    (void)state;
    struct rdmux_candidate candidates[] = {
        candidate("tcp", "eth0", RDMUX_REASON_CHOSEN, 1, "9000 ns for 4096 bytes"),
        candidate("roce", "rxe0", RDMUX_REASON_SOFTWARE_DEVICE, 2, "soft"),
    };
    strcpy(candidates[0].peer_device, "eth1");
    candidates[0].security = RDMUX_SECURITY_TOKEN;
    candidates[0].cost_ns = 9000;
    candidates[0].measured = 1;
    candidates[0].sides = RDMUX_SIDE_HERE | RDMUX_SIDE_PEER;
    candidates[0].latency_ns = 8000;
    candidates[0].peer_latency_ns = 9000;
    candidates[0].bandwidth = 4096000000;
    candidates[0].peer_bandwidth = UINT64_MAX;
    candidates[0].native = RDMUX_CAP_SEND | RDMUX_CAP_READ;
    candidates[0].emulated = RDMUX_CAP_FETCH_ADD;
    candidates[1].software = 1;
    candidates[1].cost_ns = UINT64_MAX;
    strcpy(candidates[1].hint, "name \"roce\"");
    const char *json = NULL;
    const char *again = NULL;

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_OK, candidates, 2,
                                                                     "[2001:db8::1]:7471");
    assert_non_null(explanation);
    enum rdmux_status status = rdmux_explanation_json(explanation, &json);
    assert_int_equal(rdmux_explanation_json(explanation, &again), RDMUX_OK);

    assert_int_equal(status, RDMUX_OK);
    assert_ptr_equal(json, again);
    assert_true(is_json(json));
    assert_string_equal(
        json, "{\"status\":\"RDMUX_OK\","
              "\"chosen\":{\"provider\":\"tcp\",\"device\":\"eth0\",\"peer_device\":\"eth1\","
              "\"security\":\"token\","
              "\"native\":[\"send\",\"read\"],\"emulated\":[\"fetch_add\"]},"
              "\"candidates\":[{\"provider\":\"tcp\",\"device\":\"eth0\",\"peer_device\":\"eth1\","
              "\"stage\":\"match\","
              "\"reason\":\"CHOSEN\",\"text\":\"9000 ns for 4096 "
              "bytes\",\"hint\":\"\",\"security\":\"token\","
              "\"cost_ns\":9000,\"rank\":1,\"native\":[\"send\",\"read\"],\"emulated\":[\"fetch_"
              "add\"],\"software\":false,\"measured\":true,"
              "\"here\":{\"latency_ns\":8000,\"bandwidth\":4096000000},"
              "\"peer\":{\"latency_ns\":9000,\"bandwidth\":18446744073709551615}},"
              "{\"provider\":\"roce\",\"device\":\"rxe0\",\"peer_device\":\"\",\"stage\":\"match\","
              "\"reason\":\"SOFTWARE_DEVICE\",\"text\":\"soft\",\"hint\":\"name "
              "\\\"roce\\\"\",\"security\":\"none\","
              "\"cost_ns\":18446744073709551615,\"rank\":2,\"native\":[],\"emulated\":[],"
              "\"software\":true,\"measured\":false,\"here\":null,\"peer\":null}],"
              "\"text\":\"chosen: tcp eth0 (9000 ns for 4096 "
              "bytes)\",\"peer_address\":\"[2001:db8::1]:7471\"}");
    rdmux_explanation_free(explanation);
}

static void fill(char *text, size_t size, unsigned byte)
{
    memset(text, (int)byte, size - 1);
    text[size - 1] = '\0';
}

static void the_json_is_valid_for_any_bytes_of_the_peer(void **state)
{
    (void)state;
    for (unsigned byte = 1; byte < 256; byte++) {
        struct rdmux_candidate bad = candidate("x", "", RDMUX_REASON_NONE, 0, "");
        char address[RDMUX_ADDRESS_MAX];
        const char *json = NULL;
        fill(bad.provider, sizeof(bad.provider), byte);
        fill(bad.device, sizeof(bad.device), byte);
        fill(bad.peer_device, sizeof(bad.peer_device), byte);
        fill(bad.text, sizeof(bad.text), byte);
        fill(bad.hint, sizeof(bad.hint), byte);
        fill(address, sizeof(address), byte);
        bad.reason = bad.stage = bad.security = bad.software = UINT32_MAX;
        bad.native = bad.emulated = bad.cost_ns = UINT64_MAX;

        struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, &bad, 1,
                                                                         address);
        assert_non_null(explanation);
        enum rdmux_status status = rdmux_explanation_json(explanation, &json);

        assert_int_equal(status, RDMUX_OK);
        assert_true(is_json(json));
        assert_true(is_utf8(json));
        assert_true(is_utf8(explanation->text));
        rdmux_explanation_free(explanation);
    }
}

static void a_character_cut_at_the_end_of_a_text_does_no_harm(void **state)
{
    (void)state;
    for (size_t offset = 0; offset < 4; offset++) {
        struct rdmux_candidate cut = candidate("x", "", RDMUX_REASON_NONE, 0, "");
        const char *json = NULL;
        memset(cut.text, 'a', offset);
        for (size_t at = offset; at + 4 < sizeof(cut.text); at += 4) {
            memcpy(cut.text + at, "\xf0\x9f\x98\x80", 4);
        }
        cut.text[sizeof(cut.text) - 2] = (char)0xf0;
        cut.text[sizeof(cut.text) - 1] = '\0';

        struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, &cut, 1, "");
        assert_non_null(explanation);
        assert_int_equal(rdmux_explanation_json(explanation, &json), RDMUX_OK);

        assert_true(is_json(json) && is_utf8(json));
        rdmux_explanation_free(explanation);
    }
}

static void quotes_and_backslashes_are_escaped(void **state)
{
    (void)state;
    const struct rdmux_candidate candidates[] = { candidate("a\"b", "c\\", RDMUX_REASON_NO_DEVICE,
                                                            0, "\"\\\"") };
    const char *json = NULL;

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, candidates, 1,
                                                                     "");
    assert_non_null(explanation);
    assert_int_equal(rdmux_explanation_json(explanation, &json), RDMUX_OK);

    assert_true(is_json(json));
    assert_non_null(strstr(json, "{\"provider\":\"a\\\"b\",\"device\":\"c\\\\\","));
    assert_non_null(strstr(json, "\"text\":\"\\\"\\\\\\\"\""));
    rdmux_explanation_free(explanation);
}

static void a_long_list_of_candidates_fits(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    struct rdmux_candidate *candidates = calloc(COUNT, sizeof(*candidates));
    assert_non_null(candidates);
    for (size_t i = 0; i < COUNT; i++) {
        candidates[i] = candidate("", "", RDMUX_REASON_OTHER_NAMESPACE, 0, "");
        fill(candidates[i].provider, sizeof(candidates[i].provider), 'p');
        fill(candidates[i].device, sizeof(candidates[i].device), 'd');
        candidates[i].device[0] = (char)('a' + i / 10); /* no two are the same path */
        candidates[i].device[1] = (char)('0' + i % 10);
        fill(candidates[i].text, sizeof(candidates[i].text), '"');
    }
    const char *json = NULL;

    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_NO_PATH, candidates,
                                                                     COUNT, "");
    assert_non_null(explanation);
    assert_int_equal(rdmux_explanation_json(explanation, &json), RDMUX_OK);

    assert_true(is_json(json));
    assert_string_equal(explanation->text + strlen(explanation->text) - 3, "\"\")");
    assert_int_equal(strlen(explanation->text),
                     9 + COUNT * (63 + 1 + 63 + 2 + 15 + 2 + 255 + 1) + (COUNT - 1) * 2);
    rdmux_explanation_free(explanation);
    free(candidates);
}

static void an_explanation_without_memory_is_not_made_and_leaks_nothing(void **state)
{
    (void)state;
    const struct rdmux_candidate candidates[] = { candidate("tcp", "", RDMUX_REASON_CHOSEN, 1, "") };
    struct rdmux_explanation *explanation = NULL;
    size_t failures = 0;
    for (; explanation == NULL; failures++) {
        allocations_left = failures;
        explanation = rdmux_explanation_create(RDMUX_OK, candidates, 1, "");
        allocations_left = SIZE_MAX;
    }
    assert_int_equal(failures, 4 + 1); /* failed allocations, and the run that succeeded */
    const char *json = NULL;
    enum rdmux_status status = RDMUX_NO_MEMORY;
    for (failures = 0; status == RDMUX_NO_MEMORY; failures++) {
        assert_null(json);
        allocations_left = failures;
        status = rdmux_explanation_json(explanation, &json);
        allocations_left = SIZE_MAX;
    }

    assert_int_equal(status, RDMUX_OK);
    assert_true(failures > 2);
    assert_true(is_json(json));
    rdmux_explanation_free(explanation);
}

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    const char *json = "x";
    struct rdmux_explanation *explanation = rdmux_explanation_create(RDMUX_OK, NULL, 0, "");
    assert_non_null(explanation);

    assert_int_equal(rdmux_explanation_json(NULL, &json), RDMUX_INVALID);
    assert_null(json);
    assert_int_equal(rdmux_explanation_json(explanation, NULL), RDMUX_INVALID);
    rdmux_explanation_free(NULL);
    rdmux_explanation_free(explanation);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_the_header),
        cmocka_unit_test(an_unknown_code_has_a_name_too),
        cmocka_unit_test(capabilities_have_names),
        cmocka_unit_test(cleaned_text_is_utf8_without_control_characters),
        cmocka_unit_test(every_two_bytes_clean_to_utf8),
        cmocka_unit_test(candidates_are_listed_by_rank_with_unranked_ones_last),
        cmocka_unit_test(the_text_names_the_choice_and_the_failed_attempts_before_it),
        cmocka_unit_test(the_best_candidate_is_the_choice_when_nothing_was_connected),
        cmocka_unit_test(the_text_names_every_candidate_when_no_path_exists),
        cmocka_unit_test(the_text_tells_a_verdict_once_and_the_useful_first),
        cmocka_unit_test(an_explanation_may_have_no_candidates),
        cmocka_unit_test(the_text_of_another_end_names_its_status),
        cmocka_unit_test(the_json_has_every_field),
        cmocka_unit_test(the_json_is_valid_for_any_bytes_of_the_peer),
        cmocka_unit_test(a_character_cut_at_the_end_of_a_text_does_no_harm),
        cmocka_unit_test(quotes_and_backslashes_are_escaped),
        cmocka_unit_test(a_long_list_of_candidates_fits),
        cmocka_unit_test(an_explanation_without_memory_is_not_made_and_leaks_nothing),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
