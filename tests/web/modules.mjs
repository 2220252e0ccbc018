/* The page's modules without a browser. Run by sources.py, which puts them beside this file. */
import assert from "node:assert/strict";
import {EventReader} from "./api.js";
import {tokens} from "./code.js";
import {growth, sampleOf} from "./dashboard.js";
import {formatBytes, formatNumber, formatSeconds, shortName} from "./dom.js";
import {parse, parseInlines, renderInto, safeHref} from "./markdown.js";
import * as store from "./store.js";

// Milliseconds of this process alone: other load on the machine does not count.
const processorTime = () => {
    const used = process.cpuUsage();
    return (used.user + used.system) / 1000;
};

let done = 0;
function test(name, body) {
    try {
        body();
        done++;
    } catch (error) {
        console.log(`FAILED: ${name}\n${error.stack}`);
        process.exitCode = 1;
    }
}

/* A tree in few words: p(a strong(b)). */
function brief(blocks) {
    const inline = (x) => typeof x === "string" ? JSON.stringify(x) : x.type === "break" ? "br"
        : x.type === "code" ? `code(${JSON.stringify(x.text)})`
            : `${x.type}${x.href ? `<${x.href}>` : ""}(${x.inlines.map(inline).join(" ")})`;
    const inlines = (list) => list.map(inline).join(" ");
    const block = (b) => {
        switch (b.type) {
        case "paragraph": return `p(${inlines(b.inlines)})`;
        case "heading": return `h${b.level}(${inlines(b.inlines)})`;
        case "code": return `pre<${b.language}>(${JSON.stringify(b.text)})${b.open ? "…" : ""}`;
        case "quote": return `quote(${b.blocks.map(block).join(" ")})`;
        case "list": return `${b.ordered ? `ol${b.start}` : "ul"}(${b.items.map((item) =>
            `li${item.checked === null ? "" : item.checked ? "[x]" : "[ ]"}(${item.blocks.map(block).join(" ")})`).join(" ")})`;
        case "table": return `table<${b.align.map((a) => a ? a[0] : "-").join("")}>(${b.head.map(inlines).join("|")}${b.rows.map((row) => `/${row.map(inlines).join("|")}`).join("")})`;
        default: return b.type;
        }
    };
    return blocks.map(block).join(" ");
}
const blocks = (text, wanted) => test(text, () => assert.equal(brief(parse(text)), wanted));
const inline = (text, wanted) => blocks(text, `p(${wanted})`);

/* ---- Blocks ---- */
blocks("", "");
blocks(" \n\t\n", "");
blocks("a\nb\n\nc", 'p("a" br "b") p("c")');
blocks("a  \nb\\\nc", 'p("a" br "b\\\\" br "c")');
blocks("# A #\n## B\n###### F\n####### G\n#no", 'h1("A") h2("B") h6("F") p("####### G" br "#no")');
blocks("# C#", 'h1("C#")');
blocks("#", "h1()");
blocks("A\n===\nB\n---\nc", 'h1("A") h2("B") p("c")');
blocks("***\n- - -\n___", "rule rule rule");
blocks("```js\nlet a = `x`;\n\n```\nz", 'pre<js>("let a = `x`;\\n") p("z")');
blocks("~~~~\n~~~\n```\n~~~~", 'pre<>("~~~\\n```")');
blocks("```Python title=x\nx", 'pre<python>("x")…');
blocks("``` a ` b", 'p("``` a ` b")');
blocks("> a\nb\n>> c\n\nd", 'quote(p("a" br "b") quote(p("c"))) p("d")');
blocks("- a\n- b\n* c", 'ul(li(p("a")) li(p("b"))) ul(li(p("c")))');
blocks("- a\n\n- b\n\n\n- c", 'ul(li(p("a")) li(p("b")) li(p("c")))');
blocks("3. a\n4. b\n   more", 'ol3(li(p("a")) li(p("b" br "more")))');
blocks("1. a\n   - b\n     1. c\n2. d", 'ol1(li(p("a") ul(li(p("b") ol1(li(p("c")))))) li(p("d")))');
blocks("1. a\n  - b\n2. c", 'ol1(li(p("a") ul(li(p("b")))) li(p("c")))');
blocks("- [ ] a\n- [x] b\n- [y] c", 'ul(li[ ](p("a")) li[x](p("b")) li(p("[y] c")))');
blocks("1. a\n\n   ```c\n   int x;\n     y;\n   ```\n\n2. b", 'ol1(li(p("a") pre<c>("int x;\\n  y;")) li(p("b")))');
blocks("- a\n\nb", 'ul(li(p("a"))) p("b")');
blocks("a\n- b", 'p("a") ul(li(p("b")))');
blocks("a 1985\n1986. b", 'p("a 1985" br "1986. b")');
blocks("|a|b|\n|:-|-:|\n|1|`x|y`|\n|2|\n\nz", 'table<-r>("a"|"b"/"1"|code("x|y")/"2"|) p("z")');
blocks("a | b\n:-: | -\nc \\| d | e | f", 'table<c->("a"|"b"/"c | d"|"e")');
blocks("a | b\n--- \nc", 'h2("a | b") p("c")');
blocks("text\n| a | b |\n|---|---|\n| 1 | 2 |", 'p("text") table<-->("a"|"b"/"1"|"2")');
blocks("<script>alert(1)</script>\n<b>x</b>", 'p("<script>alert(1)</script>" br "<b>x</b>")');
blocks("a\r\nb\rc", 'p("a" br "b" br "c")');

