/* What the browser keeps: conversations and settings in its local storage, the key for this tab
 * alone in its session storage.
 *
 * A conversation is a tree of messages, because an edited question or a second answer does not
 * throw the first away: each node knows its parent, `chosen` says which child is shown. Its path
 * from the root is what is seen and what is sent.
 *
 *   {version, id, title, named, created, updated, system, model, mix: {adapter: weight},
 *    nodes: {id: {id, parent, role, text, …}}, chosen: {parent or "": child}}
 */

const PREFIX = "avocet.chat.";
const TEXT_MAX = 4 << 20;   /* characters of one message in an imported file */
const NODES_MAX = 10000;

export function newId() {
    return Array.from(crypto.getRandomValues(new Uint8Array(9)),
        (byte) => byte.toString(36).padStart(2, "0")).join("").slice(0, 16);
}

export function newConversation(settings) {
    const now = Date.now();
    return {version: 1, id: newId(), title: "New conversation", named: false, created: now,
        updated: now, system: settings.system || "", model: settings.model || "",
        mix: {...settings.mix}, nodes: {}, chosen: {}};
}

/* ---- The tree ---- */

export function childrenOf(conversation, parent) {
    return Object.values(conversation.nodes).filter((node) => node.parent === parent)
        .sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
}

/* The messages that are seen, from the first on. */
export function pathOf(conversation) {
    const path = [];
    let at = conversation.chosen[""];
    while (at !== undefined && conversation.nodes[at] && path.length <= NODES_MAX) {
        path.push(conversation.nodes[at]);
        at = conversation.chosen[at];
    }
    return path;
}

/* Adds a message under `parent` ("" at the top) and chooses it. */
export function addNode(conversation, parent, fields) {
    const siblings = childrenOf(conversation, parent);
    const last = siblings.length ? siblings[siblings.length - 1].created + 1 : 0;
    const node = {id: newId(), parent, created: Math.max(Date.now(), last), ...fields};
    conversation.nodes[node.id] = node;
    conversation.chosen[parent] = node.id;
    conversation.updated = Date.now();
    return node;
}

/* The sibling `step` further, chosen; the ends stay. */
export function chooseSibling(conversation, node, step) {
    const siblings = childrenOf(conversation, node.parent);
    const at = siblings.findIndex((sibling) => sibling.id === node.id) + step;
    if (at >= 0 && at < siblings.length)
        conversation.chosen[node.parent] = siblings[at].id;
}

