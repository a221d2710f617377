/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The memory model is that of RC11 without load buffering: each location has its stores in one
 * order, and a thread has, for each location, the latest store that it knows of. A load takes that
 * store or any later one. A store that is taken with acquire, and was made with release, brings
 * what its thread knew, and what its thread did before happens before what follows. Plain accesses
 * that are not ordered in this way are a race.
 *
 * Threads are contexts of one thread, switched at each atomic access, fence and mutex. An execution
 * follows a list of choices (which thread is next, which store a load takes, where a store goes in
 * the order of its location). The next execution changes the last choice that has another
 * alternative. Sleep sets leave out executions that differ in the order of independent steps only.
 */
#include "model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

enum {
    LOCATIONS = 24,
    STORES = 24, /* of a location */
    CHOICES = 400,
    MUTEXES = 2,
    CELLS = 1 << 13, /* bytes that plain accesses touch, a power of two */
    EVENTS = 400,
    STACK_SIZE = 64 * 1024,
    NAMES = 24,
    EXECUTIONS_MAX = 20 * 1000 * 1000, /* far beyond what a program here needs */
};

/* What a thread, or the reader of a store, knows. */
struct view {
    uint8_t store[LOCATIONS];      /* the latest store known of each location */
    uint32_t clock[MODEL_THREADS]; /* steps of each thread that happen before */
};

struct location {
    const volatile void *at;
    unsigned size;
    unsigned count;
    uint64_t value[STORES];
    uint8_t place[STORES];    /* of a store in the location's order */
    bool is_bound[STORES];    /* of an exchange: nothing may come between it and the one before */
    struct view view[STORES]; /* what a load with acquire learns */
    unsigned sc;              /* the last store with seq_cst */
};

enum kind {
    LOAD,
    STORE,
    UPDATE, /* exchange, fetch and add, compare and exchange */
    FENCE,  /* seq_cst; weaker ones concern their thread alone, and are no step */
    MEMBARRIER,
    LOCK,
    UNLOCK,
};

struct step {
    enum kind kind;
    const volatile void *at;
};

struct thread {
    ucontext_t start;
    jmp_buf place; /* changes no signal mask, unlike a context */
    bool has_started;
    struct step next;
    bool is_done;
    struct view view;
    struct view acquired;  /* what loads without acquire would have brought: for a fence */
    struct view released;  /* known at the last fence with release */
    struct view signalled; /* known at the last signal fence: what a membarrier sees */
    /* The last store loaded, and whether the next load waits for another one. */
    const volatile void *seen_at;
    uint8_t seen;
    bool has_failed; /* the last step was a compare-and-exchange that failed */
    bool is_spinning;
};

struct choice {
    uint8_t count;
    uint8_t index;
    uint8_t option[STORES];
    uint8_t asleep; /* of the choice of a thread: those that need not be taken */
};

struct cell {
    uintptr_t at;
    uint32_t write_clock;
    uint8_t writer;
    uint32_t read_clock[MODEL_THREADS];
    unsigned execution;
};

struct event {
    unsigned thread;
    const char *what;
    const volatile void *at;
    uint64_t value;
    int order;
};

static struct thread threads[MODEL_THREADS];
static unsigned thread_count;
static char stacks[MODEL_THREADS][STACK_SIZE] __attribute__((aligned(64)));
static unsigned current;
static bool is_running; /* accesses outside of threads are no steps */
static jmp_buf scheduler;

static struct location locations[LOCATIONS];
static unsigned location_count;
static struct view sc_view; /* of seq_cst fences; the clock is not used */
static struct {
    const volatile void *at;
    bool is_held;
    struct view view;
} mutexes[MUTEXES];

static struct choice choices[CHOICES];
static unsigned choice_count, choice_at;
static struct cell cells[CELLS];
static unsigned execution;
static struct event events[EVENTS];
static unsigned event_count;
static char failure[200];
static struct {
    const volatile void *at;
    const char *name;
} names[NAMES];
static unsigned name_count;

