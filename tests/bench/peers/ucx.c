/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * UCX, for comparison, through its public interface (UCP). Each operation uses the fastest means of
 * UCX: active messages, read in place, for small messages; tag matching into a given buffer for
 * large ones; put, get and atomics on registered memory. One thread polls the worker.
 *
 *   peer_ucx tcp|shm|tcp-watched OP SIZE SECONDS
 *     (tcp-watched: UCX notices the end of the peer, as rdmux's provider ucx demands)
 *     pingpong    half a round trip in us
 *     sleep       the same; both sides sleep on the worker's descriptor
 *     rate        messages/s
 *     stream      bytes/s of sends, WINDOW under way
 *     write       bytes/s of puts, WINDOW under way
 *     read        bytes/s of gets, WINDOW under way
 *     fetch_add   a whole round trip in us; over shm it takes some ns
 *     fetch_adds  operations/s, WINDOW under way
 */
#include "tests/bench/bench.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { WINDOW = 32, LOOKS = 64, MESSAGE = 1, BLOB_MAX = 4096, GROUP = 64 };

struct side {
    struct bench *bench;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_ep_h ep;
    ucp_mem_h memory;
    ucp_rkey_h key;
    uint64_t remote_address;
    int descriptor; /* the worker's; -1: spin */
    bool is_watched;
    size_t size;
    uint8_t *out;
    uint8_t *in;
    uint64_t received; /* active messages so far */
    uint8_t flag;      /* first byte of the last one */
    void *requests[WINDOW];
    uint64_t posted;
};

static void must(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        bench_fail("%s: %s", what, ucs_status_string(status));
    }
}

/* The contents of the address exchange. */
struct introduction {
    uint8_t worker[BLOB_MAX];
    uint8_t key[BLOB_MAX];
    uint64_t address;
};

static void progress(struct side *side)
{
    if (ucp_worker_progress(side->worker) != 0 || side->descriptor < 0) {
        return;
    }
    ucs_status_t status = ucp_worker_arm(side->worker);
    if (status == UCS_OK) {
        struct pollfd waiting = { .fd = side->descriptor, .events = POLLIN };
        (void)poll(&waiting, 1, -1);
    } else if (status != UCS_ERR_BUSY) {
        must(status, "ucp_worker_arm");
    }
}

static void wait_for_request(struct side *side, void *request, const char *what)
{
    if (UCS_PTR_IS_ERR(request)) {
        bench_fail("%s: %s", what, ucs_status_string(UCS_PTR_STATUS(request)));
    }
    if (request == NULL) {
        return;
    }
    ucs_status_t status;
    while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS) {
        progress(side);
    }
    must(status, what);
    ucp_request_free(request);
}

/* Waits for the oldest of the window before the next request takes its place. */
static void keep(struct side *side, void *request, const char *what)
{
    void **place = &side->requests[side->posted++ % WINDOW];
    if (UCS_PTR_IS_ERR(request)) {
        wait_for_request(side, request, what);
    }
    *place = request;
    void **oldest = &side->requests[side->posted % WINDOW];
    wait_for_request(side, *oldest, what);
    *oldest = NULL;
}

static void drain(struct side *side, const char *what)
{
    for (int i = 0; i < WINDOW; i++) {
        wait_for_request(side, side->requests[i], what);
        side->requests[i] = NULL;
    }
}

static ucs_status_t take_message(void *user, const void *header, size_t header_length, void *data,
                                 size_t length, const ucp_am_recv_param_t *param)
{
    struct side *side = user;
    (void)header;
    (void)header_length;
    (void)param;
    side->flag = length > 0 ? *(const uint8_t *)data : 0;
    side->received++;
    return UCS_OK;
}

static void *post_message(struct side *side, uint8_t last, size_t size)
{
    static const ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                               .flags = UCP_AM_SEND_FLAG_EAGER };
    side->out[0] = last;
    return ucp_am_send_nbx(side->ep, MESSAGE, NULL, 0, side->out, size, &param);
}

static void put(struct side *side, uint8_t last)
{
    wait_for_request(side, post_message(side, last, side->size), "ucp_am_send_nbx");
}

static void get(struct side *side, uint64_t number)
{
    while (side->received < number) {
        progress(side);
    }
}

static void ping(void *user, bool last)
{
    struct side *side = user;
    uint64_t number = side->received + 1;
    put(side, last);
    get(side, number);
}

/* Makes the progress that the other side needs, until a message ends it, and answers that
 * message. */
static void serve_until_told(struct side *side)
{
    while (side->flag == 0) {
        progress(side);
    }
    put(side, 1);
}

