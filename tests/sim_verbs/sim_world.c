/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Worlds: time, random numbers, trace, calls that are made to fail, hosts. */
#include "sim_world.h"

#include "sim_device.h"
#include "sim_faults.h"
#include "sim_macros.h"
#include "sim_net.h"
#include "sim_options.h"
#include "sim_verbs.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { POLLS_PER_YIELD = 64 }; /* without result */

/* ------------------------------------------------------------------------------- list of worlds */

static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static struct sim_world *worlds; /* newest first */
static struct sim_world *environment_world;
static bool environment_read;
static struct sim_host *default_host;
static _Thread_local struct sim_host *thread_host;

static void before_fork(void)
{
    (void)pthread_mutex_lock(&registry);
    for (struct sim_world *world = worlds; world != NULL; world = world->next) {
        (void)pthread_mutex_lock(&world->lock);
    }
}

static void after_fork_in_parent(void)
{
    for (struct sim_world *world = worlds; world != NULL; world = world->next) {
        (void)pthread_mutex_unlock(&world->lock);
    }
    (void)pthread_mutex_unlock(&registry);
}

/* The child has no device thread, and its descriptors are the parent's: its worlds are dead
 * copies. */
static void after_fork_in_child(void)
{
    for (struct sim_world *world = worlds; world != NULL; world = world->next) {
        world->dead = world->options.real_time != 0;
        if (world->net != NULL) {
            sim_net_forked(world->net);
        }
    }
    environment_world = NULL;
    environment_read = false;
    after_fork_in_parent();
}

static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ----------------------------------------------------------------------------------------- lock */

/* As in a kernel, a cancelled thread ends only after it has released the lock. */
static _Thread_local int cancel_state;

