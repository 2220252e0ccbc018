/* The chat view: the transcript, the message box, and answers as they stream.
 *
 * An answer belongs to its conversation, not to the view: who opens another conversation meanwhile
 * finds it finished when coming back. One answer per conversation at a time.
 */
import {ServerError, streamChat} from "./api.js";
import {announce, byId, copyButton, el, formatNumber, formatSeconds, icon, iconButton, shortName,
    toast} from "./dom.js";
import {renderInto, visible} from "./markdown.js";
import {addNode, childrenOf, chooseSibling, pathOf, saveConversation, titleFrom} from "./store.js";

const SAVE_MS = 1000;  /* a growing answer is kept this often */
const ANOTHER_TEMPERATURE = 0.8; /* of another answer, where 0 would give the same */
const NEAR_BOTTOM = 80; /* pixels: nearer than this, the view follows the answer */

export class Chat {
    /* `app` gives: conversation, settings, models, and changed(), keyWanted(). */
    constructor(app) {
        this.app = app;
        this.streams = new Map(); /* conversation id → {controller, node, conversation, …} */
        this.follow = true;
        this.lastTop = 0;
        this.prompt = byId("prompt");
        this.scroller = byId("scroller");
        this.transcript = byId("transcript");
        byId("composer").addEventListener("submit", (event) => {
            event.preventDefault();
            this.send();
        });
        byId("stop").addEventListener("click", () => this.stop());
        byId("jump").addEventListener("click", () => this.toBottom(true));
        this.prompt.addEventListener("input", () => this.fitPrompt());
        this.prompt.addEventListener("keydown", (event) => this.promptKey(event));
        this.scroller.addEventListener("scroll", () => this.scrolled(), {passive: true});
        window.addEventListener("pagehide", () => {
            this.leaving = true; /* what ends now ends because nobody listens any more */
            for (const {conversation} of this.streams.values())
                saveConversation(conversation);
        });
        window.addEventListener("pageshow", () => { this.leaving = false; });
        new ResizeObserver(() => this.follow && this.toBottom(false)).observe(this.transcript);
    }

    /* ---- The message box ---- */

