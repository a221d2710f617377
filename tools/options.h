/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Command-line options from a table, and the --help text from the same table. */
#ifndef RDMUX_TOOL_OPTIONS_H
#define RDMUX_TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_FLAG,    /* takes no value */
    OPTION_TEXT,    /* any text */
    OPTION_NUMBER,  /* decimal, within min and max */
    OPTION_SIZE,    /* bytes, within min and max; K, M, G mean powers of 1024 */
    OPTION_SECONDS, /* a positive decimal number */
    OPTION_CHOICE,  /* one of choices; the value is its index */
    OPTION_LIST,    /* any text; the option may be repeated */
};

enum { OPTION_LIST_MAX = 16 };

struct option_list {
    const char *values[OPTION_LIST_MAX];
    size_t count;
};

/* One option. The pointer for its kind is written when the option is given. */
struct option_spec {
    const char *name; /* without the dashes */
    enum option_kind kind;
    union {
        bool *flag;
        const char **text;
        uint64_t *number;
        double *seconds;
        unsigned *choice;
        struct option_list *list;
    };
    const char *argument; /* its name in the help text; NULL for a flag */
    const char *help;
    const char *const *choices; /* NULL-terminated */
    uint64_t min;
    uint64_t max; /* inclusive */
    bool *given;  /* may be NULL */
};

/* A sub-command's arguments. */
struct command_spec {
    const char *name;
    const char *usage;       /* text behind "rdmux NAME " */
    const char *description; /* complete lines */
    const struct option_spec *options;
    size_t option_count;
    size_t positional_min;
    size_t positional_max;
    bool authenticates; /* takes the options of auth.h and of tool_connection_options(), too */
};

enum options_outcome {
    OPTIONS_RUN,   /* arguments are valid */
    OPTIONS_HELP,  /* --help was given and printed */
    OPTIONS_WRONG, /* an error was printed; exit code 2 */
};

/* Reads "8", "4K", "16MiB" as OPTION_SIZE does, without bounds. Returns false if the text is no size. */
bool options_read_size(const char *text, uint64_t *out);

/* Returns whether --json is among the arguments, whatever they are worth: an error in them is told
 * as JSON, too. */
bool options_ask_for_json(int argc, char **argv);

/* Reads argv[1..argc). positionals has room for command->positional_max entries; missing ones are
 * NULL. */
enum options_outcome options_parse(const struct command_spec *command, int argc, char **argv,
                                   const char **positionals);

#endif