void sim_lock(struct sim_world *world)
{
    if (world->locked) {
        int before;
        (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
        (void)pthread_mutex_lock(&world->lock);
        cancel_state = before;
    }
}

void sim_unlock(struct sim_world *world)
{
    if (world->locked) {
        int before = cancel_state;
        (void)pthread_mutex_unlock(&world->lock);
        (void)pthread_setcancelstate(before, NULL);
    }
}

/* --------------------------------------------------------------------------------------- memory */

void *sim_alloc_with(struct sim_world *world, size_t size, int descriptor)
{
    struct sim_block *block = calloc(1, sizeof(*block) + size);
    if (block == NULL) {
        return NULL;
    }
    block->world = world;
    block->descriptor = descriptor;
    block->next = world->blocks;
    if (block->next != NULL) {
        block->next->previous = block;
    }
    world->blocks = block;
    return block + 1;
}

void *sim_alloc(struct sim_world *world, size_t size)
{
    return sim_alloc_with(world, size, -1);
}

static void block_end(struct sim_block *block)
{
    if (block->descriptor >= 0) {
        (void)close(block->descriptor);
    }
    free(block);
}

void sim_free(void *memory)
{
    if (memory == NULL) {
        return;
    }
    struct sim_block *block = (struct sim_block *)memory - 1;
    if (block->previous != NULL) {
        block->previous->next = block->next;
    } else {
        block->world->blocks = block->next;
    }
    if (block->next != NULL) {
        block->next->previous = block->previous;
    }
    block_end(block);
}

int sim_event_descriptor(void)
{
    return eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
}

void sim_event_tell(int descriptor)
{
    uint64_t one = 1;
    /* Fails only when 2^64 - 2 events wait. */
    (void)!write(descriptor, &one, sizeof(one));
}

bool sim_event_take(int descriptor)
{
    struct pollfd ready = { .fd = descriptor, .events = POLLIN };
    uint64_t one;
    return poll(&ready, 1, 0) == 1 && read(descriptor, &one, sizeof(one)) == sizeof(one);
}

/* ------------------------------------------------------------------------------- random numbers */

static uint64_t random_next(struct sim_random *random)
{
    /* splitmix64 by Sebastiano Vigna: one word of state, every seed is good. */
    uint64_t mixed = (random->state += 0x9e3779b97f4a7c15U);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
}

uint64_t sim_chance(struct sim_world *world, uint64_t below)
{
    return below == 0 ? 0 : random_next(&world->random) % below;
}

/* --------------------------------------------------------------------------------------- events */

static bool event_before(const struct sim_event *one, const struct sim_event *other)
{
    if (one->time != other->time) {
        return one->time < other->time;
    }
    return one->order != other->order ? one->order < other->order : one->serial < other->serial;
}

static void heap_put(struct sim_world *world, size_t place, struct sim_event *event)
{
    world->heap[place] = event;
    event->place = place;
}

static void heap_up(struct sim_world *world, struct sim_event *event)
{
    size_t place = event->place;
    while (place > 1 && event_before(event, world->heap[place / 2])) {
        heap_put(world, place, world->heap[place / 2]);
        place /= 2;
    }
    heap_put(world, place, event);
}

static void heap_down(struct sim_world *world, struct sim_event *event)
{
    size_t place = event->place;
    for (;;) {
        size_t child = place * 2;
        if (child > world->heap_count) {
            break;
        }
        if (child < world->heap_count && event_before(world->heap[child + 1], world->heap[child])) {
            child++;
        }
        if (!event_before(world->heap[child], event)) {
            break;
        }
        heap_put(world, place, world->heap[child]);
        place = child;
    }
    heap_put(world, place, event);
}

static void heap_grow(struct sim_world *world)
{
    size_t room = world->heap_room == 0 ? 64 : world->heap_room * 2;
    struct sim_event **heap = realloc(world->heap, room * sizeof(struct sim_event *));
    if (heap == NULL) {
        perror("sim_verbs: event queue");
        abort();
    }
    world->heap = heap;
    world->heap_room = room;
}

void sim_schedule_at(struct sim_world *world, struct sim_event *event, uint64_t time,
                     void (*run)(struct sim_event *event))
{
    sim_cancel(world, event);
    if (world->heap_count + 1 >= world->heap_room) {
        heap_grow(world);
    }
    event->time = time;
    event->order = world->options.shuffle ? sim_chance(world, SIM_FOREVER) : 0;
    event->serial = world->serial++;
    event->run = run;
    event->place = ++world->heap_count;
    heap_up(world, event);
    if (world->net != NULL && event->place == 1) {
        sim_net_wake(world->net, event->time);
    }
}

void sim_schedule(struct sim_world *world, struct sim_event *event, uint64_t delay,
                  void (*run)(struct sim_event *event))
{
    sim_clock(world);
    uint64_t time = delay > SIM_FOREVER - world->now ? SIM_FOREVER : world->now + delay;
    sim_schedule_at(world, event, time, run);
}

void sim_cancel(struct sim_world *world, struct sim_event *event)
{
    if (event->place == 0) {
        return;
    }
    struct sim_event *last = world->heap[world->heap_count--];
    if (last != event) {
        last->place = event->place;
        heap_put(world, last->place, last);
        heap_up(world, last);
        heap_down(world, last);
    }
    event->place = 0;
}

void sim_clock(struct sim_world *world)
{
    if (!world->options.real_time) {
        return;
    }
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    world->now = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec - world->real_start;
}

static void run_first(struct sim_world *world)
{
    struct sim_event *event = world->heap[1];
    sim_cancel(world, event);
    event->run(event);
}

size_t sim_run_due(struct sim_world *world)
{
    if (world->heap_count == 0) {
        return 0;
    }
    sim_clock(world);
    size_t count = 0;
    while (world->heap_count > 0 && world->heap[1]->time <= world->now) {
        run_first(world);
        count++;
    }
    return count;
}

bool sim_run_next(struct sim_world *world)
{
    if (world->heap_count == 0 || world->heap[1]->time == SIM_FOREVER) {
        return false;
    }
    if (world->heap[1]->time > world->now) {
        world->now = world->heap[1]->time;
    }
    run_first(world);
    return true;
}

void sim_idle(struct sim_world *world)
{
    if (world->options.real_time) {
        return;
    }
    if (world->options.step == 0) {
        (void)sim_run_next(world);
        return;
    }
    world->now += world->options.step;
    (void)sim_run_due(world);
}

void sim_stand_back(const struct sim_world *world)
{
    /* A spinning program would keep the processor and the lock from the device's thread. At other times
     * a yield gives some milliseconds to any other program of a busy machine. */
    static _Thread_local unsigned polls;
    if (world->net != NULL && (atomic_load_explicit(&world->net_works, memory_order_relaxed) ||
                               ++polls % POLLS_PER_YIELD == 0)) {
        (void)sched_yield();
    }
}

bool sim_wait_step(struct sim_world *world)
{
    return !world->options.real_time && sim_run_next(world);
}

uint64_t sim_now(struct sim_world *world)
{
    sim_lock(world);
    sim_clock(world);
    uint64_t now = world->now;
    sim_unlock(world);
    return now;
}

size_t sim_advance(struct sim_world *world, uint64_t nanoseconds)
{
    size_t count = 0;
    sim_lock(world);
    if (!world->options.real_time) {
        uint64_t until = nanoseconds > SIM_FOREVER - world->now ? SIM_FOREVER
                                                                : world->now + nanoseconds;
        while (world->heap_count > 0 && world->heap[1]->time <= until && sim_run_next(world)) {
            count++;
        }
        if (nanoseconds != SIM_FOREVER) {
            world->now = until;
        }
    }
    sim_unlock(world);
    return count;
}

bool sim_step(struct sim_world *world)
{
    sim_lock(world);
    bool stepped = !world->options.real_time && sim_run_next(world);
    sim_unlock(world);
    return stepped;
}

/* ---------------------------------------------------------------------------------------- trace */

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    return hash ^ (hash >> 29);
}

