/* Pre-tokenisation: each step cuts its piece into smaller ones and hands them to the next; behind
 * the last stands BPE. The depth of the recursion is the number of steps. */
#include "tokenizer/encode_int.h"

#include "tokenizer/scan_int.h"
#include "tokenizer/unicode_int.h"

/* ---- Splits: spans that match or do not, joined as the behaviour says ---- */

typedef struct splitter {
    encoder *encoder;
    uint32_t next_step;
    text_piece piece;
    uint32_t behaviour;
    bool invert;
    bool pending;  /* [begin, end) waits for what follows */
    bool matching; /* what it ends with, or begins with for WITH_NEXT */
    size_t begin, end;
} splitter;

static avo_status emit(splitter *s, size_t begin, size_t end) {
    if (begin >= end || end > s->piece.text.size)
        return AVO_OK;
    text_piece part = {{s->piece.text.data + begin, end - begin},
                       s->piece.first && begin == 0,
                       s->piece.continued && begin == 0};
    return pretokenise(s->encoder, s->next_step, part);
}

static avo_status flush(splitter *s) {
    if (!s->pending)
        return AVO_OK;
    s->pending = false;
    return emit(s, s->begin, s->end);
}

static void hold(splitter *s, size_t begin, size_t end, bool match) {
    s->pending = true;
    s->matching = match;
    s->begin = begin;
    s->end = end;
}

/* The next span, which begins where the last one ended. */
static avo_status feed(splitter *s, size_t begin, size_t end, bool match) {
    if (s->invert)
        match = !match;
    if (begin == end && !match)
        return AVO_OK;
    switch (s->behaviour) {
    case SPLIT_REMOVED:
        return match ? AVO_OK : emit(s, begin, end);
    case SPLIT_ISOLATED:
        return emit(s, begin, end);
    case SPLIT_WITH_PREVIOUS:
        if (s->pending && match && !s->matching) {
            s->end = end;
            s->matching = true;
            return AVO_OK;
        }
        break;
    case SPLIT_WITH_NEXT:
        if (s->pending && s->matching && !match) {
            s->end = end;
            s->matching = false;
            return AVO_OK;
        }
        break;
    default: /* SPLIT_CONTIGUOUS */
        if (s->pending && s->matching == match) {
            s->end = end;
            return AVO_OK;
        }
        break;
    }
    AVO_TRY(flush(s));
    hold(s, begin, end, match);
    return AVO_OK;
}

static avo_status split_text(splitter *s, text_view pattern) {
    text_view text = s->piece.text;
    size_t at = 0;
    while (at < text.size) {
        const char *found = memmem(text.data + at, text.size - at, pattern.data, pattern.size);
        size_t begin = found == NULL ? text.size : (size_t)(found - text.data);
        AVO_TRY(feed(s, at, begin, false));
        if (found == NULL)
            break;
        at = begin + pattern.size;
        AVO_TRY(feed(s, begin, at, true));
    }
    return flush(s);
}

static avo_status split_regex(splitter *s, const regex *regex, uint32_t step) {
    text_view text;
    if (regex_subject(s->piece.text, &s->encoder->scratch[step], &text) != AVO_OK)
        return encode_no_memory(s->encoder);
    size_t covered = 0;
    size_t at = 0;
    while (at <= text.size) {
        bool found;
        size_t begin;
        size_t end;
        AVO_TRY(regex_find(regex, &s->encoder->match, text, at, &found, &begin, &end,
                           s->encoder->error));
        if (!found)
            break;
        AVO_TRY(feed(s, covered, begin, false));
        AVO_TRY(feed(s, begin, end, true));
        covered = end;
        uint32_t ignored;
        at = end > begin ? end
                         : end + (end < text.size ? unicode_take(text.data + end, &ignored) : 1);
    }
    AVO_TRY(feed(s, covered, text.size, false));
    return flush(s);
}

/* Every character of the class is a match of its own. */
static avo_status split_class(splitter *s, uint32_t class) {
    text_view text = s->piece.text;
    size_t begin = 0;
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        uint32_t length = unicode_take(text.data + at, &code_point);
        if (unicode_class(code_point) & class) {
            AVO_TRY(feed(s, begin, at, false));
            AVO_TRY(feed(s, at, at + length, true));
            begin = at + length;
        }
        at += length;
    }
    AVO_TRY(feed(s, begin, text.size, false));
    return flush(s);
}

/* \w+|[^\w\s]+ with what is neither dropped. */
static avo_status split_words(splitter *s) {
    text_view text = s->piece.text;
    size_t begin = 0;
    uint32_t kind = UNICODE_SPACE;
    for (size_t at = 0; at < text.size;) {
        uint32_t code_point;
        uint32_t length = unicode_take(text.data + at, &code_point);
        uint32_t class = unicode_class(code_point);
        uint32_t now = class & UNICODE_WORD ? UNICODE_WORD : class & UNICODE_SPACE;
        if (now != kind) {
            if (kind != UNICODE_SPACE)
                AVO_TRY(emit(s, begin, at));
            begin = at;
            kind = now;
        }
        at += length;
    }
    return kind != UNICODE_SPACE ? emit(s, begin, text.size) : AVO_OK;
}

