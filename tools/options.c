/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "options.h"

#include "auth.h"
#include "outcome.h"
#include "tool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool options_ask_for_json(int argc, char **argv)
{
    for (int at = 1; at < argc && strcmp(argv[at], "--") != 0; at++) {
        if (strcmp(argv[at], "--json") == 0) {
            return true;
        }
    }
    return false;
}

/* Prints the help text's lines one below the other. */
static void print_option_help(const char *left, const char *help)
{
    for (size_t length = strcspn(help, "\n"); help[length] != '\0'; length = strcspn(help, "\n")) {
        printf("  %-32s %.*s\n", left, (int)length, help);
        help += length + 1;
        left = "";
    }
    printf("  %-32s %s\n", left, help);
}

static void print_options(const struct option_spec *options, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct option_spec *option = &options[i];
        char left[64];
        snprintf(left, sizeof(left), "--%s%s%s", option->name, option->argument != NULL ? " " : "",
                 option->argument != NULL ? option->argument : "");
        print_option_help(left, option->help);
    }
}

static void print_help(const struct command_spec *command)
{
    printf("usage: rdmux %s %s\n\n%s\n", command->name, command->usage, command->description);
    print_options(command->options, command->option_count);
    if (command->authenticates) {
        size_t count = 0;
        const struct option_spec *options = tool_auth_options(&count);
        print_options(options, count);
        options = tool_connection_options(&count);
        print_options(options, count);
    }
    printf("  %-32s %s\n", "--help", "this text");
}

static bool read_number(const char *text, bool with_unit, uint64_t *out)
{
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0) {
        return false;
    }
    unsigned shift = 0;
    if (with_unit && *end != '\0') {
        switch (*end) {
        case 'K':
        case 'k':
            shift = 10;
            break;
        case 'M':
        case 'm':
            shift = 20;
            break;
        case 'G':
        case 'g':
            shift = 30;
            break;
        default:
            return false;
        }
        end++;
        if (strcmp(end, "iB") == 0) {
            end += 2;
        }
    }
    if (*end != '\0' || value > UINT64_MAX >> shift) {
        return false;
    }
    *out = (uint64_t)value << shift;
    return true;
}

bool options_read_size(const char *text, uint64_t *out)
{
    return read_number(text, true, out);
}

static bool read_seconds(const char *text, double *out)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    /* The comparison is false for NaN, too. */
    if (end == text || *end != '\0' || errno != 0 || !(value > 0.0 && value <= 1e6)) {
        return false;
    }
    *out = value;
    return true;
}

static void complain_about_choice(const char *command, const struct option_spec *option,
                                  const char *value)
{
    char names[256] = "";
    size_t used = 0;
    for (unsigned i = 0; option->choices[i] != NULL && used < sizeof(names); i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i > 0 ? ", " : "",
                                 option->choices[i]);
    }
    tool_error(command, "--%s: \"%s\" is not known; it is one of: %s", option->name, value, names);
}

static void complain_about_value(const char *command, const struct option_spec *option,
                                 const char *value)
{
    switch (option->kind) {
    case OPTION_NUMBER:
    case OPTION_SIZE:
        tool_error(command, "--%s: \"%s\" is not a number from %llu to %llu%s", option->name, value,
                   (unsigned long long)option->min, (unsigned long long)option->max,
                   option->kind == OPTION_SIZE ? " bytes (K, M and G are understood)" : "");
        break;
    case OPTION_SECONDS:
        tool_error(command, "--%s: \"%s\" is not a time in seconds above 0, such as 0.5",
                   option->name, value);
        break;
    case OPTION_CHOICE:
        complain_about_choice(command, option, value);
        break;
    case OPTION_LIST:
        tool_error(command, "--%s may be given %d times", option->name, OPTION_LIST_MAX);
        break;
    case OPTION_FLAG:
    case OPTION_TEXT:
        break;
    }
}

