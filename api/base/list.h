/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* The list type of the library: doubly linked, intrusive. */
#ifndef RDMUX_API_BASE_LIST_H
#define RDMUX_API_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* A doubly linked list with a head node. */
struct rdmux_list {
    struct rdmux_list *next;
    struct rdmux_list *prev;
};

static inline void rdmux_list_init(struct rdmux_list *list)
{
    list->next = list;
    list->prev = list;
}
static inline bool rdmux_list_empty(const struct rdmux_list *list)
{
    return list->next == list;
}
static inline void rdmux_list_append(struct rdmux_list *list, struct rdmux_list *node)
{
    node->prev = list->prev;
    node->next = list;
    list->prev->next = node;
    list->prev = node;
}
/* Also allowed for an initialised node that is on no list. */
static inline void rdmux_list_remove(struct rdmux_list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    rdmux_list_init(node);
}
#define RDMUX_CONTAINER(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
