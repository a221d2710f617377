/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "json.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

/* Length of the valid UTF-8 sequence at text, 0 if there is none (RFC 3629: no surrogates, no
 * overlong forms). */
static size_t utf8_length(const unsigned char *text)
{
    if (text[0] < 0x80) {
        return 1;
    }
    size_t length = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    if (text[0] < 0xc2 || text[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
        (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f)) {
        return 0;
    }
    return length;
}

static void write_string(FILE *out, const char *value)
{
    fputc('"', out);
    const unsigned char *at = (const unsigned char *)value;
    while (*at != '\0') {
        size_t length = utf8_length(at);
        if (length == 0) {
            fputs("\\ufffd", out);
            length = 1;
        } else if (*at == '"' || *at == '\\') {
            fprintf(out, "\\%c", *at);
        } else if (*at < 0x20 || *at == 0x7f) {
            fprintf(out, "\\u%04x", *at);
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