static void tell_and_wait(struct side *side)
{
    uint64_t number = side->received + 1;
    wait_for_request(side, post_message(side, 1, 1), "ucp_am_send_nbx");
    get(side, number);
}

static void run_ping_pong(struct side *side)
{
    double value = 0;
    uint64_t rounds = 0;
    if (side->bench->side == 0) {
        value = bench_ping_pong(side->bench, ping, side, &rounds);
    } else {
        bench_start(side->bench);
        for (uint64_t number = 1; side->flag == 0; number++) {
            get(side, number);
            put(side, side->flag);
        }
    }
    bench_meet(side->bench);
    bench_finish(side->bench, value, rounds * 2);
}

static void run_rate(struct side *side)
{
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        while (!bench_is_over(side->bench)) {
            for (int i = 0; i < LOOKS; i++) {
                keep(side, post_message(side, 0, side->size), "ucp_am_send_nbx");
            }
            count += LOOKS;
        }
        drain(side, "ucp_am_send_nbx");
        tell_and_wait(side);
    } else {
        serve_until_told(side);
    }
    bench_stop(side->bench);
    bench_meet(side->bench);
    bench_finish(side->bench, (double)count / side->bench->elapsed, count);
}

/* Keeps receives posted until a message says that no more follow; the rest never complete. */
static void take_stream(struct side *side, const ucp_request_param_t *param)
{
    while (side->flag == 0) {
        void **place = &side->requests[side->posted % WINDOW];
        if (*place != NULL && ucp_request_check_status(*place) == UCS_INPROGRESS) {
            progress(side);
            continue;
        }
        wait_for_request(side, *place, "ucp_tag_recv_nbx");
        *place = ucp_tag_recv_nbx(side->worker, side->in, side->size, 0, 1, param);
        side->posted++;
    }
}

static void run_stream(struct side *side)
{
    static const ucp_request_param_t param = { 0 };
    uint64_t count = 0;
    bench_start(side->bench);
    if (side->bench->side == 0) {
        while (!bench_is_over(side->bench)) {
            keep(side, ucp_tag_send_nbx(side->ep, side->out, side->size, 0, &param),
                 "ucp_tag_send_nbx");
            count++;
        }
        drain(side, "ucp_tag_send_nbx");
        tell_and_wait(side);
    } else {
        take_stream(side, &param);
        put(side, 1);
    }
    bench_stop(side->bench);
    bench_meet(side->bench);
    bench_finish(side->bench, (double)(count * side->size) / side->bench->elapsed, count);
}

static void *post_one_sided(struct side *side, const char *op)
{
    static uint64_t one = 1;
    static const ucp_request_param_t plain = { 0 };
    if (op[0] == 'w') {
        return ucp_put_nbx(side->ep, side->out, side->size, side->remote_address, side->key, &plain);
    }
    if (op[0] == 'r') {
        return ucp_get_nbx(side->ep, side->in, side->size, side->remote_address, side->key, &plain);
    }
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER,
        .datatype = ucp_dt_make_contig(sizeof(uint64_t)),
        .reply_buffer = side->in,
    };
    return ucp_atomic_op_nbx(side->ep, UCP_ATOMIC_OP_ADD, &one, 1, side->remote_address, side->key,
                             &param);
}

static void fetch_round(void *user, bool last)
{
    struct side *side = user;
    (void)last;
    wait_for_request(side, post_one_sided(side, "fetch_add"), "fetch_add");
}

static void run_one_sided(struct side *side, const char *op)
{
    static const ucp_request_param_t plain = { 0 };
    double value = 0;
    uint64_t count = 0;
    if (side->bench->side == 1) {
        bench_start(side->bench);
        serve_until_told(side);
    } else if (strcmp(op, "fetch_add") == 0) {
        value = bench_round_trips(side->bench, fetch_round, side, &count);
    } else {
        bench_start(side->bench);
        uint64_t looks = side->size < 4096 ? LOOKS : 1;
        while (!bench_is_over(side->bench)) {
            for (uint64_t i = 0; i < looks; i++) {
                keep(side, post_one_sided(side, op), op);
            }
            count += looks;
        }
        drain(side, op);
        wait_for_request(side, ucp_ep_flush_nbx(side->ep, &plain), "ucp_ep_flush_nbx");
        bench_stop(side->bench);
        value = (double)count / side->bench->elapsed *
                (strcmp(op, "fetch_adds") == 0 ? 1.0 : (double)side->size);
    }
    if (side->bench->side == 0) {
        tell_and_wait(side);
    }
    bench_meet(side->bench);
    bench_finish(side->bench, value, count);
}