    promptKey(event) {
        if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            this.send();
        } else if (event.key === "ArrowUp" && this.prompt.value === "") {
            const mine = this.transcript.querySelectorAll(".message.user .edit");
            if (mine.length) {
                event.preventDefault();
                mine[mine.length - 1].click();
            }
        }
    }

    fitPrompt() {
        this.prompt.style.height = "auto";
        this.prompt.style.height = `${this.prompt.scrollHeight}px`;
        byId("send").disabled = this.prompt.value.trim() === "";
    }

    focusPrompt() {
        this.prompt.focus();
    }

    /* ---- Asking ---- */

    stream() {
        return this.streams.get(this.app.conversation.id);
    }

    send() {
        const text = this.prompt.value.trim();
        if (text === "" || this.stream())
            return;
        this.prompt.value = "";
        this.fitPrompt();
        const conversation = this.app.conversation;
        const path = pathOf(conversation);
        this.ask(conversation, path.length ? path[path.length - 1].id : "", text);
    }

    /* A question under `parent`, and its answer. */
    ask(conversation, parent, text) {
        const question = addNode(conversation, parent, {role: "user", text});
        if (!conversation.named && Object.keys(conversation.nodes).length === 1)
            conversation.title = titleFrom(text);
        this.answer(conversation, question);
    }

    /* An answer to a question. `another`: one that differs from those that are there. */
    async answer(conversation, question, another = false) {
        if (this.streams.has(conversation.id))
            return;
        const messages = this.messagesUntil(conversation, question);
        const {body, name} = this.requestOf(conversation, messages);
        const sampled = another ? differ(body, childrenOf(conversation, question.id).length) : {};
        const node = addNode(conversation, question.id, {role: "assistant", text: "",
            answered: name});
        const stream = {controller: new AbortController(), conversation, node, pieces: 0,
            sampled, begin: performance.now(), first: null, last: null, saved: 0, drawn: 0, cost: 0};
        this.streams.set(conversation.id, stream);
        this.follow = true;
        this.app.changed(conversation);
        this.draw();
        announce("Answering");
        await this.run(stream, body);
    }

    async run(stream, body) {
        const {node, conversation} = stream;
        try {
            const end = await streamChat(body, stream.controller.signal,
                (piece) => this.grow(stream, piece));
            node.finish = end.finish || "stop";
            node.stats = statsOf(stream, end.usage);
        } catch (error) {
            if (this.leaving)
                return;
            node.stats = statsOf(stream, null);
            if (error.name === "AbortError") {
                node.finish = "stopped";
            } else {
                node.error = error instanceof ServerError ? error.message
                    : "Something went wrong in this page.";
                stream.retrySeconds = error.retrySeconds;
                if (error.status === 401)
                    this.app.keyWanted();
                if (!(error instanceof ServerError))
                    console.error(error);
            }
        }
        this.streams.delete(conversation.id);
        clearTimeout(stream.timer);
        this.keep(conversation);
        if (conversation === this.app.conversation) {
            this.drawEnd(stream);
            announce(node.error ? node.error : node.finish === "stopped" ? "Stopped"
                : `Answer complete, ${node.stats.tokens ?? 0} tokens`);
        }
        this.app.changed(conversation);
    }

    stop() {
        this.stream()?.controller.abort();
    }

    messagesUntil(conversation, question) {
        const chain = [];
        for (let at = question; at; at = conversation.nodes[at.parent])
            chain.unshift(at);
        const messages = chain.filter((node) => node.role === "user" || node.text !== "")
            .map((node) => ({role: node.role, content: node.text}));
        if (conversation.system.trim() !== "")
            messages.unshift({role: "system", content: conversation.system});
        return messages;
    }

    /* The request, and the name of what answers. One adapter at its full weight is asked for by
     * name, as any client would; a mixture by its parts. */
    requestOf(conversation, messages) {
        const base = this.app.base();
        const parts = Object.entries(conversation.mix);
        const body = {model: base || undefined, messages,
            ...unnamed(this.app.serverSampling, this.app.settings.sampling),
            ...this.app.settings.sampling};
        if (parts.length === 1 && parts[0][1] === 1)
            body.model = parts[0][0];
        else if (parts.length > 0)
            body.adapters = parts.map(([name, weight]) => ({name, weight}));
        return {body, name: body.adapters
            ? parts.map(([name, weight]) => `${name} × ${weight}`).join(" + ") : body.model || ""};
    }

    keep(conversation) {
        if (!saveConversation(conversation) && !this.warned) {
            this.warned = true;
            toast("This browser has no room to keep the conversation. Export it, or delete others.");
        }
    }

    /* ---- Growing ---- */

    grow(stream, piece) {
        const now = performance.now();
        stream.first ??= now;
        stream.last = now;
        stream.pieces++;
        stream.node.text += piece;
        if (now - stream.saved > SAVE_MS) {
            stream.saved = now;
            this.keep(stream.conversation);
        }
        if (stream.conversation !== this.app.conversation || stream.timer)
            return;
        /* Drawn as often as the screen shows it, and at most a fifth of the time. */
        const wait = Math.max(0, stream.drawn + Math.max(30, 5 * stream.cost) - now);
        stream.timer = setTimeout(() => {
            stream.timer = null;
            this.drawGrowing(stream);
        }, wait);
    }

    drawGrowing(stream) {
        const article = byId(`m-${stream.node.id}`);
        if (!article)
            return;
        const begin = performance.now();
        renderInto(article.querySelector(".body"), stream.node.text);
        article.querySelector(".stats").replaceChildren(...statsNodes(statsOf(stream, null)));
        stream.drawn = performance.now();
        stream.cost = stream.drawn - begin;
    }

    drawEnd(stream) {
        const old = byId(`m-${stream.node.id}`);
        if (old) {
            const article = this.messageNode(stream.node, stream.retrySeconds);
            /* The drawn body stays, so that nothing flickers and what is selected stays so. */
            const body = old.querySelector(".body");
            renderInto(body, stream.node.text);
            article.querySelector(".body")?.replaceWith(body);
            const focused = old.contains(document.activeElement);
            old.replaceWith(article);
            if (focused)
                this.focusPrompt();
        }
        this.drawState();
    }

    /* ---- Drawing ---- */

    /* Everything of the conversation that is open. */
    draw() {
        const path = pathOf(this.app.conversation);
        this.transcript.replaceChildren(...path.map((node) => this.messageNode(node)));
        byId("welcome").hidden = path.length > 0;
        this.drawState();
        if (this.follow)
            this.toBottom(false);
        else
            this.scrolled();
    }

    /* What the running answer changes outside of the transcript. */
    drawState() {
        const busy = this.stream() !== undefined;
        const refocus = busy ? document.activeElement === byId("send")
            : document.activeElement === byId("stop");
        byId("send").hidden = busy;
        byId("stop").hidden = !busy;
        if (refocus)
            (busy ? byId("stop") : this.prompt).focus();
        this.transcript.setAttribute("aria-busy", String(busy));
        this.fitPrompt();
    }

    messageNode(node, retrySeconds) {
        const growing = this.stream()?.node === node;
        const mine = node.role === "user";
        const body = mine ? el("div", {class: "body plain", dir: "auto"}, visible(node.text))
            : el("div", {class: "body"});
        if (!mine)
            renderInto(body, node.text);
        return el("article", {class: `message ${node.role}${growing ? " growing" : ""}`,
            id: `m-${node.id}`, "aria-busy": growing,
            "aria-label": mine ? "You" : `Answer of ${shortName(node.answered || "") || "the model"}`},
        body,
        growing && node.text === "" ? el("p", {class: "waiting"}, el("i"), el("i"), el("i"),
            el("span", {class: "hidden"}, "Waiting for the first token")) : null,
        node.error ? this.errorNode(node, retrySeconds) : null,
        el("footer", {class: "meta"}, this.branchNode(node, growing),
            mine ? null : el("p", {class: "stats"}, statsNodes(node.stats,
                node.finish || (growing || node.error ? null : "left"))),
            growing || node.error && node.text === "" ? null : this.actionsNode(node)));
    }

    errorNode(node, retrySeconds) {
        const again = el("button", {type: "button", class: "text-button", onclick: () => this.retry(node)},
            icon("again"), el("span", {}, "Try again"));
        const when = el("span", {class: "when"});
        if (retrySeconds) { /* the server said when it is worth asking again */
            const until = Date.now() + retrySeconds * 1000;
            const tick = () => {
                const left = Math.ceil((until - Date.now()) / 1000);
                when.textContent = left > 0 ? `Free again in about ${left} s.` : "";
                if (left > 0)
                    setTimeout(tick, 1000);
            };
            tick();
        }
        return el("div", {class: "error", role: "alert"}, el("p", {}, icon("warn"),
            el("span", {dir: "auto"}, visible(node.error))), when, again);
    }

    /* A failed answer gives way to the next. */
    retry(node) {
        const conversation = this.app.conversation;
        const question = conversation.nodes[node.parent];
        if (!question || this.stream())
            return;
        if (node.text === "") {
            delete conversation.nodes[node.id];
            delete conversation.chosen[question.id];
        }
        this.answer(conversation, question);
    }

    branchNode(node, growing) {
        const conversation = this.app.conversation;
        const siblings = childrenOf(conversation, node.parent);
        if (siblings.length < 2 || growing)
            return null;
        const at = siblings.indexOf(node);
        const go = (step) => () => {
            if (this.stream())
                return;
            chooseSibling(conversation, node, step);
            this.keep(conversation);
            this.follow = false;
            this.draw();
            const chosen = byId(`m-${conversation.chosen[node.parent]}`);
            (chosen.querySelector(`.branch button:${step < 0 ? "first" : "last"}-of-type:not(:disabled)`) ||
                chosen.querySelector(".branch button:not(:disabled)")).focus();
            announce(`Version ${at + step + 1} of ${siblings.length}`);
        };
        return el("div", {class: "branch", role: "group", "aria-label": "Versions"},
            iconButton("left", "Earlier version", go(-1), {disabled: at === 0}),
            el("span", {"aria-label": `Version ${at + 1} of ${siblings.length}`},
                `${at + 1}/${siblings.length}`),
            iconButton("right", "Later version", go(1), {disabled: at === siblings.length - 1}));
    }

    actionsNode(node) {
        const conversation = this.app.conversation;
        return el("div", {class: "actions"},
            copyButton(node.role === "user" ? "Copy the message" : "Copy the answer", () => node.text),
            node.role === "user"
                ? iconButton("edit", "Edit and ask again", () => this.edit(node), {class: "icon-button edit"})
                : iconButton("again", "Another answer", () =>
                    this.answer(conversation, conversation.nodes[node.parent], true),
                {class: "icon-button again"}));
    }

    /* An edited message is a new branch: the old one can be gone back to. */
    edit(node) {
        if (this.stream())
            return;
        const conversation = this.app.conversation;
        const article = byId(`m-${node.id}`);
        const box = el("textarea", {rows: 2, "aria-label": "Edit the message"});
        box.value = node.text;
        const fit = () => {
            box.style.height = "auto";
            box.style.height = `${box.scrollHeight}px`;
        };
        const leave = () => {
            article.replaceWith(this.messageNode(node));
            byId(`m-${node.id}`).querySelector(".edit").focus();
        };
        const done = () => {
            const text = box.value.trim();
            if (text === "" || this.stream())
                return;
            this.focusPrompt();
            this.ask(conversation, node.parent, text);
        };
        box.addEventListener("input", fit);
        box.addEventListener("keydown", (event) => {
            if (event.key === "Escape") {
                event.stopPropagation();
                leave();
            } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                done();
            }
        });
        article.classList.add("editing");
        article.replaceChildren(box, el("div", {class: "edit-row"},
            el("button", {type: "button", class: "quiet", onclick: leave}, "Cancel"),
            el("button", {type: "button", class: "solid", onclick: done}, "Ask again")));
        fit();
        box.focus();
        box.setSelectionRange(box.value.length, box.value.length);
    }

    /* ---- Scrolling ---- */

    scrolled() {
        const {scrollTop, scrollHeight, clientHeight, clientWidth} = this.scroller;
        const left = scrollHeight - scrollTop - clientHeight;
        const size = `${clientWidth} ${clientHeight}`; /* turning a telephone is not going up */
        const resized = size !== this.lastSize;
        this.lastSize = size;
        /* Only who goes up stops following: the answer may have grown since the last look. */
        if (left < NEAR_BOTTOM)
            this.follow = true;
        else if (scrollTop < this.lastTop - 2 && !resized)
            this.follow = false;
        this.lastTop = scrollTop;
        byId("jump").hidden = this.follow || left < NEAR_BOTTOM;
    }

    toBottom(smooth) {
        const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || this.stream();
        this.follow = true;
        byId("jump").hidden = true;
        this.scroller.scrollTo({top: this.scroller.scrollHeight,
            behavior: smooth && !calm ? "smooth" : "instant"});
    }
}

