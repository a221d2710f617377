/* SPDX-License-Identifier: BSD-2-Clause-Patent */
#include "text.h"

static const uint64_t period_ns = UINT64_C(10000000000);

size_t text_utf8_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    if (at[0] < 0x80) {
        return 1;
    }
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f)) {
        return 0;
    }
    return length;
}

/* U+2028 and U+2029 separate lines. U+200E, U+200F, U+202A to U+202E and U+2066 to U+2069 change
 * the direction in which the rest of a line is shown. */
static bool changes_what_follows(const unsigned char *at)
{
    if (at[0] != 0xe2) {
        return false;
    }
    return (at[1] == 0x80 && (at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae))) ||
           (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9);
}

size_t text_shown_length(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t length = text_utf8_length(text);
    bool control = at[0] < 0x20 || at[0] == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0);
    if (length == 0 || control || (length == 3 && changes_what_follows(at))) {
        return 0;
    }
    return length;
}

void text_clean(char *text)
{
    while (*text != '\0') {
        size_t length = text_shown_length(text);
        if (length == 0) {
            *text = '?';
            length = 1;
        }
        text += length;
    }
}

void text_print(FILE *out, const char *text)
{
    while (*text != '\0') {
        size_t length = text_shown_length(text);
        if (length == 0) {
            fprintf(out, "\\x%02x", (unsigned)(unsigned char)*text);
            length = 1;
        } else {
            fwrite(text, 1, length, out);
        }
        text += length;
    }
}

bool log_limit_take(struct log_limit *limit, uint64_t now_ns)
{
    if (limit->untold == 0 && now_ns - limit->since_ns >= period_ns) {
        limit->since_ns = now_ns;
        limit->told = 0;
    }
    bool may = limit->told < LOG_LIMIT_LINES;
    limit->told += may ? 1 : 0;
    limit->untold += may ? 0 : 1;
    return may;
}

uint64_t log_limit_left_out(struct log_limit *limit, uint64_t now_ns)
{
    if (limit->untold == 0 || now_ns - limit->since_ns < period_ns) {
        return 0;
    }
    uint64_t untold = limit->untold;
    *limit = (struct log_limit){ .since_ns = now_ns, .told = 1 };
    return untold;
}
