/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Loads plug-ins as an application does, and looks at what rdmux says of them.
 *   plugin_user refused FILE.so REASON WORD  refused: REASON, and WORD in its text, in
 *                                            rdmux_fabric_paths() and in rdmux_explain()
 *   plugin_user listed NAME [FILE.so...]     the provider NAME is there and usable
 *   plugin_user clean NAME [FILE.so...]      and none of the files was refused
 *   plugin_user from NAME SOURCE [FILE.so]   the provider NAME is usable, and rdmux says that it is
 *                                            from SOURCE; if that is the program, the log says that
 *                                            it is used in place of the file's
 *   plugin_user moves NAME [FILE.so]         two processes move data over the provider NAME;
 *                                            without a file it comes by RDMUX_PROVIDER_DIR, or is
 *                                            linked in (own/)
 */
#include "own/own.h"

#include <rdmux/rdmux.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    PATHS_MAX = 64,
    TIMEOUT_MS = 60000,
    REGION_SIZE = 3 * 1024 * 1024,
    BIG = 1000 * 1000,
};

static const char *who = "plugin_user";

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "%s: %s: %s\n", who, what, rdmux_last_error());
        exit(1);
    }
}

static void require_ok(enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        fprintf(stderr, "%s: %s: %s: %s\n", who, what, rdmux_status_name(status),
                rdmux_last_error());
        exit(1);
    }
}

static char info_line[1024]; /* the last one of the log */

static void keep_info_line(void *user, enum rdmux_log_level level, const char *line)
{
    (void)user;
    if (level == RDMUX_LOG_INFO) {
        (void)snprintf(info_line, sizeof(info_line), "%s", line);
    }
}

static struct rdmux_fabric *open_fabric(const char *filter, const char *const *plugins, size_t count)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.plugins = plugins;
    attr.plugin_count = count;
    attr.paths = filter;
    attr.builtin = own_plugins;
    attr.builtin_count = own_plugin_count;
    attr.log = keep_info_line;
    attr.log_level = RDMUX_LOG_INFO;
    struct rdmux_fabric *fabric = NULL;
    require_ok(rdmux_fabric_open(&attr, &fabric), "fabric");
    return fabric;
}

/* ------------------------------------------------------------------------- lines about plug-ins */

static bool find_path(struct rdmux_fabric *fabric, const char *provider, struct rdmux_path_info *out)
{
    static struct rdmux_path_info paths[PATHS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < PATHS_MAX; i++) {
        paths[i] = (struct rdmux_path_info)RDMUX_PATH_INFO_INIT;
    }
    require_ok(rdmux_fabric_paths(fabric, paths, PATHS_MAX, &count), "paths");
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        if (strcmp(paths[i].provider, provider) == 0) {
            *out = paths[i];
            return true;
        }
    }
    return false;
}

static void require_line(const char *where, uint32_t reason, const char *text, const char *hint,
                         const char *want_reason, const char *want_word)
{
    const char *name = rdmux_reason_name((enum rdmux_reason)reason);
    if (strcmp(name, want_reason) != 0 || strstr(text, want_word) == NULL || hint[0] == '\0') {
        fprintf(stderr, "%s: reason %s, text '%s', hint '%s'; want %s and the word '%s'\n", where,
                name, text, hint, want_reason, want_word);
        exit(1);
    }
    printf("%s: %s: %s (%s)\n", where, name, text, hint);
}