/* A title from the first words that were said. */
export function titleFrom(text) {
    const line = text.replace(/\s+/g, " ").replace(/^[#>*`\-\s]+/, "").trim();
    if (line.length <= 48)
        return line || "New conversation";
    return `${line.slice(0, 48).replace(/\s+\S*$/, "")}…`;
}

/* ---- Storage ---- */

function storage(kind) {
    try {
        return window[kind];
    } catch (error) {
        return null; /* forbidden by the browser's settings: the page works, nothing is kept */
    }
}

function read(key, fallback) {
    try {
        const text = storage("localStorage")?.getItem(key);
        return text === null || text === undefined ? fallback : JSON.parse(text);
    } catch (error) {
        return fallback;
    }
}

/* False: the browser would not keep it (no space, or forbidden). */
function write(key, value) {
    try {
        storage("localStorage").setItem(key, JSON.stringify(value));
        return true;
    } catch (error) {
        return false;
    }
}

/* What the list shows, newest first: {id, title, updated}. */
export function listConversations() {
    const local = storage("localStorage");
    const found = [];
    for (let i = 0; local && i < local.length; i++) {
        const key = local.key(i);
        if (!key.startsWith(PREFIX))
            continue;
        const kept = heads.get(key) || read(key, null);
        if (kept && typeof kept.title === "string") {
            const head = {id: key.slice(PREFIX.length), title: kept.title, updated: kept.updated || 0};
            heads.set(key, head);
            found.push(head);
        }
    }
    return found.sort((a, b) => b.updated - a.updated);
}
const heads = new Map(); /* so that the list does not read every conversation each time */

export function forgetHeads() {
    heads.clear();
}

export function loadConversation(id) {
    const checked = checkConversation(read(PREFIX + id, null));
    return checked && checked.id === id ? checked : null;
}

export function saveConversation(conversation) {
    heads.delete(PREFIX + conversation.id);
    return write(PREFIX + conversation.id, conversation);
}

export function deleteConversation(id) {
    heads.delete(PREFIX + id);
    storage("localStorage")?.removeItem(PREFIX + id);
}

export function isConversationKey(key) {
    return key !== null && key.startsWith(PREFIX) ? key.slice(PREFIX.length) : null;
}

/* ---- Settings, key, theme ---- */

export const SAMPLING = [
    {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05,
        hint: "0: always the likeliest"},
    {name: "top_p", label: "Top-p", min: 0.01, max: 1, step: 0.01,
        hint: "share of the likeliest kept"},
    {name: "top_k", label: "Top-k", min: 0, max: 1000, step: 1, whole: true,
        hint: "how many are kept; 0: all"},
    {name: "max_tokens", label: "Longest answer", min: 1, max: 1000000, step: 1, whole: true,
        hint: "in tokens"},
    {name: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, whole: true,
        hint: "same seed, same answer"},
];

export function loadSettings() {
    const kept = read("avocet.settings", {}) || {};
    const settings = {system: typeof kept.system === "string" ? kept.system : "",
        model: typeof kept.model === "string" ? kept.model : "", mix: checkMix(kept.mix),
        sampling: {}};
    for (const {name, min, max, whole} of SAMPLING) {
        const value = kept.sampling?.[name];
        if (typeof value === "number" && value >= min && value <= max &&
            (!whole || Number.isInteger(value)))
            settings.sampling[name] = value;
    }
    return settings;
}

export function saveSettings(settings) {
    return write("avocet.settings", settings);
}

export function loadKey() {
    try {
        return storage("sessionStorage")?.getItem("avocet.key") || "";
    } catch (error) {
        return "";
    }
}

export function saveKey(key) {
    try {
        if (key)
            storage("sessionStorage").setItem("avocet.key", key);
        else
            storage("sessionStorage").removeItem("avocet.key");
    } catch (error) {
        /* It then holds until the page is left. */
    }
}

export function loadTheme() {
    let theme = null;
    try {
        theme = storage("localStorage")?.getItem("avocet.theme");
    } catch (error) {
        /* as below */
    }
    return theme === "light" || theme === "dark" ? theme : "system";
}

export function saveTheme(theme) {
    try {
        if (theme === "system")
            storage("localStorage").removeItem("avocet.theme");
        else
            storage("localStorage").setItem("avocet.theme", theme);
    } catch (error) {
        /* It then holds until the page is left. */
    }
}

/* ---- Files ---- */

export function exportConversations(conversations) {
    return JSON.stringify({avocet: "conversations", version: 1, conversations}, null, 1);
}

/* The conversations of an exported file; throws with words where it is none. Ids are new, so that
 * an import never overwrites. */
export function importConversations(text) {
    let file;
    try {
        file = JSON.parse(text);
    } catch (error) {
        throw new Error("The file is not JSON.");
    }
    if (file?.avocet !== "conversations" || !Array.isArray(file.conversations))
        throw new Error("The file holds no exported conversations.");
    const good = file.conversations.map(checkConversation).filter((kept) => kept !== null);
    if (good.length === 0 && file.conversations.length > 0)
        throw new Error("None of the conversations in the file could be read.");
    for (const conversation of good)
        conversation.id = newId();
    return good;
}

function checkMix(mix) {
    const out = {};
    for (const [name, weight] of Object.entries(mix && typeof mix === "object" ? mix : {})) {
        if (typeof weight === "number" && Number.isFinite(weight) && Math.abs(weight) <= 100 &&
            name !== "__proto__")
            out[name] = weight;
    }
    return out;
}

function isText(value, max) {
    return typeof value === "string" && value.length <= max;
}

/* A conversation with only what it should have, or null. What lies in storage or in a file may have
 * been written by another version, or by anybody. */
export function checkConversation(kept) {
    if (!kept || typeof kept !== "object" || kept.version !== 1 || !isText(kept.id, 40) ||
        !/^[0-9a-z]+$/.test(kept.id) || !isText(kept.title, 400) ||
        !kept.nodes || typeof kept.nodes !== "object")
        return null;
    const nodes = Object.create(null);
    for (const node of Object.values(kept.nodes).slice(0, NODES_MAX)) {
        const clean = checkNode(node);
        if (clean)
            nodes[clean.id] = clean;
    }
    const chosen = Object.create(null);
    for (const [parent, child] of Object.entries(kept.chosen || {})) {
        if (typeof child === "string" && nodes[child]?.parent === parent)
            chosen[parent] = child;
    }
    const time = (value) => Number.isFinite(value) ? value : 0;
    return {version: 1, id: kept.id, title: kept.title, named: kept.named === true,
        created: time(kept.created), updated: time(kept.updated),
        system: isText(kept.system, TEXT_MAX) ? kept.system : "",
        model: isText(kept.model, 400) ? kept.model : "", mix: checkMix(kept.mix), nodes, chosen};
}

function checkNode(node) {
    if (!node || typeof node !== "object" || !isText(node.id, 40) || !/^[0-9a-z]+$/.test(node.id) ||
        !isText(node.parent, 40) || !["user", "assistant"].includes(node.role) ||
        !isText(node.text, TEXT_MAX))
        return null;
    const clean = {id: node.id, parent: node.parent, role: node.role, text: node.text,
        created: Number.isFinite(node.created) ? node.created : 0};
    for (const name of ["error", "finish", "answered"]) {
        if (isText(node[name], 2000))
            clean[name] = node[name];
    }
    if (node.stats && typeof node.stats === "object") {
        clean.stats = {};
        for (const name of ["tokens", "prompt", "reused", "first", "rate", "total", "temperature",
            "seed"]) {
            if (Number.isFinite(node.stats[name]))
                clean.stats[name] = node.stats[name];
        }
    }
    return clean;
}
