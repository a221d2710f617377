/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Validation of provider tables, filling the registry, and the local paths of an offer. Real
 * plug-in files are tested in tests/plugins. */
#include "api/core/fabric.h"
#include "tests/unit/fake_fabric.h"

#include "api/setup/rdmacm_endpoint.h"
#include "providers/loader.h"
#include "providers/registry.h"
#include "shm/shm_provider.h"
#include "tcp_fallback/tcp_provider.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct rdmux_provider_ops *const built_in[] = { &rdmux_shm_provider,
                                                             &rdmux_tcp_provider, NULL };

/* Whether this program's copy of rdmux counts as librdmux.so. */
static bool is_shared;
bool __wrap_rdmux_binding_is_shared(void);

bool __wrap_rdmux_binding_is_shared(void)
{
    return is_shared;
}

/* ------------------------------------------------------------------------------------ tables */

static void the_tables_of_the_library_are_good(void **state)
{
    (void)state;
    struct rdmux_refusal refusal;

    assert_int_equal(rdmux_provider_check(&rdmux_tcp_provider, &refusal), RDMUX_OK);
}

static void a_table_with_any_missing_operation_is_refused(void **state)
{
    (void)state;
    size_t holes = 0;

    for (size_t at = offsetof(struct rdmux_provider_ops, probe); at < RDMUX_PROVIDER_OPS_SIZE_LEAST;
         at += sizeof(void (*)(void))) {
        struct rdmux_provider_ops ops = rdmux_tcp_provider;
        struct rdmux_refusal refusal = { .reason = 0 };
        memset((char *)&ops + at, 0, sizeof(void (*)(void)));
        assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
        assert_int_equal(refusal.reason, RDMUX_REASON_BAD_PLUGIN);
        assert_non_null(strstr(refusal.text, "is not set"));
        assert_true(refusal.hint[0] != '\0');
        holes++;
    }
    assert_int_equal(holes, 32);
    struct rdmux_provider_ops ops = rdmux_tcp_provider;
    struct rdmux_refusal refusal;
    ops.remote_close = NULL;
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    assert_string_equal(refusal.text, "provider tcp: operation remote_close is not set");
}

static void a_table_of_another_abi_or_size_is_refused(void **state)
{
    (void)state;
    struct rdmux_provider_ops ops = rdmux_tcp_provider;
    struct rdmux_refusal refusal;

    ops.abi = RDMUX_PROVIDER_ABI + 1;
    ops.name = (const char *)(uintptr_t)1; /* must not be looked at */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    assert_non_null(strstr(refusal.text, "provider ABI 2"));
    ops = rdmux_tcp_provider;
    ops.size = (uint32_t)RDMUX_PROVIDER_OPS_SIZE_LEAST - 8;
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    ops.size = (uint32_t)offsetof(struct rdmux_provider_ops, rdmacm); /* of an older header */
    ops.rdmacm = (const struct rdmux_rdmacm_ops *)(uintptr_t)8;       /* is not looked at */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
    assert_null(rdmux_rdmacm_of(&ops));
    assert_int_equal(rdmux_provider_check(NULL, &refusal), RDMUX_NO_PATH);
    ops.size = (uint32_t)sizeof(ops) + 8; /* appended operations of a newer header */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
    ops.size = (uint32_t)RDMUX_PROVIDER_OPS_SIZE_LEAST; /* an older header, without lanes */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
}

static void no_target(const struct rdmux_provider_remote *remote, struct rdmux_fast_path_target *out)
{
    (void)remote;
    (void)out;
}

static void an_incomplete_fast_path_is_refused(void **state)
{
    (void)state;
    struct rdmux_provider_ops ops = rdmux_tcp_provider;
    struct rdmux_refusal refusal;

    ops.fast_path_target = no_target;
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    assert_non_null(strstr(refusal.text, "fast_path_open"));
    ops.size = (uint32_t)RDMUX_PROVIDER_OPS_SIZE_LEAST; /* then the field is not read */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
}