static void give_up(const char *text)
{
    fprintf(stderr, "model: %s\n", text);
    exit(2);
}

/* ------------------------------------------------------------------------------------ failure */

static void fail(const char *text)
{
    if (failure[0] == '\0') {
        (void)snprintf(failure, sizeof(failure), "%s", text);
    }
    if (is_running) {
        is_running = false;
        _longjmp(scheduler, 1);
    }
}

void model_check(bool holds, const char *text)
{
    if (!holds) {
        fail(text);
    }
}

void model_name(const volatile void *at, const char *name)
{
    if (name_count < NAMES) {
        names[name_count].at = at;
        names[name_count++].name = name;
    }
}

static void note(const char *what, const volatile void *at, uint64_t value, int order)
{
    if (event_count < EVENTS) {
        events[event_count++] = (struct event){ current, what, at, value, order };
    }
}

static void print_events(void)
{
    static const char *const orders[] = { "relaxed", "consume", "acquire",
                                          "release", "acq_rel", "seq_cst" };
    for (unsigned i = 0; i < event_count; i++) {
        const struct event *event = &events[i];
        printf("#   thread %u: %s", event->thread, event->what);
        for (unsigned k = 0; k < name_count; k++) {
            if (names[k].at == event->at) {
                printf(" %s", names[k].name);
            }
        }
        if (event->order >= 0) {
            printf(" %#llx %s", (unsigned long long)event->value, orders[event->order]);
        }
        printf("\n");
    }
}

/* ------------------------------------------------------------------------------------ choices */

/* Takes one of count alternatives. */
static unsigned choose(unsigned count)
{
    if (count == 0 || count > STORES) {
        give_up("a choice has no alternative, or too many");
    }
    if (count == 1) {
        return 0;
    }
    if (choice_at == choice_count) {
        if (choice_count == CHOICES) {
            give_up("too many choices: does a loop wait without model_spin()?");
        }
        choices[choice_count++] = (struct choice){ .count = (uint8_t)count };
    }
    return choices[choice_at++].index;
}

/* -------------------------------------------------------------------------------------- views */

static void join(struct view *into, const struct view *from)
{
    for (unsigned i = 0; i < location_count; i++) {
        if (locations[i].place[from->store[i]] > locations[i].place[into->store[i]]) {
            into->store[i] = from->store[i];
        }
    }
    for (unsigned i = 0; i < thread_count; i++) {
        if (from->clock[i] > into->clock[i]) {
            into->clock[i] = from->clock[i];
        }
    }
}

/* The same without what happens before: fences order stores and loads, and synchronise by them. */
static void join_stores(struct view *into, const struct view *from)
{
    struct view stores = *from;
    memset(stores.clock, 0, sizeof(stores.clock));
    join(into, &stores);
}

static uint64_t read_memory(const volatile void *at, unsigned size)
{
    uint64_t value = 0;
    memcpy(&value, (const void *)(uintptr_t)at, size);
    return value;
}

static struct location *location_of(const volatile void *at, unsigned size)
{
    for (unsigned i = 0; i < location_count; i++) {
        if (locations[i].at == at) {
            if (locations[i].size != size) {
                fail("accesses of two sizes");
            }
            return &locations[i];
        }
    }
    if (location_count == LOCATIONS) {
        give_up("too many locations");
    }
    struct location *location = &locations[location_count];
    memset(location, 0, sizeof(*location));
    location->at = at;
    location->size = size;
    location->count = 1;
    location->value[0] = read_memory(at, size);
    location_count++;
    return location;
}

static unsigned index_of(const struct location *location)
{
    return (unsigned)(location - locations);
}

/* ------------------------------------------------------------------------------------ threads */

/* A thread calls it before each step, and goes on when the step is its turn. */
static struct thread *begin_step(enum kind kind, const volatile void *at)
{
    struct thread *self = &threads[current];
    self->next = (struct step){ kind, at };
    if (_setjmp(self->place) == 0) {
        _longjmp(scheduler, 1);
    }
    return self;
}

