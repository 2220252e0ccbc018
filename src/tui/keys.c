/* What keys do. */
#include "base/clock.h"
#include "tui/view_int.h"

#include <curses.h>
#include <limits.h>
#include <string.h>
#include <wchar.h>

#define BUSY_MS            40  /* between two looks at what has come */
#define IDLE_MS            500 /* the figures move on */
#define JUST_ENDED_SECONDS 0.7
#define CONTROL(letter)    ((letter) - 'A' + 1)

static void complete_command(view *view) {
    text_view text = buffer_text(&view->editor.text);
    const char *found = NULL;
    for (size_t i = 0; text.size > 0 && chat_command_name(i) != NULL; i++) {
        const char *name = chat_command_name(i);
        if (strlen(name) >= text.size && memcmp(name, text.data, text.size) == 0) {
            if (found != NULL)
                return; /* several */
            found = name;
        }
    }
    if (found != NULL && editor_set(&view->editor, text_from(found)))
        (void)editor_insert(&view->editor, text_from(" "));
}

/* Sends it, or does what it says; what is refused goes back to the input. */
static void enter(view *view, text_view text) {
    size_t before = view->chat.conversation.count;
    view->scroll = 0;
    chat_enter(&view->chat, text);
    bool sent = view->chat.busy || text.size == 0 || text.data[0] == '/';
    if (!sent && !view->chat.quit && view->chat.conversation.count > before)
        (void)editor_set(&view->editor, text); /* refused: to be changed */
    view->leaving = view->chat.quit;
}

/* Behind those that wait already. False: no room; nothing has changed. */
static bool wait_for_end(view *view, text_view text) {
    size_t before = view->waiting.size;
    if (buffer_append(&view->waiting, text.data, text.size) != AVO_OK ||
        buffer_append(&view->waiting, "", 1) != AVO_OK) {
        view->waiting.size = before;
        return false;
    }
    view->waiting_count++;
    return true;
}

/* Who stops the answer does not want the next one at once: what waits goes back to the input. */
static void take_back_waiting(view *view) {
    if (view->waiting_count == 0)
        return;
    for (size_t i = 0; i < view->waiting.size; i++)
        if (view->waiting.data[i] == '\0')
            view->waiting.data[i] = '\n';
    text_view typed = buffer_text(&view->editor.text);
    size_t bytes = view->waiting.size - (typed.size == 0);
    view->taken.size = 0;
    if (buffer_append(&view->taken, view->waiting.data, bytes) != AVO_OK ||
        buffer_append(&view->taken, typed.data, typed.size) != AVO_OK ||
        !editor_set(&view->editor, buffer_text(&view->taken)))
        chat_note(&view->chat, "The queued messages did not fit and were discarded.");
    view->waiting.size = view->waiting_count = 0;
}

void view_send_waiting(view *view) {
    if (view->chat.busy || view->waiting_count == 0 || view->leaving)
        return;
    size_t bytes = strlen(view->waiting.data);
    chat_enter(&view->chat, (text_view){view->waiting.data, bytes});
    if (!view->chat.busy) { /* refused: to be changed */
        take_back_waiting(view);
        return;
    }
    view->waiting.size -= bytes + 1;
    memmove(view->waiting.data, view->waiting.data + bytes + 1, view->waiting.size);
    view->waiting_count--;
    view->scroll = 0;
}

static void send_input(view *view) {
    text_view text = buffer_text(&view->editor.text);
    if (text.size > 0 && text.data[text.size - 1] == '\\' && view->editor.cursor == text.size) {
        editor_delete(&view->editor, EDITOR_LEFT); /* goes on in the next line */
        (void)editor_insert(&view->editor, text_from("\n"));
        return;
    }
    bool waits = chat_waits(&view->chat, text);
    if (!editor_take(&view->editor, &view->taken))
        return;
    if (!waits)
        enter(view, buffer_text(&view->taken));
    else if (!wait_for_end(view, buffer_text(&view->taken)))
        (void)editor_set(&view->editor, buffer_text(&view->taken));
}

static void interrupt(view *view) {
    uint64_t ended = view->chat.ended_ns;
    if (view->chat.busy) {
        chat_stop(&view->chat);
        take_back_waiting(view);
    } else if (ended > 0 && clock_seconds(ended, clock_now_ns()) < JUST_ENDED_SECONDS)
        view->chat.ended_ns = 0; /* it was meant for the answer that ended by itself just then */
    else if (view->editor.text.size > 0)
        (void)editor_set(&view->editor, (text_view){"", 0});
    else
        view->leaving = true;
}

static void scroll_by(view *view, int lines) {
    if (lines > 0)
        view->scroll += (size_t)lines;
    else
        view->scroll = view->scroll > (size_t)-lines ? view->scroll - (size_t)-lines : 0;
}

/* Most keys move the cursor or delete up to where it would move. */
typedef struct editing_key {
    wint_t key;
    bool deletes;
    editor_move move;
} editing_key;

