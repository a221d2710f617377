/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Two hosts in one process: set-up, turns and end of the two sides. */
#include "campaign_scene.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const char *const fault_names[FAULTS] = {
    [PORT_DOWN] = "the port is down",        [REMOVAL] = "the device is removed",
    [QP_FATAL] = "queue pairs fail",         [SILENCE] = "packets vanish",
    [POST_SEND] = "post_send fails",         [POLL_CQ] = "poll_cq fails",
    [OVERRUN] = "completion queues overrun", [LATE] = "packets come late",
    [SOCKET] = "the data socket is cut",     [CHANNEL] = "the control channel is cut",
};

const char *const links[LINKS] = { "roce", "ib", "iwarp" };

void scene_use(const struct side *side)
{
    process_use(side->host, side->devices, LINKS, true);
}

bool scene_fail(struct scene *scene, const char *format, ...)
{
    if (scene->text[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start() is right above */
        (void)vsnprintf(scene->text, sizeof(scene->text), format, arguments);
        va_end(arguments);
    }
    return false;
}

static void log_line(void *user, enum rdmux_log_level level, const char *line)
{
    const struct side *side = user;
    (void)level;
    printf("#   %10.3f us  %c: %s\n", (double)sim_now(side->scene->world) / 1000,
           'A' + (char)side->index, line);
}

void scene_trace(const struct scene *scene, const char *what, const struct side *side)
{
    if (scene->is_verbose) {
        printf("#   %10.3f us  %s (%c)\n", (double)sim_now(scene->world) / 1000, what,
               side == NULL ? '-' : 'A' + (char)side->index);
    }
}

/* ----------------------------------------------------------------------------------------- open */

bool scene_open_side(struct scene *scene, uint32_t index)
{
    struct side *side = &scene->sides[index];
    char options[128];
    side->scene = scene;
    side->index = index;
    side->secrets.state = scene->seed ^ (index + 1);
    side->host = sim_host_add(scene->world);
    for (int i = 0; i < LINKS; i++) {
        (void)snprintf(options, sizeof(options), "link=%s%s", links[i],
                       i < 2 && percent(&scene->chance, 50) ? ",like=hca" : "");
        side->devices[i] = sim_device_add(side->host, options);
        if (side->devices[i] == NULL) {
            return scene_fail(scene, "a simulated device: %s", sim_error());
        }
    }
    scene_use(side);
    struct rdmux_fabric_attr attr = RDMUX_FABRIC_ATTR_INIT;
    attr.flags = RDMUX_FABRIC_IGNORE_ENVIRONMENT | RDMUX_FABRIC_NO_SERVICE_THREAD |
                 RDMUX_FABRIC_NO_WORKER_THREAD | RDMUX_FABRIC_NO_DEFAULT_PLUGINS;
    attr.paths = scene->scenario.paths;
    attr.plugins = &scene->plugin;
    attr.plugin_count = 1;
    attr.clock_ns = process_clock_ns;
    attr.clock_user = scene->world;
    attr.random = process_random;
    attr.random_user = &side->secrets;
    attr.log = scene->is_verbose ? log_line : NULL;
    attr.log_user = side;
    attr.log_level = RDMUX_LOG_DEBUG;
    if (rdmux_fabric_open(&attr, &side->fabric) != RDMUX_OK ||
        rdmux_cq_create(side->fabric, NULL, &side->cq) != RDMUX_OK) {
        return scene_fail(scene, "a fabric: %s", rdmux_last_error());
    }
    const struct load_attr load = { .side = index,
                                    .seed = scene->seed,
                                    .messages = UINT64_MAX,
                                    .has_failover = scene->scenario.has_failover };
    side->load = load_create(side->fabric, &load);
    return side->load != NULL || scene_fail(scene, "a load: %s", load_why());
}

/* Takes the entries. */
static size_t poll_side(struct side *side)
{
    struct rdmux_wc wcs[ENTRIES];
    scene_use(side);
    size_t count = rdmux_cq_poll(side->cq, wcs, 1 + below(&side->scene->chance, ENTRIES));
    for (size_t i = 0; i < count; i++) {
        if (side->scene->is_verbose && wcs[i].opcode >= RDMUX_WC_CONNECTED) {
            scene_trace(side->scene, rdmux_wc_opcode_name(wcs[i].opcode), side);
        }
        if (wcs[i].opcode == RDMUX_WC_CONNECTED) {
            side->is_connected = wcs[i].status == RDMUX_OK;
        }
        if (wcs[i].opcode == RDMUX_WC_PATH_CHANGED) {
            side->moved_ns = sim_now(side->scene->world);
        }
        load_take(side->load, &wcs[i]);
    }
    return count;
}

static void progress(struct scene *scene)
{
    for (uint32_t i = 0; i < SIDES; i++) {
        scene_use(&scene->sides[i]);
        (void)rdmux_fabric_progress(scene->sides[i].fabric);
    }
}

void scene_turn(struct scene *scene, bool posts)
{
    size_t came = 0;
    if (scene->turns++ % 4 == 0) {
        progress(scene);
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        struct side *side = &scene->sides[i];
        scene_use(side);
        if (posts && percent(&scene->chance, 60)) {
            load_post(side->load);
        }
        came += poll_side(side);
    }
    scene->still = came == 0 ? scene->still + 1 : 0;
    (void)sim_advance(scene->world, came != 0                    ? BUSY_NS
                                    : scene->still > STILL_TURNS ? STILL_NS
                                                                 : IDLE_NS);
}

static bool has_import(struct scene *scene, struct side *side)
{
    struct rdmux_remote_info info = RDMUX_REMOTE_INFO_INIT;
    (void)scene;
    scene_use(side);
    return rdmux_remote_info(side->remote, &info) == RDMUX_OK && info.status == RDMUX_OK;
}

bool scene_open_pair(struct scene *scene)
{
    char address[RDMUX_ADDRESS_MAX];
    struct side *a = &scene->sides[0];
    struct side *b = &scene->sides[1];
    struct rdmux_ep_attr attr = RDMUX_EP_ATTR_INIT;
    load_set_attr(a->load, &attr);
    attr.liveness_ms = LIVENESS_MS;
    attr.setup_timeout_ms = 60000;
    if (scene->scenario.goes_back) {
        attr.failback = 1;
        attr.failback_hold_ms = HOLD_MS;
        attr.failover_attempts = 100;
    }
    scene_use(b);
    if (rdmux_listen(b->fabric, "127.0.0.1:0", NULL, &scene->listener) != RDMUX_OK ||
        rdmux_listener_address(scene->listener, address, sizeof(address)) != RDMUX_OK) {
        return scene_fail(scene, "rdmux_listen(): %s", rdmux_last_error());
    }
    scene_use(a);
    if (rdmux_connect(a->fabric, a->cq, address, &attr, 0, &a->ep) != RDMUX_IN_PROGRESS) {
        return scene_fail(scene, "rdmux_connect(): %s", rdmux_last_error());
    }
    for (uint32_t i = 0; i < TURNS_MAX / 2 && (b->ep == NULL || !a->is_connected); i++) {
        scene_use(b);
        enum rdmux_status status = b->ep != NULL
                                       ? RDMUX_AGAIN
                                       : rdmux_accept(scene->listener, b->cq, &attr, 0, &b->ep);
        if (status != RDMUX_OK && status != RDMUX_AGAIN) {
            return scene_fail(scene, "rdmux_accept(): %s", rdmux_last_error());
        }
        scene_turn(scene, false);
        if (load_has_ended(a->load)) {
            break;
        }
    }
    if (b->ep == NULL || !a->is_connected) {
        return scene_fail(scene, "the two were not connected");
    }
    struct rdmux_token tokens[SIDES];
    for (uint32_t i = 0; i < SIDES; i++) {
        scene_use(&scene->sides[i]);
        if (rdmux_mr_export(load_region(scene->sides[i].load), &tokens[i]) != RDMUX_OK) {
            return scene_fail(scene, "rdmux_mr_export(): %s", rdmux_last_error());
        }
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        struct side *side = &scene->sides[i];
        scene_use(side);
        if (rdmux_remote_import(side->ep, &tokens[1 - i], 0, &side->remote) != RDMUX_IN_PROGRESS) {
            return scene_fail(scene, "rdmux_remote_import(): %s", rdmux_last_error());
        }
        for (uint32_t j = 0; j < TURNS_MAX / 2 && !has_import(scene, side); j++) {
            scene_turn(scene, false);
        }
        if (!has_import(scene, side)) {
            return scene_fail(scene, "an import was not granted");
        }
    }
    for (uint32_t i = 0; i < SIDES; i++) {
        scene_use(&scene->sides[i]);
        load_begin(scene->sides[i].load, scene->sides[i].ep, scene->sides[i].remote);
    }
    return true;
}

void scene_close(struct scene *scene)
{
    rdmux_listener_close(scene->listener);
    for (uint32_t i = 0; i < SIDES; i++) {
        struct side *side = &scene->sides[i];
        scene_use(side);
        (void)rdmux_ep_close(side->ep);
        load_free(side->load);
        if (rdmux_cq_destroy(side->cq) != RDMUX_OK || rdmux_fabric_close(side->fabric) != RDMUX_OK) {
            (void)scene_fail(scene, "the end: %s", rdmux_last_error());
        }
    }
    process_leave();
    if (sim_world_destroy(scene->world) != 0) {
        (void)scene_fail(scene, "verbs objects were not destroyed");
    }
}

/* -------------------------------------------------------------------------------------- sockets */

/* Returns the port of a descriptor's other end, 0 if it is no TCP connection. */
static unsigned peer_port(int fd)
{
    struct sockaddr_in name = { .sin_port = 0 };
    socklen_t length = sizeof(name);
    if (getpeername(fd, (struct sockaddr *)&name, &length) != 0 || name.sin_family != AF_INET) {
        return 0;
    }
    return ntohs(name.sin_port);
}

/* Data sockets are marked (attr.dscp), the control channel is not. */
static bool is_marked(int fd)
{
    int tos = 0;
    socklen_t length = sizeof(tos);
    return getsockopt(fd, IPPROTO_IP, IP_TOS, &tos, &length) == 0 && tos != 0;
}

bool scene_cut_socket(struct scene *scene, bool is_control)
{
    char address[RDMUX_ADDRESS_MAX];
    if (rdmux_listener_address(scene->listener, address, sizeof(address)) != RDMUX_OK) {
        return false;
    }
    const unsigned wanted = (unsigned)strtoul(strrchr(address, ':') + 1, NULL, 10);
    for (int fd = 3; fd < DESCRIPTORS_MAX; fd++) {
        if (peer_port(fd) == wanted && is_marked(fd) != is_control) {
            return shutdown(fd, SHUT_RDWR) == 0;
        }
    }
    return false;
}

struct rdmux_ep_info scene_info(struct side *side)
{
    struct rdmux_ep_info info = RDMUX_EP_INFO_INIT;
    scene_use(side);
    if (rdmux_ep_info(side->ep, &info) != RDMUX_OK) {
        info.state = RDMUX_EP_ENDED;
    }
    return info;
}

int scene_link(const char *provider)
{
    for (int i = 0; i < LINKS; i++) {
        if (strcmp(provider, links[i]) == 0) {
            return i;
        }
    }
    return -1;
}