static void end_step(struct thread *self)
{
    self->view.clock[current]++;
}

static bool reads_or_writes(enum kind kind)
{
    return kind == LOAD || kind == STORE || kind == UPDATE;
}

static bool are_independent(const struct step *one, const struct step *other)
{
    if (one->kind == MEMBARRIER || other->kind == MEMBARRIER) {
        return false;
    }
    if (one->kind == FENCE || other->kind == FENCE) {
        return one->kind != other->kind;
    }
    if (one->at != other->at) {
        return true;
    }
    return reads_or_writes(one->kind) && one->kind == LOAD && other->kind == LOAD;
}

/* The last store that the thread must not take again, if it waits for another one. */
static bool is_excluded(const struct thread *self, const struct location *location, unsigned store)
{
    return self->is_spinning && self->seen_at == location->at && self->seen == store;
}

static bool is_readable(const struct thread *self, const struct location *location, unsigned store)
{
    return location->place[store] >= location->place[self->view.store[index_of(location)]] &&
           !is_excluded(self, location, store);
}

static bool is_enabled(const struct thread *self)
{
    if (self->is_done) {
        return false;
    }
    if (self->next.kind == LOCK) {
        for (unsigned i = 0; i < MUTEXES; i++) {
            if (mutexes[i].at == self->next.at && mutexes[i].is_held) {
                return false;
            }
        }
    }
    if (self->is_spinning && self->seen_at == self->next.at &&
        (self->next.kind == LOAD || self->next.kind == UPDATE)) {
        for (unsigned i = 0; i < location_count; i++) {
            if (locations[i].at == self->next.at) {
                for (unsigned k = 0; k < locations[i].count; k++) {
                    if (is_readable(self, &locations[i], k)) {
                        return true;
                    }
                }
            }
        }
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------- atomic steps */

static bool acquires(int order)
{
    return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order == __ATOMIC_ACQ_REL ||
           order == __ATOMIC_SEQ_CST;
}

static bool releases(int order)
{
    return order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL || order == __ATOMIC_SEQ_CST;
}

static void learn(struct thread *self, const struct location *location, unsigned store, int order)
{
    if (location->place[store] > location->place[self->view.store[index_of(location)]]) {
        self->view.store[index_of(location)] = (uint8_t)store;
    }
    join(acquires(order) ? &self->view : &self->acquired, &location->view[store]);
}

/* The last seq_cst store of the location is known to a seq_cst access. */
static void learn_sc(struct thread *self, const struct location *location, int order)
{
    uint8_t *known = &self->view.store[index_of(location)];
    if (order == __ATOMIC_SEQ_CST && location->place[location->sc] > location->place[*known]) {
        *known = (uint8_t)location->sc;
    }
}

/* Takes one of the stores that the thread may load. bound: it stores next, so the place behind the
 * store is free. */
static unsigned choose_store(struct thread *self, const struct location *location, bool bound)
{
    uint8_t found[STORES];
    unsigned count = 0;
    for (unsigned i = 0; i < location->count; i++) {
        bool is_taken = false;
        for (unsigned k = 0; bound && k < location->count; k++) {
            is_taken = is_taken ||
                       (location->is_bound[k] && location->place[k] == location->place[i] + 1);
        }
        if (!is_taken && is_readable(self, location, i)) {
            found[count++] = (uint8_t)i;
        }
    }
    unsigned store = found[choose(count)];
    self->is_spinning = false;
    self->has_failed = false;
    self->seen_at = location->at;
    self->seen = (uint8_t)store;
    return store;
}

/* Adds a store behind `before` in the location's order. */
static void add_store(struct thread *self, struct location *location, unsigned before, bool bound,
                      uint64_t value, int order)
{
    if (location->count == STORES) {
        give_up("too many stores to a location");
    }
    unsigned store = location->count++;
    uint8_t place = (uint8_t)(location->place[before] + 1);
    bool is_last = true;
    for (unsigned i = 0; i < store; i++) {
        if (location->place[i] >= place) {
            location->place[i]++;
            is_last = false;
        }
    }
    location->place[store] = place;
    location->value[store] = value;
    location->is_bound[store] = bound;
    self->view.store[index_of(location)] = (uint8_t)store;
    struct view *view = &location->view[store];
    *view = releases(order) ? self->view : self->released;
    view->store[index_of(location)] = (uint8_t)store;
    if (bound) {
        join(view, &location->view[before]); /* a release sequence goes on */
    }
    if (order == __ATOMIC_SEQ_CST) {
        location->sc = store;
    }
    if (is_last) {
        memcpy((void *)(uintptr_t)location->at, &value, location->size);
    }
}

static uint64_t atomic_load(const volatile void *at, unsigned size, int order)
{
    if (!is_running) {
        return read_memory(at, size);
    }
    struct thread *self = begin_step(LOAD, at);
    struct location *location = location_of(at, size);
    learn_sc(self, location, order);
    unsigned store = choose_store(self, location, false);
    learn(self, location, store, order);
    note("loads", at, location->value[store], order);
    end_step(self);
    return location->value[store];
}

static void atomic_store(volatile void *at, unsigned size, uint64_t value, int order)
{
    if (!is_running) {
        memcpy((void *)(uintptr_t)at, &value, size);
        return;
    }
    struct thread *self = begin_step(STORE, at);
    struct location *location = location_of(at, size);
    learn_sc(self, location, order);
    uint8_t before[STORES];
    unsigned count = 0;
    for (unsigned i = 0; i < location->count; i++) {
        bool is_taken = false;
        for (unsigned k = 0; k < location->count; k++) {
            is_taken = is_taken ||
                       (location->is_bound[k] && location->place[k] == location->place[i] + 1);
        }
        if (!is_taken &&
            location->place[i] >= location->place[self->view.store[index_of(location)]]) {
            before[count++] = (uint8_t)i;
        }
    }
    note("stores", at, value, order);
    add_store(self, location, before[choose(count)], false, value, order);
    self->has_failed = false;
    end_step(self);
}

/* kind: '=' exchanges, '+' adds, '-' subtracts, '|' and '&' set and clear bits, '^' toggles them,
 * '?' compares with *expected. Returns the old value. */
static uint64_t atomic_update(volatile void *at, unsigned size, char kind, uint64_t operand,
                              uint64_t *expected, int order, int failed_order)
{
    if (!is_running) {
        uint64_t old = read_memory(at, size);
        uint64_t value = kind == '|' ? old | operand : kind == '&' ? old & operand : operand;
        memcpy((void *)(uintptr_t)at, &value, size);
        return old;
    }
    struct thread *self = begin_step(UPDATE, at);
    struct location *location = location_of(at, size);
    learn_sc(self, location, order);
    unsigned store = choose_store(self, location, kind != '?');
    uint64_t old = location->value[store];
    if (kind == '?' && old != *expected) {
        learn(self, location, store, failed_order);
        note("fails to exchange", at, old, failed_order);
        self->has_failed = true;
        self->is_spinning = true; /* the next try waits for another value */
        end_step(self);
        *expected = old;
        return old;
    }
    for (unsigned k = 0; kind == '?' && k < location->count; k++) {
        if (location->is_bound[k] && location->place[k] == location->place[store] + 1) {
            /* Another exchange comes next in the order: this one cannot succeed. */
            is_running = false;
            _longjmp(scheduler, 1);
        }
    }
    uint64_t value = operand;
    switch (kind) {
    case '+':
        value = old + operand;
        break;
    case '-':
        value = old - operand;
        break;
    case '|':
        value = old | operand;
        break;
    case '&':
        value = old & operand;
        break;
    case '^':
        value = old ^ operand;
        break;
    }
    if (size < sizeof(value)) {
        value &= (UINT64_C(1) << (8 * size)) - 1;
    }
    learn(self, location, store, order);
    note("exchanges", at, value, order);
    add_store(self, location, store, true, value, order);
    end_step(self);
    return old;
}

static void fence(int order)
{
    if (!is_running) {
        return;
    }
    struct thread *self = &threads[current];
    if (order == __ATOMIC_SEQ_CST) {
        self = begin_step(FENCE, NULL);
        note("fence", NULL, 0, order);
    }
    if (acquires(order)) {
        join(&self->view, &self->acquired);
    }
    if (order == __ATOMIC_SEQ_CST) {
        join_stores(&self->view, &sc_view);
        join_stores(&sc_view, &self->view);
    }
    if (releases(order)) {
        self->released = self->view;
    }
    self->signalled = self->view;
    end_step(self);
}

/* The compiler may move an access over the place where another thread's membarrier finds this
 * thread, unless a signal fence is between them. */
static void signal_fence(void)
{
    if (is_running) {
        threads[current].signalled = threads[current].view;
    }
}

void model_membarrier(void)
{
    struct thread *self = begin_step(MEMBARRIER, NULL);
    note("membarrier", NULL, 0, -1);
    self->signalled = self->view;
    for (unsigned i = 0; i < thread_count; i++) {
        join_stores(&sc_view, &threads[i].signalled);
    }
    for (unsigned i = 0; i < thread_count; i++) {
        join_stores(&threads[i].view, &sc_view);
    }
    end_step(self);
}

void model_spin(void)
{
    threads[current].is_spinning = true;
}

/* ------------------------------------------------------------------------------------ mutexes */

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    struct thread *self = begin_step(LOCK, mutex);
    unsigned i = 0;
    while (i < MUTEXES && mutexes[i].at != mutex && mutexes[i].at != NULL) {
        i++;
    }
    if (i == MUTEXES) {
        give_up("too many mutexes");
    }
    mutexes[i].at = mutex;
    mutexes[i].is_held = true;
    join(&self->view, &mutexes[i].view);
    note("locks", mutex, 0, -1);
    end_step(self);
    return 0;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    struct thread *self = begin_step(UNLOCK, mutex);
    for (unsigned i = 0; i < MUTEXES; i++) {
        if (mutexes[i].at == mutex) {
            mutexes[i].is_held = false;
            mutexes[i].view = self->view;
        }
    }
    note("unlocks", mutex, 0, -1);
    end_step(self);
    return 0;
}

/* For code that sleeps while it waits. */
int nanosleep(const struct timespec *time, struct timespec *rest)
{
    (void)time;
    (void)rest;
    return 0;
}

/* ----------------------------------------------------------------------------- plain accesses */

static void plain_byte(uintptr_t at, bool is_write)
{
    unsigned hash = (unsigned)((at * UINT64_C(0x9e3779b97f4a7c15)) >> 51) & (CELLS - 1);
    struct cell *cell = &cells[hash];
    for (unsigned tries = 0; cell->execution == execution && cell->at != at; tries++) {
        if (tries == CELLS) {
            give_up("too many bytes");
        }
        hash = (hash + 1) & (CELLS - 1);
        cell = &cells[hash];
    }
    if (cell->execution != execution) {
        *cell = (struct cell){ .at = at, .execution = execution };
    }
    const struct view *view = &threads[current].view;
    bool is_race = cell->write_clock > view->clock[cell->writer];
    for (unsigned i = 0; is_write && i < thread_count; i++) {
        is_race = is_race || cell->read_clock[i] > view->clock[i];
    }
    if (is_race) {
        note(is_write ? "writes" : "reads", (const void *)at, 0, -1);
        fail("a data race");
    }
    if (is_write) {
        cell->writer = (uint8_t)current;
        cell->write_clock = view->clock[current];
    } else {
        cell->read_clock[current] = view->clock[current];
    }
}

static void plain(const volatile void *at, size_t size, bool is_write)
{
    uintptr_t from = (uintptr_t)at;
    if (!is_running || from - (uintptr_t)stacks < sizeof(stacks)) {
        return;
    }
    for (size_t i = 0; i < size; i++) {
        plain_byte(from + i, is_write);
    }
}

/* -------------------------------------------------------------------------- what the compiler calls */

#define PLAIN(size)                              \
    void __tsan_read##size(void *at);            \
    void __tsan_read##size(void *at)             \
    {                                            \
        plain(at, size, false);                  \
    }                                            \
    void __tsan_write##size(void *at);           \
    void __tsan_write##size(void *at)            \
    {                                            \
        plain(at, size, true);                   \
    }                                            \
    void __tsan_unaligned_read##size(void *at);  \
    void __tsan_unaligned_read##size(void *at)   \
    {                                            \
        plain(at, size, false);                  \
    }                                            \
    void __tsan_unaligned_write##size(void *at); \
    void __tsan_unaligned_write##size(void *at)  \
    {                                            \
        plain(at, size, true);                   \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(void *at, unsigned long size);
void __tsan_read_range(void *at, unsigned long size)
{
    plain(at, size, false);
}
void __tsan_write_range(void *at, unsigned long size);
void __tsan_write_range(void *at, unsigned long size)
{
    plain(at, size, true);
}
void __tsan_init(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *from);
void __tsan_func_entry(void *from)
{
    (void)from;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
void __tsan_atomic_thread_fence(int order);
void __tsan_atomic_thread_fence(int order)
{
    fence(order);
}
void __tsan_atomic_signal_fence(int order);
void __tsan_atomic_signal_fence(int order)
{
    (void)order;
    signal_fence();
}

#define UPDATE_OF(bits, type, name, kind)                                                \
    type __tsan_atomic##bits##_##name(volatile type *at, type operand, int order);       \
    type __tsan_atomic##bits##_##name(volatile type *at, type operand, int order)        \
    {                                                                                    \
        return (type)atomic_update(at, sizeof(type), kind, operand, NULL, order, order); \
    }
#define EXCHANGE_IF(bits, type, name)                                                           \
    int __tsan_atomic##bits##_##name(volatile type *at, type *expected, type value, int order,  \
                                     int failed_order);                                         \
    int __tsan_atomic##bits##_##name(volatile type *at, type *expected, type value, int order,  \
                                     int failed_order)                                          \
    {                                                                                           \
        uint64_t wide = *expected;                                                              \
        uint64_t old = atomic_update(at, sizeof(type), '?', value, &wide, order, failed_order); \
        bool done = old == *expected;                                                           \
        *expected = (type)old;                                                                  \
        return done;                                                                            \
    }
#define ATOMIC(bits, type)                                                      \
    type __tsan_atomic##bits##_load(const volatile type *at, int order);        \
    type __tsan_atomic##bits##_load(const volatile type *at, int order)         \
    {                                                                           \
        return (type)atomic_load(at, sizeof(type), order);                      \
    }                                                                           \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order); \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order)  \
    {                                                                           \
        atomic_store(at, sizeof(type), value, order);                           \
    }                                                                           \
    UPDATE_OF(bits, type, exchange, '=')                                        \
    UPDATE_OF(bits, type, fetch_add, '+')                                       \
    UPDATE_OF(bits, type, fetch_sub, '-')                                       \
    UPDATE_OF(bits, type, fetch_or, '|')                                        \
    UPDATE_OF(bits, type, fetch_and, '&')                                       \
    UPDATE_OF(bits, type, fetch_xor, '^')                                       \
    EXCHANGE_IF(bits, type, compare_exchange_strong)                            \
    EXCHANGE_IF(bits, type, compare_exchange_weak)
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

