/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Path filters. A filter is a list of words between commas; a word is a name, a negated name or
 * "auto". */
#include "negotiation/filter.h"

#include <string.h>

struct word {
    const char *name;
    size_t length;
    bool is_negated;
};

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static bool word_is(const struct word *word, const char *name)
{
    return strlen(name) == word->length && memcmp(word->name, name, word->length) == 0;
}

/* Takes the word at *text and moves *text to the next word, or to NULL if it was the last. */
static struct word next_word(const char **text)
{
    const char *begin = *text;
    const char *end = begin + strcspn(begin, ",");
    *text = *end == ',' ? end + 1 : NULL;
    while (begin < end && is_blank(*begin)) {
        begin++;
    }
    while (end > begin && is_blank(end[-1])) {
        end--;
    }
    struct word word = { .is_negated = begin < end && *begin == '!' };
    word.name = begin + (word.is_negated ? 1 : 0);
    word.length = (size_t)(end - word.name);
    return word;
}

static bool word_is_good(const struct word *word)
{
    for (size_t i = 0; i < word->length; i++) {
        if (!is_name_character(word->name[i])) {
            return false;
        }
    }
    return word->length > 0 && word->length < RDMUX_NAME_MAX &&
           !(word->is_negated && word_is(word, "auto"));
}

/* NULL, "" and blanks have no words. */
static const char *first_word(const char *text)
{
    if (text == NULL || text[strspn(text, " \t")] == '\0') {
        return NULL;
    }
    return text;
}

enum rdmux_status rdmux_filter_check(const char *text, const char **word)
{
    const char *bad = NULL;
    const char *at = first_word(text);
    if (at != NULL && memchr(at, '\0', RDMUX_FILTER_MAX) == NULL) {
        bad = at;
        at = NULL;
    }
    while (at != NULL && bad == NULL) {
        struct word next = next_word(&at);
        if (!word_is_good(&next)) {
            bad = next.is_negated ? next.name - 1 : next.name;
        }
    }
    if (bad == NULL) {
        return RDMUX_OK;
    }
    if (word != NULL) {
        *word = bad;
    }
    return RDMUX_INVALID;
}

bool rdmux_filter_allows(const char *text, const char *provider)
{
    bool names_any = false;
    bool named = false;
    const char *at = first_word(text);
    while (at != NULL) {
        struct word word = next_word(&at);
        bool matches = word_is(&word, provider);
        if (word.is_negated && matches) {
            return false;
        }
        if (!word.is_negated) {
            names_any = true;
            named = named || matches || word_is(&word, "auto");
        }
    }
    return named || !names_any;
}

bool rdmux_filter_names(const char *text, const char *provider)
{
    const char *at = first_word(text);
    while (at != NULL) {
        struct word word = next_word(&at);
        if (!word.is_negated && word_is(&word, provider)) {
            return true;
        }
    }
    return false;
}
