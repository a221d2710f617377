/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two hosts: the world, the fabrics, the connected pairs, and their end. */
#include "model.h"

#include "process.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SETUP_POLLS = 200000, /* a longer set-up has stalled */
    ENTRIES = 64,
    IDLE_POLLS = 80, /* idle polls before time advances: the library checks some things rarely */
};

static const uint32_t remote_rights = RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_REMOTE_READ |
                                      RDMUX_ACCESS_REMOTE_WRITE | RDMUX_ACCESS_REMOTE_ATOMIC;

/* --------------------------------------------------------------------------- trace and mismatch */

static char why[4096];

const char *scene_why(void)
{
    return why;
}

static bool give_up(const char *what)
{
    (void)snprintf(why, sizeof(why), "%s: %s", what, rdmux_last_error());
    return false;
}

void mismatch(struct scene *scene, const char *format, ...)
{
    char text[4096];
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    scene->failed(scene, text);
    abort();
}

static void must(struct scene *scene, enum rdmux_status status, const char *what)
{
    if (status != RDMUX_OK) {
        mismatch(scene, "%s: %s: %s", what, rdmux_status_name(status), rdmux_last_error());
    }
}

void trace(struct scene *scene, const char *format, ...)
{
    if (!scene->is_verbose) {
        return;
    }
    va_list arguments;
    printf("#   %10.3f us  ", (double)sim_now(scene->world) / 1000);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    (void)fflush(stdout);
}

void note(struct scene *scene, uint64_t word)
{
    scene->hash = (scene->hash ^ word) * 0x9e3779b97f4a7c15U;
    scene->hash ^= scene->hash >> 29;
}

void use(const struct side *side)
{
    process_use(side->host, &side->device, 1, false);
}

/* A call that waits by the machine's time (revocation) waits by the world's time instead. Meanwhile
 * the other side progresses. */
static void let_other_progress(void *user)
{
    struct scene *scene = user;
    struct side *waiting = scene->waiting;
    if (waiting == NULL) {
        return;
    }
    struct side *other = &scene->sides[1 - waiting->index];
    scene->waiting = NULL;
    use(other);
    (void)rdmux_fabric_progress(other->fabric);
    (void)poll_side(other, ENTRIES);
    (void)sim_advance(scene->world, 1000);
    use(waiting);
    scene->waiting = waiting;
}

static void log_line(void *user, enum rdmux_log_level level, const char *line)
{
    struct side *side = user;
    (void)level;
    trace(side->scene, "%c: %s", 'A' + (char)side->index, line);
}

/* ---------------------------------------------------------------------------------------- shape */

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t size, const char *format,
                                                      ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
    (void)vsnprintf(text + used, size - used, format, arguments);
    va_end(arguments);
}

/* Draws each liberty of the device separately, in random amounts. */
static void draw_liberties(struct shape *shape, struct chance *chance, bool may_lose)
{
    static const uint32_t packets[] = { 0, 256, 1024, 4096 };
    char *out = shape->world;
    const size_t size = sizeof(shape->world);
    shape->packet = PICK(chance, packets);
    add(out, size, ",latency=%uns,jitter=%uns,packet=%u", below(chance, 5000), below(chance, 8000),
        shape->packet);
    if (percent(chance, 50)) {
        add(out, size, ",doorbell=%uns", below(chance, 3000));
    }
    if (percent(chance, 50)) {
        add(out, size, ",completion=%uns,batch=%u", below(chance, 9000), 1 + below(chance, 16));
    }
    if (percent(chance, 70)) {
        add(out, size, ",visible=%uns,scatter=%s", 100 + below(chance, 40000),
            percent(chance, 50) ? "yes" : "no");
    }
    if (percent(chance, 70)) {
        add(out, size, ",late_read=%u,late_read_time=%uns", below(chance, 101),
            below(chance, 40000));
    }
    if (percent(chance, 50)) {
        add(out, size, ",shuffle=yes");
    }
    if (percent(chance, 50)) {
        add(out, size, ",atomic_gap=%uns", below(chance, 100000));
    }
    if (may_lose && percent(chance, 30)) {
        add(out, size, ",drop=%u", 1 + below(chance, 10));
    }
}

static void draw_world(struct shape *shape, struct chance *chance, uint64_t seed)
{
    const bool is_iwarp = strcmp(shape->link, "iwarp") == 0;
    shape->world[0] = '\0';
    add(shape->world, sizeof(shape->world), "threads=no,seed=%llu", (unsigned long long)seed);
    uint32_t which = below(chance, 100);
    if (which < 15) {
        shape->is_instant = true;
    } else if (which < 45) {
        add(shape->world, sizeof(shape->world), ",freedoms=all");
        shape->packet = 1024;
    } else if (which < 65) {
        add(shape->world, sizeof(shape->world), ",freedoms=lazy");
        shape->packet = 1024;
    } else {
        draw_liberties(shape, chance, !is_iwarp);
    }
}

