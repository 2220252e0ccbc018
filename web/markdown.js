/* Markdown as language models write it, into a tree of plain objects (parse), and that tree into
 * nodes (render). Nothing in here knows HTML: tags in the text stay text, entities become the
 * character and no more, images are never loaded, links are http or https and nothing else.
 *
 * Every pass is linear in the text but for nesting, which has a limit: hostile input costs time in
 * proportion to its length.
 *
 * Blocks   {type, raw, …}: paragraph, heading {level}, code {language, text, open}, quote {blocks},
 *          list {ordered, start, items: [{checked, blocks}]}, table {align, head, rows}, rule
 * Inlines  string, or {type, …}: code {text}, strong, emphasis, strike {inlines}, link {href,
 *          inlines}, break
 */
import {colour} from "./code.js";
import {copyButton, el} from "./dom.js";

const DEPTH_MAX = 8;  /* of blocks, and of brackets */
const MARKS_MAX = 24; /* of emphasis that are open at once */
const COLUMNS_MAX = 64;

/* ---- Blocks ---- */

export function parse(text) {
    return parseBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

/* None of these can be made to try again and again: where one part may match, the next cannot. */
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]|$)/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}>[ ]?/;
const ITEM = /^( {0,3})([-*+•]|\d{1,9}[.)])(?:[ \t]+|$)/;
const TABLE_RULE = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

function isBlank(line) {
    return /^[ \t]*$/.test(line);
}

/* The width of the indentation; a tab goes to the next multiple of four. */
function indentOf(line) {
    let width = 0;
    for (const c of line) {
        if (c === " ")
            width++;
        else if (c === "\t")
            width += 4 - width % 4;
        else
            break;
    }
    return width;
}

function outdent(line, width) {
    let i = 0, seen = 0;
    while (i < line.length && seen < width && (line[i] === " " || line[i] === "\t")) {
        seen += line[i] === "\t" ? 4 - seen % 4 : 1;
        i++;
    }
    return " ".repeat(Math.max(0, seen - width)) + line.slice(i);
}

/* A line that ends a paragraph although no blank line stands before it. */
function interrupts(lines, i) {
    const line = lines[i];
    const item = ITEM.exec(line);
    return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) ||
        isTable(lines, i) || item !== null && item[0].length < line.length &&
        (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]));
}

function isTable(lines, i) {
    return i + 1 < lines.length && lines[i].includes("|") && TABLE_RULE.test(lines[i + 1]) &&
        lines[i + 1].includes("-") && cellsOf(lines[i]).length === cellsOf(lines[i + 1]).length;
}

function parseBlocks(lines, depth) {
    const blocks = [];
    let i = 0;
    while (i < lines.length) {
        if (isBlank(lines[i])) {
            i++;
            continue;
        }
        const begin = i;
        const block = {};
        i = parseBlock(lines, i, depth, block);
        block.raw = lines.slice(begin, i).join("\n");
        blocks.push(block);
    }
    return blocks;
}

/* Fills `block` from the lines at `i` and says where it ends; always at least one line further. */
function parseBlock(lines, i, depth, block) {
    const line = lines[i];
    const fence = FENCE.exec(line);
    if (fence)
        return parseFence(lines, i, fence, block);
    const heading = HEADING.exec(line);
    if (heading) {
        Object.assign(block, {type: "heading", level: heading[1].length,
            inlines: parseInlines(headingText(line.slice(heading[0].length)))});
        return i + 1;
    }
    if (RULE.test(line)) {
        block.type = "rule";
        return i + 1;
    }
    if (depth < DEPTH_MAX && QUOTE.test(line))
        return parseQuote(lines, i, depth, block);
    if (depth < DEPTH_MAX && ITEM.test(line))
        return parseList(lines, i, depth, block);
    if (isTable(lines, i))
        return parseTable(lines, i, depth, block);
    return parseParagraph(lines, i, depth, block);
}

/* Without the marks that may stand at the end, too. */
function headingText(text) {
    const trimmed = text.trim();
    let end = trimmed.length;
    while (trimmed[end - 1] === "#")
        end--;
    return end === 0 || end < trimmed.length && /[ \t]/.test(trimmed[end - 1])
        ? trimmed.slice(0, end).trim() : trimmed;
}

