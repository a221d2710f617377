/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "json.h"

#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

static void write_string(FILE *out, const char *value)
{
    fputc('"', out);
    const unsigned char *at = (const unsigned char *)value;
    while (*at != '\0') {
        size_t length = text_utf8_length((const char *)at);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", *at);
        } else if (*at == 0xc2 && at[1] < 0xa0) {
            fprintf(out, "\\u%04x", at[1]); /* U+0080 to U+009F are control characters, too */
        } else {
            fwrite(at, 1, length, out);
        }
        at += length;
    }
    fputc('"', out);
}

static void start_value(struct json *json, const char *key)
{
    if (json->comma) {
        fputc(',', json->out);
    }
    json->comma = true;
    if (key != NULL) {
        write_string(json->out, key);
        fputc(':', json->out);
    }
}

void json_begin(struct json *json, FILE *out)
{
    json->out = out;
    json->comma = false;
}

void json_object_begin(struct json *json, const char *key)
{
    start_value(json, key);
    fputc('{', json->out);
    json->comma = false;
}

void json_object_end(struct json *json)
{
    fputc('}', json->out);
    json->comma = true;
}

void json_array_begin(struct json *json, const char *key)
{
    start_value(json, key);
    fputc('[', json->out);
    json->comma = false;
}

void json_array_end(struct json *json)
{
    fputc(']', json->out);
    json->comma = true;
}

void json_string(struct json *json, const char *key, const char *value)
{
    start_value(json, key);
    write_string(json->out, value);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
    start_value(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void json_real(struct json *json, const char *key, double value)
{
    start_value(json, key);
    if (isfinite(value)) {
        fprintf(json->out, "%.10g", value);
    } else {
        fputs("null", json->out);
    }
}

void json_bool(struct json *json, const char *key, bool value)
{
    start_value(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key)
{
    start_value(json, key);
    fputs("null", json->out);
}

void json_end(struct json *json)
{
    fputc('\n', json->out);
}
