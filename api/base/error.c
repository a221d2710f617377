/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The last error of a thread, and the names of statuses and completion opcodes. */
#include "api/base/error.h"

#include "api/base/compiler.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------------------- names */

static const char *const status_names[] = {
    [RDMUX_OK] = "RDMUX_OK",
    [RDMUX_AGAIN] = "RDMUX_AGAIN",
    [RDMUX_IN_PROGRESS] = "RDMUX_IN_PROGRESS",
    [RDMUX_INVALID] = "RDMUX_INVALID",
    [RDMUX_UNSUPPORTED] = "RDMUX_UNSUPPORTED",
    [RDMUX_NO_MEMORY] = "RDMUX_NO_MEMORY",
    [RDMUX_NO_PATH] = "RDMUX_NO_PATH",
    [RDMUX_REFUSED] = "RDMUX_REFUSED",
    [RDMUX_TIMED_OUT] = "RDMUX_TIMED_OUT",
    [RDMUX_DENIED] = "RDMUX_DENIED",
    [RDMUX_OUT_OF_RANGE] = "RDMUX_OUT_OF_RANGE",
    [RDMUX_LENGTH] = "RDMUX_LENGTH",
    [RDMUX_FLUSHED] = "RDMUX_FLUSHED",
    [RDMUX_PEER_GONE] = "RDMUX_PEER_GONE",
    [RDMUX_OUTCOME_UNKNOWN] = "RDMUX_OUTCOME_UNKNOWN",
    [RDMUX_PROTOCOL] = "RDMUX_PROTOCOL",
    [RDMUX_VERSION] = "RDMUX_VERSION",
    [RDMUX_AUTH] = "RDMUX_AUTH",
    [RDMUX_IO] = "RDMUX_IO",
};

const char *rdmux_status_name(enum rdmux_status status)
{
    size_t number = (size_t)status;
    return number < RDMUX_COUNT_OF(status_names) ? status_names[number] : "RDMUX_?";
}

const char *rdmux_wc_opcode_name(uint32_t opcode)
{
    switch (opcode) {
    case RDMUX_WC_SEND:
        return "SEND";
    case RDMUX_WC_RECV:
        return "RECV";
    case RDMUX_WC_WRITE:
        return "WRITE";
    case RDMUX_WC_READ:
        return "READ";
    case RDMUX_WC_FETCH_ADD:
        return "FETCH_ADD";
    case RDMUX_WC_COMPARE_SWAP:
        return "COMPARE_SWAP";
    case RDMUX_WC_RECV_WRITE_IMM:
        return "RECV_WRITE_IMM";
    case RDMUX_WC_CONNECTED:
        return "CONNECTED";
    case RDMUX_WC_DISCONNECTED:
        return "DISCONNECTED";
    case RDMUX_WC_PATH_CHANGED:
        return "PATH_CHANGED";
    case RDMUX_WC_WRITABLE:
        return "WRITABLE";
    case RDMUX_WC_WOKEN:
        return "WOKEN";
    case RDMUX_WC_MOVED:
        return "MOVED";
    case RDMUX_WC_SRQ_LIMIT:
        return "SRQ_LIMIT";
    case RDMUX_WC_STREAM_READABLE:
        return "STREAM_READABLE";
    case RDMUX_WC_STREAM_WRITABLE:
        return "STREAM_WRITABLE";
    case RDMUX_WC_REMOTE_READY:
        return "REMOTE_READY";
    default:
        return "?";
    }
}

#define TEXT_OF(number) #number
#define VERSION_TEXT(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *rdmux_version(void)
{
    return VERSION_TEXT(RDMUX_VERSION_MAJOR, RDMUX_VERSION_MINOR, RDMUX_VERSION_PATCH);
}

#ifdef __GLIBC__
/* strerror() of glibc speaks the program's language. */
const char *rdmux_errno_words(int error)
{
    const char *words = strerrordesc_np(error);
    return words != NULL ? words : "unknown error";
}
#else
const char *rdmux_errno_words(int error)
{
    return strerror(error);
}
#endif

/* --------------------------------------------------------------------------------------- errors */

static _Thread_local char error_text[RDMUX_ERROR_MAX];
static _Thread_local const char *standing_text; /* if not NULL, replaces error_text */

/* The arguments may point into the current text, as in "%s, while …" with rdmux_last_error(). */
static void set_error(const char *format, va_list arguments) RDMUX_PRINTF(1, 0);
static void set_error(const char *format, va_list arguments)
{
    char text[RDMUX_ERROR_MAX];
    int before = errno;
    int length = vsnprintf(text, sizeof(text), format, arguments);
    errno = before;
    if (length < 0) {
        text[0] = '\0';
    }
    memcpy(error_text, text, strlen(text) + 1);
    standing_text = NULL;
}

enum rdmux_status rdmux_again(const char *text)
{
    standing_text = text;
    return RDMUX_AGAIN;
}

const char *rdmux_last_error(void)
{
    return standing_text != NULL ? standing_text : error_text;
}

enum rdmux_status rdmux_fail(enum rdmux_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
    return status;
}

void rdmux_error_clear(void)
{
    error_text[0] = '\0';
    standing_text = NULL;
}

void rdmux_provider_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_error(format, arguments);
    va_end(arguments);
}