function parseFence(lines, i, fence, block) {
    const close = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},}[ \\t]*$`);
    const body = [];
    let j = i + 1;
    while (j < lines.length && !close.test(lines[j]))
        body.push(outdent(lines[j++], fence[1].length));
    const open = j >= lines.length;
    Object.assign(block, {type: "code", language: fence[3].trim().split(/\s/)[0].toLowerCase(),
        text: body.join("\n"), open});
    return open ? j : j + 1;
}

function parseQuote(lines, i, depth, block) {
    const body = [];
    while (i < lines.length && !isBlank(lines[i]) &&
           (QUOTE.test(lines[i]) || !interrupts(lines, i)))
        body.push(lines[i++].replace(QUOTE, ""));
    Object.assign(block, {type: "quote", blocks: parseBlocks(body, depth + 1)});
    return i;
}

/* Items of one kind of marker. What is indented at least as far as an item's text belongs to it;
 * models are loose about that, so two columns past the marker's are enough. */
function parseList(lines, i, depth, block) {
    const first = ITEM.exec(lines[i]);
    const ordered = /\d/.test(first[2]);
    const kind = first[2].slice(-1);
    Object.assign(block, {type: "list", ordered, start: ordered ? parseInt(first[2], 10) : 1,
        items: []});
    while (i < lines.length) {
        const item = ITEM.exec(lines[i]);
        if (!item || item[2].slice(-1) !== kind || RULE.test(lines[i]))
            break;
        const inner = item[1].length + 2;
        const width = Math.max(inner, Math.min(item[0].length, item[1].length + item[2].length + 4));
        const body = [lines[i++].slice(item[0].length)];
        let fence = FENCE.exec(body[0]);
        while (i < lines.length) {
            const line = lines[i];
            if (isBlank(line)) {
                let next = i + 1;
                while (next < lines.length && isBlank(lines[next]))
                    next++;
                if (next >= lines.length || indentOf(lines[next]) < inner)
                    break;
                for (; i < next; i++)
                    body.push("");
                continue;
            }
            if (indentOf(line) < inner && (interrupts(lines, i) || ITEM.test(line) ||
                       isBlank(lines[i - 1]) || fence)) {
                break;
            }
            body.push(outdent(line, Math.min(width, Math.max(inner, indentOf(line)))));
            const mark = FENCE.exec(body[body.length - 1]);
            if (mark)
                fence = fence ? null : mark;
            i++;
        }
        block.items.push(makeItem(body, depth));
        let next = i;
        while (next < lines.length && isBlank(lines[next]))
            next++;
        if (next > i && next < lines.length && ITEM.test(lines[next]))
            i = next;
    }
    return i;
}

function makeItem(body, depth) {
    const task = /^\[([ xX])\][ \t]+/.exec(body[0]);
    if (task)
        body[0] = body[0].slice(task[0].length);
    return {checked: task ? task[1] !== " " : null, blocks: parseBlocks(body, depth + 1)};
}

/* Cells of a row: bars that are neither escaped nor inside code separate them. */
function cellsOf(line) {
    const cells = [];
    let cell = "", code = false;
    const text = line.trim().replace(/^\|/, "");
    for (let i = 0; i < text.length; i++) {
        if (text[i] === "\\" && text[i + 1] === "|") {
            cell += "|";
            i++;
        } else if (text[i] === "|" && !code) {
            cells.push(cell.trim());
            cell = "";
        } else {
            if (text[i] === "`")
                code = !code;
            cell += text[i];
        }
    }
    if (cell.trim() !== "" || cells.length === 0)
        cells.push(cell.trim());
    return cells.slice(0, COLUMNS_MAX);
}

function parseTable(lines, i, depth, block) {
    const head = cellsOf(lines[i]);
    const align = cellsOf(lines[i + 1]).map((cell) => cell.endsWith(":")
        ? cell.startsWith(":") ? "center" : "right" : null);
    const rows = [];
    i += 2;
    while (i < lines.length && !isBlank(lines[i]) && lines[i].includes("|")) {
        const cells = cellsOf(lines[i++]);
        rows.push(head.map((_, column) => parseInlines(cells[column] || "")));
    }
    Object.assign(block, {type: "table", align, rows,
        head: head.map((cell) => parseInlines(cell))});
    return i;
}

function parseParagraph(lines, i, depth, block) {
    const body = [lines[i++]];
    while (i < lines.length && !isBlank(lines[i])) {
        const under = /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[i]);
        if (under && depth < DEPTH_MAX) {
            Object.assign(block, {type: "heading", level: under[1][0] === "=" ? 1 : 2,
                inlines: parseInlines(body.map((line) => line.trim()).join("\n"))});
            return i + 1;
        }
        if (interrupts(lines, i))
            break;
        body.push(lines[i++]);
    }
    const text = body.map((line) => line.replace(/^[ \t]+/, "")).join("\n").trimEnd();
    Object.assign(block, {type: "paragraph", inlines: parseInlines(text)});
    return i;
}