/* What a request has that names no way to draw tokens, where the model's publisher recommends none:
 * small models loop with the likeliest tokens, and wander with the interface's temperature of 1.
 * Loops end answers. `server` is what /version says of sampling; none: an older server. */
export function unnamed(server, settings) {
    if (!server)
        return {};
    const named = ["temperature", "top_p", "top_k"].some((name) => settings[name] !== undefined);
    return {...(named || server.recommended ? {} : {temperature: 0.7, top_p: 0.95, min_p: 0.05}),
        repetition_detection: {max_pattern_size: 256, min_pattern_size: 16, min_count: 4}};
}

/* Makes a request differ from the `before` ones that were answered: the likeliest tokens, which
 * are what servers take where nothing is set, or the same seed would give the same answer. Returns
 * what was chosen here, to be said. */
export function differ(body, before) {
    const sampled = {};
    if (!(body.temperature > 0))
        body.temperature = sampled.temperature = ANOTHER_TEMPERATURE;
    if (body.seed !== undefined)
        body.seed = sampled.seed = (body.seed + before) % (Number.MAX_SAFE_INTEGER + 1);
    return sampled;
}

/* Tokens, time to the first, tokens a second: from the server where it says, from the clock here
 * otherwise. */
function statsOf(stream, usage) {
    const number = (value) => Number.isFinite(value) && value >= 0 ? value : undefined;
    const timings = usage?.timings || {};
    const stats = {tokens: number(usage?.completion_tokens) ?? stream.pieces, ...stream.sampled};
    stats.prompt = number(usage?.prompt_tokens);
    stats.reused = number(usage?.prompt_tokens_details?.cached_tokens);
    if (stream.first !== null) {
        stats.first = (stream.first - stream.begin) / 1000;
        stats.total = (stream.last - stream.begin) / 1000;
        const seconds = (stream.last - stream.first) / 1000;
        const rate = number(timings.tokens_per_second);
        if (rate > 0)
            stats.rate = rate;
        else if (stats.tokens > 1 && seconds > 0.02)
            stats.rate = (stats.tokens - 1) / seconds;
    }
    for (const name of Object.keys(stats)) {
        if (stats[name] === undefined)
            delete stats[name];
    }
    return stats;
}