/* Draws a device by the specification, or the smallest that the library supports, or one in
 * between. */
static void draw_device(struct shape *shape, struct chance *chance, char *out, size_t size)
{
    static const uint32_t messages[] = { 2048, 4096, 5000, 16384, 65536, 1 << 20 };
    static const uint32_t inlines[] = { 0, 28, 64, 100, 220, 512 };
    static const uint32_t mtus[] = { 256, 512, 1024, 2048, 4096 };
    static const char *const atomics[] = { "none", "hca", "glob" };
    static const uint32_t reads[] = { 1, 1, 2, 4, 16 };
    const bool is_iwarp = strcmp(shape->link, "iwarp") == 0;
    out[0] = '\0';
    add(out, size, "link=%s", shape->link);
    if (!is_iwarp) {
        add(out, size, ",like=%s,atomics=%s", percent(chance, 60) ? "hca" : "rxe",
            PICK(chance, atomics));
    }
    uint32_t mtu = PICK(chance, mtus);
    uint32_t message = 1 << 20;
    if (percent(chance, 60)) {
        message = PICK(chance, messages);
    }
    add(out, size, ",mtu=%u,max_msg=%u,max_inline=%u", mtu, message, PICK(chance, inlines));
    shape->mtu = mtu;
    shape->max_message = message < shape->max_message ? message : shape->max_message;
    if (percent(chance, 40)) {
        add(out, size, ",max_rd_atomic=%u,max_init_rd_atomic=%u", PICK(chance, reads),
            PICK(chance, reads));
    }
    uint32_t most_sge = shape->max_sge + (is_iwarp ? 1 : 0);
    if (percent(chance, 40)) {
        add(out, size, ",max_sge=%u,max_sge_rd=1", most_sge);
    } else if (!is_iwarp) {
        add(out, size, ",max_sge_rd=%u", 1 + below(chance, 4));
    }
    if (percent(chance, 30)) {
        add(out, size, ",max_qp_wr=%u", 16 + below(chance, 88));
    }
    if (percent(chance, 30)) {
        add(out, size, ",max_cqe=%u", 400 + below(chance, 200));
    }
    if (percent(chance, 30)) {
        add(out, size, is_iwarp ? ",wr_api=yes" : ",wr_api=no,cq_ex=no");
    }
    if (percent(chance, 30)) {
        add(out, size, ",round_up=yes");
    }
    if (percent(chance, 30)) {
        add(out, size, ",stale=yes,reuse=yes");
    }
}

void shape_draw(struct shape *shape, const char *link, uint64_t seed)
{
    static const uint32_t depths[] = { 1, 2, 3, 4, 8, 16, 64 };
    static const uint32_t inlines[] = { 64, 64, 100, 220, 300 };
    struct chance chance = { seed * 0x2545f4914f6cdd1dU + (uint8_t)link[0] };
    memset(shape, 0, sizeof(*shape));
    shape->link = link;
    shape->max_message = UINT64_MAX;
    shape->liveness_ms = RDMUX_NEVER;
    shape->pairs = 1 + below(&chance, PAIRS_MAX);
    shape->send_depth = PICK(&chance, depths);
    shape->recv_depth = PICK(&chance, depths);
    shape->max_sge = 1 + below(&chance, 4);
    shape->max_inline = PICK(&chance, inlines);
    draw_world(shape, &chance, seed);
    for (int i = 0; i < SIDES; i++) {
        draw_device(shape, &chance, shape->device[i], sizeof(shape->device[i]));
        shape->has_srq[i] = percent(&chance, 25);
    }
    /* Some fabrics add a header. */
    uint64_t most = shape->max_message - 64 < LENGTH_MAX ? shape->max_message - 64 : LENGTH_MAX;
    shape->max_send = percent(&chance, 50) ? most : 1 + below(&chance, (uint32_t)most);
}

/* ----------------------------------------------------------------------------------------- open */

