/* Nodes without markup: everything on this page is built by these few functions, and text enters
 * only as text. There is no innerHTML anywhere, and the tests look for it. */

const SVG = "http://www.w3.org/2000/svg";

/* el("p", {class: "x", onclick: f}, "text", node, …). Attributes are set as attributes; on… are
 * listeners; true is an empty attribute; null, undefined and false are left out. */
export function el(tag, attributes, ...children) {
    return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes, ...children) {
    return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
        if (value === null || value === undefined || value === false)
            continue;
        if (name.startsWith("on"))
            node.addEventListener(name.slice(2), value);
        else
            node.setAttribute(name, value === true ? "" : String(value));
    }
    append(node, children);
    return node;
}

export function append(node, children) {
    for (const child of children.flat()) {
        if (child !== null && child !== undefined && child !== false)
            node.append(child);
    }
}

export function byId(id) {
    return document.getElementById(id);
}

/* Line drawings on a grid of 24, drawn with the colour of the text around them. */
const ICONS = {
    plus: "M12 5v14M5 12h14",
    close: "M6 6l12 12M18 6L6 18",
    menu: "M4 7h16M4 12h16M4 17h10",
    chat: "M4 6.5a2 2 0 0 1 2-2h12a2 2 0 0 1 2 2v8a2 2 0 0 1-2 2h-6.5L7 20v-3.5H6a2 2 0 0 1-2-2z",
    pulse: "M3 12h4l3-7 4 14 3-7h4",
    curve: "M4 4.5v15h16M7.5 7.5c1.5 6 4 8 12 8",
    sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 4.5v5M9 14.5v5",
    send: "M12 19V5M6 11l6-6 6 6",
    stop: "M8 8h8v8H8z",
    down: "M12 5v14M6 13l6 6 6-6",
    copy: "M9 9h10v10H9zM5 15V5h10",
    check: "M5 12.5l4.5 4.5L19 7.5",
    again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
    edit: "M5 19l1-4L16.5 4.5l3 3L9 18zM14 7l3 3",
    trash: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7",
    dots: "M6 12h.01M12 12h.01M18 12h.01",
    left: "M14.5 6l-6 6 6 6",
    right: "M9.5 6l6 6-6 6",
    layers: "M12 4l8.5 4.5L12 13 3.5 8.5zM4 13l8 4.3 8-4.3",
    theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
    keyboard: "M3.5 7h17v10h-17zM7 10.5h.01M10.3 10.5h.01M13.6 10.5h.01M17 10.5h.01M8 13.8h8",
    warn: "M12 4.5l8.5 15h-17zM12 10v4.5M12 17h.01",
    save: "M12 4v11M7 10.5l5 5 5-5M5 19.5h14",
    open: "M12 15.5v-11M7 9l5-5 5 5M5 19.5h14",
    pause: "M9 6v12M15 6v12",
    play: "M8 5.5v13l10.5-6.5z",
};

export function icon(name) {
    return svg("svg", {
        viewBox: "0 0 24 24", width: 18, height: 18, class: "icon", "aria-hidden": "true",
        fill: "none", stroke: "currentColor", "stroke-width": 1.7, "stroke-linecap": "round",
        "stroke-linejoin": "round",
    }, svg("path", {d: ICONS[name]}));
}

/* A button with an icon and a name; the name is its tooltip too. */
export function iconButton(name, label, onclick, extra) {
    return el("button", {type: "button", class: "icon-button", "aria-label": label, title: label,
        onclick, ...extra}, icon(name));
}

export function fillIcons(root) {
    for (const node of root.querySelectorAll("[data-icon]"))
        node.prepend(icon(node.dataset.icon));
}

/* Said by screen readers, seen by nobody. */
export function announce(text) {
    byId("announce").textContent = text;
}

/* A short note at the edge; with an action it stays longer. */
export function toast(text, actionName, action) {
    const note = el("div", {class: "toast"}, el("span", {}, text));
    const leave = () => note.remove();
    if (action)
        note.append(el("button", {type: "button", class: "text-button", onclick: () => {
            leave();
            action();
        }}, actionName));
    byId("toasts").append(note);
    setTimeout(leave, action ? 8000 : 4000);
    return note;
}

export async function copyText(text) {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch (error) { /* not a secure origin, or not allowed: the old way */
        const box = el("textarea", {class: "hidden", readonly: true, "aria-hidden": "true"});
        box.value = text;
        document.body.append(box);
        box.select();
        const done = document.execCommand("copy");
        box.remove();
        return done;
    }
}

/* A button that copies what `source` says and shows for a moment that it did. */
export function copyButton(label, source, withText) {
    const button = el("button", {type: "button", class: withText ? "text-button" : "icon-button",
        "aria-label": label, title: label}, icon("copy"), withText ? el("span", {}, "Copy") : null);
    button.addEventListener("click", async () => {
        const done = await copyText(source());
        button.firstChild.replaceWith(icon(done ? "check" : "warn"));
        if (withText)
            button.lastChild.textContent = done ? "Copied" : "Failed";
        announce(done ? "Copied" : "Copying failed");
        setTimeout(() => {
            button.firstChild.replaceWith(icon("copy"));
            if (withText)
                button.lastChild.textContent = "Copy";
        }, 1500);
    });
    return button;
}

/* A model's name without the folder and the kind of file that it may be named after. */
export function shortName(name) {
    return name.replace(/^.*\/(?=[^/]+$)/, "").replace(/\.(?:gguf|avo|bin|safetensors)$/, "") || name;
}

/* ---- Figures, as people read them ---- */

export function formatSeconds(seconds) {
    if (seconds === null || seconds === undefined || !Number.isFinite(seconds))
        return "–";
    if (seconds < 0.001)
        return `${Math.round(seconds * 1e6)} µs`;
    if (seconds < 0.01)
        return `${(seconds * 1e3).toFixed(1)} ms`;
    if (seconds < 1)
        return `${Math.round(seconds * 1e3)} ms`;
    return seconds < 100 ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : `${Math.round(seconds)} s`;
}

export function formatNumber(value, digits) {
    if (value === null || value === undefined || !Number.isFinite(value))
        return "–";
    const shown = digits ?? (Math.abs(value) < 10 && value % 1 !== 0 ? 2 : Math.abs(value) < 100 && value % 1 !== 0 ? 1 : 0);
    return value.toLocaleString("en", {minimumFractionDigits: shown, maximumFractionDigits: shown});
}

export function formatBytes(bytes) {
    if (bytes === null || bytes === undefined || !Number.isFinite(bytes))
        return "–";
    const units = ["B", "KB", "MB", "GB", "TB"];
    let unit = 0;
    while (Math.abs(bytes) >= 1000 && unit < units.length - 1) {
        bytes /= 1000;
        unit++;
    }
    return `${bytes.toFixed(bytes < 10 && unit > 0 ? 2 : bytes < 100 && unit > 0 ? 1 : 0)} ${units[unit]}`;
}