static void open_context(struct side *side, const char *path, bool sleeps)
{
    ucp_config_t *config = NULL;
    must(ucp_config_read(NULL, NULL, &config), "ucp_config_read");
    bool shm = strcmp(path, "shm") == 0;
    side->is_watched = strcmp(path, "tcp-watched") == 0;
    must(ucp_config_modify(config, "TLS", shm ? "shm" : "tcp"), "UCX_TLS");
    must(ucp_config_modify(config, "NET_DEVICES", shm ? "all" : "lo"), "UCX_NET_DEVICES");
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_RMA | UCP_FEATURE_AMO64 |
                    (sleeps ? (uint64_t)UCP_FEATURE_WAKEUP : 0),
        .estimated_num_eps = 1,
    };
    must(ucp_init(&params, config, &side->context), "ucp_init");
    ucp_config_release(config);
    ucp_worker_params_t worker = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                   .thread_mode = UCS_THREAD_MODE_SINGLE };
    must(ucp_worker_create(side->context, &worker, &side->worker), "ucp_worker_create");
    if (sleeps) {
        must(ucp_worker_get_efd(side->worker, &side->descriptor), "ucp_worker_get_efd");
    }
}

static void peer_has_ended(void *user, ucp_ep_h ep, ucs_status_t status)
{
    (void)user;
    (void)ep;
    (void)status; /* a request fails with it, or all is done */
}

static void connect_sides(struct side *side)
{
    static struct introduction mine, theirs;
    ucp_address_t *address = NULL;
    void *packed = NULL;
    size_t length = 0;
    ucp_mem_map_params_t map = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .length = 2 * side->size,
        .flags = UCP_MEM_MAP_ALLOCATE,
    };
    must(ucp_mem_map(side->context, &map, &side->memory), "ucp_mem_map");
    ucp_mem_attr_t attr = { .field_mask = UCP_MEM_ATTR_FIELD_ADDRESS };
    must(ucp_mem_query(side->memory, &attr), "ucp_mem_query");
    side->out = attr.address;
    side->in = side->out + side->size;
    memset(side->out, 0, 2 * side->size);
    must(ucp_worker_get_address(side->worker, &address, &length), "ucp_worker_get_address");
    if (length > BLOB_MAX) {
        bench_fail("an address of %zu bytes", length);
    }
    memcpy(mine.worker, address, length);
    must(ucp_rkey_pack(side->context, side->memory, &packed, &length), "ucp_rkey_pack");
    if (length > BLOB_MAX) {
        bench_fail("a key of %zu bytes", length);
    }
    memcpy(mine.key, packed, length);
    mine.address = (uint64_t)side->in;
    bench_exchange(side->bench, &mine, &theirs, sizeof(mine));
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (ucp_address_t *)theirs.worker,
        .err_mode = side->is_watched ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE,
        .err_handler = { .cb = peer_has_ended },
    };
    must(ucp_ep_create(side->worker, &params, &side->ep), "ucp_ep_create");
    must(ucp_ep_rkey_unpack(side->ep, theirs.key, &side->key), "ucp_ep_rkey_unpack");
    side->remote_address = theirs.address;
    ucp_am_handler_param_t handler = {
        .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                      UCP_AM_HANDLER_PARAM_FIELD_ARG,
        .id = MESSAGE,
        .cb = take_message,
        .arg = side,
    };
    must(ucp_worker_set_am_recv_handler(side->worker, &handler), "ucp_worker_set_am_recv_handler");
}

int main(int argc, char **argv)
{
    if (argc != 5 || (strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "shm") != 0 &&
                      strcmp(argv[1], "tcp-watched") != 0)) {
        bench_fail(
            "usage: peer_ucx tcp|shm|tcp-watched pingpong|sleep|rate|stream|write|read|fetch_add|"
            "fetch_adds SIZE SECONDS");
    }
    struct bench bench;
    const char *op = argv[2];
    bench_fork(&bench, strtod(argv[4], NULL), 0);
    static struct side side;
    side.bench = &bench;
    side.descriptor = -1;
    side.size = bench_size(argv[3]);
    open_context(&side, argv[1], strcmp(op, "sleep") == 0);
    connect_sides(&side);
    bench_meet(&bench);
    if (strcmp(op, "pingpong") == 0 || strcmp(op, "sleep") == 0) {
        run_ping_pong(&side);
    } else if (strcmp(op, "rate") == 0) {
        run_rate(&side);
    } else if (strcmp(op, "stream") == 0) {
        run_stream(&side);
    } else if (strcmp(op, "write") == 0 || strcmp(op, "read") == 0 ||
               strcmp(op, "fetch_add") == 0 || strcmp(op, "fetch_adds") == 0) {
        run_one_sided(&side, op);
    } else {
        bench_fail("there is no '%s'", op);
    }
    return 0;
}
