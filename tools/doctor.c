/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* rdmux doctor: finds the problems of this machine's RDMA devices, and their remedies. */
#include "doctor.h"

#include "json.h"
#include "options.h"
#include "outcome.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char command_name[] = "doctor";

static const char *const severity_names[] = {
    [DOCTOR_INFO] = "info",
    [DOCTOR_WARNING] = "warning",
    [DOCTOR_ERROR] = "error",
};

/* All findings. */
struct diagnosis {
    struct doctor_devices devices;
    struct doctor_findings findings; /* of the machine */
    size_t counts[TOOL_COUNT_OF(severity_names)];
};

static void count_findings(struct diagnosis *diagnosis, const struct doctor_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        diagnosis->counts[findings->items[i].severity]++;
    }
}

/* Returns false if memory is short for some of it. */
static bool diagnose(const struct doctor_root *root, struct diagnosis *out)
{
    struct doctor_machine machine;
    *out = (struct diagnosis){ .findings = { .items = NULL } };
    doctor_machine_read(root, &machine);
    doctor_devices_read(root, &out->devices);
    bool lost = out->devices.lost;
    for (size_t i = 0; i < out->devices.count; i++) {
        struct doctor_port *port = &out->devices.ports[i];
        doctor_check_port(&machine, port);
        count_findings(out, &port->findings);
        lost = lost || port->findings.lost;
    }
    doctor_check_machine(&machine, &out->devices, &out->findings);
    count_findings(out, &out->findings);
    return !lost && !out->findings.lost;
}

static void diagnosis_free(struct diagnosis *diagnosis)
{
    doctor_devices_free(&diagnosis->devices);
    doctor_findings_free(&diagnosis->findings);
}

/* ----------------------------------------------------------------------------------------- JSON */

static void write_findings(struct json *json, const struct doctor_findings *findings)
{
    json_array_begin(json, "findings");
    for (size_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *finding = &findings->items[i];
        json_object_begin(json, NULL);
        json_string(json, "severity", severity_names[finding->severity]);
        json_string(json, "code", finding->code);
        json_string(json, "text", finding->text);
        json_string(json, "remedy", finding->remedy);
        json_object_end(json);
    }
    json_array_end(json);
}

static void write_known_string(struct json *json, const char *key, const char *value)
{
    if (value[0] != '\0') {
        json_string(json, key, value);
    } else {
        json_null(json, key);
    }
}

static void write_known_number(struct json *json, const char *key, uint64_t value)
{
    if (value != 0) {
        json_unsigned(json, key, value);
    } else {
        json_null(json, key);
    }
}

static const char *gid_kind_name(enum doctor_gid_kind kind)
{
    return kind == DOCTOR_GID_V2 ? "RoCE v2" : kind == DOCTOR_GID_V1 ? "IB/RoCE v1" : "";
}

static void write_gids(struct json *json, const struct doctor_port *port)
{
    json_array_begin(json, "gids");
    for (size_t i = 0; i < port->gid_count; i++) {
        const struct doctor_gid *gid = &port->gids[i];
        json_object_begin(json, NULL);
        json_unsigned(json, "index", gid->index);
        json_string(json, "gid", gid->gid);
        write_known_string(json, "type", gid_kind_name(gid->kind));
        write_known_string(json, "netdev", gid->netdev);
        json_object_end(json);
    }
    json_array_end(json);
}

static unsigned path_mtu(const struct doctor_port *port)
{
    return port->fabric == DOCTOR_ROCE ? doctor_roce_mtu(port->mtu) : 0;
}

static void write_port(struct json *json, const struct doctor_port *port)
{
    json_object_begin(json, NULL);
    json_string(json, "name", port->device);
    json_string(json, "fabric", doctor_fabric_name(port->fabric));
    write_known_number(json, "port", port->number);
    write_known_string(json, "driver", port->kernel_driver);
    json_bool(json, "software", port->software);
    write_known_string(json, "state", port->state_text);
    write_known_string(json, "physical_state", port->physical_state);
    if (port->rate_gbps > 0) {
        json_real(json, "rate_gbps", port->rate_gbps);
    } else {
        json_null(json, "rate_gbps");
    }
    write_known_string(json, "netdev", port->netdev);
    write_known_number(json, "netdev_mtu", port->mtu);
    write_known_number(json, "path_mtu", path_mtu(port));
    write_known_string(json, "pci", port->pci);
    if (port->numa_node >= 0 && port->pci[0] != '\0') {
        json_unsigned(json, "numa_node", (uint64_t)port->numa_node);
    } else {
        json_null(json, "numa_node");
    }
    write_gids(json, port);
    write_findings(json, &port->findings);
    json_object_end(json);
}

static void print_json(const struct diagnosis *diagnosis)
{
    struct json json;
    json_begin(&json, outcome_out());
    json_object_begin(&json, NULL);
    json_array_begin(&json, "devices");
    for (size_t i = 0; i < diagnosis->devices.count; i++) {
        write_port(&json, &diagnosis->devices.ports[i]);
    }
    json_array_end(&json);
    write_findings(&json, &diagnosis->findings);
    json_unsigned(&json, "errors", diagnosis->counts[DOCTOR_ERROR]);
    json_unsigned(&json, "warnings", diagnosis->counts[DOCTOR_WARNING]);
    json_object_end(&json);
    json_end(&json);
}

/* ----------------------------------------------------------------------------------------- text */

