/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * two_copies FIRST.so SECOND.so PATH...: a process with two copies of rdmux. Loads both shared
 * objects (copy.c), connects each copy to the other over each path, forks, and closes each copy
 * first in turn. In the end unloads the second one and goes on with the first.
 */
#include "copy.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, REGION_SIZE = 1 << 16 };

struct side {
    const struct copy *copy;
    struct rdmux_fabric *fabric;
    struct rdmux_cq *cq;
    struct rdmux_mr *mr;
    struct rdmux_ep *ep;
    struct rdmux_remote *remote;
};

static const char *stage = "start";

static void require(bool condition, const char *what)
{
    if (!condition) {
        (void)fprintf(stderr, "%s: %s\n", stage, what);
        _exit(1);
    }
}

static void must(const struct side *side, enum rdmux_status status, const char *call)
{
    if (status != RDMUX_OK) {
        (void)fprintf(stderr, "%s: %s: %s: %s\n", stage, call, side->copy->status_name(status),
                      side->copy->last_error());
        _exit(1);
    }
}

/* ---------------------------------------------------------------------------------------- sides */

static void open_fabric(struct side *side, const char *path)
{
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.paths = path;
    attr.builtin = side->copy->builtin;
    attr.builtin_count = side->copy->builtin_count;
    must(side, side->copy->fabric_open(&attr, &side->fabric), "fabric_open");
}

static void open_side(struct side *side, const struct copy *copy, const char *path)
{
    memset(side, 0, sizeof(*side));
    side->copy = copy;
    open_fabric(side, path);
    must(side, copy->cq_create(side->fabric, NULL, &side->cq), "cq_create");
    must(side,
         copy->mr_alloc(side->fabric, REGION_SIZE,
                        RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_WRITE, &side->mr),
         "mr_alloc");
}

static void close_side(struct side *side)
{
    must(side, side->copy->ep_close(side->ep), "ep_close");
    side->copy->mr_deregister(side->mr);
    must(side, side->copy->cq_destroy(side->cq), "cq_destroy");
    must(side, side->copy->fabric_close(side->fabric), "fabric_close");
}

static struct rdmux_wc next_entry(struct side *side)
{
    struct rdmux_wc wc = { .opcode = 0 };
    size_t count = 0;
    must(side, side->copy->cq_wait(side->cq, &wc, 1, TIMEOUT_MS, &count), "cq_wait");
    require(count == 1 && wc.status == RDMUX_OK, "an entry failed");
    return wc;
}

static void connect_sides(struct side *from, struct side *to, const char *path)
{
    char address[RDMUX_ADDRESS_MAX];
    struct rdmux_listener *listener = NULL;
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    attr.path_timeout_ms = TIMEOUT_MS; /* the machine may be busy */
    attr.setup_timeout_ms = TIMEOUT_MS;
    must(to, to->copy->listen(to->fabric, "127.0.0.1:0", NULL, &listener), "listen");
    must(to, to->copy->listener_address(listener, address, sizeof(address)), "listener_address");
    enum rdmux_status status = from->copy->connect(from->fabric, from->cq, address, &attr, 0,
                                                   &from->ep);
    require(status == RDMUX_IN_PROGRESS || status == RDMUX_OK, "connect did not begin");
    /* Meanwhile the service thread of the other copy serves the connecting side. */
    must(to, to->copy->accept(listener, to->cq, &attr, TIMEOUT_MS, &to->ep), "accept");
    if (status == RDMUX_IN_PROGRESS) {
        require(next_entry(from).opcode == RDMUX_WC_CONNECTED, "the first entry is not CONNECTED");
    }
    must(from, from->copy->ep_info(from->ep, &info), "ep_info");
    require(strcmp(info.provider, path) == 0, "the endpoint has another path");
    to->copy->listener_close(listener);
}

static void import(struct side *side, struct side *owner)
{
    struct rdmux_token token;
    must(owner, owner->copy->mr_export(owner->mr, &token), "mr_export");
    must(side, side->copy->remote_import(side->ep, &token, TIMEOUT_MS, &side->remote),
         "remote_import");
}

