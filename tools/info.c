/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux info: lists the paths of this machine and the reasons for absent ones. */
#include "json.h"
#include "options.h"
#include "outcome.h"
#include "text.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>

static const char command_name[] = "info";

/* Reads the list of paths, which may grow between the two calls. The caller frees *out. */
static enum rdmux_status read_paths(struct rdmux_fabric *fabric, struct rdmux_path_info **out,
                                    size_t *out_count)
{
    size_t count = 0;
    enum rdmux_status status = rdmux_fabric_paths(fabric, NULL, 0, &count);
    struct rdmux_path_info *paths = NULL;
    size_t room = 0;
    while (status == RDMUX_OK && count > room) {
        free(paths);
        room = count;
        paths = calloc(room, sizeof(*paths));
        if (paths == NULL) {
            return RDMUX_NO_MEMORY;
        }
        for (size_t i = 0; i < room; i++) {
            paths[i].size = (uint32_t)sizeof(paths[i]);
        }
        status = rdmux_fabric_paths(fabric, paths, room, &count);
    }
    if (status != RDMUX_OK) {
        free(paths);
        return status;
    }
    *out = paths;
    *out_count = count;
    return RDMUX_OK;
}

static bool is_usable(const struct rdmux_path_info *path)
{
    return path->reason == RDMUX_REASON_USABLE;
}

/* An earlier library does not know the member. */
static const char *source_of(const struct rdmux_path_info *path)
{
    return path->source == NULL ? "" : path->source;
}

static void write_capabilities(struct json *json, const char *key, uint64_t capabilities)
{
    json_array_begin(json, key);
    const char *name = NULL;
    for (unsigned bit = 0; (name = tool_capability_name(bit)) != NULL; bit++) {
        if ((capabilities >> bit & 1) != 0) {
            json_string(json, NULL, name);
        }
    }
    json_array_end(json);
}

static void write_path(struct json *json, const struct rdmux_path_info *path)
{
    json_object_begin(json, NULL);
    json_string(json, "provider", path->provider);
    json_string(json, "device", path->device);
    json_string(json, "address", path->address);
    json_bool(json, "usable", is_usable(path));
    json_string(json, "reason", rdmux_reason_name((enum rdmux_reason)path->reason));
    json_string(json, "text", path->text);
    json_string(json, "hint", path->hint);
    json_unsigned(json, "bandwidth", path->bandwidth);
    json_unsigned(json, "latency_ns", path->latency_ns);
    json_unsigned(json, "mtu", path->mtu);
    json_unsigned(json, "max_message", path->max_message);
    json_unsigned(json, "max_sge", path->max_sge);
    json_unsigned(json, "max_inline", path->max_inline);
    json_bool(json, "software", path->software != 0);
    json_string(json, "security", rdmux_security_name((enum rdmux_security)path->security));
    json_string(json, "source", source_of(path));
    write_capabilities(json, "native", path->native);
    write_capabilities(json, "emulated", path->emulated);
    json_object_end(json);
}

/* Returns whether this is the first path of its provider. */
static bool begins_provider(const struct rdmux_path_info *paths, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(paths[i].provider, paths[index].provider) == 0) {
            return false;
        }
    }
    return true;
}

static void write_providers(struct json *json, const struct rdmux_path_info *paths, size_t count)
{
    json_array_begin(json, "providers");
    for (size_t i = 0; i < count; i++) {
        if (!begins_provider(paths, i)) {
            continue;
        }
        size_t usable = 0;
        for (size_t other = i; other < count; other++) {
            bool same = strcmp(paths[other].provider, paths[i].provider) == 0;
            usable += same && is_usable(&paths[other]) ? 1 : 0;
        }
        json_object_begin(json, NULL);
        json_string(json, "name", paths[i].provider);
        json_bool(json, "usable", usable > 0);
        json_unsigned(json, "usable_paths", usable);
        json_object_end(json);
    }
    json_array_end(json);
}