static bool open_side(struct scene *scene, uint32_t index)
{
    struct side *side = &scene->sides[index];
    const struct shape *shape = &scene->shape;
    side->scene = scene;
    side->index = index;
    side->secrets.state = scene->seed * 2 + index;
    side->host = sim_host_add(scene->world);
    side->device = side->host == NULL ? NULL : sim_device_add(side->host, shape->device[index]);
    if (side->device == NULL) {
        (void)snprintf(why, sizeof(why), "simulated device: %s", sim_error());
        return false;
    }
    use(side);
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_SERVICE_THREAD |
                 RDMUX_FABRIC_NO_WORKER_THREAD | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = shape->link;
    attr.plugins = &scene->plugin;
    attr.plugin_count = 1;
    attr.clock_ns = process_clock_ns;
    attr.clock_user = scene->world;
    attr.random = process_random;
    attr.random_user = &side->secrets;
    attr.log = scene->is_verbose ? log_line : NULL;
    attr.log_user = side;
    attr.log_level = RDMUX_LOG_WARN;
    if (rdmux_fabric_open(&attr, &side->fabric) != RDMUX_OK) {
        return give_up("rdmux_fabric_open()");
    }
    if (rdmux_cq_create(side->fabric, NULL, &side->cq) != RDMUX_OK) {
        return give_up("rdmux_cq_create()");
    }
    if (rdmux_mr_alloc(side->fabric, REGION_SIZE, remote_rights, &side->region) != RDMUX_OK) {
        return give_up("rdmux_mr_alloc()");
    }
    side->bytes = rdmux_mr_addr(side->region);
    size_t arena = (size_t)SLOT_SIZE * (SLOTS + RECEIVES_MAX) * PAIRS_MAX +
                   (size_t)SLOT_SIZE * RECEIVES_MAX;
    side->arena_bytes = scene->memory + 2 * arena * index;
    side->loose_bytes = side->arena_bytes + arena;
    if (rdmux_mr_register(side->fabric, side->arena_bytes, arena,
                          RDMUX_ACCESS_LOCAL_WRITE | RDMUX_ACCESS_READ_SINK,
                          &side->arena) != RDMUX_OK) {
        return give_up("rdmux_mr_register()");
    }
    if (shape->has_srq[index]) {
        struct rdmux_srq_attr srq = RDMUX_SRQ_ATTR_INIT;
        srq.depth = shape->recv_depth < RECEIVES_MAX ? shape->recv_depth : RECEIVES_MAX;
        srq.max_sge = shape->max_sge;
        if (rdmux_srq_create(side->fabric, side->cq, &srq, &side->srq) != RDMUX_OK) {
            return give_up("rdmux_srq_create()");
        }
        side->shared.depth = srq.depth;
    }
    return true;
}

static uint8_t *take_memory(uint8_t *bytes, size_t *used, size_t size)
{
    uint8_t *taken = bytes + *used;
    *used += size;
    return taken;
}

static void give_memory(struct side *side, struct receives *receives)
{
    receives->memory = take_memory(side->arena_bytes, &side->arena_used,
                                   (size_t)SLOT_SIZE * RECEIVES_MAX);
    receives->loose = take_memory(side->loose_bytes, &side->loose_used,
                                  (size_t)SLOT_SIZE * RECEIVES_MAX);
}

static void make_end(struct side *side, uint32_t pair)
{
    struct end *end = &side->ends[pair];
    end->side = side;
    end->peer = &side->scene->sides[1 - side->index].ends[pair];
    end->pair = pair;
    end->slots = take_memory(side->arena_bytes, &side->arena_used, (size_t)SLOT_SIZE * SLOTS);
    end->loose = take_memory(side->loose_bytes, &side->loose_used, (size_t)SLOT_SIZE * SLOTS);
    give_memory(side, &end->receives);
    lane_init(end);
}

static bool begin_pair(struct scene *scene, uint32_t pair)
{
    int sockets[SIDES];
    const struct shape *shape = &scene->shape;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
        (void)snprintf(why, sizeof(why), "socketpair()");
        return false;
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        struct side *side = &scene->sides[i];
        struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
        attr.send_depth = shape->send_depth;
        attr.recv_depth = shape->recv_depth;
        attr.max_send_sge = shape->max_sge;
        attr.max_recv_sge = shape->max_sge;
        attr.max_inline = shape->max_inline;
        attr.max_send = shape->max_send;
        attr.max_recv = shape->max_send;
        attr.liveness_ms = shape->liveness_ms;
        attr.setup_timeout_ms = 100000;
        attr.path_timeout_ms = 100000;
        attr.srq = side->srq;
        use(side);
        if (rdmux_adopt(side->fabric, side->cq, sockets[i],
                        i == 0 ? RDMUX_ROLE_CONNECT : RDMUX_ROLE_ACCEPT, &attr, 0,
                        &side->ends[pair].ep) != RDMUX_IN_PROGRESS) {
            return give_up("rdmux_adopt()");
        }
        (void)rdmux_ep_set_user(side->ends[pair].ep, &side->ends[pair]);
    }
    return true;
}