/* ---------------------------------------------------------------------------------- exploration */

static const struct model_program *explored;

static void run_thread(unsigned index)
{
    explored->threads[index]();
    threads[index].is_done = true;
    _longjmp(scheduler, 1);
}

/* Lets the thread go on until its next step, or its end. */
static void resume(unsigned index)
{
    current = index;
    if (_setjmp(scheduler) != 0) {
        return;
    }
    if (threads[index].has_started) {
        _longjmp(threads[index].place, 1);
    }
    threads[index].has_started = true;
    (void)setcontext(&threads[index].start);
}

/* Chooses the next thread. Returns whether there is one: if all that could go on are asleep, other
 * executions have what would follow. *asleep: those that need not be taken, before and after. */
static bool choose_thread(unsigned *out, uint8_t *asleep)
{
    uint8_t found[MODEL_THREADS];
    unsigned count = 0, enabled = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        if (is_enabled(&threads[i])) {
            enabled++;
            if ((*asleep & 1U << i) == 0) {
                found[count++] = (uint8_t)i;
            }
        }
    }
    if (count == 0) {
        if (enabled == 0) {
            for (unsigned i = 0; i < thread_count; i++) {
                if (!threads[i].is_done) {
                    is_running = false;
                    fail("threads wait for ever");
                }
            }
        }
        return false;
    }
    unsigned taken = choose(count);
    *out = found[taken];
    uint8_t next = 0;
    for (unsigned i = 0; i < thread_count; i++) {
        bool is_before = false;
        for (unsigned k = 0; k < taken; k++) {
            is_before = is_before || found[k] == i;
        }
        if (((*asleep & 1U << i) != 0 || is_before) &&
            are_independent(&threads[i].next, &threads[*out].next)) {
            next |= (uint8_t)(1U << i);
        }
    }
    *asleep = next;
    return true;
}