static void print_json(const struct rdmux_path_info *paths, size_t count)
{
    struct json json;
    json_begin(&json, outcome_out());
    json_object_begin(&json, NULL);
    json_string(&json, "version", rdmux_version());
    write_providers(&json, paths, count);
    json_array_begin(&json, "paths");
    for (size_t i = 0; i < count; i++) {
        write_path(&json, &paths[i]);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

static void print_capabilities(const char *label, uint64_t capabilities)
{
    if (capabilities == 0) {
        return;
    }
    printf("    %-9s", label);
    const char *name = NULL;
    for (unsigned bit = 0; (name = tool_capability_name(bit)) != NULL; bit++) {
        if ((capabilities >> bit & 1) != 0) {
            printf(" %s", name);
        }
    }
    putchar('\n');
}

static void print_text(const struct rdmux_path_info *paths, size_t count)
{
    printf("rdmux %s\n\nusable paths\n", rdmux_version());
    size_t usable = 0;
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_path_info *path = &paths[i];
        if (!is_usable(path)) {
            continue;
        }
        usable++;
        char rate[TOOL_NUMBER_MAX];
        char limit[TOOL_NUMBER_MAX + 8] = "of any size";
        tool_format_rate((double)path->bandwidth, rate);
        if (path->max_message < UINT64_C(1) << 62) {
            char bytes[TOOL_NUMBER_MAX];
            tool_format_bytes((double)path->max_message, bytes);
            snprintf(limit, sizeof(limit), "up to %s", bytes);
        }
        printf("  %-6s %-12s %s%s\n", path->provider, path->device[0] != '\0' ? path->device : "-",
               path->address, path->software != 0 ? "  (software device)" : "");
        printf("    ranked    %s, %.2f us; messages %s; security: %s\n", rate,
               (double)path->latency_ns / 1e3, limit,
               rdmux_security_name((enum rdmux_security)path->security));
        if (path->text[0] != '\0') {
            fputs("    about     ", stdout);
            text_print(stdout, path->text);
            putchar('\n');
        }
        if (source_of(path)[0] != '\0' && strcmp(source_of(path), "library") != 0) {
            printf("    from      %s\n", source_of(path));
        }
        print_capabilities("native", path->native);
        print_capabilities("emulated", path->emulated);
    }
    if (usable == 0) {
        printf("  none\n");
    }
    printf("\nabsent\n");
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_path_info *path = &paths[i];
        if (is_usable(path)) {
            continue;
        }
        printf("  %-6s %-12s %s: %s\n", path->provider,
               path->device[0] != '\0' ? path->device : "-",
               rdmux_reason_name((enum rdmux_reason)path->reason), path->text);
        if (path->hint[0] != '\0') {
            printf("    to do     %s\n", path->hint);
        }
    }
    if (usable == count) {
        printf("  nothing\n");
    }
}

int tool_info_main(int argc, char **argv)
{
    bool as_json = false;
    const struct option_spec options[] = {
        { .name = "json", .kind = OPTION_FLAG, .flag = &as_json, .help = "print JSON" },
    };
    const struct command_spec command = {
        .name = command_name,
        .usage = "[--json]",
        .description = "Lists the paths of this machine with their operations. A path that is\n"
                       "absent has its reason and a remedy.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
    };
    enum options_outcome outcome = options_parse(&command, argc, argv, NULL);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    struct rdmux_fabric *fabric = NULL;
    int code = tool_fabric_open(command_name, &fabric);
    if (code != TOOL_OK) {
        return code;
    }
    struct rdmux_path_info *paths = NULL;
    size_t count = 0;
    enum rdmux_status status = read_paths(fabric, &paths, &count);
    if (status != RDMUX_OK) {
        tool_error(command_name, "cannot list the paths: %s: %s", rdmux_status_name(status),
                   rdmux_last_error());
        code = TOOL_FAILED;
    } else if (as_json) {
        print_json(paths, count);
    } else {
        print_text(paths, count);
    }
    free(paths);
    rdmux_fabric_close(fabric);
    return code;
}
