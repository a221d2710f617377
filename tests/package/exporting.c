/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * exporting LIBRDMUX.so: a program that exports the names of its own copy of rdmux, as no program
 * should. Opens a fabric of the library, and prints what this says of its plug-in. The calls of the
 * plug-in would go to the copy in the program.
 */
#include <rdmux/rdmux.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { PATHS_MAX = 64 };

typedef enum rdmux_status (*open_fn)(const struct rdmux_fabric_attr *attr,
                                     struct rdmux_fabric **out);
typedef enum rdmux_status (*paths_fn)(struct rdmux_fabric *fabric, struct rdmux_path_info *out,
                                      size_t max, size_t *count);
typedef enum rdmux_status (*close_fn)(struct rdmux_fabric *fabric);

static int take(void *library, const char *name, void *function, size_t size)
{
    void *symbol = dlsym(library, name);
    if (symbol == NULL) {
        return 0;
    }
    memcpy(function, &symbol, size); /* allowed by POSIX; ISO C has no cast for it */
    return 1;
}

int main(int argc, char **argv)
{
    static struct rdmux_path_info paths[PATHS_MAX];
    open_fn open = NULL;
    paths_fn list = NULL;
    close_fn close = NULL;
    struct rdmux_fabric *own = NULL;
    struct rdmux_fabric *fabric = NULL;
    size_t count = 0;
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL || !take(library, "rdmux_fabric_open", &open, sizeof(open)) ||
        !take(library, "rdmux_fabric_paths", &list, sizeof(list)) ||
        !take(library, "rdmux_fabric_close", &close, sizeof(close))) {
        (void)fprintf(stderr, "usage: exporting LIBRDMUX.so\n");
        return 2;
    }
    for (size_t i = 0; i < PATHS_MAX; i++) {
        paths[i].size = (uint32_t)sizeof(paths[i]);
    }
    if (rdmux_fabric_open(NULL, &own) != RDMUX_OK || open(NULL, &fabric) != RDMUX_OK ||
        list(fabric, paths, PATHS_MAX, &count) != RDMUX_OK) {
        return 1;
    }
    for (size_t i = 0; i < count && i < PATHS_MAX; i++) {
        printf("%s: %s: %s\n", paths[i].provider,
               rdmux_reason_name((enum rdmux_reason)paths[i].reason), paths[i].text);
    }
    return close(fabric) == RDMUX_OK && rdmux_fabric_close(own) == RDMUX_OK ? 0 : 1;
}
