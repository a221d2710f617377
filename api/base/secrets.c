/* SPDX-License-Identifier: BSD-2-Clause-Patent */
/*
 * Memory for secrets while they are needed. Secrets have pages of their own, which core dumps leave
 * out and a fork wipes. A piece is wiped when it is released. Pages with free pieces are on the
 * list of the fabric. A full page is found again by the address of a piece.
 */
#include "api/base/secrets.h"

#include "api/base/hooks.h"
#include "api/system/system.h"

#include <stdint.h>
#include <string.h>

enum {
    PAGE = 4096, /* pieces come from 4096 bytes, however large the system's pages are */
    PIECES = PAGE / RDMUX_SECRET_PIECE,
};
_Static_assert(PIECES <= 32, "one word says which are in use");

/* The page header, in the first piece of a page. No rdmux_list: a fork wipes the header, and a list
 * that ends with NULL stays one in the child. */
struct rdmux_secret_page {
    struct rdmux_secret_page *next; /* on the list of pages with free pieces */
    struct rdmux_secret_page *before;
    uint32_t used; /* one bit for each piece, including this one */
};
_Static_assert(sizeof(struct rdmux_secret_page) <= RDMUX_SECRET_PIECE, "it fits");

#define ALL_USED (UINT32_MAX >> (32 - PIECES))

void *rdmux_secret_map(size_t size)
{
    return rdmux_pages_map(size, RDMUX_PAGES_HIDDEN | RDMUX_PAGES_WIPED);
}

void rdmux_secret_unmap(void *memory, size_t size)
{
    if (memory != NULL) {
        rdmux_wipe(memory, size);
        rdmux_pages_unmap(memory, size);
    }
}

/* The caller of link_page() and unlink_page() holds secrets_lock. */
static void link_page(struct rdmux_hooks *hooks, struct rdmux_secret_page *page)
{
    page->before = NULL;
    page->next = hooks->secrets;
    if (page->next != NULL) {
        page->next->before = page;
    }
    hooks->secrets = page;
}

static void unlink_page(struct rdmux_hooks *hooks, struct rdmux_secret_page *page)
{
    if (page->before != NULL) {
        page->before->next = page->next;
    } else {
        hooks->secrets = page->next;
    }
    if (page->next != NULL) {
        page->next->before = page->before;
    }
}

void *rdmux_secret_allocate(struct rdmux_fabric *fabric)
{
    struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    uint8_t *piece = NULL;
    pthread_mutex_lock(&hooks->secrets_lock);
    struct rdmux_secret_page *page = hooks->secrets;
    if (page == NULL) {
        page = rdmux_secret_map(PAGE);
        if (page != NULL) {
            page->used = 1;
            link_page(hooks, page);
        }
    }
    if (page != NULL) {
        unsigned index = (unsigned)__builtin_ctz(~page->used);
        page->used |= UINT32_C(1) << index;
        piece = (uint8_t *)page + (size_t)index * RDMUX_SECRET_PIECE;
        if (page->used == ALL_USED) {
            unlink_page(hooks, page);
        }
    }
    pthread_mutex_unlock(&hooks->secrets_lock);
    return piece;
}

void rdmux_secret_release(struct rdmux_fabric *fabric, void *piece)
{
    if (piece == NULL) {
        return;
    }
    struct rdmux_hooks *hooks = rdmux_hooks_of(fabric);
    rdmux_wipe(piece, RDMUX_SECRET_PIECE);
    uintptr_t offset = (uintptr_t)piece % PAGE;
    struct rdmux_secret_page *page = (void *)((uint8_t *)piece - offset);
    pthread_mutex_lock(&hooks->secrets_lock);
    if (page->used == ALL_USED) {
        link_page(hooks, page);
    }
    page->used &= ~(UINT32_C(1) << (offset / RDMUX_SECRET_PIECE));
    if (page->used == 1) {
        unlink_page(hooks, page);
        rdmux_pages_unmap(page, PAGE);
    }
    pthread_mutex_unlock(&hooks->secrets_lock);
}

void rdmux_release_wiped(struct rdmux_fabric *fabric, void *memory, size_t size)
{
    if (memory != NULL) {
        rdmux_wipe(memory, size);
        rdmux_release(fabric, memory);
    }
}
