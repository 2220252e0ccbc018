/* The normalisation steps of tokenizer.json and SentencePiece. */
#include "tokenizer/normalise_int.h"

#include "base/checked.h"
#include "base/utf8.h"
#include "tokenizer/unicode_int.h"

#include <utf8proc.h>

void normaliser_init(normaliser *normaliser, const avo_allocator *allocator) {
    *normaliser = (struct normaliser){.allocator = allocator};
    buffer_init(&normaliser->buffers[0], allocator, 0);
    buffer_init(&normaliser->buffers[1], allocator, 0);
    buffer_init(&normaliser->subject, allocator, SIZE_MAX);
}

void normaliser_free(normaliser *normaliser) {
    buffer_free(&normaliser->buffers[0]);
    buffer_free(&normaliser->buffers[1]);
    buffer_free(&normaliser->subject);
    allocator_give(normaliser->allocator, normaliser->points,
                   normaliser->point_capacity * 2 * sizeof(int32_t));
    normaliser->points = NULL;
    normaliser->point_capacity = 0;
}

void normaliser_allow(normaliser *normaliser, size_t bytes) {
    size_t growth;
    if (!size_multiply(bytes, TOKENIZER_GROWTH_TIMES, &growth) ||
        !size_add(growth, TOKENIZER_GROWTH_BYTES, &growth))
        growth = TOKENIZER_GROWTH_MAX;
    normaliser->growth_left = size_min(growth, TOKENIZER_GROWTH_MAX);
}

void normaliser_bound(const normaliser *normaliser, size_t bytes, buffer *out) {
    if (!size_add(bytes, normaliser->growth_left, &out->limit))
        out->limit = SIZE_MAX;
}

void normaliser_charge(normaliser *normaliser, size_t bytes, const buffer *out) {
    normaliser->growth_left -= out->size > bytes ? out->size - bytes : 0;
}

avo_status normaliser_refuse(const image_step *step, size_t bytes, size_t limit, avo_error *error) {
    return status_fail(error, AVO_ERROR_LIMIT,
                       "tokenizer step %s would produce more than %zu bytes from %zu",
                       step_name(step->kind), limit, bytes);
}

static avo_status replace_all(text_view text, text_view from, text_view to, buffer *out) {
    size_t at = 0;
    while (at < text.size) {
        const char *found = memmem(text.data + at, text.size - at, from.data, from.size);
        size_t end = found == NULL ? text.size : (size_t)(found - text.data);
        AVO_TRY(buffer_append(out, text.data + at, end - at));
        if (found == NULL)
            break;
        AVO_TRY(buffer_append(out, to.data, to.size));
        at = end + from.size;
    }
    return AVO_OK;
}

/* One character for another text: the loop of every SentencePiece model, so without calls. */
static avo_status replace_byte(text_view text, char from, text_view to, buffer *out) {
    size_t count = 0;
    for (size_t i = 0; i < text.size; i++)
        count += text.data[i] == from;
    AVO_TRY(buffer_reserve(out, text.size - count + count * to.size));
    char *write = out->data + out->size;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] != from) {
            *write++ = text.data[i];
            continue;
        }
        for (size_t k = 0; k < to.size; k++)
            *write++ = to.data[k];
    }
    out->size = (size_t)(write - out->data);
    return AVO_OK;
}

static avo_status replace_regex(normaliser *normaliser, const regex *regex, text_view text,
                                text_view to, buffer *out, avo_error *error) {
    size_t copied = 0;
    size_t at = 0;
    text_view subject;
    AVO_TRY(regex_subject(text, &normaliser->subject, &subject));
    while (at <= text.size) {
        bool found;
        size_t begin;
        size_t end;
        avo_status status =
            regex_find(regex, normaliser->match, subject, at, &found, &begin, &end, error);
        normaliser->told = status != AVO_OK;
        AVO_TRY(status);
        if (!found)
            break;
        AVO_TRY(buffer_append(out, text.data + copied, begin - copied));
        AVO_TRY(buffer_append(out, to.data, to.size));
        copied = end;
        uint32_t ignored;
        at = end > begin ? end
                         : end + (end < text.size ? unicode_take(text.data + end, &ignored) : 1);
    }
    return buffer_append(out, text.data + copied, text.size - copied);
}

static avo_status lowercase(text_view text, buffer *out) {
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        char bytes[8];
        at += unicode_take(text.data + at, &code_point);
        size_t length = utf8_encode((uint32_t)utf8proc_tolower((int32_t)code_point), bytes);
        if (code_point == 0x130) { /* İ: the one character whose small form is two */
            bytes[0] = 'i';
            length = 1 + utf8_encode(0x307, bytes + 1);
        }
        AVO_TRY(buffer_append(out, bytes, length));
    }
    return AVO_OK;
}

static avo_status strip_accents(text_view text, buffer *out) {
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        uint32_t length = unicode_take(text.data + at, &code_point);
        if (!(unicode_class(code_point) & UNICODE_MARK))
            AVO_TRY(buffer_append(out, text.data + at, length));
        at += length;
    }
    return AVO_OK;
}

static text_view strip(text_view text, uint32_t flags) {
    uint32_t code_point;
    while ((flags & STEP_LEFT) && text.size > 0) {
        uint32_t length = unicode_take(text.data, &code_point);
        if (!(unicode_class(code_point) & UNICODE_SPACE))
            break;
        text.data += length;
        text.size -= length;
    }
    while ((flags & STEP_RIGHT) && text.size > 0) {
        size_t begin = text.size - 1;
        while (begin > 0 && ((uint8_t)text.data[begin] & 0xC0) == 0x80)
            begin--;
        unicode_take(text.data + begin, &code_point);
        if (!(unicode_class(code_point) & UNICODE_SPACE))
            break;
        text.size = begin;
    }
    return text;
}

