/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Writes JSON to a stream. Every call inside an object passes a key; inside an array the key is
 * NULL. */
#ifndef RDMUX_TOOL_JSON_H
#define RDMUX_TOOL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Stores only whether a comma is due, so nesting is not limited. */
struct json {
    FILE *out;
    bool comma;
};

void json_begin(struct json *json, FILE *out);
void json_object_begin(struct json *json, const char *key);
void json_object_end(struct json *json);
void json_array_begin(struct json *json, const char *key);
void json_array_end(struct json *json);
void json_string(struct json *json, const char *key,
                 const char *value); /* bytes that are not UTF-8 become U+FFFD */
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_real(struct json *json, const char *key,
               double value); /* null if it is not a finite number */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_end(struct json *json); /* writes a newline */

#endif