/* Prints text read from files. Unprintable characters become '?', since they could act as terminal
 * commands. */
static void print_safely(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        putchar(*at >= ' ' && *at <= '~' ? *at : '?');
    }
}

static void print_findings(const struct doctor_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *finding = &findings->items[i];
        printf("  %-8s %s: ", severity_names[finding->severity], finding->code);
        print_safely(finding->text);
        if (finding->remedy[0] != '\0') {
            printf("\n    to do  ");
            print_safely(finding->remedy);
        }
        putchar('\n');
    }
    if (findings->count == 0) {
        printf("  nothing to mend\n");
    }
}

static void print_port(const struct doctor_port *port)
{
    print_safely(port->device);
    if (port->number > 0) {
        printf(" port %llu", (unsigned long long)port->number);
    }
    printf(": %s%s", doctor_fabric_name(port->fabric), port->software ? " in software" : "");
    if (port->state_text[0] != '\0') {
        printf(", ");
        print_safely(port->state_text);
    }
    if (port->rate_gbps > 0) {
        printf(", %g Gb/s", port->rate_gbps);
    }
    if (port->netdev[0] != '\0') {
        printf(", interface ");
        print_safely(port->netdev);
    }
    if (path_mtu(port) > 0) {
        printf(", packets of %u bytes", path_mtu(port));
    }
    if (port->pci[0] != '\0') {
        printf(", PCI %s", port->pci);
    }
    if (port->pci[0] != '\0' && port->numa_node >= 0) {
        printf(", NUMA node %lld", (long long)port->numa_node);
    }
    putchar('\n');
    print_findings(&port->findings);
}

static void print_text(const struct diagnosis *diagnosis)
{
    for (size_t i = 0; i < diagnosis->devices.count; i++) {
        print_port(&diagnosis->devices.ports[i]);
    }
    printf("the machine\n");
    print_findings(&diagnosis->findings);
    printf("\nerrors %zu, warnings %zu, remarks %zu\n", diagnosis->counts[DOCTOR_ERROR],
           diagnosis->counts[DOCTOR_WARNING], diagnosis->counts[DOCTOR_INFO]);
}

/* ---------------------------------------------------------------------------------- the command */

static bool keep_first(const struct doctor_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct doctor_finding *finding = &findings->items[i];
        if (finding->severity == DOCTOR_ERROR) {
            char text[sizeof(finding->text) + sizeof(finding->remedy) + 2];
            snprintf(text, sizeof(text), "%s%s%s", finding->text,
                     finding->remedy[0] != '\0' ? "; " : "", finding->remedy);
            outcome_error(text);
            return true;
        }
    }
    return false;
}

/* What prevents use is why the command fails. */
static void keep_error(const struct diagnosis *diagnosis)
{
    bool kept = keep_first(&diagnosis->findings);
    for (size_t i = 0; i < diagnosis->devices.count && !kept; i++) {
        kept = keep_first(&diagnosis->devices.ports[i].findings);
    }
}

static int open_root(const char *dir, struct doctor_root *out)
{
    int error = doctor_root_open(dir, out);
    if (error != 0) {
        tool_error(command_name, "cannot open %s: %s", dir != NULL ? dir : "/", strerror(error));
        return dir != NULL ? TOOL_USAGE : TOOL_FAILED;
    }
    if (dir != NULL && !doctor_is_folder(out, "sys")) {
        tool_error(command_name,
                   "%s has no folder sys; --sysfs takes the folder above a copy of /sys", dir);
        doctor_root_close(out);
        return TOOL_USAGE;
    }
    return TOOL_OK;
}

int tool_doctor_main(int argc, char **argv)
{
    bool as_json = false;
    const char *dir = NULL;
    const struct option_spec options[] = {
        { .name = "json", .kind = OPTION_FLAG, .flag = &as_json, .help = "print JSON" },
        { .name = "sysfs",
          .kind = OPTION_TEXT,
          .text = &dir,
          .argument = "DIR",
          .help = "examine the copy of a machine's files in DIR: DIR/sys, DIR/proc, DIR/dev, ..." },
    };
    const struct command_spec command = {
        .name = command_name,
        .usage = "[--json] [--sysfs DIR]",
        .description = "Reports for each RDMA device, and for the machine, the conditions that\n"
                       "keep the device from working or from working well, and the command that\n"
                       "fixes each. Changes nothing. Exits with 1 if something prevents use.\n",
        .options = options,
        .option_count = TOOL_COUNT_OF(options),
    };
    enum options_outcome outcome = options_parse(&command, argc, argv, NULL);
    if (outcome != OPTIONS_RUN) {
        return outcome == OPTIONS_HELP ? TOOL_OK : TOOL_USAGE;
    }
    struct doctor_root root;
    int code = open_root(dir, &root);
    if (code != TOOL_OK) {
        return code;
    }
    struct diagnosis diagnosis;
    if (!diagnose(&root, &diagnosis)) {
        tool_error(command_name, "out of memory");
        code = TOOL_FAILED;
    } else if (as_json) {
        print_json(&diagnosis);
    } else {
        print_text(&diagnosis);
    }
    if (diagnosis.counts[DOCTOR_ERROR] > 0) {
        keep_error(&diagnosis);
        code = TOOL_FAILED;
    }
    diagnosis_free(&diagnosis);
    doctor_root_close(&root);
    return code;
}