/* ---- Steps that change the text ---- */

static void begin_change(const encoder *encoder, buffer *out, text_view text) {
    out->size = 0;
    normaliser_bound(&encoder->normaliser, text.size, out);
}

static avo_status end_change(encoder *encoder, const image_step *record, avo_status status,
                             const buffer *out, text_piece *piece) {
    if (status == AVO_ERROR_LIMIT)
        return normaliser_refuse(record, piece->text.size, out->limit, encoder->error);
    if (status != AVO_OK)
        return encode_no_memory(encoder);
    normaliser_charge(&encoder->normaliser, piece->text.size, out);
    piece->text = buffer_text(out);
    return AVO_OK;
}

static avo_status prefix_space(encoder *encoder, uint32_t step, const image_step *record,
                               text_piece piece) {
    buffer *out = &encoder->scratch[step];
    if (piece.continued || (piece.text.size > 0 && piece.text.data[0] == ' '))
        return pretokenise(encoder, step + 1, piece);
    begin_change(encoder, out, piece.text);
    avo_status status = buffer_append(out, " ", 1);
    AVO_THEN(status, buffer_append(out, piece.text.data, piece.text.size));
    AVO_TRY(end_change(encoder, record, status, out, &piece));
    return pretokenise(encoder, step + 1, piece);
}

static avo_status metaspace(encoder *encoder, uint32_t step, const image_step *record,
                            text_piece piece) {
    const image *image = encoder->image;
    text_view mark = image_text(image, record->first, record->first_bytes);
    buffer *out = &encoder->scratch[step];
    begin_change(encoder, out, piece.text);
    bool wanted =
        record->number == METASPACE_ALWAYS || (record->number == METASPACE_FIRST && piece.first);
    bool starts =
        piece.text.size > 0 && (piece.text.data[0] == ' ' || text_starts(piece.text, mark));
    avo_status status = AVO_OK;
    if (wanted && !starts && !piece.continued)
        status = buffer_append(out, mark.data, mark.size);
    size_t begin = 0;
    for (size_t i = 0; i <= piece.text.size && status == AVO_OK; i++) {
        if (i < piece.text.size && piece.text.data[i] != ' ')
            continue;
        status = buffer_append(out, piece.text.data + begin, i - begin);
        if (status == AVO_OK && i < piece.text.size)
            status = buffer_append(out, mark.data, mark.size);
        begin = i + 1;
    }
    AVO_TRY(end_change(encoder, record, status, out, &piece));
    if (!(record->flags & STEP_SPLIT))
        return pretokenise(encoder, step + 1, piece);
    splitter s = {
        .encoder = encoder, .next_step = step + 1, .piece = piece, .behaviour = SPLIT_WITH_NEXT};
    return split_text(&s, mark);
}

static avo_status scan(encoder *encoder, uint32_t step, uint32_t which, text_piece piece) {
    scan_function function = scanner_function((scanner)which);
    bool last = step + 1 == encoder->image->header->pretokenise_count;
    const char *at = piece.text.data;
    size_t left = piece.text.size;
    while (left > 0) {
        size_t length = function(at, left);
        if (last) {
            AVO_TRY(encode_word(encoder, (text_view){at, length}));
        } else {
            bool front = at == piece.text.data;
            AVO_TRY(pretokenise(
                encoder, step + 1,
                (text_piece){{at, length}, piece.first && front, piece.continued && front}));
        }
        at += length;
        left -= length;
    }
    return AVO_OK;
}

avo_status pretokenise(encoder *encoder, uint32_t step, text_piece piece) {
    const image_header *header = encoder->image->header;
    if (step == header->pretokenise_count)
        return encode_word(encoder, piece.text);
    uint32_t index = header->normalise_count + step;
    const image_step *record = &encoder->image->steps[index];
    splitter s = {.encoder = encoder,
                  .next_step = step + 1,
                  .piece = piece,
                  .behaviour = record->flags & SPLIT_BEHAVIOUR,
                  .invert = (record->flags & STEP_INVERT) != 0};
    switch ((step_kind)record->kind) {
    case STEP_SPLIT_SCANNER:
        return scan(encoder, step, record->number, piece);
    case STEP_SPLIT_TEXT:
        return split_text(&s, image_text(encoder->image, record->first, record->first_bytes));
    case STEP_SPLIT_REGEX:
        return split_regex(&s, encoder->tokenizer->regexes[index], step);
    case STEP_DIGITS:
        s.behaviour = record->flags & STEP_INDIVIDUAL ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        return split_class(&s, UNICODE_NUMERIC);
    case STEP_PUNCTUATION:
        return split_class(&s, UNICODE_PUNCTUATION);
    case STEP_WORDS:
        return split_words(&s);
    case STEP_SPACE_SPLIT:
        s.behaviour = SPLIT_REMOVED;
        return split_class(&s, UNICODE_SPACE);
    case STEP_PREFIX_SPACE:
        return prefix_space(encoder, step, record, piece);
    case STEP_METASPACE:
        return metaspace(encoder, step, record, piece);
    default:
        return pretokenise(encoder, step + 1, piece);
    }
}
