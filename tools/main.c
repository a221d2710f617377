/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The rdmux command: finds the sub-command and calls it. */
#include "doctor.h"
#include "options.h"
#include "outcome.h"
#include "tool.h"

#include <signal.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    { "info", tool_info_main, "list this machine's paths, and why the others are absent" },
    { "serve", tool_serve_main, "run the server for explain, perf, copy and conformance" },
    { "explain", tool_explain_main, "report which path to a server would be taken, and why" },
    { "perf", tool_perf_main, "measure latency, bandwidth and message rate to a server" },
    { "copy", tool_copy_main, "copy a file or a tree to a server, which checks the checksums" },
    { "top", tool_top_main, "list the endpoints of running processes, with their rates" },
    { "doctor", tool_doctor_main,
      "report what keeps RDMA devices from working well, and the remedies" },
    { "conformance", tool_conformance_main,
      "check that a provider keeps the rules that programs rely on" },
    { "demo", tool_demo_main, "show all of it on this machine" },
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: rdmux COMMAND [ARGUMENT...]\n\n"
                 "Moves bytes between processes over the fastest path that both sides have.\n\n");
    for (size_t i = 0; i < TOOL_COUNT_OF(commands); i++) {
        fprintf(out, "  %-11s %s\n", commands[i].name, commands[i].help);
    }
    fprintf(out, "\n"
                 "  --help     this text; \"rdmux COMMAND --help\" describes one command\n"
                 "  --version  the library's version\n\n"
                 "Environment: RDMUX_PATHS filters the paths (\"shm,tcp\", \"!shm\").\n"
                 "RDMUX_LOG=info prints the library's log to standard error.\n"
                 "RDMUX_STATS=1 shows a process's endpoints to \"rdmux top\".\n"
                 "RDMUX_CAPTURE=FILE writes frames to a file for Wireshark.\n"
                 "Exit status: 0 fine, 1 failed, 2 wrong arguments, 3 no path, 130 interrupted.\n"
                 "With --json, a command that fails prints status, text and hint.\n");
}

/* Returns whether argv[0] is this name, with or without a folder before it. */
static bool is_called(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash == NULL ? path : slash + 1, name) == 0;
}

/* A second name of the command, equivalent to `rdmux conformance --format tap`. */
static const char conformance_alias[] = "rdmux-conformance";

static int run(int argc, char **argv)
{
    if (argc > 0 && is_called(argv[0], conformance_alias)) {
        outcome_wants_json(options_ask_for_json(argc, argv));
        return outcome_end(argv[0], tool_conformance_main(argc, argv));
    }
    if (argc < 2) {
        print_help(stderr);
        return TOOL_USAGE;
    }
    const char *name = argv[1];
    outcome_wants_json(options_ask_for_json(argc, argv));
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return TOOL_OK;
    }
    if (strcmp(name, TOOL_SESSION_NAME) == 0) {
        return tool_conformance_session_main();
    }
    if (strcmp(name, "--version") == 0) {
        printf("rdmux %s\n", rdmux_version());
        return TOOL_OK;
    }
    for (size_t i = 0; i < TOOL_COUNT_OF(commands); i++) {
        if (strcmp(name, commands[i].name) == 0) {
            return outcome_end(name, commands[i].run(argc - 1, argv + 1));
        }
    }
    tool_error("", "there is no command \"%s\"; \"rdmux --help\" lists them", name);
    return outcome_end(name, TOOL_USAGE);
}

int main(int argc, char **argv)
{
    /* A reader that is gone shall be an error of write(2), not end the process before it cleans
     * up. */
    signal(SIGPIPE, SIG_IGN);
    return run(argc, argv);
}