static int refused(const char *file, const char *reason, const char *word)
{
    const char *slash = strrchr(file, '/');
    const char *name = slash != NULL ? slash + 1 : file;
    struct rdmux_fabric *fabric = open_fabric(NULL, &file, 1);
    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    require(find_path(fabric, name, &path), "rdmux_fabric_paths() has no line for the plug-in");
    require_line("paths", path.reason, path.text, path.hint, reason, word);

    /* The other paths are there as ever, and the explanation names the plug-in, too. */
    require(find_path(fabric, "tcp", &path) && path.reason == RDMUX_REASON_USABLE, "tcp is gone");
    struct rdmux_listener *listener = NULL;
    char address[RDMUX_ADDRESS_MAX];
    require_ok(rdmux_listen(fabric, "127.0.0.1:0", NULL, &listener), "listen");
    require_ok(rdmux_listener_address(listener, address, sizeof(address)), "address");
    struct rdmux_explanation *explanation = NULL;
    require_ok(rdmux_explain(fabric, address, NULL, TIMEOUT_MS, &explanation), "explain");
    bool found = false;
    for (uint32_t i = 0; i < explanation->candidate_count; i++) {
        const struct rdmux_candidate *candidate = explanation->candidates[i];
        if (strcmp(candidate->provider, name) == 0) {
            require_line("explain", candidate->reason, candidate->text, candidate->hint, reason,
                         word);
            found = true;
        }
    }
    require(found, "rdmux_explain() has no candidate for the plug-in");
    rdmux_explanation_free(explanation);
    rdmux_listener_close(listener);
    require_ok(rdmux_fabric_close(fabric), "close");
    return 0;
}

static int listed(const char *name, const char *const *files, size_t count, bool clean)
{
    struct rdmux_fabric *fabric = open_fabric(NULL, files, count);
    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    require(find_path(fabric, name, &path), "rdmux_fabric_paths() has no line for the provider");
    require(path.reason == RDMUX_REASON_USABLE, path.text);
    for (size_t i = 0; i < count && clean; i++) {
        const char *slash = strrchr(files[i], '/');
        require(!find_path(fabric, slash != NULL ? slash + 1 : files[i], &path), path.text);
    }
    require_ok(rdmux_fabric_close(fabric), "close");
    return 0;
}

static int from(const char *name, const char *source, const char *const *files, size_t count)
{
    char want[sizeof(info_line)];
    info_line[0] = '\0';
    struct rdmux_fabric *fabric = open_fabric(NULL, files, count);
    struct rdmux_path_info path = RDMUX_PATH_INFO_INIT;
    require(find_path(fabric, name, &path), "rdmux_fabric_paths() has no line for the provider");
    require(path.reason == RDMUX_REASON_USABLE, path.text);
    require(strcmp(path.source, source) == 0, path.source);
    if (strcmp(source, "builtin") == 0 && count != 0) {
        (void)snprintf(
            want, sizeof(want),
            "provider %s: the one that is linked into the program is used, not that of %s", name,
            files[0]);
        require(strcmp(info_line, want) == 0, info_line);
        const char *slash = strrchr(files[0], '/');
        require(!find_path(fabric, slash != NULL ? slash + 1 : files[0], &path), path.text);
    }
    require_ok(rdmux_fabric_close(fabric), "close");
    return 0;
}

/* --------------------------------------------------------------------------------- moving data */

struct side {
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_ep *ep;
    struct rdmux_mr *mr;
    unsigned char *bytes;
};

static struct rdmux_wc next_entry(struct side *side)
{
    struct rdmux_wc wc;
    size_t count = 0;
    require_ok(rdmux_cq_wait(side->cq, &wc, 1, TIMEOUT_MS, &count), "wait");
    require(count == 1, "rdmux_cq_wait() says OK without an entry");
    return wc;
}

static void require_entry(const struct rdmux_wc *wc, uint32_t opcode, uint64_t length)
{
    if (wc->opcode != opcode || wc->status != RDMUX_OK || wc->length != length) {
        fprintf(stderr, "%s: want %s of %llu bytes, got %s of %llu: %s\n", who,
                rdmux_wc_opcode_name(opcode), (unsigned long long)length,
                rdmux_wc_opcode_name(wc->opcode), (unsigned long long)wc->length,
                rdmux_status_name((enum rdmux_status)wc->status));
        exit(1);
    }
}

static void expect(struct side *side, uint32_t opcode, uint64_t length)
{
    struct rdmux_wc wc = next_entry(side);
    require_entry(&wc, opcode, length);
}

/* A completion of the send side and a receive, between which there is no order. */
static void expect_both(struct side *side, uint32_t sent, uint64_t sent_length, uint32_t received,
                        uint64_t received_length)
{
    struct rdmux_wc first = next_entry(side);
    struct rdmux_wc second = next_entry(side);
    bool in_order = first.opcode == sent;
    require_entry(in_order ? &first : &second, sent, sent_length);
    require_entry(in_order ? &second : &first, received, received_length);
}

