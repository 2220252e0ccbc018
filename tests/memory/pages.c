/* memory/pages: random work against a naive model that counts instead of keeping counts, searches
 * instead of hashing and remembers times instead of lists. Contents are modelled too: a slot holds
 * a number made of everything before it, so a page shared wrongly is seen at once. */
#include "support/support.h"

#include "base/random.h"
#include "memory/pages_int.h"

#include <stdlib.h>
#include <string.h>

enum { TABLES = 6, PAGES = 26, LENGTH = 8 * KV_PAGE_TOKENS, LENGTH_PAGES = 8 };

typedef struct line {
    kv_table table;
    uint32_t pages[LENGTH_PAGES];
    int32_t tokens[LENGTH];
    uint32_t computed;
    uint32_t root; /* 0 or 1 */
} line;

typedef struct naive_page {
    uint64_t content[KV_PAGE_TOKENS];
    uint64_t id, parent; /* 0: unknown; parent of a first page: root + 1, and first */
    bool first;
    int32_t tokens[KV_PAGE_TOKENS];
    uint64_t released;
} naive_page;

typedef struct world {
    kv_pages *pages;
    line lines[TABLES];
    naive_page page[PAGES];
    uint64_t ids, clock, random;
    uint32_t hits, copies, evictions, merged;
} world;

static uint32_t draw(world *w, uint32_t below) {
    return random_at(7, 1, w->random++).words[0] % below;
}

static prefix_root root_of(const line *l) {
    return prefix_root_of(&l->root, sizeof(l->root));
}

static uint32_t held(const world *w, uint32_t page) {
    uint32_t count = 0;
    for (int t = 0; t < TABLES; t++)
        for (uint32_t i = 0; i < w->lines[t].table.count; i++)
            count += w->lines[t].table.pages[i] == page;
    return count;
}

static uint64_t number_at(const line *l, uint32_t position) {
    uint64_t number = l->root + 1;
    for (uint32_t i = 0; i <= position; i++)
        number = (number ^ (uint32_t)l->tokens[i]) * 0x9e3779b97f4a7c15u + 1;
    return number;
}

/* The page that a table let go of just now. */
static void note_release(world *w, uint32_t page) {
    if (held(w, page) == 0)
        w->page[page].released = ++w->clock;
}

/* What the pool may give away: any free page; else the cached one released longest ago. */
static void expect_given(world *w, uint32_t page, const bool *was_held) {
    bool any_free = false;
    for (uint32_t i = 0; i < PAGES; i++)
        any_free |= !was_held[i] && w->page[i].id == 0;
    assert_false(was_held[page]);
    if (any_free) {
        assert_int_equal(w->page[page].id, 0);
        return;
    }
    for (uint32_t i = 0; i < PAGES; i++)
        if (!was_held[i] && i != page)
            assert_true(w->page[i].released > w->page[page].released);
    w->page[page].id = 0;
    w->evictions++;
}

static void see_held(const world *w, bool *was_held) {
    for (uint32_t i = 0; i < PAGES; i++)
        was_held[i] = held(w, i) > 0;
}

static uint32_t naive_available(const world *w) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < PAGES; i++)
        count += held(w, i) == 0;
    return count;
}

static uint32_t naive_find(const world *w, bool first, uint64_t parent, const int32_t *tokens) {
    for (uint32_t i = 0; i < PAGES; i++)
        if (w->page[i].id != 0 && w->page[i].first == first && w->page[i].parent == parent &&
            memcmp(w->page[i].tokens, tokens, sizeof(w->page[i].tokens)) == 0)
            return i;
    return PAGE_NONE;
}

/* Tokens come in few kinds, so that timelines meet again and again. */
static void draw_tokens(world *w, line *l, uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++)
        if (i % KV_PAGE_TOKENS == 0 || (i == from && draw(w, 4) == 0))
            l->tokens[i] = draw(w, 4) == 0;
        else
            l->tokens[i] = l->tokens[i - 1];
}