static bool all_connected(const struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            if (!scene->sides[i].ends[pair].connected) {
                return false;
            }
        }
    }
    return true;
}

static bool any_failed(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            struct end *end = &scene->sides[i].ends[pair];
            if (end->ended) {
                struct rdmux_explanation *explanation = NULL;
                const char *json = "";
                if (rdmux_ep_explanation(end->ep, &explanation) != RDMUX_OK ||
                    rdmux_explanation_json(explanation, &json) != RDMUX_OK) {
                    json = "no explanation";
                }
                (void)snprintf(why, sizeof(why), "%s: %.4000s",
                               rdmux_status_name((enum rdmux_status)end->end_status), json);
                return true;
            }
        }
    }
    return false;
}

static bool await_pairs(struct scene *scene)
{
    for (uint32_t i = 0; i < SETUP_POLLS; i++) {
        progress(scene);
        if (!go_on(scene) && i > SETUP_POLLS / 2) {
            break;
        }
        if (any_failed(scene)) {
            return false;
        }
        if (all_connected(scene)) {
            return true;
        }
    }
    (void)snprintf(why, sizeof(why), "the set-up has come to a standstill");
    return false;
}

/* The test transports tokens by itself. */
static bool import(struct scene *scene, struct end *end, const struct rdmux_token *token,
                   struct rdmux_remote **out)
{
    use(end->side);
    if (rdmux_remote_import(end->ep, token, 0, out) != RDMUX_IN_PROGRESS) {
        return give_up("rdmux_remote_import()");
    }
    for (uint32_t i = 0; i < SETUP_POLLS; i++) {
        struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
        progress(scene);
        (void)go_on(scene);
        if (rdmux_remote_info(*out, &info) == RDMUX_OK && info.status != RDMUX_IN_PROGRESS) {
            if (info.status == RDMUX_OK) {
                return true;
            }
            break;
        }
    }
    (void)snprintf(why, sizeof(why), "an import was not granted");
    return false;
}

static bool import_all(struct scene *scene)
{
    struct rdmux_token tokens[SIDES];
    for (uint32_t i = 0; i < SIDES; i++) {
        use(&scene->sides[i]);
        if (rdmux_mr_export(scene->sides[i].region, &tokens[i]) != RDMUX_OK) {
            return give_up("rdmux_mr_export()");
        }
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
            struct end *end = &scene->sides[i].ends[pair];
            end->info = (struct rdmux_ep_info)RDMUX_EP_INFO_INIT;
            if (!import(scene, end, &tokens[1 - i], &end->remote) ||
                rdmux_ep_info(end->ep, &end->info) != RDMUX_OK) {
                return false;
            }
        }
    }
    return true;
}

