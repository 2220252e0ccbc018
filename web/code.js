/* Light colouring of code: comments, strings, numbers, keywords and what is called. One regular
 * expression per family of languages walks the text once; what it does not know stays plain. */
import {el} from "./dom.js";

const LENGTH_MAX = 60000; /* longer code stays plain: it is read by nobody while it streams */

const WORDS = {
    c: "auto break case char const continue default do double else enum extern float for goto if inline int long register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL nullptr class namespace template typename public private protected virtual override using new delete this try catch throw operator friend constexpr noexcept size_t uint8_t uint16_t uint32_t uint64_t int8_t int16_t int32_t int64_t",
    script: "abstract any as async await boolean break case catch class const constructor continue debugger default delete do else enum export extends false finally for from function get if implements import in instanceof interface keyof let new null number of package private protected public readonly return set static string super switch this throw true try type typeof undefined unknown var void while with yield",
    python: "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield",
    rust: "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return Self self static struct super trait true type unsafe use where while i8 i16 i32 i64 u8 u16 u32 u64 usize isize f32 f64 bool str String Vec Option Result",
    go: "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false string int int64 byte error bool",
    java: "abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new null package private protected public return short static super switch synchronized this throw throws transient true false try var void volatile while fun val object override internal data when string namespace using async await readonly",
    shell: "if then else elif fi for while until do done case esac in function return local export readonly declare set unset shift exit echo cd source alias sudo",
    sql: "select from where and or not null insert into values update set delete create table primary key foreign references index view join left right inner outer full on as group by order having limit offset union all distinct case when then else end count sum avg min max in is like between exists with drop alter add column default integer text varchar boolean",
    ruby: "alias and begin break case class def do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor puts",
    data: "true false null yes no on off",
};

const DOUBLE = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?`;
const SINGLE = String.raw`'(?:\\[\s\S]|[^'\\\n])*'?`;
const TICKS = "`(?:\\\\[\\s\\S]|[^`\\\\])*`?";
const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|(?![\s\S]))`;
const HASH = String.raw`#[^\n]*`;
const TRIPLE = String.raw`"""[\s\S]*?(?:"""|(?![\s\S]))|'''[\s\S]*?(?:'''|(?![\s\S]))`;

const FAMILIES = {
    c: {comment: `${SLASHES}|^[ \\t]*#[ \\t]*[a-z]+`, string: `${DOUBLE}|${SINGLE}`},
    script: {comment: SLASHES, string: `${DOUBLE}|${SINGLE}|${TICKS}`},
    python: {comment: HASH, string: `[rbfuRBFU]{0,2}(?:${TRIPLE}|${DOUBLE}|${SINGLE})`},
    rust: {comment: SLASHES, string: `${DOUBLE}|'(?:\\\\.|[^'\\\\\\n])'`},
    go: {comment: SLASHES, string: `${DOUBLE}|${SINGLE}|${TICKS}`},
    java: {comment: SLASHES, string: `${DOUBLE}|${SINGLE}`},
    shell: {comment: `(?<![\\S])${HASH}`, string: `${DOUBLE}|'[^']*'?|\\$\\{?\\w+\\}?`},
    sql: {comment: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|(?![\s\S]))`, string: `${DOUBLE}|${SINGLE}`, fold: true},
    ruby: {comment: HASH, string: `${DOUBLE}|${SINGLE}`},
    data: {comment: `(?<![\\S])${HASH}`, string: `${DOUBLE}|${SINGLE}`},
    markup: {comment: String.raw`<!--[\s\S]*?(?:-->|(?![\s\S]))`, string: `${DOUBLE}|${SINGLE}`,
        word: String.raw`<\/?[A-Za-z][\w:-]*|\/?>`},
    style: {comment: String.raw`\/\*[\s\S]*?(?:\*\/|(?![\s\S]))`, string: `${DOUBLE}|${SINGLE}`,
        word: String.raw`[@\w-]+`, follows: /^[ \t]{0,8}:/},
};

const LANGUAGES = {
    c: "c", h: "c", cpp: "c", "c++": "c", cc: "c", hpp: "c", objc: "c", cuda: "c", arduino: "c",
    js: "script", javascript: "script", mjs: "script", jsx: "script", ts: "script",
    typescript: "script", tsx: "script",
    py: "python", python: "python", python3: "python",
    rs: "rust", rust: "rust", go: "go", golang: "go",
    java: "java", kotlin: "java", kt: "java", cs: "java", csharp: "java", "c#": "java",
    swift: "java", scala: "java", dart: "java", php: "java",
    sh: "shell", bash: "shell", zsh: "shell", shell: "shell", console: "shell",
    dockerfile: "shell", makefile: "shell", cmake: "shell",
    sql: "sql", sqlite: "sql", postgresql: "sql", rb: "ruby", ruby: "ruby", lua: "ruby",
    json: "data", yaml: "data", yml: "data", toml: "data", ini: "data",
    html: "markup", xml: "markup", svg: "markup", vue: "markup", css: "style", scss: "style",
};

const made = new Map();

function familyOf(language) {
    const name = Object.hasOwn(LANGUAGES, language || "") ? LANGUAGES[language] : null;
    if (name === null)
        return null;
    if (!made.has(name)) {
        const {comment, string, word, fold, follows} = FAMILIES[name];
        const words = word || String.raw`[A-Za-z_$][\w$]*`;
        made.set(name, {
            pattern: new RegExp(`(${comment})|(${string})|(\\b(?:0[xX][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\w*)|(${words})`, "gm"),
            words: word ? null : new Set(WORDS[name].split(" ")), fold, follows,
        });
    }
    return made.get(name);
}

/* [[class or null, text], …]: all of the text, in order. */
export function tokens(text, language) {
    const family = text.length <= LENGTH_MAX ? familyOf(language) : null;
    if (family === null)
        return [[null, text]];
    const out = [];
    let end = 0;
    const plain = (until) => {
        if (until > end)
            out.push([null, text.slice(end, until)]);
    };
    for (const match of text.matchAll(family.pattern)) {
        let kind = match[1] !== undefined ? "comment" : match[2] !== undefined ? "string"
            : match[3] !== undefined ? "number" : "keyword";
        if (kind === "keyword" && family.words !== null) {
            const word = family.fold ? match[4].toLowerCase() : match[4];
            if (!family.words.has(word))
                kind = text[match.index + match[0].length] === "(" ? "called" : null;
        }
        const after = match.index + match[0].length;
        if (kind === "keyword" && family.follows && match[0][0] !== "@" &&
            !family.follows.test(text.slice(after, after + 9)))
            kind = null;
        if (kind === null || match[0] === "")
            continue;
        plain(match.index);
        out.push([kind, match[0]]);
        end = after;
    }
    plain(text.length);
    return out;
}

/* The nodes of the coloured text; `visible` makes nodes of plain text. */
export function colour(text, language, visible) {
    return tokens(text, language).flatMap(([kind, part]) => kind === null ? visible(part)
        : [el("span", {class: `c-${kind}`}, visible(part))]);
}
