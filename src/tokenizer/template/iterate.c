/* Walking over anything that Python can iterate, and the generators that filters return: lazily,
 * as jinja2's are, so that an item nobody asks for cannot fail. */
#include "tokenizer/template/render_int.h"

avo_status jinja_iterator_new(jinja_render *render, jinja_walk walk, const char *name,
                              jinja_iterator **out) {
    AVO_TRY(jinja_take(render, 1, sizeof(**out), out));
    (*out)->walk = walk;
    (*out)->name = name;
    (*out)->operation = -1;
    return AVO_OK;
}

bool jinja_iterable(jinja_value value) {
    switch ((jinja_kind)value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_VIEW:
    case JINJA_RANGE:
    case JINJA_ITERATOR:
    case JINJA_LOOP:
        return true;
    default:
        return false;
    }
}

avo_status jinja_iterate(jinja_render *render, jinja_value value, jinja_iterator **out) {
    if (value.kind == JINJA_ITERATOR) {
        *out = value.iterator;
        return AVO_OK;
    }
    if (value.kind == JINJA_LOOP)
        return jinja_unsupported(render, "iterating over 'loop'");
    if (!jinja_iterable(value))
        return jinja_fail(render, "%s cannot be iterated", jinja_type_name(value));
    AVO_TRY(jinja_iterator_new(render, JINJA_WALK_ITEMS, "iterator", out));
    jinja_iterator *iterator = *out;
    switch ((jinja_kind)value.kind) {
    case JINJA_STRING:
        iterator->walk = JINJA_WALK_TEXT;
        iterator->text = value.text;
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
        iterator->items = value.sequence->items;
        iterator->count = value.sequence->count;
        break;
    case JINJA_DICT:
        iterator->walk = JINJA_WALK_DICT;
        iterator->dict = value.dict;
        iterator->view = JINJA_KEYS;
        break;
    case JINJA_VIEW:
        iterator->walk = JINJA_WALK_DICT;
        iterator->dict = value.view->dict;
        iterator->view = value.view->kind;
        break;
    case JINJA_RANGE:
        iterator->walk = JINJA_WALK_RANGE;
        iterator->range = value.range;
        break;
    default: /* undefined: nothing */
        break;
    }
    return AVO_OK;
}

static avo_status next_character(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                                 bool *more) {
    *more = iterator->at < iterator->text->size;
    if (!*more)
        return AVO_OK;
    size_t end = iterator->at + jinja_character_bytes(iterator->text, iterator->at);
    AVO_TRY(jinja_text_part(render, iterator->text, iterator->at, end, item));
    ((jinja_text *)item->text)->markup = false; /* just made; Python gives plain characters */
    iterator->at = end;
    return AVO_OK;
}

static avo_status next_entry(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                             bool *more) {
    *more = iterator->at < iterator->dict->count;
    if (!*more)
        return AVO_OK;
    size_t at =
        iterator->walk == JINJA_WALK_DICT ? iterator->at : iterator->dict->count - 1 - iterator->at;
    const jinja_entry *entry = &iterator->dict->entries[at];
    iterator->at++;
    if (iterator->view == JINJA_ITEMS)
        return jinja_pair(render, entry->key, entry->value, item);
    *item = iterator->view == JINJA_KEYS ? entry->key : entry->value;
    return AVO_OK;
}

static avo_status next_mapped(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                              bool *more) {
    AVO_TRY(jinja_next(render, iterator->source, item, more));
    if (!*more)
        return AVO_OK;
    if (jinja_given(iterator->attribute))
        return jinja_attribute_path(render, *item, iterator->attribute, iterator->fallback, item);
    if (iterator->operation < 0)
        return jinja_fail(render, "no filter named '%.*s'",
                          TEXT_ARGUMENT(iterator->operation_name));
    return jinja_filter(render, iterator->operation, *item, &iterator->arguments, item);
}

static avo_status next_selected(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                                bool *more) {
    for (;;) {
        AVO_TRY(jinja_next(render, iterator->source, item, more));
        if (!*more)
            return AVO_OK;
        jinja_value tested = *item;
        if (jinja_given(iterator->attribute))
            AVO_TRY(jinja_attribute_path(render, tested, iterator->attribute, (jinja_value){0},
                                         &tested));
        bool chosen;
        if (iterator->operation_name.data == NULL)
            AVO_TRY(jinja_truth(render, tested, &chosen));
        else if (iterator->operation < 0)
            return jinja_fail(render, "no test named '%.*s'",
                              TEXT_ARGUMENT(iterator->operation_name));
        else
            AVO_TRY(jinja_test(render, iterator->operation, tested, &iterator->arguments, &chosen));
        if (chosen != iterator->negate)
            return AVO_OK;
    }
}

static avo_status next_unique(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                              bool *more) {
    for (;;) {
        AVO_TRY(jinja_next(render, iterator->source, item, more));
        if (!*more)
            return AVO_OK;
        jinja_value key;
        AVO_TRY(jinja_attribute_path(render, *item, iterator->attribute, (jinja_value){0}, &key));
        if (!iterator->case_sensitive)
            AVO_TRY(jinja_lower_if_text(render, key, &key));
        jinja_entry *seen;
        AVO_TRY(jinja_dict_find(render, iterator->seen, key, &seen));
        if (seen == NULL)
            return jinja_dict_set(render, iterator->seen, key, key);
    }
}