static enum rdmux_status leave_nothing(struct rdmux_provider_ep *ep)
{
    (void)ep;
    return RDMUX_OK;
}

static void half_of_a_change_of_cq_is_refused(void **state)
{
    (void)state;
    struct rdmux_provider_ops ops = rdmux_tcp_provider;
    struct rdmux_refusal refusal;

    ops.ep_leave = NULL;
    ops.ep_enter = leave_nothing;
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    assert_non_null(strstr(refusal.text, "ep_leave and ep_enter"));
    ops.size = (uint32_t)offsetof(struct rdmux_provider_ops, ep_leave); /* of an older header */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
    ops.fast_path_target = no_target; /* which that header has */
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
    ops = rdmux_tcp_provider;
    ops.ep_leave = NULL;
    ops.ep_enter = NULL;
    assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_OK);
}

static void a_bad_name_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        NULL,
        "",
        "auto",
        "Tcp",
        "a b",
        "a,b",
        "!a",
        "\xc3\xa4",
        "0123456789012345678901234567890123456789012345678901234567890123", /* 64 */
    };
    static const char *const good[] = {
        "a", "my-fabric_2", "012345678901234567890123456789012345678901234567890123456789012"
    };
    struct rdmux_refusal refusal;

    for (size_t i = 0; i < RDMUX_COUNT_OF(bad) + RDMUX_COUNT_OF(good); i++) {
        struct rdmux_provider_ops ops = rdmux_tcp_provider;
        bool is_bad = i < RDMUX_COUNT_OF(bad);
        ops.name = is_bad ? bad[i] : good[i - RDMUX_COUNT_OF(bad)];
        assert_int_equal(rdmux_provider_check(&ops, &refusal), is_bad ? RDMUX_NO_PATH : RDMUX_OK);
    }
}

static void an_object_smaller_than_its_base_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6; i++) {
        struct rdmux_provider_ops ops = rdmux_tcp_provider;
        size_t *const sizes[] = { &ops.domain_size, &ops.cq_size, &ops.ep_size,
                                  &ops.srq_size,    &ops.mr_size, &ops.remote_size };
        struct rdmux_refusal refusal;
        *sizes[i] = 8;
        assert_int_equal(rdmux_provider_check(&ops, &refusal), RDMUX_NO_PATH);
        assert_non_null(strstr(refusal.text, "smaller"));
    }
}

/* ---------------------------------------------------------------------------------- registry */

static const struct rdmux_provider_entry *entry_of(struct fake_fabric *fake, const char *name)
{
    for (size_t i = 0; i < fake->fabric.registry.count; i++) {
        if (strcmp(fake->fabric.registry.entries[i].name, name) == 0) {
            return &fake->fabric.registry.entries[i];
        }
    }
    return NULL;
}

/* Checks that ib, roce and iwarp are absent for this reason. */
static void check_absent(bool shared, const char *word)
{
    static const char *const absent[] = { "ib", "roce", "iwarp" };
    is_shared = shared;
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;

    enum rdmux_status status = rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in,
                                                   &attr, NULL);

    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(fake->fabric.registry.count, 5);
    assert_non_null(entry_of(fake, "shm")->ops);
    assert_ptr_equal(entry_of(fake, "tcp")->ops, &rdmux_tcp_provider);
    assert_string_equal(entry_of(fake, "tcp")->source, "library");
    for (size_t i = 0; i < RDMUX_COUNT_OF(absent); i++) {
        const struct rdmux_provider_entry *entry = entry_of(fake, absent[i]);
        assert_non_null(entry);
        assert_null(entry->ops);
        assert_int_equal(entry->reason, RDMUX_REASON_NO_LIBRARY);
        assert_string_equal(entry->source, "");
        assert_non_null(strstr(entry->text, word));
        assert_non_null(strstr(entry->hint, word));
    }
    is_shared = false;
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void built_in_and_absent_providers_are_listed(void **state)
{
    (void)state;
    check_absent(true, "rdmux-verbs.so");
    check_absent(false, "rdmux_verbs_plugin");
}