/* ---- Inlines ---- */

const ENTITIES = {amp: "&", lt: "<", gt: ">", quot: "\"", apos: "'", nbsp: "\u00a0",
    "#39": "'", "#x27": "'", ndash: "–", mdash: "—", hellip: "…", copy: "©"};
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const AUTOLINK = /^https?:\/\/[^\s<>"'`\u0000-\u0020]+/i;

/* The address, if it is one that may be followed; null otherwise. */
export function safeHref(text) {
    let url;
    try {
        url = new URL(text);
    } catch (error) {
        return null;
    }
    return (url.protocol === "http:" || url.protocol === "https:") && url.username === "" &&
        url.password === "" ? url.href : null;
}

function classify(c) {
    if (c === undefined || /\s/.test(c))
        return "space";
    return /[\p{P}\p{S}]/u.test(c) ? "mark" : "word";
}

/* One walk over the text makes pieces; brackets are matched by a stack on the way, emphasis by one
 * pass over the pieces between them. */
export function parseInlines(text) {
    const pieces = [];   /* strings, nodes, {mark, count, opens, closes}, {bracket} */
    const brackets = []; /* indices of open ones in pieces */
    const noCode = new Set(); /* lengths of runs of backticks that nothing closes any more */
    let plain = "";
    const flush = () => {
        if (plain !== "")
            pieces.push(plain);
        plain = "";
    };
    const put = (piece) => {
        flush();
        pieces.push(piece);
    };
    let i = 0;
    while (i < text.length) {
        const c = text[i];
        if (c === "\\" && i + 1 < text.length && ESCAPABLE.test(text[i + 1])) {
            plain += text[i + 1];
            i += 2;
        } else if (c === "`") {
            i = takeCode(text, i, noCode, put, (literal) => { plain += literal; });
        } else if (c === "*" || c === "_" || c === "~") {
            let end = i;
            while (text[end] === c)
                end++;
            put(makeMark(text, c, i, end));
            i = end;
        } else if (c === "!" && text[i + 1] === "[" || c === "[") {
            put({bracket: c === "[" ? "[" : "!["});
            brackets.push(pieces.length - 1);
            if (brackets.length > DEPTH_MAX) { /* the outermost stays text */
                const outer = brackets.shift();
                pieces[outer] = pieces[outer].bracket;
            }
            i += c === "[" ? 1 : 2;
        } else if (c === "]") {
            flush();
            i = closeBracket(text, i, pieces, brackets);
        } else if (c === "\n") {
            plain = plain.trimEnd();
            put({type: "break"});
            i++;
        } else if (c === "&") {
            const entity = /^&(#?\w{1,8});/.exec(text.slice(i, i + 12));
            const known = entity && Object.hasOwn(ENTITIES, entity[1]);
            plain += known ? ENTITIES[entity[1]] : "&";
            i += known ? entity[0].length : 1;
        } else if (c === "<" || (c === "h" || c === "H") && classify(text[i - 1]) !== "word") {
            i = takeAutolink(text, i, put, (literal) => { plain += literal; });
        } else {
            plain += c;
            i++;
        }
    }
    flush();
    return emphasise(pieces);
}

function takeCode(text, i, noCode, put, literal) {
    let end = i;
    while (text[end] === "`")
        end++;
    const run = text.slice(i, end);
    if (!noCode.has(run.length)) {
        for (let at = text.indexOf(run, end); at >= 0; at = text.indexOf(run, at)) {
            let after = at;
            while (text[after] === "`")
                after++;
            if (after - at === run.length) {
                let body = text.slice(end, at).replace(/\n/g, " ");
                if (body.startsWith(" ") && body.endsWith(" ") && /[^ ]/.test(body))
                    body = body.slice(1, -1);
                put({type: "code", text: body});
                return after;
            }
            at = after;
        }
        noCode.add(run.length);
    }
    literal(run);
    return end;
}

function takeAutolink(text, i, put, literal) {
    const angle = text[i] === "<";
    const found = AUTOLINK.exec(text.slice(i + (angle ? 1 : 0), i + 2048));
    if (!found || angle && text[i + 1 + found[0].length] !== ">") {
        literal(text[i]);
        return i + 1;
    }
    let address = found[0];
    if (!angle) { /* what ends the sentence is not part of the address */
        address = address.replace(/[.,:;!?*_~\]}]+$/, "");
        let spare = address.split(")").length - address.split("(").length;
        for (; spare > 0 && address.endsWith(")"); spare--)
            address = address.slice(0, -1);
    }
    const href = safeHref(address);
    if (href === null) {
        literal(text[i]);
        return i + 1;
    }
    put({type: "link", href, inlines: [address]});
    return i + address.length + (angle ? 2 : 0);
}

