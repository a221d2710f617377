/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/* Intrusive doubly linked lists. */
#ifndef RDMUX_TCP_LIST_H
#define RDMUX_TCP_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Intrusive doubly linked list. An object that is on no list has next NULL. */
struct tcp_link {
    struct tcp_link *next;
    struct tcp_link *previous;
};

static inline void tcp_list_init(struct tcp_link *head)
{
    head->next = head;
    head->previous = head;
}

static inline bool tcp_list_is_empty(const struct tcp_link *head)
{
    return head->next == head;
}

static inline bool tcp_link_is_on(const struct tcp_link *link)
{
    return link->next != NULL;
}

static inline void tcp_list_add(struct tcp_link *head, struct tcp_link *link)
{
    link->next = head;
    link->previous = head->previous;
    head->previous->next = link;
    head->previous = link;
}

static inline void tcp_link_remove(struct tcp_link *link)
{
    if (link->next != NULL) {
        link->next->previous = link->previous;
        link->previous->next = link->next;
        link->next = NULL;
        link->previous = NULL;
    }
}

/* Moves all objects of `from` to the empty list `to`. */
static inline void tcp_list_take(struct tcp_link *to, struct tcp_link *from)
{
    if (!tcp_list_is_empty(from)) {
        to->next = from->next;
        to->previous = from->previous;
        to->next->previous = to;
        to->previous->next = to;
        tcp_list_init(from);
    }
}

#define TCP_CONTAINER(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

#endif