/* Lists of `width` items each; the last is filled up when `fill` is given. */
static avo_status next_batch(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                             bool *more) {
    jinja_sequence *batch;
    AVO_TRY(jinja_sequence_new(render, 4, &batch));
    *more = false;
    for (;;) {
        if (batch->count > 0 && batch->count == iterator->width)
            break;
        jinja_value next;
        bool has_next;
        AVO_TRY(jinja_next(render, iterator->source, &next, &has_next));
        if (!has_next)
            break;
        AVO_TRY(jinja_sequence_add(render, batch, next));
    }
    *more = batch->count > 0;
    while (*more && jinja_given(iterator->fill) && batch->count < iterator->width) {
        AVO_TRY(jinja_charge(render, 1));
        AVO_TRY(jinja_sequence_add(render, batch, iterator->fill));
    }
    *item = (jinja_value){.kind = JINJA_LIST, .sequence = batch};
    return AVO_OK;
}

/* `width` lists of nearly the same size. */
static avo_status next_slice(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                             bool *more) {
    *more = iterator->at < iterator->width;
    if (!*more)
        return AVO_OK;
    size_t each = iterator->count / iterator->width;
    size_t extra = iterator->count % iterator->width;
    size_t at = iterator->at++;
    size_t begin = at * each + (at < extra ? at : extra);
    size_t count = each + (at < extra ? 1 : 0);
    jinja_sequence *slice;
    AVO_TRY(jinja_sequence_new(render, count + 1, &slice));
    AVO_TRY(jinja_charge(render, count));
    for (size_t i = 0; i < count; i++)
        slice->items[slice->count++] = iterator->items[begin + i];
    if (jinja_given(iterator->fill) && at >= extra)
        slice->items[slice->count++] = iterator->fill;
    *item = (jinja_value){.kind = JINJA_LIST, .sequence = slice};
    return AVO_OK;
}

/* A generator's first step: Python's generators find out only now what they walk over. */
static avo_status begin(jinja_render *render, jinja_iterator *iterator) {
    jinja_value subject = iterator->subject;
    jinja_sequence *items;
    bool truth = true;
    iterator->subject = (jinja_value){0};
    if (iterator->walk == JINJA_WALK_MAP || iterator->walk == JINJA_WALK_SELECT)
        AVO_TRY(jinja_truth(render, subject, &truth));
    if (!truth || (iterator->walk == JINJA_WALK_DICT && subject.kind == JINJA_UNDEFINED)) {
        iterator->finished = true;
        return AVO_OK;
    }
    if (iterator->bad_arguments)
        return jinja_fail(render, "wrong arguments of map, select or reject");
    if (iterator->walk == JINJA_WALK_DICT) {
        if (subject.kind != JINJA_DICT)
            return jinja_fail(render, "items needs a dict, not %s", jinja_type_name(subject));
        iterator->dict = subject.dict;
        return AVO_OK;
    }
    if (iterator->walk == JINJA_WALK_SLICE) {
        AVO_TRY(jinja_collect(render, subject, &items));
        iterator->items = items->items;
        iterator->count = items->count;
        return AVO_OK;
    }
    return jinja_iterate(render, subject, &iterator->source);
}

static avo_status advance(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                          bool *more) {
    switch (iterator->walk) {
    case JINJA_WALK_ITEMS:
    case JINJA_WALK_BACK:
        *more = iterator->at < iterator->count;
        if (*more)
            *item = iterator->items[iterator->walk == JINJA_WALK_ITEMS
                                        ? iterator->at
                                        : iterator->count - 1 - iterator->at];
        iterator->at += *more;
        return AVO_OK;
    case JINJA_WALK_TEXT:
        return next_character(render, iterator, item, more);
    case JINJA_WALK_DICT:
    case JINJA_WALK_DICT_BACK:
        return next_entry(render, iterator, item, more);
    case JINJA_WALK_RANGE:
        *more = iterator->at < iterator->range->count;
        if (*more)
            *item = jinja_integer(iterator->range->start +
                                  (int64_t)iterator->at * iterator->range->step);
        iterator->at += *more;
        return AVO_OK;
    case JINJA_WALK_MAP:
        return next_mapped(render, iterator, item, more);
    case JINJA_WALK_SELECT:
        return next_selected(render, iterator, item, more);
    case JINJA_WALK_BATCH:
        return next_batch(render, iterator, item, more);
    case JINJA_WALK_SLICE:
        return next_slice(render, iterator, item, more);
    case JINJA_WALK_UNIQUE:
        return next_unique(render, iterator, item, more);
    }
    *more = false;
    return AVO_OK;
}

avo_status jinja_next(jinja_render *render, jinja_iterator *iterator, jinja_value *item,
                      bool *more) {
    AVO_TRY(jinja_charge(render, 1));
    *more = false;
    if (iterator->finished)
        return AVO_OK;
    /* Generators over generators, as deep as a template cares to pile them. */
    if (render->depth >= JINJA_EVALUATION_DEPTH_MAX)
        return jinja_limit(render, "evaluations nested too deeply");
    render->depth++;
    if (jinja_given(iterator->subject))
        AVO_TRY(begin(render, iterator));
    if (!iterator->finished)
        AVO_TRY(advance(render, iterator, item, more));
    render->depth--;
    iterator->finished = !*more;
    return AVO_OK;
}

avo_status jinja_collect(jinja_render *render, jinja_value value, jinja_sequence **out) {
    jinja_iterator *iterator;
    AVO_TRY(jinja_iterate(render, value, &iterator));
    size_t expected = value.kind == JINJA_ITERATOR || value.kind == JINJA_UNDEFINED ? 4 : 0;
    if (expected == 0)
        AVO_TRY(jinja_length(render, value, &expected));
    AVO_TRY(jinja_sequence_new(render, expected, out));
    for (;;) {
        jinja_value item;
        bool more;
        AVO_TRY(jinja_next(render, iterator, &item, &more));
        if (!more)
            return AVO_OK;
        AVO_TRY(jinja_sequence_add(render, *out, item));
    }
}
