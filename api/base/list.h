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
/* Moves all nodes of `from` to the empty list `to`. */
static inline void rdmux_list_move(struct rdmux_list *to, struct rdmux_list *from)
{
    if (!rdmux_list_empty(from)) {
        to->next = from->next;
        to->prev = from->prev;
        to->next->prev = to;
        to->prev->next = to;
        rdmux_list_init(from);
    }
}

/* Nodes that are zeroed, not initialised, while they are on no list: */
static inline bool rdmux_node_is_listed(const struct rdmux_list *node)
{
    return node->next != NULL;
}
static inline void rdmux_node_remove(struct rdmux_list *node)
{
    if (node->next != NULL) {
        node->next->prev = node->prev;
        node->prev->next = node->next;
        node->next = NULL;
        node->prev = NULL;
    }
}

#define RDMUX_CONTAINER(pointer, type, member) \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

#endif