static void open_side(struct side *side, const char *name, const char *const *plugins, size_t count)
{
    side->fabric = open_fabric(name, plugins, count);
    require_ok(rdmux_cq_create(side->fabric, NULL, &side->cq), "cq");
    require_ok(rdmux_mr_alloc(side->fabric, REGION_SIZE,
                              RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
                                  RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC,
                              &side->mr),
               "region");
    side->bytes = rdmux_mr_addr(side->mr);
}

static void close_side(struct side *side)
{
    require_ok(rdmux_ep_close(side->ep), "close endpoint");
    rdmux_mr_deregister(side->mr);
    require_ok(rdmux_cq_destroy(side->cq), "destroy cq");
    require_ok(rdmux_fabric_close(side->fabric), "close fabric");
}

static void require_provider(struct side *side, const char *name)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    require_ok(rdmux_ep_info(side->ep, &info), "info");
    require(strcmp(info.provider, name) == 0, "the endpoint has another provider");
}

static unsigned char pattern(size_t i, unsigned seed)
{
    return (unsigned char)((i * 131 + i / 251 + seed) & 0xff);
}

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(i, seed);
    }
}

static void require_pattern(const unsigned char *bytes, size_t length, unsigned seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != pattern(i, seed)) {
            fprintf(stderr, "%s: byte %zu is wrong\n", who, i);
            exit(1);
        }
    }
}

/* Sends its token, gets a big message and a notice of a write, answers each with an empty send. */
static void serve(struct side *side)
{
    struct rdmux_token token;
    require_ok(rdmux_mr_export(side->mr, &token), "export");
    require_ok(rdmux_recv(side->ep, side->bytes, BIG, side->mr, NULL), "recv");
    require_ok(rdmux_send(side->ep, &token, sizeof(token), NULL, NULL, RDMUX_UNSIGNALED), "send");
    expect(side, RDMUX_WC_RECV, BIG);
    require_pattern(side->bytes, BIG, 1);
    fill(side->bytes + BIG, BIG, 2);
    require_ok(rdmux_recv(side->ep, NULL, 0, NULL, NULL), "recv");
    require_ok(rdmux_send(side->ep, NULL, 0, NULL, NULL, 0), "send");
    expect_both(side, RDMUX_WC_SEND, 0, RDMUX_WC_RECV_WRITE_IMM, BIG);
    require_pattern(side->bytes + 2 * BIG, BIG, 3);
    require_ok(rdmux_recv(side->ep, NULL, 0, NULL, NULL), "recv");
    require_ok(rdmux_send(side->ep, NULL, 0, NULL, NULL, 0), "send");
    expect_both(side, RDMUX_WC_SEND, 0, RDMUX_WC_RECV, 0);
    uint64_t word;
    memcpy(&word, side->bytes, sizeof(word));
    require(word == 77, "the atomics did not leave 77");
}

/* Writes, reads and counts in the other side's region. */
static void use(struct side *side)
{
    struct rdmux_token token;
    struct rdmux_remote *remote = NULL;
    uint64_t *result = (uint64_t *)(void *)side->bytes;
    const uint64_t zero = 0;
    require_ok(rdmux_recv(side->ep, &token, sizeof(token), NULL, NULL), "recv");
    expect(side, RDMUX_WC_RECV, sizeof(token));
    require_ok(rdmux_remote_import(side->ep, &token, TIMEOUT_MS, &remote), "import");

    fill(side->bytes, BIG, 1);
    require_ok(rdmux_recv(side->ep, NULL, 0, NULL, NULL), "recv");
    require_ok(rdmux_send(side->ep, side->bytes, BIG, side->mr, NULL, RDMUX_PLACED), "send");
    expect_both(side, RDMUX_WC_SEND, BIG, RDMUX_WC_RECV, 0);
    require_ok(rdmux_read(side->ep, side->bytes + BIG, BIG, side->mr, remote, BIG, NULL, 0),
               "read");
    expect(side, RDMUX_WC_READ, BIG);
    require_pattern(side->bytes + BIG, BIG, 2);

    fill(side->bytes, BIG, 3);
    require_ok(rdmux_recv(side->ep, NULL, 0, NULL, NULL), "recv");
    require_ok(rdmux_write_imm(side->ep, side->bytes, BIG, side->mr, remote, 2 * BIG, 99, NULL, 0),
               "write_imm");
    expect_both(side, RDMUX_WC_WRITE, BIG, RDMUX_WC_RECV, 0);

    require_ok(rdmux_write(side->ep, &zero, sizeof(zero), NULL, remote, 0, NULL,
                           RDMUX_INLINE | RDMUX_UNSIGNALED),
               "write");
    require_ok(rdmux_fetch_add(side->ep, result, side->mr, remote, 0, 7, NULL, 0), "fetch_add");
    expect(side, RDMUX_WC_FETCH_ADD, 8);
    require(*result == 0, "fetch_add did not return 0");
    require_ok(rdmux_compare_swap(side->ep, result, side->mr, remote, 0, 7, 77, NULL, 0),
               "compare_swap");
    expect(side, RDMUX_WC_COMPARE_SWAP, 8);
    require(*result == 7, "compare_swap did not return 7");
    require_ok(rdmux_send(side->ep, NULL, 0, NULL, NULL, RDMUX_PLACED), "send");
    expect(side, RDMUX_WC_SEND, 0);
    rdmux_remote_close(remote);
}