static avo_status squeeze(text_view text, buffer *out) {
    bool pending = false;
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] == ' ') {
            pending = out->size > 0;
            continue;
        }
        if (pending)
            AVO_TRY(buffer_append(out, " ", 1));
        pending = false;
        AVO_TRY(buffer_append(out, text.data + i, 1));
    }
    return AVO_OK;
}

static avo_status one_step(normaliser *normaliser, const image_step *step, uint32_t index,
                           const char *texts, text_view text, buffer *out, avo_error *error) {
    text_view first = {texts + step->first, step->first_bytes};
    text_view second = {texts + step->second, step->second_bytes};
    switch ((step_kind)step->kind) {
    case STEP_NFC:
    case STEP_NFD:
    case STEP_NFKC:
    case STEP_NFKD:
        return normalise_form(normaliser, (step_kind)step->kind, text, out);
    case STEP_LOWERCASE:
        return lowercase(text, out);
    case STEP_STRIP_ACCENTS:
        return strip_accents(text, out);
    case STEP_SQUEEZE:
        return squeeze(text, out);
    case STEP_PREPEND:
        AVO_TRY(buffer_append(out, first.data, first.size));
        return buffer_append(out, text.data, text.size);
    case STEP_REPLACE:
        return first.size == 1 ? replace_byte(text, *first.data, second, out)
                               : replace_all(text, first, second, out);
    case STEP_REPLACE_REGEX:
        return replace_regex(normaliser, normaliser->regexes[index], text, second, out, error);
    default:
        return buffer_append(out, text.data, text.size);
    }
}

/* Whether a step would leave the text as it is, decided cheaply. */
static bool is_quiet(const image_step *step, text_view text, bool continued) {
    if (step->kind == STEP_PREPEND)
        return continued || text.size == 0;
    if (step->kind >= STEP_NFC && step->kind <= STEP_NFKD) {
        for (size_t i = 0; i < text.size; i++) {
            /* Below U+0300 everything is in form C; the other forms change Latin-1. */
            uint8_t limit = step->kind == STEP_NFC ? 0xCC : 0x80;
            if ((uint8_t)text.data[i] >= limit)
                return false;
        }
        return true;
    }
    return false;
}

avo_status normalise(normaliser *normaliser, const image_step *steps, uint32_t count,
                     const char *texts, text_view text, bool continued, text_view *out,
                     avo_error *error) {
    uint32_t turn = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (is_quiet(&steps[i], text, continued))
            continue;
        if (steps[i].kind == STEP_STRIP) {
            text = strip(text, steps[i].flags);
            continue;
        }
        buffer *target = &normaliser->buffers[turn];
        target->size = 0;
        normaliser_bound(normaliser, text.size, target);
        avo_status status = one_step(normaliser, &steps[i], i, texts, text, target, error);
        if (status == AVO_ERROR_MEMORY && !normaliser->told)
            return status_no_memory(error, "normalising a text", text.size);
        if (status == AVO_ERROR_LIMIT && !normaliser->told)
            return normaliser_refuse(&steps[i], text.size, target->limit, error);
        AVO_TRY(status);
        normaliser_charge(normaliser, text.size, target);
        text = buffer_text(target);
        turn ^= 1;
    }
    *out = text;
    return AVO_OK;
}

/* Patterns among the steps, for the short time in which added tokens are normalised. */
static avo_status compile_steps(const draft *draft, regex **regexes) {
    for (uint32_t i = 0; i < draft->step_count[STAGE_NORMALISE]; i++) {
        const image_step *step = &draft->steps[STAGE_NORMALISE][i];
        if (step->kind != STEP_REPLACE_REGEX)
            continue;
        avo_status status =
            regex_compile((text_view){draft->texts.data + step->first, step->first_bytes},
                          draft->arena->allocator, &regexes[i], draft->error);
        if (status != AVO_OK)
            return status_prefix(draft->error, status, "%s", draft->name);
    }
    return AVO_OK;
}

static avo_status normalise_one(draft *draft, normaliser *normaliser, draft_added *added) {
    text_view text = added->text;
    if (!added->late || added->normal || utf8_valid_prefix(text.data, text.size) != text.size)
        return AVO_OK;
    avo_status status =
        normalise(normaliser, draft->steps[STAGE_NORMALISE], draft->step_count[STAGE_NORMALISE],
                  draft->texts.data == NULL ? "" : draft->texts.data, added->text, false, &text,
                  draft->error);
    if (status != AVO_OK)
        return status_prefix(draft->error, status, "%s: added token \"%.*s\"", draft->name,
                             TEXT_ARGUMENT(added->text));
    char *copy = arena_copy_text(draft->arena, text.data, text.size);
    if (copy == NULL)
        return draft_no_memory(draft);
    added->text = (text_view){copy, text.size};
    return AVO_OK;
}

avo_status normalise_added(draft *draft) {
    normaliser normaliser;
    regex *regexes[TOKENIZER_STEPS_MAX] = {NULL};
    regex_match match = {0};
    normaliser_init(&normaliser, draft->arena->allocator);
    normaliser.regexes = regexes;
    normaliser.match = &match;
    size_t bytes = 0;
    for (uint32_t i = 0; i < draft->added_count; i++)
        bytes += draft->added[i].text.size;
    normaliser_allow(&normaliser, bytes);
    avo_status status = compile_steps(draft, regexes);
    for (uint32_t i = 0; i < draft->added_count && status == AVO_OK; i++)
        status = normalise_one(draft, &normaliser, &draft->added[i]);
    normaliser_free(&normaliser);
    regex_match_free(&match);
    for (uint32_t i = 0; i < TOKENIZER_STEPS_MAX; i++)
        regex_free(regexes[i]);
    return status;
}