/* Sends a message, and writes the same number into the other side's region before. */
static void exchange(struct side *from, struct side *to, uint64_t number)
{
    const struct copy *copy = from->copy;
    uint64_t got = 0;
    must(to, to->copy->recv(to->ep, &got, sizeof(got), NULL, NULL), "recv");
    must(from,
         copy->write(from->ep, &number, sizeof(number), NULL, from->remote, 8, NULL,
                     RDMUX_UNSIGNALED),
         "write");
    must(from, copy->send(from->ep, &number, sizeof(number), NULL, NULL, 0), "send");
    require(next_entry(to).opcode == RDMUX_WC_RECV, "no message came");
    require(next_entry(from).opcode == RDMUX_WC_SEND, "the send did not complete");
    require(got == number, "another message came");
    require(memcmp((char *)to->copy->mr_addr(to->mr) + 8, &number, sizeof(number)) == 0,
            "the write did not come");
}

static void exchange_both(struct side *a, struct side *b)
{
    exchange(a, b, 17);
    exchange(b, a, 18);
}

/* ---------------------------------------------------------------------------------------- cases */

/* In a child the objects of both copies are dead, and each copy opens a fabric of its own. */
static void look_in_child(const struct side *side)
{
    struct side own = { .copy = side->copy };
    require(side->copy->fabric_close(side->fabric) == RDMUX_INVALID,
            "the parent's fabric lives in the child");
    require(strstr(side->copy->last_error(), "fork") != NULL, "the text does not name the fork");
    open_fabric(&own, "shm,tcp");
    must(&own, own.copy->fabric_close(own.fabric), "fabric_close");
}

static void fork_with(const struct side *a, const struct side *b)
{
    int status = 0;
    pid_t child = fork();
    require(child >= 0, "fork");
    if (child == 0) {
        look_in_child(a);
        look_in_child(b);
        _exit(0);
    }
    require(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
            "the child failed");
}

static void run(const struct copy *first, const struct copy *second, const char *path,
                bool second_ends_first)
{
    struct side a;
    struct side b;
    open_side(&a, first, path);
    open_side(&b, second, path);
    connect_sides(&a, &b, path);
    import(&a, &b);
    import(&b, &a);
    exchange_both(&a, &b);
    fork_with(&a, &b);
    exchange_both(&a, &b);
    close_side(second_ends_first ? &b : &a);
    close_side(second_ends_first ? &a : &b);
}

/* A failure of one copy is not the other's last error. */
static void errors_are_apart(const struct copy *first, const struct copy *second)
{
    struct rdmux_cq *cq = NULL;
    struct rdmux_listener *listener = NULL;
    stage = "errors";
    require(first->cq_create(NULL, NULL, &cq) == RDMUX_INVALID, "cq_create took NULL");
    require(second->listen(NULL, "x", NULL, &listener) == RDMUX_INVALID, "listen took NULL");
    require(strstr(first->last_error(), "rdmux_cq_create") != NULL, "the first text is gone");
    require(strstr(second->last_error(), "rdmux_listen") != NULL, "the second text is gone");
}

static const struct copy *load(const char *file, void **handle)
{
    copy_fn entry = NULL;
    *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *symbol = *handle == NULL ? NULL : dlsym(*handle, COPY_SYMBOL);
    if (symbol == NULL) {
        (void)fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    memcpy(&entry, &symbol, sizeof(entry)); /* allowed by POSIX; ISO C has no cast for it */
    return entry();
}

int main(int argc, char **argv)
{
    void *first_handle = NULL;
    void *second_handle = NULL;
    if (argc < 4) {
        (void)fprintf(stderr, "usage: two_copies FIRST.so SECOND.so PATH...\n");
        return 2;
    }
    const struct copy *first = load(argv[1], &first_handle);
    const struct copy *second = load(argv[2], &second_handle);
    require(first->fabric_open != second->fabric_open, "there is one copy, not two");
    errors_are_apart(first, second);
    for (int i = 3; i < argc; i++) {
        stage = argv[i];
        run(first, second, argv[i], false);
        run(first, second, argv[i], true);
        run(second, first, argv[i], false);
        run(second, first, argv[i], true);
    }
    stage = "after the second copy was unloaded";
    require(dlclose(second_handle) == 0, "dlclose");
    run(first, first, argv[3], false);
    return 0;
}