const FINISHES = {length: "cut at the longest answer", stopped: "stopped",
    content_filter: "filtered", left: "not complete: the page was left"};

function statsNodes(stats, finish) {
    const out = [];
    const put = (value, unit, title) => out.push(el("span", {title}, el("b", {}, value), ` ${unit}`));
    if (stats?.rate !== undefined)
        put(formatNumber(stats.rate, stats.rate < 100 ? 1 : 0), "tokens/s", "after the first token");
    if (stats?.first !== undefined)
        put(formatSeconds(stats.first), "to first token", "as seen here");
    if (stats?.tokens)
        put(formatNumber(stats.tokens, 0), stats.tokens === 1 ? "token" : "tokens",
            stats.prompt !== undefined ? `after ${stats.prompt} of the prompt` +
            (stats.reused ? `, ${stats.reused} of them from the cache` : "") : "so far");
    const sampled = [["temperature", stats?.temperature], ["seed", stats?.seed]]
        .filter(([, value]) => value !== undefined).map(([name, value]) => `${name} ${value}`);
    if (sampled.length)
        out.push(el("span", {class: "sampled",
            title: "so that another answer is not the same one"}, `sampled: ${sampled.join(", ")}`));
    if (FINISHES[finish])
        out.push(el("span", {class: "finish"}, FINISHES[finish]));
    return out;
}