/* -------------------------------------------------------------------------- linked into programs */

static struct rdmux_provider_ops named(const char *name)
{
    struct rdmux_provider_ops ops = rdmux_tcp_provider;
    ops.name = name;
    return ops;
}

static void keep_line(void *user, enum rdmux_log_level level, const char *line)
{
    char *kept = user;
    if (level == RDMUX_LOG_INFO) {
        (void)snprintf(kept, RDMUX_TEXT_MAX, "%s", line);
    }
}

static void plug_ins_of_the_program_are_listed_and_refused_as_others_are(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    const struct rdmux_provider_ops ib = named("ib");
    const struct rdmux_provider_ops tcp = named("tcp");
    const struct rdmux_provider_ops *const both[] = { &ib, &tcp };
    const struct rdmux_plugin good = { .abi = RDMUX_PROVIDER_ABI, .count = 2, .providers = both };
    const struct rdmux_plugin old = { .abi = RDMUX_PROVIDER_ABI + 1, .count = 9 };
    const struct rdmux_plugin empty = { .abi = RDMUX_PROVIDER_ABI };
    const struct rdmux_plugin *const builtin[] = { &good, &old, &empty };
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.builtin = builtin;
    attr.builtin_count = RDMUX_COUNT_OF(builtin);

    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);

    assert_ptr_equal(entry_of(fake, "ib")->ops, &ib);
    assert_string_equal(entry_of(fake, "ib")->source, "builtin");
    assert_ptr_equal(entry_of(fake, "tcp")->ops, &rdmux_tcp_provider);
    assert_string_equal(entry_of(fake, "tcp")->source, "library");
    assert_string_equal(entry_of(fake, "builtin[0]")->text, "there is a provider tcp already");
    assert_non_null(strstr(entry_of(fake, "builtin[1]")->text, "provider ABI 2"));
    assert_string_equal(entry_of(fake, "builtin[2]")->text, "it brings no provider");
    assert_non_null(strstr(entry_of(fake, "iwarp")->text, "has no provider iwarp"));
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* tests/plugins has the same with a provider of a file. */
static void the_first_of_two_plug_ins_of_the_program_wins(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    char line[RDMUX_TEXT_MAX] = "";
    const struct rdmux_provider_ops first = named("mine");
    const struct rdmux_provider_ops second = named("mine");
    const struct rdmux_provider_ops *const ones[] = { &first };
    const struct rdmux_provider_ops *const others[] = { &second };
    const struct rdmux_plugin one = { .abi = RDMUX_PROVIDER_ABI, .count = 1, .providers = ones };
    const struct rdmux_plugin other = { .abi = RDMUX_PROVIDER_ABI, .count = 1, .providers = others };
    const struct rdmux_plugin *const builtin[] = { &one, &other };
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.builtin = builtin;
    attr.builtin_count = RDMUX_COUNT_OF(builtin);
    fake->fabric.hooks.log = keep_line;
    fake->fabric.hooks.log_user = line;
    fake->fabric.hooks.log_level = RDMUX_LOG_INFO;

    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);

    assert_ptr_equal(entry_of(fake, "mine")->ops, &first);
    assert_string_equal(entry_of(fake, "builtin[1]")->text, "there is a provider mine already");
    assert_string_equal(line, ""); /* a mistake of the program is no mere information */
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* A plug-in of another build may have brought the others: it is installed. */
static void a_provider_missing_from_a_loaded_plug_in_is_not_reported_as_a_missing_plug_in(
    void **state)
{
    (void)state;
    static const struct rdmux_provider_ops ib = { .name = "ib" };
    struct fake_fabric *fake = fake_fabric_create();
    fake->fabric.registry.entries[0] = (struct rdmux_provider_entry){ .ops = &ib, .name = "ib" };
    fake->fabric.registry.count = 1;

    rdmux_registry_add_absent(&fake->fabric.registry);

    assert_int_equal(fake->fabric.registry.count, 3);
    const struct rdmux_provider_entry *iwarp = entry_of(fake, "iwarp");
    assert_non_null(iwarp);
    assert_int_equal(iwarp->reason, RDMUX_REASON_NO_LIBRARY);
    assert_null(strstr(iwarp->text, "not installed"));
    assert_string_equal(iwarp->text, "the plug-in that provides ib has no provider iwarp");
    assert_non_null(strstr(iwarp->hint, "rdmux-verbs.so"));
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

struct folder {
    char path[64];
};

static void make_folder(struct folder *folder)
{
    (void)snprintf(folder->path, sizeof(folder->path), "/tmp/rdmux-registry-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
}

static void put(const struct folder *folder, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    write_file(path, text);
}

static void drop(const struct folder *folder, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    assert_int_equal(unlink(path), 0);
}

static void each_file_that_cannot_be_loaded_gets_a_line(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct folder one;
    struct folder two;
    const char *const plugins[] = { "nowhere.so", "/nowhere/at/all.so", "" };
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    make_folder(&one);
    make_folder(&two);
    put(&one, "b.so", "no library");
    put(&one, "a.so", "no library");
    put(&one, "README", "not looked at");
    put(&one, ".so", "not looked at");
    put(&two, "c.so", "no library");
    attr.provider_dir = one.path;
    attr.plugins = plugins;
    attr.plugin_count = RDMUX_COUNT_OF(plugins);

    enum rdmux_status status = rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in,
                                                   &attr, two.path);

    static const struct {
        const char *name;
        enum rdmux_reason reason;
    } want[] = {
        { "a.so", RDMUX_REASON_BAD_PLUGIN },   { "b.so", RDMUX_REASON_BAD_PLUGIN },
        { "c.so", RDMUX_REASON_BAD_PLUGIN },   { "nowhere.so", RDMUX_REASON_NO_LIBRARY },
        { "all.so", RDMUX_REASON_NO_LIBRARY }, { "ib", RDMUX_REASON_NO_LIBRARY },
        { "roce", RDMUX_REASON_NO_LIBRARY },   { "iwarp", RDMUX_REASON_NO_LIBRARY },
    };
    const struct rdmux_registry *registry = &fake->fabric.registry;
    assert_int_equal(status, RDMUX_OK);
    assert_int_equal(registry->count, 2 + RDMUX_COUNT_OF(want));
    for (size_t i = 0; i < RDMUX_COUNT_OF(want); i++) {
        assert_string_equal(registry->entries[2 + i].name, want[i].name);
        assert_int_equal(registry->entries[2 + i].reason, want[i].reason);
        assert_null(registry->entries[2 + i].ops);
        assert_true(registry->entries[2 + i].text[0] != '\0');
        assert_true(registry->entries[2 + i].hint[0] != '\0');
    }
    drop(&one, "a.so");
    drop(&one, "b.so");
    drop(&one, "README");
    drop(&one, ".so");
    drop(&two, "c.so");
    assert_int_equal(rmdir(one.path), 0);
    assert_int_equal(rmdir(two.path), 0);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void folders_are_skipped_on_request_and_a_missing_one_is_no_failure(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct folder folder;
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    make_folder(&folder);
    put(&folder, "a.so", "no library");
    attr.provider_dir = folder.path;
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;

    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, folder.path),
        RDMUX_OK);
    assert_null(entry_of(fake, "a.so"));
    attr.flags = 0;
    attr.provider_dir = "/nowhere/at/all";
    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, ""), RDMUX_OK);
    assert_non_null(entry_of(fake, "tcp"));

    drop(&folder, "a.so");
    assert_int_equal(rmdir(folder.path), 0);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_file_with_two_names_gets_one_line_and_the_list_is_bounded(void **state)
{
    (void)state;
    struct fake_fabric *fake = fake_fabric_create();
    struct folder folder;
    char path[128];
    char second[128];
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    make_folder(&folder);
    put(&folder, "a.so", "no library");
    (void)snprintf(path, sizeof(path), "%s/a.so", folder.path);
    (void)snprintf(second, sizeof(second), "%s/./a.so", folder.path);
    const char *const twice[] = { path, second, path };
    attr.plugins = twice;
    attr.plugin_count = RDMUX_COUNT_OF(twice);
    attr.flags = RDMUX_FABRIC_NO_DEFAULT_PLUGINS;

    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);
    assert_int_equal(fake->fabric.registry.count, 6);

    const char *many[RDMUX_FABRIC_PROVIDERS_MAX + 5];
    for (size_t i = 0; i < RDMUX_COUNT_OF(many); i++) {
        many[i] = "/nowhere/a.so";
    }
    attr.plugins = many;
    attr.plugin_count = RDMUX_COUNT_OF(many);
    assert_int_equal(
        rdmux_registry_fill(&fake->fabric.registry, &fake->fabric, built_in, &attr, NULL), RDMUX_OK);
    assert_int_equal(fake->fabric.registry.count, RDMUX_FABRIC_PROVIDERS_MAX);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder.path), 0);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

