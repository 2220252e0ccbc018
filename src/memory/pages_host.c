/* Cached pages in the host's memory: what the pool has no place for goes there instead of being
 * forgotten, and comes back when a prompt begins with it. Numbers of these pages are behind the
 * pool's. A page is in one of the two at a time; its serial goes with it, so that pages which
 * continue it are found as before. Oldest first, they are forgotten for newer ones. */
#include "memory/pages_int.h"

#include <assert.h>
#include <string.h>

static uint32_t slot_of(const kv_pages *pages, uint32_t page) {
    return page - pages->pages;
}

void pages_host_init(kv_pages *pages, const pages_host *host) {
    if (host != NULL)
        pages->host = *host;
    pages->host_oldest = pages->host_newest = pages->host_free = PAGE_NONE;
    for (uint32_t i = pages->host.pages; i-- > 0;) {
        uint32_t page = pages->pages + i;
        pages->info[page].next = pages->host_free;
        pages->host_free = page;
    }
}

/* ---- Lists ---- */

static void give_place(kv_pages *pages, uint32_t page) {
    pages->info[page].next = pages->host_free;
    pages->host_free = page;
}

static void link_newest(kv_pages *pages, uint32_t page) {
    page_info *info = &pages->info[page];
    info->next = PAGE_NONE;
    info->previous = pages->host_newest;
    if (info->previous != PAGE_NONE)
        pages->info[info->previous].next = page;
    else
        pages->host_oldest = page;
    pages->host_newest = page;
    pages->host_cached++;
}

static void unlink_page(kv_pages *pages, uint32_t page) {
    const page_info *info = &pages->info[page];
    if (info->previous != PAGE_NONE)
        pages->info[info->previous].next = info->next;
    else
        pages->host_oldest = info->next;
    if (info->next != PAGE_NONE)
        pages->info[info->next].previous = info->previous;
    else
        pages->host_newest = info->previous;
    pages->host_cached--;
}

/* A free place, or that of the oldest page. */
static uint32_t take_place(kv_pages *pages) {
    uint32_t page = pages->host_free;
    if (page != PAGE_NONE) {
        pages->host_free = pages->info[page].next;
        return page;
    }
    page = pages->host_oldest;
    if (page == PAGE_NONE)
        return PAGE_NONE;
    unlink_page(pages, page);
    prefix_forget(pages, page);
    return page;
}

/* ---- Moving ---- */

bool pages_host_keep(kv_pages *pages, uint32_t page) {
    uint32_t place = pages->host.pages > 0 ? take_place(pages) : PAGE_NONE;
    if (place == PAGE_NONE)
        return false;
    if (!pages->host.out(pages->host.context, page, slot_of(pages, place))) {
        give_place(pages, place);
        return false;
    }
    prefix_rename(pages, page, place);
    link_newest(pages, place);
    pages->moved_out++;
    return true;
}

void pages_host_replace(kv_pages *pages, uint32_t place, uint32_t page) {
    unlink_page(pages, place);
    prefix_rename(pages, place, page);
    give_place(pages, place);
}

uint32_t pages_host_fetch(kv_pages *pages, uint32_t place) {
    if (pages_available(pages) == 0)
        return PAGE_NONE;
    unlink_page(pages, place); /* nothing that is moved out takes its place */
    uint32_t page = pages_take(pages);
    if (pages->host.in(pages->host.context, slot_of(pages, place), page)) {
        prefix_rename(pages, place, page);
        give_place(pages, place);
        pages->moved_in++;
        return page;
    }
    prefix_forget(pages, place);
    give_place(pages, place);
    pages_release(pages, page);
    return PAGE_NONE;
}

void pages_host_drop(kv_pages *pages) {
    while (pages->host_oldest != PAGE_NONE) {
        uint32_t page = pages->host_oldest;
        unlink_page(pages, page);
        prefix_forget(pages, page);
        give_place(pages, page);
    }
}

/* ---- Checking ---- */

const char *pages_host_check(const kv_pages *pages) {
    uint32_t end = pages->pages + pages->host.pages, free = 0, cached = 0, previous = PAGE_NONE;
    for (uint32_t page = pages->host_free; page != PAGE_NONE; page = pages->info[page].next) {
        if (page < pages->pages || page >= end || free++ > pages->host.pages)
            return "the stack of free places in the host's memory is broken";
        if (pages->info[page].serial != 0)
            return "a free place in the host's memory is known";
    }
    for (uint32_t page = pages->host_oldest; page != PAGE_NONE; page = pages->info[page].next) {
        if (page < pages->pages || page >= end || cached++ > pages->host.pages)
            return "the list of pages in the host's memory is broken";
        if (pages->info[page].serial == 0 || pages->info[page].references != 0 ||
            pages->info[page].previous != previous)
            return "a page in the host's memory is unknown, held or out of order";
        previous = page;
    }
    if (cached != pages->host_cached || free + cached != pages->host.pages)
        return "pages in the host's memory are lost";
    return NULL;
}