bool scene_open(struct scene *scene)
{
    const struct shape *shape = &scene->shape;
    scene->world = sim_world_create(shape->world);
    if (scene->world == NULL) {
        (void)snprintf(why, sizeof(why), "simulated world: %s", sim_error());
        return false;
    }
    process_enter(scene->world);
    process_wait_with(let_other_progress, scene);
    for (uint32_t i = 0; i < SIDES; i++) {
        if (!open_side(scene, i)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        for (uint32_t pair = 0; pair < shape->pairs; pair++) {
            make_end(&scene->sides[i], pair);
        }
        if (shape->has_srq[i]) {
            give_memory(&scene->sides[i], &scene->sides[i].shared);
        }
    }
    for (uint32_t pair = 0; pair < shape->pairs; pair++) {
        if (!begin_pair(scene, pair)) {
            return false;
        }
    }
    return await_pairs(scene) && import_all(scene);
}

/* ---------------------------------------------------------------------------------------- close */

static void close_side(struct scene *scene, struct side *side)
{
    use(side);
    for (uint32_t pair = 0; pair < scene->shape.pairs; pair++) {
        struct end *end = &side->ends[pair];
        must(scene, rdmux_ep_close(end->ep), "rdmux_ep_close()");
        lane_free(end);
    }
    must(scene, rdmux_srq_destroy(side->srq), "rdmux_srq_destroy()");
    rdmux_mr_deregister(side->region);
    rdmux_mr_deregister(side->arena);
    must(scene, rdmux_cq_destroy(side->cq), "rdmux_cq_destroy()");
    must(scene, rdmux_fabric_close(side->fabric), "rdmux_fabric_close()");
}

void scene_close(struct scene *scene)
{
    scene->is_ending = true;
    struct sim_counters counters = sim_counters(scene->world);
    scene->counts.late += counters.placed_late;
    scene->counts.reads_late += counters.reads_late;
    scene->counts.rnr += counters.rnr_naks;
    scene->counts.retries += counters.retries;
    uint64_t calls = sim_calls(scene->world, "wr_complete");
    scene->counts.calls += calls;
    scene->counts.without_calls += calls == 0;
    for (uint32_t i = 0; i < SIDES; i++) {
        close_side(scene, &scene->sides[i]);
    }
    note(scene, sim_trace_hash(scene->world));
    process_leave();
    size_t left = sim_world_destroy(scene->world);
    scene->world = NULL;
    if (left != 0) {
        mismatch(scene, "%zu verbs objects were not destroyed", left);
    }
}

/* ----------------------------------------------------------------------------------------- poll */

static const char *status_of(const struct rdmux_wc *wc)
{
    return rdmux_status_name((enum rdmux_status)wc->status);
}

static void take_event(struct scene *scene, struct end *end, const struct rdmux_wc *wc)
{
    switch (wc->opcode) {
    case RDMUX_WC_CONNECTED:
        end->connected = wc->status == RDMUX_OK;
        end->ended = wc->status != RDMUX_OK;
        end->end_status = wc->status;
        break;
    case RDMUX_WC_DISCONNECTED:
        end->ended = true;
        end->end_status = wc->status;
        if (++end->end_events > 1) {
            mismatch(scene, "an endpoint has ended twice");
        }
        if (wc->status != RDMUX_OK && !scene->is_broken) {
            struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
            must(scene, rdmux_ep_info(end->ep, &info), "rdmux_ep_info()");
            mismatch(scene, "%c%u has ended with %s: %s", 'A' + (char)end->side->index, end->pair,
                     status_of(wc), info.text);
        }
        if (wc->status == RDMUX_OK && !scene->is_ending) {
            mismatch(scene, "%c%u has ended without a cause", 'A' + (char)end->side->index,
                     end->pair);
        }
        break;
    case RDMUX_WC_WRITABLE:
        if (!end->wants_writable) {
            mismatch(scene, "%c%u: WRITABLE came without AGAIN before it",
                     'A' + (char)end->side->index, end->pair);
        }
        end->wants_writable = false;
        end->writable++;
        scene->counts.writable++;
        break;
    case RDMUX_WC_REMOTE_READY:
        break;
    default:
        mismatch(scene, "an unexpected event: %s", rdmux_wc_opcode_name(wc->opcode));
    }
}

static void take_entry(struct scene *scene, const struct rdmux_wc *wc)
{
    struct end *end = rdmux_ep_user(wc->ep);
    trace(scene, "%c%u <- %s %s, length %llu%s", 'A' + (char)end->side->index, end->pair,
          rdmux_wc_opcode_name(wc->opcode), status_of(wc), (unsigned long long)wc->length,
          (wc->flags & RDMUX_WC_HAS_IMM) != 0 ? ", with a number" : "");
    note(scene, (uint64_t)wc->opcode << 32 | wc->status);
    note(scene, wc->length ^ (uint64_t)wc->imm << 32);
    if (end->ended) {
        mismatch(scene, "%c%u: an entry after DISCONNECTED: %s", 'A' + (char)end->side->index,
                 end->pair, rdmux_wc_opcode_name(wc->opcode));
    }
    if (wc->opcode >= RDMUX_WC_CONNECTED) {
        take_event(scene, end, wc);
    } else if (wc->opcode == RDMUX_WC_RECV || wc->opcode == RDMUX_WC_RECV_WRITE_IMM) {
        lane_received(end, wc);
    } else {
        lane_completed(end, wc);
    }
}

size_t poll_side(struct side *side, size_t max)
{
    struct rdmux_wc wcs[ENTRIES];
    use(side);
    size_t count = rdmux_cq_poll(side->cq, wcs, max < ENTRIES ? max : ENTRIES);
    for (size_t i = 0; i < count; i++) {
        take_entry(side->scene, &wcs[i]);
    }
    return count;
}

bool go_on(struct scene *scene)
{
    size_t came = 0;
    for (uint32_t i = 0; i < SIDES; i++) {
        came += poll_side(&scene->sides[i], ENTRIES);
    }
    if (came != 0) {
        scene->quiet = 0;
        return true;
    }
    if (++scene->quiet % IDLE_POLLS != 0) {
        return true;
    }
    return sim_step(scene->world);
}

void progress(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        use(&scene->sides[i]);
        must(scene, rdmux_fabric_progress(scene->sides[i].fabric), "rdmux_fabric_progress()");
    }
}