/* ------------------------------------------------------------------------------------- paths */

static enum rdmux_status probe_many(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count)
{
    (void)fabric;
    *count = 100;
    for (size_t i = 0; i < max; i++) {
        out[i].reason = RDMUX_REASON_USABLE;
        out[i].reach_length = UINT32_MAX;
        memset(out[i].text, 'x', sizeof(out[i].text));
    }
    return RDMUX_OK;
}

static enum rdmux_status probe_none(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                    size_t max, size_t *count)
{
    (void)fabric;
    (void)out;
    (void)max;
    *count = 0;
    return RDMUX_OK;
}

static enum rdmux_status probe_fails(struct rdmux_fabric *fabric, struct rdmux_local_path *out,
                                     size_t max, size_t *count)
{
    (void)probe_none(fabric, out, max, count);
    rdmux_provider_error("fake: the driver hangs");
    return RDMUX_IO;
}

static void every_provider_has_a_line_in_the_offer(void **state)
{
    (void)state;
    static const struct rdmux_provider_ops many = { .name = "many",
                                                    .flags = RDMUX_PROVIDER_LAST_RESORT,
                                                    .probe = probe_many };
    static const struct rdmux_provider_ops none = { .name = "none", .probe = probe_none };
    static const struct rdmux_provider_ops fails = { .name = "fails", .probe = probe_fails };
    static const struct rdmux_provider_entry entries[] = {
        { .ops = &many, .name = "many" },
        { .ops = &none, .name = "none" },
        { .ops = &fails, .name = "fails" },
        { .name = "ib", .reason = RDMUX_REASON_NO_LIBRARY, .text = "not here", .hint = "install" },
    };
    struct fake_fabric *fake = fake_fabric_create();
    struct rdmux_offer *offer = calloc(1, sizeof(*offer));
    assert_non_null(offer);
    memcpy(fake->fabric.registry.entries, entries, sizeof(entries));
    fake->fabric.registry.fabric = &fake->fabric;
    fake->fabric.registry.count = RDMUX_COUNT_OF(entries);

    rdmux_registry_offer_paths(&fake->fabric.registry, offer);

    assert_int_equal(offer->path_count, RDMUX_OFFER_PATHS_MAX);
    const struct rdmux_offer_path *paths = offer->paths;
    assert_string_equal(paths[0].provider, "many");
    assert_int_equal(paths[0].provider_flags, RDMUX_PROVIDER_LAST_RESORT);
    assert_int_equal(paths[0].path.reach_length, RDMUX_REACH_MAX);
    assert_int_equal(strlen(paths[0].path.text), RDMUX_TEXT_MAX - 1);
    assert_string_equal(paths[28].provider, "many");
    assert_string_equal(paths[29].provider, "none");
    assert_int_equal(paths[29].path.reason, RDMUX_REASON_NO_DEVICE);
    assert_string_equal(paths[30].provider, "fails");
    assert_int_equal(paths[30].path.reason, RDMUX_REASON_OPEN_FAILED);
    assert_string_equal(paths[30].path.text, "fake: the driver hangs");
    assert_string_equal(paths[31].provider, "ib");
    assert_int_equal(paths[31].path.reason, RDMUX_REASON_NO_LIBRARY);
    assert_string_equal(paths[31].path.text, "not here");
    assert_string_equal(paths[31].path.hint, "install");
    fake->allocations = 0;
    rdmux_registry_offer_paths(&fake->fabric.registry, offer);
    assert_int_equal(offer->path_count, 4);
    assert_int_equal(paths[0].path.reason, RDMUX_REASON_OPEN_FAILED);
    free(offer);
    assert_int_equal(fake_fabric_destroy(fake), 0);
}