static void run_acceptor(const char *name, const char *const *plugins, size_t count, int out)
{
    struct side side = { 0 };
    struct rdmux_listener *listener = NULL;
    char address[RDMUX_ADDRESS_MAX];
    who = "acceptor";
    open_side(&side, name, plugins, count);
    require_ok(rdmux_listen(side.fabric, "127.0.0.1:0", NULL, &listener), "listen");
    require_ok(rdmux_listener_address(listener, address, sizeof(address)), "address");
    require(write(out, address, sizeof(address)) == (ssize_t)sizeof(address), "pipe");
    close(out);
    require_ok(rdmux_accept(listener, side.cq, NULL, TIMEOUT_MS, &side.ep), "accept");
    require_provider(&side, name);
    serve(&side);
    require_ok(rdmux_ep_shutdown(side.ep, TIMEOUT_MS), "shutdown");
    rdmux_listener_close(listener);
    close_side(&side);
}

static void run_connector(const char *name, const char *const *plugins, size_t count, int in)
{
    struct side side = { 0 };
    char address[RDMUX_ADDRESS_MAX];
    who = "connector";
    require(read(in, address, sizeof(address)) == (ssize_t)sizeof(address), "pipe");
    close(in);
    open_side(&side, name, plugins, count);
    require_ok(rdmux_connect(side.fabric, side.cq, address, NULL, TIMEOUT_MS, &side.ep), "connect");
    require_provider(&side, name);
    use(&side);
    expect(&side, RDMUX_WC_DISCONNECTED, 0);
    close_side(&side);
}

static int moves(const char *name, const char *const *plugins, size_t count)
{
    int ends[2];
    require(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        close(ends[0]);
        run_acceptor(name, plugins, count, ends[1]);
        exit(0);
    }
    close(ends[1]);
    run_connector(name, plugins, count, ends[0]);
    int status = 0;
    require(waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *const *rest = (const char *const *)argv + 3;
    if (argc == 5 && strcmp(argv[1], "refused") == 0) {
        return refused(argv[2], argv[3], argv[4]);
    }
    if (argc >= 3 && strcmp(argv[1], "listed") == 0) {
        return listed(argv[2], rest, (size_t)argc - 3, false);
    }
    if (argc >= 3 && strcmp(argv[1], "clean") == 0) {
        return listed(argv[2], rest, (size_t)argc - 3, true);
    }
    if (argc >= 4 && strcmp(argv[1], "from") == 0) {
        return from(argv[2], argv[3], rest + 1, (size_t)argc - 4);
    }
    if (argc >= 3 && strcmp(argv[1], "moves") == 0) {
        return moves(argv[2], rest, (size_t)argc - 3);
    }
    fprintf(stderr, "usage: plugin_user refused FILE REASON WORD | listed|clean NAME [FILE...] | "
                    "from NAME SOURCE [FILE] | moves NAME [FILE...]\n");
    return 2;
}
