/* The methods of strings that look at single characters: case and classes. */
#include "tokenizer/template/render_int.h"

static bool case_ignorable(uint32_t c) {
    return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xB7 || c == 0x2019 ||
           c == 0xAD || (c >= 0x300 && c <= 0x36F);
}

/* A capital sigma at the end of a word has a small form of its own. */
static bool final_sigma(const jinja_text *text, size_t at, size_t bytes) {
    uint32_t c = 0;
    bool valid;
    size_t before = at;
    bool cased = false;
    while (before > 0) {
        size_t previous = before - 1;
        while (previous > 0 && ((unsigned char)text->data[previous] & 0xC0) == 0x80)
            previous--;
        jinja_read_character(text, previous, &c, &valid);
        before = previous;
        if (!case_ignorable(c)) {
            cased = jinja_is_cased(c);
            break;
        }
    }
    if (!cased)
        return false;
    for (size_t next = at + bytes; next < text->size;) {
        next += jinja_read_character(text, next, &c, &valid);
        if (!case_ignorable(c))
            return !jinja_is_cased(c);
    }
    return true;
}

static avo_status append_mapped(jinja_builder *builder, const jinja_text *text, size_t at,
                                size_t bytes, uint32_t code_point, jinja_case to) {
    bool trusted = jinja_text_trusted_at(text, at);
    uint32_t mapped[3];
    size_t count = jinja_map_case(code_point, to, mapped);
    if (code_point == 0x3A3 && to == JINJA_LOWER && final_sigma(text, at, bytes))
        mapped[0] = 0x3C2;
    for (size_t i = 0; i < count; i++)
        AVO_TRY(jinja_builder_character(builder, mapped[i], trusted));
    return AVO_OK;
}

static jinja_case case_for(int method, uint32_t code_point, bool first, bool after_cased) {
    switch (method) {
    case METHOD_upper:
        return JINJA_UPPER;
    case METHOD_capitalize:
        return first ? JINJA_TITLE : JINJA_LOWER;
    case METHOD_title:
        return after_cased ? JINJA_LOWER : JINJA_TITLE;
    case METHOD_swapcase:
        return jinja_is_upper(code_point) ? JINJA_LOWER : JINJA_UPPER;
    default:
        return JINJA_LOWER;
    }
}

static avo_status map_all(jinja_render *render, const jinja_text *text, int method,
                          jinja_value *out) {
    jinja_builder builder;
    jinja_builder_init(&builder, render);
    AVO_TRY(jinja_charge(render, text->length / 4));
    bool after_cased = false;
    for (size_t at = 0; at < text->size;) {
        uint32_t code_point;
        bool valid;
        size_t bytes = jinja_read_character(text, at, &code_point, &valid);
        if (!valid)
            AVO_TRY(jinja_builder_part(&builder, text, at, at + bytes));
        else
            AVO_TRY(append_mapped(&builder, text, at, bytes, code_point,
                                  case_for(method, code_point, at == 0, after_cased)));
        after_cased = jinja_is_cased(code_point);
        at += bytes;
    }
    AVO_TRY(jinja_builder_finish(&builder, out));
    ((jinja_text *)out->text)->markup = text->markup; /* just made */
    return AVO_OK;
}

avo_status jinja_is_case(const jinja_text *text, bool upper, bool *result) {
    bool any = false;
    *result = false;
    for (size_t at = 0; at < text->size;) {
        uint32_t c;
        bool valid;
        at += jinja_read_character(text, at, &c, &valid);
        if (upper ? !jinja_is_upper(c) && jinja_is_cased(c)
                  : !jinja_is_lower(c) && jinja_is_cased(c))
            return AVO_OK;
        any |= jinja_is_cased(c);
    }
    *result = any;
    return AVO_OK;
}

static bool is_title(const jinja_text *text) {
    bool any = false;
    bool after_cased = false;
    for (size_t at = 0; at < text->size;) {
        uint32_t c;
        bool valid;
        at += jinja_read_character(text, at, &c, &valid);
        bool lower = jinja_is_lower(c);
        bool cased = jinja_is_cased(c);
        if (cased && lower != after_cased)
            return false;
        after_cased = cased;
        any |= cased;
    }
    return any;
}

static bool in_class(int method, uint32_t c) {
    switch (method) {
    case METHOD_isalpha:
        return jinja_is_alphabetic(c);
    case METHOD_isdigit:
        return jinja_is_digit(c);
    case METHOD_isdecimal:
        return jinja_is_decimal(c);
    case METHOD_isalnum:
        return jinja_is_alphabetic(c) || jinja_is_digit(c) || jinja_is_numeric(c);
    case METHOD_isspace:
        return jinja_is_space(c);
    case METHOD_isprintable:
        return jinja_is_printable(c);
    default:
        return c < 0x80; /* isascii */
    }
}

static bool all_in_class(const jinja_text *text, int method) {
    for (size_t at = 0; at < text->size;) {
        uint32_t c;
        bool valid;
        at += jinja_read_character(text, at, &c, &valid);
        if (!valid || !in_class(method, c))
            return false;
    }
    return text->size > 0 || method == METHOD_isprintable || method == METHOD_isascii;
}

avo_status jinja_change_case(jinja_render *render, const jinja_text *text, int method,
                             jinja_value *out) {
    bool result;
    switch (method) {
    case METHOD_upper:
    case METHOD_lower:
    case METHOD_capitalize:
    case METHOD_title:
    case METHOD_swapcase:
        return map_all(render, text, method, out);
    case METHOD_isupper:
    case METHOD_islower:
        AVO_TRY(jinja_charge(render, text->length / 4));
        AVO_TRY(jinja_is_case(text, method == METHOD_isupper, &result));
        *out = jinja_boolean(result);
        return AVO_OK;
    case METHOD_istitle:
        AVO_TRY(jinja_charge(render, text->length / 4));
        *out = jinja_boolean(is_title(text));
        return AVO_OK;
    case METHOD_isalpha:
    case METHOD_isdigit:
    case METHOD_isdecimal:
    case METHOD_isalnum:
    case METHOD_isspace:
    case METHOD_isprintable:
    case METHOD_isascii:
        AVO_TRY(jinja_charge(render, text->length / 4));
        *out = jinja_boolean(all_in_class(text, method));
        return AVO_OK;
    default:
        return jinja_fail(render, "str.%s is not supported", jinja_method_text(method));
    }
}
