/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Shared by all sub-commands of the rdmux command: exit codes, errors, opening the library,
 * printing. */
#ifndef RDMUX_TOOL_H
#define RDMUX_TOOL_H

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define TOOL_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

#define TOOL_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct option_spec; /* options.h */

/* Exit codes of the command. */
enum {
    TOOL_OK = 0,
    TOOL_FAILED = 1,
    TOOL_USAGE = 2,
    TOOL_NO_PATH = 3,
    TOOL_INTERRUPTED = 130, /* by SIGINT, SIGTERM or SIGHUP, after the report of what was done */
};

enum {
    TOOL_NUMBER_MAX = 32, /* bytes of a printed quantity with its unit and its NUL */
    TOOL_CONNECT_TIMEOUT_MS = 20000,
};

/* Prints "rdmux COMMAND: text" and a newline on standard error, and keeps the first such text for
 * outcome_end(). A remedy follows the last "; ". */
void tool_error(const char *command, const char *format, ...) TOOL_PRINTF(2, 3);

/* Prints the same of something that does not end the command. */
void tool_notice(const char *command, const char *format, ...) TOOL_PRINTF(2, 3);

/* Returns the library's text about its last failed call, as a user of the command knows things. */
const char *tool_last_error(void);

/* Prints why the library's last call was refused by an address. Its text names the address and the
 * port, or it is the server's. */
void tool_refused(const char *command, const char *address);

/* Returns the exit code for a library call, and keeps its status for outcome_end(). RDMUX_INVALID
 * can only be caused by a wrong argument of the user. */
int tool_exit_code(enum rdmux_status status);

/* Returns whether the address is an rdma:// address, behind which there is no rdmux. If so, prints
 * that the command cannot talk to it. */
bool tool_refuses_address(const char *command, const char *address);

/* The options that every command with connections has beside those of authentication. */
const struct option_spec *tool_connection_options(size_t *count);

/* Opens the library, with the capture of --capture, and with a log hook that prints to standard error if RDMUX_LOG is set. Prints the
 * error on failure. Returns an exit code; *out is NULL unless it is TOOL_OK. */
int tool_fabric_open(const char *command, struct rdmux_fabric **out);

/* Format "12.3 GB" and "12.3 GB/s", with decimal units. */
void tool_format_bytes(double bytes, char out[TOOL_NUMBER_MAX]);
void tool_format_rate(double bytes_per_second, char out[TOOL_NUMBER_MAX]);

/* Formats the same rate as "98.4 Gbit/s". */
void tool_format_gbit(double bytes_per_second, char out[TOOL_NUMBER_MAX]);

/* Returns the name of an RDMUX_CAP_* bit by its number, NULL beyond the last known one. */
const char *tool_capability_name(unsigned bit);

/* Prints an explanation as a table of at most 80 columns, the chosen path first, each hint below its
 * line. If there is a path, the kinds that neither side has are one line. */
void tool_print_explanation(FILE *out, const struct rdmux_explanation *explanation);

/* The sub-commands; argv[0] is the sub-command's name. Each returns an exit code. */
int tool_info_main(int argc, char **argv);
int tool_serve_main(int argc, char **argv);
int tool_explain_main(int argc, char **argv);
int tool_perf_main(int argc, char **argv);
int tool_copy_main(int argc, char **argv);
int tool_demo_main(int argc, char **argv);
int tool_top_main(int argc, char **argv);
int tool_conformance_main(int argc, char **argv);

/* Name under which `rdmux serve` starts itself for cases of another host. Descriptor
 * TOOL_SESSION_LISTENER is a listening socket; TOOL_SESSION_SECRET provides the secret. */
#define TOOL_SESSION_NAME "conformance-session"
enum { TOOL_SESSION_LISTENER = 3, TOOL_SESSION_SECRET = 4 };
int tool_conformance_session_main(void);

struct explain_options {
    const char *address;
    const char *paths; /* filter; NULL: all */
    bool probe;
    bool both;    /* also what each side has */
    bool verbose; /* also kinds of paths that neither side has */
    bool json;
};

/* Writes the explanation to out, errors to standard error. Returns an exit code. */
int tool_explain(const struct explain_options *options, FILE *out);

struct copy_options {
    const char *source; /* file or directory */
    const char *address;
    const char *target; /* path behind the host, beginning with a slash; NULL: none */
    const char *as;     /* path below the receiver's directory; NULL: the source's own name */
    const char *paths;
    bool checksum;   /* compare contents */
    bool update;     /* keep what is newer there */
    bool no_clobber; /* keep what is there */
    bool parents;    /* make missing directories above the copy */
    bool verbose;
    bool probe;
    bool json;
};

/* Copies. Writes the report to out, progress and errors to standard error. Returns an exit code. */
int tool_copy(const struct copy_options *options, FILE *out);

struct perf_options {
    const char *address;
    const char *paths;
    unsigned op;        /* enum perf_op */
    unsigned test;      /* enum perf_test */
    unsigned memory;    /* enum perf_memory_kind */
    unsigned wait;      /* enum perf_wait */
    unsigned direction; /* enum perf_direction */
    uint64_t size;
    uint64_t depth;
    uint64_t batch;
    uint64_t iterations; /* of each endpoint; 0: run for `seconds` */
    double seconds;
    double interval;    /* seconds of a line of the report; 0: none */
    uint64_t endpoints; /* 0: one */
    uint64_t threads;   /* 0: one */
    const char *local;  /* device, as in rdmux_ep_attr; NULL: any */
    const char *cpus;   /* processors of the threads, such as "0,2-3"; NULL: any */
    bool probe;
    bool verify;
    bool json;
};

/* Does one measurement. Writes the report to out, errors to standard error. Returns an exit
 * code. */
int tool_perf(const struct perf_options *options, FILE *out);

#endif