static void a_provider_on_request_is_probed_only_if_a_filter_names_it(void **state)
{
    (void)state;
    static const struct {
        const char *says;
        const char *filter; /* of the endpoint */
        uint32_t is_named;  /* by the fabric's */
        size_t paths;
    } cases[] = {
        { "no filter names it", "auto", 0, 1 },
        { "another one is named", "tcp,other", 0, 1 },
        { "it is negated", "!asks", 0, 1 },
        { "the endpoint's filter names it", "tcp,asks", 0, RDMUX_OFFER_PATHS_MAX },
        { "the fabric's filter names it", "", 1, RDMUX_OFFER_PATHS_MAX },
    };
    static const struct rdmux_provider_ops asks = { .name = "asks",
                                                    .flags = RDMUX_PROVIDER_ON_REQUEST,
                                                    .probe = probe_many };
    for (size_t i = 0; i < RDMUX_COUNT_OF(cases); i++) {
        struct fake_fabric *fake = fake_fabric_create();
        struct rdmux_offer *offer = calloc(1, sizeof(*offer));
        assert_non_null(offer);
        fake->fabric.registry.entries[0] = (struct rdmux_provider_entry){
            .ops = &asks, .name = "asks", .is_named = cases[i].is_named
        };
        fake->fabric.registry.fabric = &fake->fabric;
        fake->fabric.registry.count = 1;
        strcpy(offer->filter[1], cases[i].filter);

        rdmux_registry_offer_paths(&fake->fabric.registry, offer);

        print_message("# %s\n", cases[i].says);
        assert_int_equal(offer->path_count, cases[i].paths);
        assert_int_equal(offer->paths[0].path.reason,
                         cases[i].paths == 1 ? RDMUX_REASON_FILTERED : RDMUX_REASON_USABLE);
        assert_string_equal(offer->paths[0].provider, "asks");
        free(offer);
        assert_int_equal(fake_fabric_destroy(fake), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_provider_on_request_is_probed_only_if_a_filter_names_it),
        cmocka_unit_test(the_tables_of_the_library_are_good),
        cmocka_unit_test(a_table_with_any_missing_operation_is_refused),
        cmocka_unit_test(a_table_of_another_abi_or_size_is_refused),
        cmocka_unit_test(an_incomplete_fast_path_is_refused),
        cmocka_unit_test(half_of_a_change_of_cq_is_refused),
        cmocka_unit_test(a_bad_name_is_refused),
        cmocka_unit_test(an_object_smaller_than_its_base_is_refused),
        cmocka_unit_test(built_in_and_absent_providers_are_listed),
        cmocka_unit_test(plug_ins_of_the_program_are_listed_and_refused_as_others_are),
        cmocka_unit_test(the_first_of_two_plug_ins_of_the_program_wins),
        cmocka_unit_test(
            a_provider_missing_from_a_loaded_plug_in_is_not_reported_as_a_missing_plug_in),
        cmocka_unit_test(each_file_that_cannot_be_loaded_gets_a_line),
        cmocka_unit_test(folders_are_skipped_on_request_and_a_missing_one_is_no_failure),
        cmocka_unit_test(a_file_with_two_names_gets_one_line_and_the_list_is_bounded),
        cmocka_unit_test(every_provider_has_a_line_in_the_offer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
