/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Reads the figures in a file of `rdmux perf --json`, with json-c. */
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifndef RDMUX_HAVE_JSON_C

int perf_load(const char *file, struct perf_loaded *out)
{
    (void)out;
    tool_error("perf",
               "--compare: cannot read %s: this rdmux was built without json-c; install "
               "libjson-c-dev (scripts/setup does), and build it again",
               file);
    return TOOL_FAILED;
}

#else

#include <json-c/json.h>

enum { FILE_MAX = 64 << 20, WHERE_MAX = 64 };

/* Where a value is that is missing or wrong. */
struct place {
    const char *file;
    char where[WHERE_MAX]; /* "runs[3]: ", or "" */
    bool good;             /* nothing wrong was found */
};

static void complain(struct place *place, const char *key, const char *what)
{
    if (place->good) {
        tool_error("perf",
                   "--compare: %s: %s\"%s\" %s; give files that rdmux perf --json has "
                   "written",
                   place->file, place->where, key, what);
    }
    place->good = false;
}

/* Returns the member, or NULL after a complaint. */
static struct json_object *member(struct place *place, struct json_object *object, const char *key,
                                  enum json_type type)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(object, key, &value)) {
        complain(place, key, "is missing");
        return NULL;
    }
    bool number = type == json_type_double && json_object_is_type(value, json_type_int);
    if (!number && !json_object_is_type(value, type)) {
        complain(place, key, "is of another type");
        return NULL;
    }
    return value;
}

static double real(struct place *place, struct json_object *object, const char *key)
{
    struct json_object *value = member(place, object, key, json_type_double);
    double number = value != NULL ? json_object_get_double(value) : 0.0;
    if (value != NULL && !(number >= 0 && number < 1e300)) {
        complain(place, key, "is out of range");
    }
    return number;
}

static uint64_t whole(struct place *place, struct json_object *object, const char *key)
{
    struct json_object *value = member(place, object, key, json_type_int);
    int64_t number = value != NULL ? json_object_get_int64(value) : 0;
    if (number < 0) {
        complain(place, key, "is negative");
        return 0;
    }
    return (uint64_t)number;
}

/* A member that earlier versions did not write. */
static uint64_t whole_or(struct place *place, struct json_object *object, const char *key,
                         uint64_t without)
{
    return json_object_object_get_ex(object, key, NULL) ? whole(place, object, key) : without;
}

static unsigned choice(struct place *place, struct json_object *object, const char *key,
                       const char *const *names)
{
    struct json_object *value = member(place, object, key, json_type_string);
    const char *name = value != NULL ? json_object_get_string(value) : NULL;
    for (unsigned i = 0; name != NULL && names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            return i;
        }
    }
    if (name != NULL) {
        complain(place, key, "is not known to this version");
    }
    return 0;
}

static void text(struct place *place, struct json_object *object, const char *key, char *out,
                 size_t size)
{
    struct json_object *value = member(place, object, key, json_type_string);
    snprintf(out, size, "%s", value != NULL ? json_object_get_string(value) : "");
}

static double spread(struct place *place, struct json_object *run)
{
    struct json_object *value = NULL;
    if (!json_object_object_get_ex(run, "spread", NULL)) {
        return -1.0;
    }
    struct json_object *object = member(place, run, "spread", json_type_object);
    if (object == NULL || !json_object_object_get_ex(object, "relative", &value) || value == NULL) {
        return -1.0;
    }
    return real(place, object, "relative");
}

static void read_latencies(struct place *place, struct json_object *run, struct perf_figures *out)
{
    struct json_object *latency = member(place, run, "latency_us", json_type_object);
    struct json_object *kind = member(place, run, "latency_kind", json_type_string);
    if (latency != NULL && kind != NULL) {
        out->half_round_trip = strcmp(json_object_get_string(kind), "half_round_trip") == 0;
        out->latency_us[PERF_P50] = real(place, latency, "p50");
        out->latency_us[PERF_P99] = real(place, latency, "p99");
    }
}