void sim_trace(struct sim_world *world, enum sim_trace_kind kind, uint64_t one, uint64_t two)
{
    if (!world->options.trace) {
        return;
    }
    uint64_t time = world->options.real_time ? 0 : world->now;
    world->hash = mix(mix(mix(world->hash, time ^ ((uint64_t)kind << 56)), one), two);
}

uint64_t sim_trace_hash(struct sim_world *world)
{
    sim_lock(world);
    uint64_t hash = world->hash;
    sim_unlock(world);
    return hash;
}

struct sim_counters sim_counters(struct sim_world *world)
{
    sim_lock(world);
    struct sim_counters counters = world->counters;
    sim_unlock(world);
    return counters;
}

/* --------------------------------------------------------------------------- calls made to fail */

#define CALL_TEXT(name) #name,
static const char *const call_names[] = { SIM_CALLS(CALL_TEXT) };
#undef CALL_TEXT

static int plan_step(struct sim_plan *plan)
{
    if (plan->left == 0 || --plan->left > 0) {
        return 0;
    }
    return plan->error;
}

static bool is_poll(enum sim_call_name name)
{
    return name == SIM_CALL_poll_cq;
}

int sim_call(struct sim_world *world, enum sim_call_name name)
{
    world->calls[name]++;
    world->calls_all += is_poll(name) ? 0 : 1;
    if (!SIM_UNLIKELY(world->planned)) {
        return 0;
    }
    int error = plan_step(&world->plans[name]);
    int any = is_poll(name) ? 0 : plan_step(&world->plan_all);
    int decided = world->decide != NULL ? world->decide(world->decide_context, call_names[name])
                                        : 0;
    return error != 0 ? error : any != 0 ? any : decided;
}