static bool store_value(const struct option_spec *option, const char *value)
{
    uint64_t number = 0;
    switch (option->kind) {
    case OPTION_FLAG:
        *option->flag = true;
        return true;
    case OPTION_TEXT:
        *option->text = value;
        return true;
    case OPTION_NUMBER:
    case OPTION_SIZE:
        if (!read_number(value, option->kind == OPTION_SIZE, &number) || number < option->min ||
            number > option->max) {
            return false;
        }
        *option->number = number;
        return true;
    case OPTION_SECONDS:
        return read_seconds(value, option->seconds);
    case OPTION_CHOICE:
        for (unsigned i = 0; option->choices[i] != NULL; i++) {
            if (strcmp(option->choices[i], value) == 0) {
                *option->choice = i;
                return true;
            }
        }
        return false;
    case OPTION_LIST:
        if (option->list->count == OPTION_LIST_MAX) {
            return false;
        }
        option->list->values[option->list->count++] = value;
        return true;
    }
    return false;
}

static const struct option_spec *find_in(const struct option_spec *options, size_t count,
                                         const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(options[i].name) == length && strncmp(options[i].name, name, length) == 0) {
            return &options[i];
        }
    }
    return NULL;
}

/* Finds "--name" or "--name=value"; *value is what follows the "=", or NULL. */
static const struct option_spec *find_option(const struct command_spec *command,
                                             const char *argument, const char **value)
{
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    *value = name[length] == '=' ? name + length + 1 : NULL;
    const struct option_spec *found = find_in(command->options, command->option_count, name, length);
    if (found == NULL && command->authenticates) {
        size_t count = 0;
        const struct option_spec *options = tool_auth_options(&count);
        found = find_in(options, count, name, length);
        if (found == NULL) {
            options = tool_connection_options(&count);
            found = find_in(options, count, name, length);
        }
    }
    return found;
}

/* The flag --json was given. It was not if the word is the value of another option. */
static bool asks_for_json(const struct command_spec *command)
{
    const struct option_spec *json = find_in(command->options, command->option_count, "json",
                                             strlen("json"));
    return json != NULL && *json->flag;
}

enum options_outcome options_parse(const struct command_spec *command, int argc, char **argv,
                                   const char **positionals)
{
    size_t positional_count = 0;
    bool only_positionals = false;
    for (size_t i = 0; i < command->positional_max; i++) {
        positionals[i] = NULL;
    }
    for (int at = 1; at < argc; at++) {
        const char *argument = argv[at];
        if (!only_positionals && (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0)) {
            print_help(command);
            outcome_wants_json(false);
            return OPTIONS_HELP;
        }
        if (!only_positionals && strcmp(argument, "--") == 0) {
            only_positionals = true;
            continue;
        }
        if (only_positionals || argument[0] != '-' || argument[1] == '\0') {
            if (positional_count == command->positional_max) {
                tool_error(command->name, "\"%s\" is one argument too many; usage: rdmux %s %s",
                           argument, command->name, command->usage);
                return OPTIONS_WRONG;
            }
            positionals[positional_count++] = argument;
            continue;
        }
        const char *value = NULL;
        const struct option_spec *option = argument[1] == '-'
                                               ? find_option(command, argument, &value)
                                               : NULL;
        if (option == NULL) {
            tool_error(command->name, "there is no option \"%s\"; \"rdmux %s --help\" lists them",
                       argument, command->name);
            return OPTIONS_WRONG;
        }
        if (option->kind == OPTION_FLAG && value != NULL) {
            tool_error(command->name, "--%s takes no value", option->name);
            return OPTIONS_WRONG;
        }
        if (option->kind != OPTION_FLAG && value == NULL) {
            if (at + 1 == argc) {
                tool_error(command->name, "--%s needs a value: --%s %s", option->name, option->name,
                           option->argument);
                return OPTIONS_WRONG;
            }
            value = argv[++at];
        }
        if (!store_value(option, value)) {
            complain_about_value(command->name, option, value);
            return OPTIONS_WRONG;
        }
        if (option->given != NULL) {
            *option->given = true;
        }
    }
    if (positional_count < command->positional_min) {
        tool_error(command->name, "an argument is missing; usage: rdmux %s %s", command->name,
                   command->usage);
        return OPTIONS_WRONG;
    }
    if (command->authenticates && !tool_auth_check(command->name)) {
        return OPTIONS_WRONG;
    }
    outcome_wants_json(asks_for_json(command));
    return OPTIONS_RUN;
}