/* Writes positions from … length − 1, as a step would. */
static void do_write(world *w, line *l) {
    uint32_t from = l->computed;
    uint32_t length = from + draw(w, 3 * KV_PAGE_TOKENS);
    if (length > LENGTH + 3)
        length = LENGTH + 3; /* sometimes too long for its table */
    bool was_held[PAGES];
    see_held(w, was_held);
    uint32_t available = naive_available(w);
    uint32_t before = l->table.count;
    uint32_t old[LENGTH_PAGES];
    memcpy(old, l->pages, sizeof(old));
    uint32_t more = kv_pages_for(length) > before ? kv_pages_for(length) - before : 0;
    bool partial = from / KV_PAGE_TOKENS < before;
    uint32_t shared = partial ? old[from / KV_PAGE_TOKENS] : 0;
    bool others = partial && held(w, shared) > 1;
    bool copies = partial && (others || w->page[shared].id != 0);
    uint32_t copy_from;
    avo_status status = pages_write(w->pages, &l->table, from, length, &copy_from);
    if (length > LENGTH || more > available || (others && more + 1 > available)) {
        assert_int_equal(status, AVO_ERROR_FULL);
        assert_int_equal(l->table.count, before);
        assert_memory_equal(old, l->pages, before * sizeof(uint32_t));
        return;
    }
    assert_int_equal(status, AVO_OK);
    assert_true((copy_from != PAGE_NONE) == (copies && more + 1 <= available));
    if (copy_from != PAGE_NONE) {
        uint32_t own = l->pages[from / KV_PAGE_TOKENS];
        assert_int_equal(copy_from, shared);
        expect_given(w, own, was_held);
        was_held[own] = true;
        memcpy(w->page[own].content, w->page[shared].content, sizeof(w->page[own].content));
        note_release(w, shared);
        was_held[shared] = held(w, shared) > 0;
        w->copies++;
    } else if (copies) {
        w->page[shared].id = 0; /* taken from the index */
    }
    for (uint32_t i = before; i < l->table.count; i++) {
        expect_given(w, l->pages[i], was_held);
        was_held[l->pages[i]] = true;
    }
    draw_tokens(w, l, from, length);
    for (uint32_t i = from; i < length; i++)
        w->page[l->pages[i / KV_PAGE_TOKENS]].content[i % KV_PAGE_TOKENS] = number_at(l, i);
    l->computed = length;
}

static void do_index(world *w, line *l) {
    uint32_t from = l->table.indexed;
    uint32_t old[LENGTH_PAGES];
    memcpy(old, l->pages, sizeof(old));
    pages_index(w->pages, root_of(l), l->tokens, l->computed, &l->table);
    assert_int_equal(l->table.indexed, l->computed / KV_PAGE_TOKENS);
    for (uint32_t i = from; i < l->table.indexed; i++) {
        const int32_t *tokens = l->tokens + i * KV_PAGE_TOKENS;
        uint64_t parent = i == 0 ? l->root + 1 : w->page[l->pages[i - 1]].id;
        uint32_t known = naive_find(w, i == 0, parent, tokens);
        naive_page *own = &w->page[old[i]];
        if (known == PAGE_NONE) {
            own->id = ++w->ids;
            own->parent = parent;
            own->first = i == 0;
            memcpy(own->tokens, tokens, sizeof(own->tokens));
            known = old[i];
        }
        assert_int_equal(l->pages[i], known);
        if (known != old[i]) {
            note_release(w, old[i]);
            w->merged++;
        }
    }
}

static void do_shrink(world *w, line *l) {
    uint32_t length = draw(w, 3) == 0 ? 0 : draw(w, l->computed + 1);
    uint32_t count = l->table.count;
    uint32_t old[LENGTH_PAGES];
    memcpy(old, l->pages, sizeof(old));
    pages_shrink(w->pages, &l->table, length);
    assert_int_equal(l->table.count, kv_pages_for(length));
    for (uint32_t i = count; i-- > l->table.count;)
        note_release(w, old[i]);
    l->computed = length;
    if (length == 0)
        l->root = draw(w, 2);
}

static void do_fork(world *w, const line *l, line *to) {
    if (to->table.count != 0 || to == l)
        return;
    uint32_t length = draw(w, l->computed + 1);
    pages_fork(w->pages, &l->table, length, &to->table);
    memcpy(to->tokens, l->tokens, sizeof(to->tokens));
    to->computed = length;
    to->root = l->root;
}

