/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Pre-shared keys: files of lines IDENTITY:KEY, the key in hexadecimal; the key of an identity. */
#include "negotiation/auth.h"

#include "api/base/error.h"

#include <string.h>

/* A line, without its end. */
struct line {
    const char *at;
    size_t length;
    size_t number;
};

/* Takes the next line from *at on; false: there is none. */
static bool next_line(const char **at, const char *end, struct line *line)
{
    if (*at == end) {
        return false;
    }
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    line->at = *at;
    line->length = (size_t)((stop == NULL ? end : stop) - *at);
    line->number++;
    *at = stop == NULL ? end : stop + 1;
    while (line->length != 0 && strchr(" \t\r", line->at[line->length - 1]) != NULL &&
           line->at[line->length - 1] != '\0') {
        line->length--;
    }
    return true;
}

static bool line_has_key(const struct line *line)
{
    return line->length != 0 && line->at[0] != '#';
}

static int digit_of(char character)
{
    static const char digits[] = "0123456789abcdef";
    char lower = (char)(character >= 'A' && character <= 'F' ? character - 'A' + 'a' : character);
    const char *at = lower == '\0' ? NULL : strchr(digits, lower);
    return at == NULL ? -1 : (int)(at - digits);
}

static bool is_identity(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        unsigned char character = (unsigned char)text[i];
        if (character <= ' ' || character == 0x7f) {
            return false;
        }
    }
    return length != 0 && length < RDMUX_IDENTITY_MAX;
}

/* Parses a line. Returns NULL on success, else an error text. */
static const char *parse_line(const struct line *line, struct rdmux_auth_key *key)
{
    const char *colon = memchr(line->at, ':', line->length);
    if (colon == NULL || !is_identity(line->at, (size_t)(colon - line->at))) {
        return "is not IDENTITY:KEY, the identity of 1 to 127 characters without blanks";
    }
    const char *digits = colon + 1;
    size_t length = line->length - (size_t)(digits - line->at);
    if (length % 2 != 0 || length < (size_t)2 * RDMUX_AUTH_KEY_MIN ||
        length > (size_t)2 * RDMUX_AUTH_KEY_MAX) {
        return "has a key that is not of 32 to 128 hexadecimal digits; openssl rand -hex 32 makes "
               "one";
    }
    memcpy(key->identity, line->at, (size_t)(colon - line->at));
    key->size = (uint32_t)(length / 2);
    for (size_t i = 0; i < key->size; i++) {
        int high = digit_of(digits[2 * i]);
        int low = digit_of(digits[2 * i + 1]);
        if (high < 0 || low < 0) {
            return "has a key with something else than hexadecimal digits";
        }
        key->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return NULL;
}

static bool identity_is_known(const struct rdmux_auth_key *keys, size_t count, const char *identity)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(keys[i].identity, identity) == 0) {
            return true;
        }
    }
    return false;
}

enum rdmux_status rdmux_auth_keys_parse(struct rdmux_fabric *fabric, const char *source,
                                        const char *text, size_t size, struct rdmux_auth_key **out,
                                        size_t *count)
{
    struct line line = { .number = 0 };
    size_t lines = 0;
    (void)fabric; /* its allocator does not give pages that core dumps leave out */
    for (const char *at = text; next_line(&at, text + size, &line);) {
        lines += line_has_key(&line);
    }
    if (lines == 0) {
        return rdmux_fail(RDMUX_INVALID, "%s: no line IDENTITY:KEY is in it", source);
    }
    struct rdmux_auth_key *keys = rdmux_secret_map(lines * sizeof(*keys));
    if (keys == NULL) {
        return rdmux_fail(RDMUX_NO_MEMORY, "%s: out of memory", source);
    }
    size_t used = 0;
    line.number = 0;
    for (const char *at = text; next_line(&at, text + size, &line);) {
        if (!line_has_key(&line)) {
            continue;
        }
        const char *wrong = parse_line(&line, &keys[used]);
        if (wrong == NULL && identity_is_known(keys, used, keys[used].identity)) {
            wrong = "has an identity that is there already";
        }
        if (wrong != NULL) {
            rdmux_secret_unmap(keys, lines * sizeof(*keys));
            return rdmux_fail(RDMUX_INVALID, "%s: line %zu %s", source, line.number, wrong);
        }
        used++;
    }
    *out = keys;
    *count = used;
    return RDMUX_OK;
}

const struct rdmux_auth_key *rdmux_auth_find_key(const struct rdmux_auth_key *keys, size_t count,
                                                 const uint8_t *identity, size_t length)
{
    for (size_t i = 0; i < count; i++) {
        const struct rdmux_auth_key *key = &keys[i];
        if (strlen(key->identity) == length && memcmp(key->identity, identity, length) == 0) {
            return key;
        }
    }
    return NULL;
}