static int call_find(const char *name)
{
    for (int i = 0; i < SIM_CALL_COUNT; i++) {
        if (strcmp(call_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

bool sim_plan_call(struct sim_world *world, const char *name, uint64_t nth, int error)
{
    int found = call_find(name);
    if (found < 0 && strcmp(name, "*") != 0) {
        sim_set_error("no call '%s' can be made to fail", name);
        return false;
    }
    struct sim_plan *plan = found < 0 ? &world->plan_all : &world->plans[found];
    *plan = (struct sim_plan){ nth, error };
    world->planned = true;
    return true;
}

bool sim_fail_call(struct sim_world *world, const char *name, uint64_t nth, int error)
{
    sim_lock(world);
    bool planned = sim_plan_call(world, name, nth, error);
    sim_unlock(world);
    return planned;
}

void sim_on_call(struct sim_world *world, int (*decide)(void *context, const char *name),
                 void *context)
{
    sim_lock(world);
    world->decide = decide;
    world->decide_context = context;
    world->planned = true;
    sim_unlock(world);
}

uint64_t sim_calls(struct sim_world *world, const char *name)
{
    int found = call_find(name);
    sim_lock(world);
    uint64_t count = found < 0 ? world->calls_all : world->calls[found];
    sim_unlock(world);
    return count;
}

void sim_on_misuse(struct sim_world *world, void (*report)(void *context, const char *text),
                   void *context)
{
    sim_lock(world);
    world->misuse = report;
    world->misuse_context = context;
    sim_unlock(world);
}

void sim_misuse(struct sim_world *world, const char *text)
{
    if (world->misuse != NULL) {
        world->misuse(world->misuse_context, text);
        return;
    }
    (void)fprintf(stderr, "sim_verbs: misuse: %s\n", text);
    abort();
}

/* --------------------------------------------------------------------------------------- worlds */

void sim_world_changed(struct sim_world *world)
{
    world->generation++;
}

static void derive(struct sim_world *world)
{
    const struct sim_world_options *options = &world->options;
    world->direct = options->latency == 0 && options->jitter == 0 && options->bandwidth == 0 &&
                    options->drop == 0 && options->late_read == 0;
    world->immediate = options->visible == 0 && options->scatter == 0 && options->completion == 0 &&
                       options->receipt == 0 && options->batch <= 1;
    if (world->options.window == 0) {
        world->options.window = 1;
    }
    sim_world_changed(world);
}

static void world_unlink(struct sim_world *world)
{
    for (struct sim_world **at = &worlds; *at != NULL; at = &(*at)->next) {
        if (*at == world) {
            *at = world->next;
            return;
        }
    }
}

static void init_locks(struct sim_world *world)
{
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&world->lock, NULL);
    (void)pthread_cond_init(&world->call_over, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
}

static void destroy_locks(struct sim_world *world)
{
    (void)pthread_cond_destroy(&world->call_over);
    (void)pthread_mutex_destroy(&world->lock);
}

/* With the registry's lock held. */
static void world_end(struct sim_world *world)
{
    world_unlink(world);
    sim_net_stop(world->net);
    for (struct sim_block *block = world->blocks; block != NULL;) {
        struct sim_block *next = block->next;
        block_end(block);
        block = next;
    }
    free(world->heap);
    destroy_locks(world);
    free(world);
}

/* Real time needs the thread; only a world that SIM_VERBS made reaches other processes. */
static bool start_clock(struct sim_world *world)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    world->real_start = (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
    world->locked = world->options.threads || world->options.real_time;
    if (!world->options.real_time) {
        return true;
    }
    world->net = sim_net_start(world, world->environment ? &world->slot : NULL);
    world->next_slot = world->environment ? world->slot : 1;
    return world->net != NULL;
}

static struct sim_world *world_create(const struct sim_world_options *options, bool environment)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch_forks);
    struct sim_world *world = calloc(1, sizeof(*world));
    if (world == NULL) {
        sim_set_error("world: out of memory");
        return NULL;
    }
    world->options = *options;
    world->random.state = options->seed;
    world->next_slot = 1;
    world->next_port = 20000;
    init_locks(world);
    world->environment = environment;
    if (!start_clock(world)) {
        destroy_locks(world);
        free(world);
        return NULL;
    }
    derive(world);
    world->next = worlds;
    worlds = world;
    sim_lock(world);
    bool planned = sim_faults_plan(world);
    sim_unlock(world);
    if (!planned) {
        world_end(world);
        return NULL;
    }
    return world;
}

struct sim_world *sim_world_create(const char *options)
{
    struct sim_world_options read;
    sim_world_defaults(&read);
    if (options != NULL && !sim_options_read(options, strlen(options), &read, NULL)) {
        return NULL;
    }
    (void)pthread_mutex_lock(&registry);
    struct sim_world *world = world_create(&read, false);
    (void)pthread_mutex_unlock(&registry);
    return world;
}

bool sim_world_set(struct sim_world *world, const char *options)
{
    sim_lock(world);
    struct sim_world_options changed = world->options;
    bool read = sim_options_read(options, strlen(options), &changed, NULL);
    if (read) {
        changed.real_time = world->options.real_time;
        changed.threads = world->options.threads;
        if (changed.seed != world->options.seed) {
            world->random.state = changed.seed;
        }
        world->options = changed;
        derive(world);
        read = sim_faults_plan(world);
    }
    sim_unlock(world);
    return read;
}

size_t sim_objects(struct sim_world *world)
{
    sim_lock(world);
    size_t objects = world->objects;
    sim_unlock(world);
    return objects;
}

size_t sim_world_destroy(struct sim_world *world)
{
    if (world == NULL) {
        return 0;
    }
    size_t left = world->objects;
    (void)pthread_mutex_lock(&registry);
    world_end(world);
    (void)pthread_mutex_unlock(&registry);
    return left;
}

/* ---------------------------------------------------------------------------------------- hosts */

static struct sim_host *host_add(struct sim_world *world)
{
    if (world->next_slot >= SIM_SLOTS) {
        sim_set_error("world: no more than %d hosts", SIM_SLOTS - 1);
        return NULL;
    }
    struct sim_host *host = sim_alloc(world, sizeof(*host));
    if (host == NULL) {
        sim_set_error("host: out of memory");
        return NULL;
    }
    host->world = world;
    host->slot = world->next_slot++;
    /* Starts at a random number, so that numbers of an earlier run match no queue pair. */
    host->next_qp = 2 + (uint32_t)sim_chance(world, 1 << (SIM_SLOT_BITS - 1));
    struct sim_host **at = &world->hosts;
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = host;
    return host;
}

struct sim_host *sim_host_add(struct sim_world *world)
{
    sim_lock(world);
    struct sim_host *host = host_add(world);
    sim_unlock(world);
    return host;
}

void sim_use_host(struct sim_host *host)
{
    thread_host = host;
}

void sim_default_host(struct sim_host *host)
{
    (void)pthread_mutex_lock(&registry);
    default_host = host;
    (void)pthread_mutex_unlock(&registry);
}

/* ------------------------------------------------------------------------------ the environment */

static bool environment_devices(struct sim_host *host, const char *text)
{
    bool made = true;
    while (made && text != NULL) {
        const char *end = strchr(text, ';');
        size_t size = end != NULL ? (size_t)(end - text) : strlen(text);
        struct sim_world_options ignored = host->world->options;
        struct sim_device_options options;
        sim_device_defaults(&options);
        made = sim_options_read(text, size, &ignored, &options) &&
               sim_device_make(host, &options) != NULL;
        text = end != NULL ? end + 1 : NULL;
    }
    return made;
}

static struct sim_world *environment_make(const char *text)
{
    struct sim_world_options options;
    struct sim_device_options ignored;
    sim_world_defaults(&options);
    sim_device_defaults(&ignored);
    options.real_time = 1;
    options.packet = SIM_FOREVER;
    const char *end = strchr(text, ';');
    size_t size = end != NULL ? (size_t)(end - text) : strlen(text);
    if (!sim_options_read(text, size, &options, &ignored)) {
        return NULL;
    }
    if (options.packet == SIM_FOREVER) {
        options.packet = options.real_time ? 64 << 10 : 0; /* suits sockets */
    }
    struct sim_world *world = world_create(&options, true);
    if (world == NULL) {
        return NULL;
    }
    struct sim_host *host = host_add(world);
    if (host == NULL || !environment_devices(host, text)) {
        world_end(world);
        return NULL;
    }
    return world;
}

/* A wrong description must not look like a machine without devices: stderr reports it. */
static struct sim_host *environment_host(void)
{
    if (!environment_read) {
        environment_read = true;
        const char *text = getenv("SIM_VERBS");
        if (text != NULL && *text != '\0' && strcmp(text, "none") != 0) {
            environment_world = environment_make(text);
            if (environment_world == NULL) {
                (void)fprintf(stderr, "SIM_VERBS: %s\n", sim_error());
            }
        }
    }
    return environment_world != NULL ? environment_world->hosts : NULL;
}

static bool host_lives(const struct sim_host *host)
{
    for (struct sim_world *world = worlds; world != NULL; world = world->next) {
        for (struct sim_host *at = world->hosts; at != NULL; at = at->next) {
            if (at == host) {
                return true;
            }
        }
    }
    return false;
}

struct sim_host *sim_host_visit(void)
{
    struct sim_host *host = NULL;
    (void)pthread_mutex_lock(&registry);
    if (thread_host != NULL && host_lives(thread_host)) {
        host = thread_host;
    } else if (default_host != NULL && host_lives(default_host)) {
        host = default_host;
    } else {
        for (struct sim_world *world = worlds; world != NULL && host == NULL; world = world->next) {
            host = world == environment_world || world->dead ? NULL : world->hosts;
        }
        host = host != NULL ? host : environment_host();
    }
    if (host != NULL) {
        host->world->visitors++;
    }
    (void)pthread_mutex_unlock(&registry);
    return host;
}

/* With the registry's lock held. */
static bool world_lives(const struct sim_world *wanted)
{
    const struct sim_world *world = worlds;
    while (world != NULL && world != wanted) {
        world = world->next;
    }
    return world != NULL;
}

static bool is_used(struct sim_world *world)
{
    sim_lock(world);
    size_t objects = world->objects;
    sim_unlock(world);
    return objects > 0 || world->visitors > 0;
}

void sim_world_rest(struct sim_world *world)
{
    (void)pthread_mutex_lock(&registry);
    if (world == environment_world && !is_used(world)) {
        environment_world = NULL;
        environment_read = false;
        world_end(world);
    }
    (void)pthread_mutex_unlock(&registry);
}

void sim_world_leave(struct sim_world *world)
{
    (void)pthread_mutex_lock(&registry);
    if (world_lives(world)) {
        world->visitors--;
    }
    (void)pthread_mutex_unlock(&registry);
    sim_world_rest(world);
}