static void do_find(world *w, line *l) {
    if (l->table.count != 0)
        return;
    uint32_t count = draw(w, LENGTH + 1);
    draw_tokens(w, l, 0, count);
    pages_counts before = pages_count(w->pages);
    uint32_t peeked = pages_peek(w->pages, root_of(l), l->tokens, count);
    pages_counts after = pages_count(w->pages);
    assert_memory_equal(&before, &after, sizeof(before));
    uint32_t found = pages_find(w->pages, root_of(l), l->tokens, count, &l->table);
    assert_int_equal(peeked, found);
    uint32_t wanted = 0;
    bool first = true;
    uint64_t parent = l->root + 1;
    while (wanted + KV_PAGE_TOKENS < count) {
        uint32_t page = naive_find(w, first, parent, l->tokens + wanted);
        if (page == PAGE_NONE)
            break;
        assert_int_equal(l->pages[wanted / KV_PAGE_TOKENS], page);
        first = false;
        parent = w->page[page].id;
        wanted += KV_PAGE_TOKENS;
    }
    assert_int_equal(found, wanted);
    assert_true(found == 0 || found < count);
    l->computed = found;
    w->hits += found / KV_PAGE_TOKENS;
}

static void check_world(const world *w) {
    const char *wrong = pages_check(w->pages);
    if (wrong != NULL)
        fail_msg("%s", wrong);
    pages_counts counts = pages_count(w->pages);
    pages_counts naive = {.pages = PAGES};
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t references = held(w, i);
        naive.references += references;
        if (references > 0)
            naive.used++;
        else if (w->page[i].id != 0)
            naive.cached++;
        else
            naive.free++;
    }
    assert_int_equal(counts.references, naive.references);
    assert_int_equal(counts.used, naive.used);
    assert_int_equal(counts.cached, naive.cached);
    assert_int_equal(counts.free, naive.free);
    assert_int_equal(pages_available(w->pages), naive.free + naive.cached);
    for (int t = 0; t < TABLES; t++) {
        const line *l = &w->lines[t];
        uint64_t number = l->root + 1;
        for (uint32_t i = 0; i < l->computed; i++) {
            number = (number ^ (uint32_t)l->tokens[i]) * 0x9e3779b97f4a7c15u + 1;
            if (w->page[l->pages[i / KV_PAGE_TOKENS]].content[i % KV_PAGE_TOKENS] != number)
                fail_msg("timeline %d has another's token at %u", t, i);
        }
    }
}

static void world_open(world *w, uint64_t key_mask) {
    memset(w, 0, sizeof(*w));
    assert_ok(pages_open(PAGES, NULL, &w->pages, NULL));
    pages_weaken_keys(w->pages, key_mask);
    for (int t = 0; t < TABLES; t++)
        w->lines[t].table = (kv_table){w->lines[t].pages, 0, LENGTH_PAGES, 0};
}

static void random_work(uint64_t key_mask, int turns) {
    world *w = malloc(sizeof(*w));
    world_open(w, key_mask);
    for (int turn = 0; turn < turns; turn++) {
        line *l = &w->lines[draw(w, TABLES)];
        uint32_t what = draw(w, 100);
        if (what < 40)
            do_write(w, l);
        else if (what < 65)
            do_index(w, l);
        else if (what < 80)
            do_shrink(w, l);
        else if (what < 88)
            do_fork(w, l, &w->lines[draw(w, TABLES)]);
        else if (what < 99)
            do_find(w, l);
        else if (draw(w, 8) == 0) {
            pages_drop_cache(w->pages);
            for (uint32_t i = 0; i < PAGES; i++)
                if (held(w, i) == 0)
                    w->page[i].id = 0;
        }
        check_world(w);
    }
    print_message("%d turns: %u pages found, %u copied, %u given away, %u merged\n", turns, w->hits,
                  w->copies, w->evictions, w->merged);
    assert_true(w->hits > 100 && w->copies > 100 && w->evictions > 100 && w->merged > 100);
    for (int t = 0; t < TABLES; t++)
        pages_shrink(w->pages, &w->lines[t].table, 0);
    assert_int_equal(pages_count(w->pages).used, 0);
    assert_int_equal(pages_available(w->pages), PAGES);
    pages_close(w->pages);
    free(w);
}

static void random_work_equals_the_model(void **state) {
    (void)state;
    random_work(UINT64_MAX, 40000);
}