static void start_threads(void)
{
    memset(threads, 0, sizeof(threads));
    for (unsigned i = 0; i < thread_count; i++) {
        struct thread *thread = &threads[i];
        (void)getcontext(&thread->start);
        thread->start.uc_stack.ss_sp = stacks[i];
        thread->start.uc_stack.ss_size = STACK_SIZE;
        thread->start.uc_link = NULL;
        makecontext(&thread->start, (void (*)(void))run_thread, 1, i);
        thread->view.clock[i] = 1;
        is_running = true;
        resume(i);
    }
}

/* Runs the program once, by the list of choices. */
static void execute(void)
{
    location_count = 0;
    memset(&sc_view, 0, sizeof(sc_view));
    memset(mutexes, 0, sizeof(mutexes));
    event_count = 0;
    name_count = 0;
    choice_at = 0;
    execution++;
    is_running = false;
    explored->prepare();
    start_threads();
    uint8_t asleep = 0;
    unsigned next;
    while (is_running && choose_thread(&next, &asleep)) {
        resume(next);
    }
    bool is_whole = is_running;
    is_running = false;
    for (unsigned i = 0; i < thread_count; i++) {
        is_whole = is_whole && threads[i].is_done;
    }
    if (is_whole && explored->check != NULL) {
        explored->check();
    }
}

bool model_explore(const struct model_program *program)
{
    static unsigned number;
    explored = program;
    thread_count = 0;
    while (thread_count < MODEL_THREADS && program->threads[thread_count] != NULL) {
        thread_count++;
    }
    choice_count = 0;
    failure[0] = '\0';
    unsigned executions = 0;
    for (;;) {
        execute();
        executions++;
        if (failure[0] != '\0') {
            break;
        }
        if (executions == EXECUTIONS_MAX) {
            give_up("too many executions");
        }
        while (choice_count > 0 &&
               choices[choice_count - 1].index + 1U == choices[choice_count - 1].count) {
            choice_count--;
        }
        if (choice_count == 0) {
            break;
        }
        choices[choice_count - 1].index++;
    }
    bool holds = failure[0] == '\0';
    number++;
    printf("%sok %u - %s\n", holds ? "" : "not ", number, program->name);
    printf("# %u executions\n", executions);
    if (!holds) {
        printf("# %s, in this order:\n", failure);
        print_events();
    }
    return holds;
}
