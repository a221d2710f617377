/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The dynamic linker binds a plug-in's calls to the first definition that it finds: in the program
 * and the libraries that it was started with, then in the plug-in and the libraries that the
 * plug-in needs, among them librdmux.so. rdmux_binding_check() looks at the first part,
 * rdmux_binding_check_opened() at the second.
 */
#include "providers/binding.h"

#include "api/system/system.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Its address is in this copy of rdmux, and in no other. */
static const char LIBRARY_NAME[] = "librdmux.so";

/* ----------------------------------------------------------------------------------------- file */

void rdmux_library_file(char *out, size_t size)
{
    rdmux_object_path(LIBRARY_NAME, out, size);
    const char *slash = strrchr(out, '/');
    if (slash == NULL || strncmp(slash + 1, LIBRARY_NAME, sizeof(LIBRARY_NAME) - 1) != 0) {
        out[0] = '\0';
    }
}

/* -------------------------------------------------------------------------------------- binding */

static enum rdmux_status refuse_binding(struct rdmux_refusal *refusal, const char *text,
                                        const char *hint)
{
    refusal->reason = RDMUX_REASON_BAD_PLUGIN;
    refusal->place[0] = '\0';
    (void)snprintf(refusal->text, sizeof(refusal->text), "%s", text);
    (void)snprintf(refusal->hint, sizeof(refusal->hint), "%s", hint);
    return RDMUX_NO_PATH;
}

/* Returns whether the symbol is of this copy. NULL: nothing has it, which binds nothing. */
static bool is_own(void *symbol)
{
    return symbol == NULL || rdmux_is_same_object(LIBRARY_NAME, symbol);
}

bool rdmux_binding_is_shared(void)
{
    char library[PATH_MAX];
    rdmux_library_file(library, sizeof(library));
    return library[0] != '\0';
}

enum rdmux_status rdmux_binding_check(struct rdmux_refusal *refusal)
{
    if (!RDMUX_LOADS_PLUGINS) {
        return refuse_binding(
            refusal,
            "this build of rdmux (RDMUX_POSIX_ONLY) loads no plug-ins from files: POSIX "
            "does not tell to which copy of rdmux a plug-in would be bound",
            "link the plug-in into the program, and name it in rdmux_fabric_attr.builtin");
    }
    if (!rdmux_binding_is_shared()) {
        return refuse_binding(
            refusal,
            "this copy of rdmux is linked into the program or one of its libraries, and a "
            "plug-in is bound to another copy, librdmux.so",
            "name the plug-in in rdmux_fabric_attr.builtin and link it, too "
            "(rdmux/verbs_plugin.h), or link with librdmux.so");
    }
    /* No program takes the address of this function, so its own table of calls does not have it. */
    if (!is_own(dlsym(RTLD_DEFAULT, "rdmux_provider_log"))) {
        return refuse_binding(
            refusal,
            "it would be bound to another copy of rdmux, whose names the program or one of "
            "its libraries exports",
            "hide the names of that copy: link it with -Wl,--exclude-libs,librdmux.a");
    }
    return RDMUX_OK;
}

enum rdmux_status rdmux_binding_check_opened(void *handle, struct rdmux_refusal *refusal)
{
    if (!is_own(dlsym(handle, "rdmux_version"))) {
        return refuse_binding(refusal, "it brought a second copy of rdmux into the process",
                              "link program and plug-in with the same librdmux.so");
    }
    return RDMUX_OK;
}