/* All keys are equal, or one of four: comparing alone tells pages apart. */
static void colliding_keys_change_nothing(void **state) {
    (void)state;
    random_work(0, 20000);
    random_work((uint64_t)3 << 31, 20000);
}

/* Different roots never meet, whatever their tokens. */
static void roots_keep_apart(void **state) {
    (void)state;
    kv_pages *pages;
    assert_ok(pages_open(8, NULL, &pages, NULL));
    uint32_t numbers[2][4];
    kv_table a = {numbers[0], 0, 4, 0}, b = {numbers[1], 0, 4, 0};
    int32_t tokens[3 * KV_PAGE_TOKENS] = {0};
    prefix_root salted = prefix_root_of("salt", 4), plain = prefix_root_of("", 0);
    assert_ok(pages_grow(pages, &a, 2 * KV_PAGE_TOKENS));
    pages_index(pages, salted, tokens, 2 * KV_PAGE_TOKENS, &a);
    assert_int_equal(pages_find(pages, plain, tokens, 3 * KV_PAGE_TOKENS, &b), 0);
    assert_int_equal(pages_find(pages, salted, tokens, 3 * KV_PAGE_TOKENS, &b), 2 * KV_PAGE_TOKENS);
    pages_shrink(pages, &b, 0);
    /* Never so many that no token is left. */
    assert_int_equal(pages_find(pages, salted, tokens, 2 * KV_PAGE_TOKENS, &b), KV_PAGE_TOKENS);
    pages_shrink(pages, &b, 0);
    assert_int_equal(pages_find(pages, salted, tokens, 0, &b), 0);
    pages_counts counts = pages_count(pages);
    assert_int_equal(counts.queried_tokens, 8 * KV_PAGE_TOKENS);
    assert_int_equal(counts.hit_tokens, 3 * KV_PAGE_TOKENS);
    pages_close(pages);
}

/* A damaged book is noticed: the check itself can fail. */
static void damage_is_noticed(void **state) {
    (void)state;
    kv_pages *pages;
    assert_ok(pages_open(8, NULL, &pages, NULL));
    uint32_t numbers[4];
    kv_table a = {numbers, 0, 4, 0};
    int32_t tokens[2 * KV_PAGE_TOKENS] = {0};
    assert_ok(pages_grow(pages, &a, 2 * KV_PAGE_TOKENS));
    pages_index(pages, prefix_root_of("", 0), tokens, 2 * KV_PAGE_TOKENS, &a);
    assert_null(pages_check(pages));
    pages->info[a.pages[0]].references++;
    assert_non_null(pages_check(pages));
    pages->info[a.pages[0]].references--;
    pages->info[a.pages[1]].key ^= (uint64_t)1 << 40;
    assert_non_null(pages_check(pages));
    pages->info[a.pages[1]].key ^= (uint64_t)1 << 40;
    pages->free_count--;
    assert_non_null(pages_check(pages));
    pages->free_count++;
    pages_shrink(pages, &a, 0);
    assert_null(pages_check(pages));
    pages->info[pages->cached_newest].previous = pages->cached_newest;
    assert_non_null(pages_check(pages));
    pages_close(pages);
}

static void sizes_and_failures(void **state) {
    (void)state;
    avo_error error = {0};
    kv_pages *pages;
    assert_refused(pages_open(0, NULL, &pages, &error), AVO_ERROR_LIMIT, &error, "0 pages");
    assert_refused(pages_open(PAGES_MAX + 1, NULL, &pages, &error), AVO_ERROR_LIMIT, &error,
                   "pages");
    for (size_t fail_at = 1; fail_at <= 5; fail_at++) {
        test_allocator counter;
        test_allocator_init(&counter);
        counter.fail_at = fail_at;
        avo_status status = pages_open(5, &counter.allocator, &pages, &error);
        assert_int_equal(status, fail_at <= 4 ? AVO_ERROR_MEMORY : AVO_OK);
        if (status == AVO_OK)
            assert_int_equal(counter.live_bytes, pages_bytes(5));
        pages_close(pages);
        assert_int_equal(counter.live, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_work_equals_the_model),
        cmocka_unit_test(colliding_keys_change_nothing),
        cmocka_unit_test(roots_keep_apart),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(sizes_and_failures),
    };
    return cmocka_run_group_tests_name("memory/pages", tests, NULL, NULL);
}