function makeMark(text, c, begin, end) {
    const before = classify(text[begin - 1]), after = classify(text[end]);
    const left = after !== "space" && (after === "word" || before !== "word");
    const right = before !== "space" && (before === "word" || after !== "word");
    return {mark: c, count: end - begin,
        opens: left && (c !== "_" || !right || before === "mark"),
        closes: right && (c !== "_" || !left || after === "mark")};
}

/* "](address "title")" after an open bracket makes a link; anything else stays text. */
function closeBracket(text, i, pieces, brackets) {
    const open = brackets.pop();
    if (open === undefined) {
        pieces.push("]");
        return i + 1;
    }
    const bracket = pieces[open];
    const target = /^\(\s*(<[^<>\n]*>|[^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*)(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/
        .exec(text.slice(i + 1, i + 1 + 4096));
    const href = target ? safeHref(target[1].replace(/^<(.*)>$/, "$1")) : null;
    if (href === null) { /* a link that may not be followed keeps its whole text, visibly */
        pieces[open] = bracket.bracket;
        pieces.push("]");
        return i + 1;
    }
    const inside = emphasise(pieces.splice(open).slice(1));
    const image = bracket.bracket === "![";
    pieces.push({type: "link", href, image, inlines: inside.length ? inside : [href]});
    if (!image) { /* no links inside links: what is still open stays text */
        for (const index of brackets)
            pieces[index] = pieces[index].bracket;
        brackets.length = 0;
    }
    return i + 1 + target[0].length;
}

/* Marks of emphasis are paired from the inside out: each closing one looks back for its opener, and
 * remembers how far back there was none. Where too many are open, the outermost stay text. */
function emphasise(pieces) {
    const out = []; /* what is finished, with marks still open among it */
    const open = new OpenMarks();
    const floors = new Map();
    for (const piece of pieces) {
        if (piece.bracket) {
            out.push(piece.bracket);
            continue;
        }
        if (!piece.mark) {
            out.push(piece);
            continue;
        }
        const mark = {...piece};
        while (mark.closes && mark.count > 0) {
            const kind = `${mark.mark}${mark.mark === "~" ? mark.count : mark.count % 3}${mark.opens}`;
            const floor = Math.min(floors.get(kind) ?? 0, out.length);
            let at = out.length - 1;
            while (at >= floor && !(out[at].mark === mark.mark && out[at].opens &&
                   fits(out[at], mark)))
                at--;
            if (at < floor) {
                floors.set(kind, out.length);
                break;
            }
            open.shutTo(out[at]);
            join(out, at, mark);
            open.add(out[at]);
        }
        open.add(mark);
        if (mark.count > 0)
            out.push(mark.opens ? mark : mark.mark.repeat(mark.count));
    }
    return merge(out);
}

/* Marks that may still open something, the outermost first: together no more than MARKS_MAX, which
 * is how deep emphasis gets. */
class OpenMarks {
    constructor() {
        this.marks = [];
        this.total = 0;
    }

    add(mark) {
        if (!mark.opens || mark.count === 0)
            return;
        this.marks.push(mark);
        this.total += mark.count;
        while (this.total > MARKS_MAX) {
            const outer = this.marks.shift();
            this.total -= outer.count;
            outer.opens = false;
        }
    }

    /* Takes out everything from `mark` on; counts have not changed since they were added. */
    shutTo(mark) {
        let last;
        do {
            last = this.marks.pop();
            this.total -= last.count;
        } while (last !== mark);
    }
}

function fits(opener, closer) {
    if (opener.mark === "~")
        return opener.count === closer.count && closer.count <= 2;
    return !((opener.closes || closer.opens) && (opener.count + closer.count) % 3 === 0 &&
             (opener.count % 3 !== 0 || closer.count % 3 !== 0));
}

function join(out, at, closer) {
    const opener = out[at];
    const inlines = merge(out.splice(at + 1));
    const used = opener.mark === "~" ? closer.count : Math.min(2, opener.count, closer.count);
    opener.count -= used;
    closer.count -= used;
    if (opener.count === 0)
        out.pop();
    out.push({type: opener.mark === "~" ? "strike" : used === 2 ? "strong" : "emphasis", inlines});
}

/* Marks that found no partner are text; texts side by side are one. */
function merge(pieces) {
    const out = [];
    for (const piece of pieces) {
        const text = piece.mark ? piece.mark.repeat(piece.count) : piece;
        if (typeof text === "string" && typeof out[out.length - 1] === "string")
            out[out.length - 1] += text;
        else
            out.push(text);
    }
    return out;
}

/* ---- Nodes ---- */

/* Characters that change how others are drawn, or draw nothing: seen as what they are. */
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufeff]/;

/* The text as nodes, with characters of control shown instead of obeyed. */
export function visible(text) {
    if (!CONTROLS.test(text))
        return [text];
    return text.split(new RegExp(`(${CONTROLS.source})`)).filter((part) => part !== "").map((part) =>
        CONTROLS.test(part) ? el("span", {class: "control", title: "a control character"},
            `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`) : part);
}

const NAMES = {strong: "strong", emphasis: "em", strike: "del"};

function inlineNodes(inlines) {
    return inlines.flatMap((inline) => {
        if (typeof inline === "string")
            return visible(inline);
        switch (inline.type) {
        case "break":
            return [el("br")];
        case "code":
            return [el("code", {}, visible(inline.text))];
        case "link":
            return [el("a", {href: inline.href, rel: "noopener noreferrer nofollow",
                target: "_blank", title: inline.href}, inline.image ? "Image: " : null,
                el("bdi", {}, inlineNodes(inline.inlines)))];
        default:
            return [el(NAMES[inline.type], {}, inlineNodes(inline.inlines))];
        }
    });
}

function codeNode(block) {
    const name = block.language || "text";
    const code = el("code", {}, colour(block.text, block.language, visible));
    return el("figure", {class: "code"},
        el("figcaption", {}, el("span", {}, visible(name.slice(0, 40))),
            copyButton("Copy the code", () => block.text, true)),
        el("pre", {dir: "ltr", tabindex: 0, role: "region", "aria-label": `Code, ${name.slice(0, 40)}`}, code));
}

function tableNode(block) {
    const cell = (tag, column, inlines) => el(tag, {class: block.align[column],
        scope: tag === "th" ? "col" : null}, inlineNodes(inlines));
    return el("div", {class: "table", tabindex: 0, role: "region", "aria-label": "Table"},
        el("table", {},
            el("thead", {}, el("tr", {}, block.head.map((h, i) => cell("th", i, h)))),
            el("tbody", {}, block.rows.map((row) =>
                el("tr", {}, row.map((inlines, i) => cell("td", i, inlines)))))));
}

function listNode(block) {
    return el(block.ordered ? "ol" : "ul", {start: block.ordered && block.start !== 1
        ? block.start : null}, block.items.map((item) => el("li",
        {class: item.checked === null ? null : "task"},
        item.checked === null ? null : el("input", {type: "checkbox", disabled: true,
            checked: item.checked, "aria-label": item.checked ? "done" : "open"}),
        itemNodes(item.blocks))));
}

/* The text of a plain item stands in the item itself, not in a paragraph of its own. */
function itemNodes(blocks) {
    return blocks.flatMap((block, i) => i === 0 && block.type === "paragraph"
        ? inlineNodes(block.inlines) : [blockNode(block)]);
}

export function blockNode(block) {
    switch (block.type) {
    case "heading": /* the page's own headings end at 2 */
        return el(`h${Math.min(6, block.level + 2)}`, {dir: "auto"}, inlineNodes(block.inlines));
    case "code":
        return codeNode(block);
    case "quote":
        return el("blockquote", {dir: "auto"}, block.blocks.map(blockNode));
    case "list":
        return listNode(block);
    case "table":
        return tableNode(block);
    case "rule":
        return el("hr");
    default:
        return el("p", {dir: "auto"}, inlineNodes(block.inlines));
    }
}

/* Brings `container` up to `text`: blocks whose source did not change keep their nodes, so that a
 * growing answer redraws its end alone, and what was selected above stays selected. */
export function renderInto(container, text) {
    try {
        renderBlocks(container, text);
    } catch (error) { /* an answer that cannot be drawn can be read */
        console.error(error);
        container.renderedBlocks = [];
        container.replaceChildren(el("p", {class: "plain", dir: "auto"}, visible(text)));
    }
}

function renderBlocks(container, text) {
    const old = container.renderedBlocks || [];
    const blocks = parse(text);
    let same = 0;
    while (same < old.length && same < blocks.length && old[same].raw === blocks[same].raw &&
           old[same].type === blocks[same].type)
        same++;
    while (container.childNodes.length > same)
        container.lastChild.remove();
    for (const block of blocks.slice(same))
        container.append(blockNode(block));
    container.renderedBlocks = blocks.map(({raw, type}) => ({raw, type}));
}
