/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "tool.h"

#include "auth.h"
#include "options.h"
#include "outcome.h"
#include "text.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ERROR_MAX = 12288 }; /* two paths and some words */

static const struct {
    const char *name;
    enum rdmux_log_level level;
} log_levels[] = {
    { "none", RDMUX_LOG_NONE }, { "error", RDMUX_LOG_ERROR }, { "warn", RDMUX_LOG_WARN },
    { "info", RDMUX_LOG_INFO }, { "debug", RDMUX_LOG_DEBUG }, { "trace", RDMUX_LOG_TRACE },
};

static const char *const capability_names[] = {
    "send",         "send_imm", "write", "write_imm", "read",          "fetch_add",
    "compare_swap", "placed",   "srq",   "fence",     "atomic_device", "target_passive",
};

static void print_error(const char *command, const char *text)
{
    flockfile(stderr);
    fprintf(stderr, "rdmux%s%s: ", command[0] != '\0' ? " " : "", command);
    text_print(stderr, text); /* parts may come from a peer */
    fputc('\n', stderr);
    funlockfile(stderr);
}

void tool_error(const char *command, const char *format, ...)
{
    char text[ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    outcome_error(text);
    print_error(command, text);
}

void tool_notice(const char *command, const char *format, ...)
{
    char text[ERROR_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    print_error(command, text);
}

const char *tool_last_error(void)
{
    static const char attribute[] = "attr.paths";
    static _Thread_local char text[RDMUX_TEXT_MAX];
    const char *why = rdmux_last_error();
    if (strncmp(why, attribute, sizeof(attribute) - 1) != 0) {
        return why;
    }
    snprintf(text, sizeof(text), "--paths%s", why + sizeof(attribute) - 1);
    return text;
}

void tool_refused(const char *command, const char *address)
{
    outcome_cause(RDMUX_REFUSED);
    const char *why = rdmux_last_error();
    const char *found = strstr(why, "connection refused");
    if (found == NULL) {
        tool_error(command, "%s: %s: %s", address, rdmux_status_name(RDMUX_REFUSED), why);
    } else {
        tool_error(command, "%s: %s: %s; is \"rdmux serve\" running there?", address,
                   rdmux_status_name(RDMUX_REFUSED), found);
    }
}

bool tool_refuses_address(const char *command, const char *address)
{
    if (address == NULL || strncmp(address, "rdma://", strlen("rdma://")) != 0) {
        return false;
    }
    tool_error(command,
               "%s: rdma:// stands for programs that are not rdmux; this command talks to \"rdmux "
               "serve\": give HOST or HOST:PORT",
               address);
    return true;
}

int tool_exit_code(enum rdmux_status status)
{
    outcome_cause(status);
    switch (status) {
    case RDMUX_OK:
        return TOOL_OK;
    case RDMUX_INVALID:
        return TOOL_USAGE;
    case RDMUX_NO_PATH:
        return TOOL_NO_PATH;
    default:
        return TOOL_FAILED;
    }
}

/* Called by any thread of the library. */
static void print_log_line(void *user, const struct rdmux_log_event *event)
{
    (void)user;
    const char *name = "?";
    for (size_t i = 0; i < TOOL_COUNT_OF(log_levels); i++) {
        if ((uint32_t)log_levels[i].level == event->level) {
            name = log_levels[i].name;
        }
    }
    time_t seconds = (time_t)(event->time_ns / 1000000000);
    struct tm parts;
    char time[16] = "";
    if (localtime_r(&seconds, &parts) != NULL) {
        (void)strftime(time, sizeof(time), "%H:%M:%S", &parts);
    }
    flockfile(stderr);
    fprintf(stderr, "%s.%06u rdmux [%s] %s: ", time, (unsigned)(event->time_ns % 1000000000 / 1000),
            name, rdmux_log_category_name((enum rdmux_log_category)event->category));
    text_print(stderr, event->line);
    fputc('\n', stderr);
    funlockfile(stderr);
}

/* The command's own standard error shows the lines, with the bytes of peers made harmless, unless
 * the setting names a file or categories: then the library does what it does in any program. */
static bool shows_log(const char *setting)
{
    return setting != NULL && setting[0] != '\0' && strpbrk(setting, "@:") == NULL;
}

/* Returns the level in RDMUX_LOG=LEVEL. An unknown level is left to the library to accept or
 * refuse. */
static uint32_t wanted_log_level(const char *setting)
{
    size_t length = strcspn(setting, ":");
    for (size_t i = 0; i < TOOL_COUNT_OF(log_levels); i++) {
        if (strlen(log_levels[i].name) == length &&
            strncmp(log_levels[i].name, setting, length) == 0) {
            return (uint32_t)log_levels[i].level;
        }
    }
    return RDMUX_LOG_WARN;
}

static const char *capture; /* static, because a process runs one command only */

static const struct option_spec connection_options[] = {
    { .name = "capture",
      .kind = OPTION_TEXT,
      .text = &capture,
      .argument = "[WORD,...:]FILE",
      .help = "write the frames of control channels and tcp to a pcap-ng file for\n"
              "Wireshark; words: snap=BYTES, max=MIB, secrets, decrypted" },
};

const struct option_spec *tool_connection_options(size_t *count)
{
    *count = TOOL_COUNT_OF(connection_options);
    return connection_options;
}

int tool_fabric_open(const char *command, struct rdmux_fabric **out)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.auth = tool_auth();
    attr.capture = capture;
    const char *setting = getenv("RDMUX_LOG");
    if (shows_log(setting)) {
        attr.log_event = print_log_line;
        attr.log_level = wanted_log_level(setting);
    }
    *out = NULL;
    enum rdmux_status status = rdmux_fabric_open(&attr, out);
    if (status != RDMUX_OK) {
        tool_error(command, "cannot open the library: %s: %s", rdmux_status_name(status),
                   rdmux_last_error());
    }
    return tool_exit_code(status);
}

static void format_scaled(double value, const char *unit, char out[TOOL_NUMBER_MAX])
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T", "P" };
    size_t prefix = 0;
    while (value >= 999.5 && prefix + 1 < TOOL_COUNT_OF(prefixes)) {
        value /= 1000.0;
        prefix++;
    }
    int decimals = prefix == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, TOOL_NUMBER_MAX, "%.*f %s%s", decimals, value, prefixes[prefix], unit);
}

void tool_format_bytes(double bytes, char out[TOOL_NUMBER_MAX])
{
    format_scaled(bytes, "B", out);
}

void tool_format_rate(double bytes_per_second, char out[TOOL_NUMBER_MAX])
{
    format_scaled(bytes_per_second, "B/s", out);
}

void tool_format_gbit(double bytes_per_second, char out[TOOL_NUMBER_MAX])
{
    double gbit = bytes_per_second * 8 / 1e9;
    snprintf(out, TOOL_NUMBER_MAX, gbit >= 100 ? "%.0f Gbit/s" : "%.3g Gbit/s", gbit);
}

const char *tool_capability_name(unsigned bit)
{
    return bit < TOOL_COUNT_OF(capability_names) ? capability_names[bit] : NULL;
}