static void read_run(struct place *place, struct json_object *run, struct perf_figures *out)
{
    *out = (struct perf_figures){ .timer = "" };
    out->op = choice(place, run, "op", perf_op_names);
    out->test = choice(place, run, "test", perf_test_names);
    out->memory = choice(place, run, "memory", perf_memory_names);
    out->wait = choice(place, run, "wait", perf_wait_names);
    if (json_object_object_get_ex(run, "direction", NULL)) {
        out->direction = choice(place, run, "direction", perf_direction_names);
    }
    out->size = whole(place, run, "size");
    out->depth = whole(place, run, "depth");
    out->batch = whole(place, run, "batch");
    out->endpoints = whole_or(place, run, "endpoints", 1);
    out->threads = whole_or(place, run, "threads", 1);
    struct json_object *verified = member(place, run, "verified", json_type_boolean);
    out->verified = verified != NULL && json_object_get_boolean(verified);
    struct json_object *interrupted = NULL;
    out->interrupted = json_object_object_get_ex(run, "interrupted", &interrupted) &&
                       json_object_get_boolean(interrupted);
    struct json_object *path = member(place, run, "path", json_type_object);
    if (path != NULL) {
        text(place, path, "provider", out->provider, sizeof(out->provider));
        text(place, path, "device", out->device, sizeof(out->device));
    }
    out->spread = spread(place, run);
    /* One flow with the sum of both directions. */
    out->flows[PERF_TO_SERVER].operations = whole(place, run, "iterations");
    double rate = real(place, run, "messages_per_second");
    out->flows[PERF_TO_SERVER].seconds = rate > 0
                                             ? (double)out->flows[PERF_TO_SERVER].operations / rate
                                             : 0;
    if (place->good && out->test == PERF_LATENCY) {
        read_latencies(place, run, out);
    }
    if (place->good && perf_main_figure(out) <= 0) {
        complain(place, "messages_per_second", "is 0");
    }
}

/* Returns the whole file, NULL after an error was printed. */
static char *read_file(const char *file, size_t *length)
{
    FILE *in = fopen(file, "re");
    char *bytes = in != NULL ? malloc(FILE_MAX) : NULL;
    if (bytes == NULL) {
        tool_error("perf",
                   "--compare: cannot read %s: %s; give files that rdmux perf --json has "
                   "written",
                   file, strerror(errno));
        if (in != NULL) {
            fclose(in);
        }
        return NULL;
    }
    *length = fread(bytes, 1, FILE_MAX, in);
    bool good = ferror(in) == 0 && *length < FILE_MAX;
    int error = ferror(in) != 0 ? errno : EFBIG;
    fclose(in);
    if (!good) {
        tool_error("perf",
                   "--compare: cannot read %s: %s; give files that rdmux perf --json has "
                   "written",
                   file, strerror(error));
        free(bytes);
        return NULL;
    }
    return bytes;
}

/* Returns the one JSON value in the file, NULL after an error was printed. */
static struct json_object *parse(const char *file)
{
    size_t length = 0;
    char *bytes = read_file(file, &length);
    if (bytes == NULL) {
        return NULL;
    }
    struct json_tokener *tokener = json_tokener_new();
    struct json_object *root = NULL;
    enum json_tokener_error error = json_tokener_error_size;
    if (tokener != NULL) {
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        while (length > 0 && strchr(" \t\r\n", bytes[length - 1]) != NULL) {
            length--;
        }
        root = json_tokener_parse_ex(tokener, bytes, (int)length);
        error = json_tokener_get_error(tokener);
        if (error == json_tokener_success && json_tokener_get_parse_end(tokener) != length) {
            error = json_tokener_error_parse_unexpected;
        }
        json_tokener_free(tokener);
    }
    free(bytes);
    if (error != json_tokener_success || !json_object_is_type(root, json_type_object)) {
        tool_error("perf",
                   "--compare: %s is not the JSON of one run: %s; give files that rdmux perf "
                   "--json has written",
                   file,
                   error == json_tokener_continue  ? "it is empty or cut off"
                   : error == json_tokener_success ? "it is no object"
                                                   : json_tokener_error_desc(error));
        json_object_put(root);
        return NULL;
    }
    return root;
}

int perf_load(const char *file, struct perf_loaded *out)
{
    struct json_object *root = parse(file);
    if (root == NULL) {
        return TOOL_FAILED;
    }
    struct place place = { .file = file, .good = true };
    struct json_object *runs = NULL;
    bool several = json_object_object_get_ex(root, "runs", &runs);
    if (several && !json_object_is_type(runs, json_type_array)) {
        complain(&place, "runs", "is of another type");
    }
    size_t count = !place.good ? 0 : several ? json_object_array_length(runs) : 1;
    *out = (struct perf_loaded){ .figures = calloc(count + 1, sizeof(*out->figures)) };
    if (out->figures == NULL) {
        tool_error("perf", "--compare: out of memory for %s", file);
        place.good = false;
    }
    for (size_t i = 0; place.good && i < count; i++) {
        struct json_object *run = several ? json_object_array_get_idx(runs, i) : root;
        if (several) {
            snprintf(place.where, sizeof(place.where), "runs[%zu]: ", i);
        }
        if (!json_object_is_type(run, json_type_object)) {
            complain(&place, "runs", "has a member that is no object");
        } else {
            read_run(&place, run, &out->figures[out->count++]);
        }
    }
    json_object_put(root);
    if (!place.good) {
        free(out->figures);
        *out = (struct perf_loaded){ 0 };
    }
    return place.good ? TOOL_OK : TOOL_FAILED;
}

#endif