static const editing_key characters[] = {
    {CONTROL('A'), false, EDITOR_LINE_BEGIN}, {CONTROL('B'), false, EDITOR_LEFT},
    {CONTROL('E'), false, EDITOR_LINE_END},   {CONTROL('F'), false, EDITOR_RIGHT},
    {CONTROL('N'), false, EDITOR_DOWN},       {CONTROL('P'), false, EDITOR_UP},
    {CONTROL('H'), true, EDITOR_LEFT},        {0x7F, true, EDITOR_LEFT},
    {CONTROL('K'), true, EDITOR_LINE_END},    {CONTROL('U'), true, EDITOR_LINE_BEGIN},
    {CONTROL('W'), true, EDITOR_WORD_LEFT},   {0, false, EDITOR_LEFT}};
static const editing_key behind_escape[] = {
    {'b', false, EDITOR_WORD_LEFT}, {'f', false, EDITOR_WORD_RIGHT}, {'d', true, EDITOR_WORD_RIGHT},
    {0x7F, true, EDITOR_WORD_LEFT}, {0x08, true, EDITOR_WORD_LEFT},  {0, false, EDITOR_LEFT}};
static const editing_key functions[] = {{KEY_LEFT, false, EDITOR_LEFT},
                                        {KEY_RIGHT, false, EDITOR_RIGHT},
                                        {KEY_UP, false, EDITOR_UP},
                                        {KEY_DOWN, false, EDITOR_DOWN},
                                        {KEY_HOME, false, EDITOR_LINE_BEGIN},
                                        {KEY_END, false, EDITOR_LINE_END},
                                        {KEY_SLEFT, false, EDITOR_WORD_LEFT},
                                        {KEY_SRIGHT, false, EDITOR_WORD_RIGHT},
                                        {KEY_BACKSPACE, true, EDITOR_LEFT},
                                        {KEY_DC, true, EDITOR_RIGHT},
                                        {0, false, EDITOR_LEFT}};

/* False: none of the table's keys. */
static bool edit(view *view, const editing_key *table, wint_t key) {
    for (; table->key != 0; table++)
        if (table->key == key) {
            if (table->deletes)
                editor_delete(&view->editor, table->move);
            else
                editor_go(&view->editor, table->move);
            return true;
        }
    return false;
}

static void on_function_key(view *view, wint_t key) {
    int page = view->transcript_rows > 2 ? view->transcript_rows - 1 : 1;
    if (key == KEY_END && view->scroll > 0)
        view->scroll = 0;
    else if (edit(view, functions, key))
        return;
    else if (key == KEY_ENTER)
        send_input(view);
    else if (key == KEY_PPAGE || key == KEY_SR)
        scroll_by(view, key == KEY_SR ? 1 : page);
    else if (key == KEY_NPAGE || key == KEY_SF)
        scroll_by(view, key == KEY_SF ? -1 : -page);
    else if (key == KEY_PASTE || key == KEY_PASTE_END)
        view->pasting = key == KEY_PASTE;
    else if (key == KEY_RESIZE)
        clearok(stdscr, TRUE); /* whatever the terminal has made of the old screen */
}

static void insert_character(view *view, wint_t key) {
    char bytes[MB_LEN_MAX];
    mbstate_t state = {0};
    size_t count = wcrtomb(bytes, (wchar_t)key, &state);
    if (count != (size_t)-1 && count > 0 && key != 0)
        (void)editor_insert(&view->editor, (text_view){bytes, count});
}

/* What comes right behind Escape belongs to it. */
static void on_escape(view *view) {
    wint_t key;
    timeout(0); /* as it is for the rest of view_take_keys */
    if (get_wch(&key) != OK)
        return;
    if (key == '\r' || key == '\n')
        (void)editor_insert(&view->editor, text_from("\n"));
    else
        (void)edit(view, behind_escape, key);
}

static void on_character(view *view, wint_t key) {
    editor *editor = &view->editor;
    if (view->pasting) {
        insert_character(view, key == '\r' ? '\n' : key);
        return;
    }
    if (edit(view, characters, key))
        return;
    switch (key) {
    case CONTROL('C'):
        interrupt(view);
        break;
    case CONTROL('D'):
        if (editor->text.size == 0)
            view->leaving = true;
        else
            editor_delete(editor, EDITOR_RIGHT);
        break;
    case CONTROL('L'):
        clearok(stdscr, TRUE);
        break;
    case CONTROL('Y'):
        (void)editor_put_back(editor);
        break;
    case '\t':
        complete_command(view);
        break;
    case '\n': /* Ctrl-J: Enter is '\r' */
        if (view->typed_before)
            send_input(view);
        else
            (void)editor_insert(editor, text_from("\n"));
        break;
    case '\r':
        send_input(view);
        break;
    case 0x1B:
        on_escape(view);
        break;
    default:
        if (key >= 0x20)
            insert_character(view, key);
        break;
    }
}

/* All keys that are there, so that a paste is drawn once. */
static void take_keys(view *view, int wait_ms) {
    wint_t key;
    timeout(wait_ms);
    int kind = get_wch(&key);
    timeout(0);
    while (kind != ERR && !view->leaving) {
        if (kind == KEY_CODE_YES)
            on_function_key(view, key);
        else
            on_character(view, key);
        kind = get_wch(&key);
    }
}

void view_take_keys(view *view) {
    take_keys(view, view->chat.busy ? BUSY_MS : IDLE_MS);
}

void view_take_typed(view *view) {
    view->typed_before = true;
    take_keys(view, 0);
    view->typed_before = false;
}