/* ---- Inlines ---- */
inline("**a** *b* ***c*** ~~d~~ `e`", 'strong("a") " " emphasis("b") " " emphasis(strong("c")) " " strike("d") " " code("e")');
inline("__a__ _b_ snake_case_name", 'strong("a") " " emphasis("b") " snake_case_name"');
inline("**a *b* c**", 'strong("a " emphasis("b") " c")');
inline("*a **b** c*", 'emphasis("a " strong("b") " c")');
inline("2 * 3 * 4 and a*b", '"2 * 3 * 4 and a*b"');
inline("**open and *half*", '"**open and " emphasis("half")');
inline("\\*a\\* \\`b\\` \\\\ \\q", '"*a* `b` \\\\ \\\\q"');
inline("`a\\` `` b`c `` ` d ` `e", 'code("a\\\\") " " code("b`c") " " code("d") " `e"');
inline("**`*`**", 'strong(code("*"))');
inline("&lt;b&gt; &amp;amp; &copy; &nope; &#x3c;", '"<b> &amp; © &nope; &#x3c;"');
inline("[a **b**](https://x.org/y \"t\")", 'link<https://x.org/y>("a " strong("b"))');
inline("[a](<https://x.org/y z>)", 'link<https://x.org/y%20z>("a")');
inline("[a](https://x.org/w_(v))!", 'link<https://x.org/w_(v)>("a") "!"');
inline("![pic](https://x.org/p.png)", 'link<https://x.org/p.png>("pic")');
inline("[![i](https://x.org/i)](https://x.org/l)", 'link<https://x.org/l>(link<https://x.org/i>("i"))');
inline("[[a](https://x.org) b](https://y.org)", '"[" link<https://x.org/>("a") " b](" link<https://y.org/>("https://y.org") ")"');
inline("see https://x.org/a_b. (https://x.org/c) <https://x.org/d>", '"see " link<https://x.org/a_b>("https://x.org/a_b") ". (" link<https://x.org/c>("https://x.org/c") ") " link<https://x.org/d>("https://x.org/d")');
inline("xhttps://x.org ahttp://b", '"xhttps://x.org ahttp://b"');
inline("[] [x] [y][z] ](", '"[] [x] [y][z] ]("');
for (const bad of ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", " javascript:x",
    "data:text/html,<script>", "vbscript:x", "file:///etc/passwd", "blob:x", "//x.org", "/v1/models",
    "#/dashboard", "mailto:a@b", "https:", "http://", "https://user:pass@x.org", "\u0001javascript:x",
    "javascript&colon;alert(1)", "ht\ntp://x"]) {
    test(`link to ${bad}`, () => {
        const found = JSON.stringify(parseInlines(`[a](${bad}) [a](<${bad}>) <${bad}>`));
        for (const [, href] of found.matchAll(/"href":"([^"]*)"/g))
            assert.match(href, /^https?:\/\/[^/@]+\//);
        assert.ok(safeHref(bad) === null || /^https?:/.test(safeHref(bad)));
    });
}
test("a refused link keeps its text", () => assert.equal(brief(parse("[a](javascript:b)")),
    'p("[a](javascript:b)")'));

/* ---- Time grows with the length, whatever the text; and it can be drawn ---- */
/* As much of a document as drawing an answer needs. */
class FakeNode {
    constructor(tag) {
        Object.assign(this, {tag, attributes: {}, childNodes: []});
    }
    get lastChild() {
        const {childNodes} = this;
        return {remove: () => childNodes.pop()};
    }
    setAttribute(name, value) {
        this.attributes[name] = value;
    }
    addEventListener() {}
    append(...nodes) {
        for (const node of nodes)
            this.childNodes.push(node);
    }
    replaceChildren(...nodes) {
        this.childNodes = nodes;
    }
    text() {
        return this.childNodes.map((node) => typeof node === "string" ? node : node.text()).join("");
    }
}
globalThis.document = {createElement: (tag) => new FakeNode(tag), createElementNS: (_, tag) => new FakeNode(tag)};
function draw(text) {
    const body = new FakeNode("div");
    renderInto(body, text);
    return body;
}
function depthOf(nodes) { /* without recursion, which the tree must not need much of */
    let deepest = 0;
    for (const todo = nodes.map((node) => [node, 1]); todo.length > 0;) {
        const [node, depth] = todo.pop();
        deepest = Math.max(deepest, depth);
        for (const inner of [node.inlines, node.blocks, node.items].flatMap((list) => list || []))
            todo.push([inner, depth + 1]);
    }
    return deepest;
}
const hostile = {
    brackets: "[".repeat(1e5), images: "![".repeat(5e4) + "](".repeat(5e4), stars: "*".repeat(1e5),
    words: "*a ".repeat(5e4), under: "a_b_ ".repeat(2e4), mixed: "*_~".repeat(3e4), quotes: "> ".repeat(5e4),
    items: "- ".repeat(5e4), deep: Array.from({length: 1500}, (_, i) => " ".repeat(i) + "- x").join("\n"),
    spaces: `# ${" ".repeat(1e5)}x`, tail: `a${" ".repeat(1e5)}b`, blank: `- a${"\n".repeat(1e5)}  b`,
    fence: `\`\`\`${" ".repeat(1e5)}\``, ticks: Array.from({length: 400}, (_, i) => "`".repeat(i + 1)).join(" "),
    links: "[[a](http://b.c)".repeat(6e3), address: `http://a${")".repeat(1e5)}`, bars: `${"|".repeat(1e5)}\n${"|-".repeat(5e4)}|`,
    entities: "&amp".repeat(3e4), angles: "<http://".repeat(2e4), plain: "word ".repeat(4e5),
    nested: "**a ".repeat(2e4) + "b** ".repeat(2e4), single: "*a ".repeat(2e4) + "b* ".repeat(2e4),
    thick: "*".repeat(1e5) + "a" + "*".repeat(1e5), struck: "~~a *b ".repeat(2e4) + "c* d~~ ".repeat(2e4),
    frames: "![".repeat(2e4) + "a" + "](http://b.c)".repeat(2e4), gap: `- a${"\n".repeat(4e5)}  b`,
    framed: "![**a *b ".repeat(2e3) + "c* d**](http://b.c)".repeat(2e3), code: `\` ${"a".repeat(2e5)}\``,
    tables: "a|b\n".repeat(3e4), rules: "-|".repeat(5e4), emoji: "👩‍👩‍👧‍👦".repeat(1e4),
};
for (const [name, text] of Object.entries(hostile)) {
    test(`hostile ${name}`, () => {
        const begin = processorTime();
        const tree = parse(text);
        assert.ok(processorTime() - begin < 10000, `${processorTime() - begin} ms`);
        assert.ok(depthOf(tree) < 300, `${depthOf(tree)} deep`);
        const body = draw(text);
        assert.ok(body.childNodes.length > 0 && body.childNodes[0].attributes.class !== "plain");
    });
}
test("the innermost marks make emphasis, the outermost stay text", () => {
    const many = (n) => brief(parse("**a ".repeat(n) + "b" + " c**".repeat(n)));
    assert.equal(many(12).match(/strong/g).length, 12);
    assert.ok(!many(12).includes("**"));
    assert.equal(many(20).match(/strong/g).length, 12);
    assert.equal(many(20).match(/\*\*/g).length, 16);
    assert.equal(brief(parse(`${"*a ".repeat(100)}and **b**`)).match(/strong\("b"\)/g).length, 1);
    assert.equal(brief(parse(`${"[".repeat(100)}a](https://x.org)`)),
        `p("${"[".repeat(99)}" link<https://x.org/>("a"))`);
});
test("an answer that cannot be drawn is shown as it is", () => {
    const body = draw("first\n\nsecond");
    const {createElement} = document;
    const {error} = console;
    console.error = () => {};
    document.createElement = (tag) => {
        if (tag === "strong")
            throw new RangeError("too deep");
        return createElement(tag);
    };
    renderInto(body, "first\n\n**second**");
    document.createElement = createElement;
    console.error = error;
    assert.deepEqual(body.childNodes.map((node) => [node.tag, node.attributes.class, node.text()]),
        [["p", "plain", "first\n\n**second**"]]);
    renderInto(body, "first\n\n**second**");
    assert.deepEqual(body.childNodes.map((node) => node.text()), ["first", "second"]);
});

/* ---- Colours of code: all of the text comes back, in order ---- */
const sources = {
    c: '#include <x>\n/* two\nlines */ int main(void) { return f("a\\"b", \'c\', 0x1F, 1.5e3); } // end',
    python: 'def f(x):\n    """doc\n    more"""\n    return x + 1  # note', html: '<a href="x">&amp;</a><!-- c -->',
    css: "a:hover { color: #fff; --x: 1px; } @media print {}", bash: 'for x in *; do echo "$x"; done # go',
    sql: "SELECT a FROM b WHERE c = 'd' -- e", json: '{"a": [1, true, null]}', nonsense: "x y z", "": "plain",
    __proto__: "x", constructor: "y", rust: "fn main() { let x: &'a str = \"y\"; 'z' }",
};
for (const [language, text] of Object.entries(sources)) {
    test(`colours of ${language}`, () =>
        assert.equal(tokens(text, language).map(([, part]) => part).join(""), text));
}
test("kinds", () => {
    const kinds = new Map(tokens(sources.c, "c").map(([kind, part]) => [part, kind]));
    assert.deepEqual(["int", "main", "0x1F", "/* two\nlines */", '"a\\"b"', "// end"].map((part) => kinds.get(part)),
        ["keyword", "called", "number", "comment", "string", "comment"]);
});
for (const [language, part] of [["c", '"\\'], ["c", "/*"], ["c", "'"], ["python", "'''"], ["html", "<"], ["html", "<!--"],
    ["css", "a"], ["css", "-"], ["css", "@"], ["sql", "--"], ["bash", "${"], ["js", "`"], ["c", "0"], ["c", "1e"], ["rust", "'a"]]) {
    test(`hostile ${language} ${part}`, () => {
        const text = part.repeat(Math.floor(60000 / part.length));
        const begin = processorTime();
        assert.equal(tokens(text, language).map(([, piece]) => piece).join(""), text);
        assert.ok(processorTime() - begin < 10000, `${processorTime() - begin} ms`);
    });
}

/* ---- Server-sent events, cut at every place ---- */
test("events", () => {
    const stream = "data: a\n\n: c\r\n\r\ndata: b\r\ndata: c\r\n\r\nevent: x\ndata:d\n\ndata: last\n\n";
    for (let cut = 0; cut <= stream.length; cut++) {
        const seen = [];
        const reader = new EventReader((data) => seen.push(data));
        reader.push(stream.slice(0, cut));
        reader.push(stream.slice(cut));
        assert.deepEqual(seen, ["a", "b\nc", "d", "last"], `cut at ${cut}`);
    }
});

/* ---- The tree of messages ---- */
test("branches", () => {
    const c = store.newConversation({system: "s", mix: {a: 1}});
    const q = store.addNode(c, "", {role: "user", text: "q"});
    const a = store.addNode(c, q.id, {role: "assistant", text: "a"});
    const b = store.addNode(c, q.id, {role: "assistant", text: "b"});
    assert.deepEqual(store.pathOf(c).map((n) => n.text), ["q", "b"]);
    store.chooseSibling(c, b, -1);
    assert.deepEqual(store.pathOf(c).map((n) => n.text), ["q", "a"]);
    store.chooseSibling(c, a, -1);
    assert.deepEqual(store.childrenOf(c, q.id), [a, b]);
    const copy = store.checkConversation(JSON.parse(JSON.stringify(c)));
    assert.deepEqual(store.pathOf(copy).map((n) => n.text), ["q", "a"]);
    assert.deepEqual(store.importConversations(store.exportConversations([c])).length, 1);
});
test("circles and strangers end", () => {
    const c = store.checkConversation({version: 1, id: "x", title: "t", nodes: {
        a: {id: "a", parent: "b", role: "user", text: ""}, b: {id: "b", parent: "a", role: "user", text: ""},
        c: {id: "c", parent: "", role: "tool", text: ""}, d: {id: "d", parent: "", role: "user", text: 5},
        e: {id: "E/../", parent: "", role: "user", text: ""}}, chosen: {"": "a", a: "b", b: "a"}});
    assert.deepEqual(Object.keys(c.nodes), ["a", "b"]);
    assert.equal(c.chosen[""], undefined);
    assert.deepEqual(store.pathOf(c), []);
    c.chosen[""] = "a"; /* even then it ends */
    assert.ok(store.pathOf(c).length > 0);
    for (const bad of [null, 1, [], {}, {version: 2}, {version: 1, id: "../x", title: "", nodes: {}}])
        assert.equal(store.checkConversation(bad), null);
});
test("titles", () => {
    assert.equal(store.titleFrom("  # Hello\nworld "), "Hello world");
    assert.ok(store.titleFrom("word ".repeat(50)).length <= 49);
    assert.equal(store.titleFrom("\n"), "New conversation");
});

/* ---- Figures ---- */
test("figures", () => {
    assert.deepEqual([null, NaN, 0.0000123, 0.0042, 0.0843, 0.5, 1.234, 12.34, 250].map(formatSeconds),
        ["–", "–", "12 µs", "4.2 ms", "84 ms", "500 ms", "1.23 s", "12.3 s", "250 s"]);
    assert.deepEqual([null, 0, 999, 1000, 1234567, 3.5e10].map(formatBytes),
        ["–", "0 B", "999 B", "1.00 KB", "1.23 MB", "35.0 GB"]);
    assert.deepEqual([null, 0, 1.234, 12.34, 1234.5].map((value) => formatNumber(value)),
        ["–", "0", "1.23", "12.3", "1,235"]);
});
test("names", () => assert.deepEqual(["tiny", "a/b/c.gguf", "org/name", "x.avo", "/", "", ".bin", "a × 0.5"]
    .map(shortName), ["tiny", "c", "name", "x", "/", "", ".bin", "a × 0.5"]));
test("telemetry with nothing in it", () => {
    const sample = sampleOf({}, 1);
    assert.equal(sample.newRate, null);
    assert.equal(sample.first50, null);
    assert.equal(growth([sample], (said) => said.prefix?.hit_tokens), null);
});
test("growth of totals", () => {
    const at = (time, total) => ({time, said: {x: total}});
    assert.equal(growth([at(0, 0), at(5, 10), at(10, 30)], (said) => said.x), 3);
    assert.equal(growth([at(0, 0), at(20, 10), at(22, 14)], (said) => said.x), 2);
    assert.equal(growth([at(0, 9), at(1, 3)], (said) => said.x), null);
    assert.equal(growth([at(0, 9), at(1, null)], (said) => said.x), null);
});

console.log(`${done} tests of modules passed`);
