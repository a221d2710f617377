/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * The dynamic linker binds a plug-in's calls to the first definition that it finds: in the program
 * and the libraries that it was started with, then in the plug-in and the libraries that the
 * plug-in needs, among them librdmux.so. rdmux_binding_check() looks at the first part,
 * rdmux_binding_check_opened() at the second.
 */
#include "providers/binding.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* Its address is in this copy of rdmux, and in no other. */
static const char LIBRARY_NAME[] = "librdmux.so";

/* ----------------------------------------------------------------------------------------- file */

struct search {
    uintptr_t address; /* of an object in this library */
    char *out;
    size_t size;
};

static bool object_contains(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        uintptr_t first = (uintptr_t)object->dlpi_addr + (uintptr_t)part->p_vaddr;
        if (part->p_type == PT_LOAD && address - first < part->p_memsz) {
            return true;
        }
    }
    return false;
}

/* Takes the path of the object that contains the address, unless it is the program. dladdr() names
 * a program by argv[0], which the user who starts it chooses. */
static int take_own_file(struct dl_phdr_info *object, size_t size, void *user)
{
    struct search *search = user;
    (void)size;
    if (!object_contains(object, search->address)) {
        return 0;
    }
    const char *path = object->dlpi_name;
    const char *slash = strrchr(path, '/');
    bool is_program = path[0] == '\0' || (uintptr_t)object->dlpi_phdr == getauxval(AT_PHDR);
    if (!is_program && slash != NULL &&
        strncmp(slash + 1, LIBRARY_NAME, sizeof(LIBRARY_NAME) - 1) == 0 &&
        strlen(path) < search->size) {
        memcpy(search->out, path, strlen(path) + 1);
    }
    return 1;
}

void rdmux_library_file(char *out, size_t size)
{
    struct search search = { .address = (uintptr_t)LIBRARY_NAME, .out = out, .size = size };
    out[0] = '\0';
    (void)dl_iterate_phdr(take_own_file, &search);
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
    Dl_info ours = { 0 };
    Dl_info theirs = { 0 };
    return symbol == NULL || dladdr(LIBRARY_NAME, &ours) == 0 || dladdr(symbol, &theirs) == 0 ||
           ours.dli_fbase == theirs.dli_fbase;
}

bool rdmux_binding_is_shared(void)
{
    char library[PATH_MAX];
    rdmux_library_file(library, sizeof(library));
    return library[0] != '\0';
}

enum rdmux_status rdmux_binding_check(struct rdmux_refusal *refusal)
{
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
