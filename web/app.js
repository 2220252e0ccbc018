/* The page's beginning: what is open, the list of conversations, the views, the keyboard. */
import {getJson, listModels, ServerError} from "./api.js";
import {Chat} from "./chat.js";
import {Dashboard} from "./dashboard.js";
import {announce, byId, el, fillIcons, icon, iconButton, shortName, toast} from "./dom.js";
import {Settings} from "./settings.js";
import * as store from "./store.js";
import {Training} from "./training.js";

const STARTERS = [
    "Explain how a tide works, to a curious ten-year-old",
    "Write a Python function that finds duplicate files",
    "Compare three ways to brew coffee in a table",
    "Give me a five-line poem about a wading bird",
];
const RECONNECT_MS = 5000;
const NARROW = matchMedia("(max-width: 860px)");

class App {
    constructor() {
        this.settings = store.loadSettings();
        this.models = [];
        this.conversation = store.newConversation(this.settings);
        this.chat = new Chat(this);
        this.panel = new Settings(this);
        this.dashboard = new Dashboard(byId("dashboard"));
        this.training = new Training(byId("training"));
        this.wire();
        this.route();
        this.modelsChanged();
    }

    wire() {
        byId("new-chat").addEventListener("click", () => this.startNew());
        byId("theme").addEventListener("click", () => this.nextTheme());
        byId("shortcuts").addEventListener("click", () => byId("shortcuts-dialog").showModal());
        byId("shortcuts-close").addEventListener("click", () => byId("shortcuts-dialog").close());
        byId("sidebar-open").addEventListener("click", () => this.openSidebar(true));
        byId("sidebar-close").addEventListener("click", () => this.openSidebar(false));
        byId("settings-open").addEventListener("click", () => this.openSettings(byId("settings").hidden));
        byId("settings-chip").addEventListener("click", () => this.openSettings(true));
        byId("settings-close").addEventListener("click", () => this.openSettings(false));
        byId("shade").addEventListener("click", () => this.closePanels());
        byId("server-state").addEventListener("click", () => this.modelsChanged());
        byId("model").addEventListener("change", () => this.modelPicked());
        byId("import-file").addEventListener("change", (event) => this.importFile(event.target));
        byId("starters").append(...STARTERS.map((text) => el("li", {}, el("button",
            {type: "button", onclick: () => {
                this.chat.prompt.value = text;
                this.chat.send();
            }}, text))));
        NARROW.addEventListener("change", () => this.closePanels());
        window.addEventListener("hashchange", () => this.route());
        window.addEventListener("storage", (event) => this.changedElsewhere(event));
        window.addEventListener("keydown", (event) => this.key(event));
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden) /* adapters come and go, and so do servers */
                this.modelsChanged();
        });
        this.drawTheme();
    }

    /* ---- Views ---- */

    /* "#/dashboard", "#/training" or "#/training/RUN", "#/chat" (a new one) or "#/chat/ID". */
    route() {
        const [, view, id] = location.hash.split("/");
        this.view = view === "dashboard" || view === "training" ? view : "chat";
        for (const name of ["chat", "dashboard", "training"]) {
            byId(name).hidden = name !== this.view;
            if (name === this.view)
                byId(`view-${name}`).setAttribute("aria-current", "page");
            else
                byId(`view-${name}`).removeAttribute("aria-current");
        }
        byId("settings-open").hidden = this.onBoard();
        this.dashboard.show(this.view === "dashboard");
        this.training.show(this.view === "training", id);
        if (this.onBoard())
            this.openSettings(false);
        else
            this.openConversation(id);
        if (NARROW.matches)
            this.openSidebar(false);
        this.drawTitle();
        this.drawList();
    }

    /* Not in the chat. */
    onBoard() {
        return this.view !== "chat";
    }

    openConversation(id) {
        if (id && id === this.conversation.id)
            return;
        const running = id && this.chat.streams.get(id);
        const found = running ? running.conversation : id ? store.loadConversation(id) : null;
        if (!found && !id && Object.keys(this.conversation.nodes).length === 0) {
            this.drawAll(); /* the new one that nothing was said in yet */
            return;
        }
        if (id && !found) {
            toast("This conversation is not kept in this browser.");
            history.replaceState(null, "", "#/chat");
        }
        this.conversation = found || store.newConversation(this.settings);
        this.chat.follow = true;
        this.drawAll();
    }

    startNew() {
        if (location.hash !== "#/chat")
            history.pushState(null, "", "#/chat");
        this.route();
        this.chat.focusPrompt();
        announce("New conversation");
    }

    drawAll() {
        this.chat.draw();
        this.panel.draw();
        this.drawPicker();
        this.drawTitle();
    }

    drawTitle() {
        const title = {dashboard: "Dashboard", training: "Training"}[this.view] || this.conversation.title;
        byId("title").textContent = title;
        document.title = title === "New conversation" ? "Avocet" : `${title} · Avocet`;
        const begun = Object.keys(this.conversation.nodes).length > 0;
        byId("view-chat").href = begun ? `#/chat/${this.conversation.id}` : "#/chat";
    }

    /* ---- Conversations ---- */

    /* Something was said in it: kept, and first in the list. */
    changed(conversation) {
        this.chat.keep(conversation);
        if (conversation === this.conversation && !this.onBoard()) {
            const hash = `#/chat/${conversation.id}`;
            if (location.hash !== hash)
                history.replaceState(null, "", hash);
            this.drawTitle();
        }
        this.drawList();
    }

    drawList() {
        const list = byId("conversations");
        if (list.querySelector("input"))
            return; /* one is being renamed */
        const all = store.listConversations();
        const focused = list.contains(document.activeElement)
            ? document.activeElement.closest("li")?.dataset.id : null;
        list.replaceChildren(...all.map((head) => this.listRow(head)));
        byId("conversations-empty").hidden = all.length > 0;
        if (focused)
            list.querySelector(`[data-id="${focused}"] a`)?.focus();
    }

    listRow(head) {
        const open = head.id === this.conversation.id && !this.onBoard();
        const answering = this.chat.streams.has(head.id);
        return el("li", {"data-id": head.id, class: open ? "open" : null},
            el("a", {href: `#/chat/${head.id}`, "aria-current": open ? "true" : null, dir: "auto",
                title: head.title}, head.title,
            answering ? el("span", {class: "busy"}, el("span", {class: "hidden"}, ", answering")) : null),
            iconButton("edit", `Rename ${head.title}`, () => this.rename(head)),
            iconButton("trash", `Delete ${head.title}`, () => this.remove(head)));
    }

    rename(head) {
        const row = byId("conversations").querySelector(`[data-id="${head.id}"]`);
        const box = el("input", {"aria-label": "Name of the conversation", maxlength: 200});
        box.value = head.title;
        let left = false;
        const leave = (keep) => {
            if (left)
                return;
            left = true;
            const title = box.value.trim();
            if (keep && title !== "" && title !== head.title) {
                const kept = head.id === this.conversation.id ? this.conversation
                    : this.chat.streams.get(head.id)?.conversation || store.loadConversation(head.id);
                if (kept) {
                    Object.assign(kept, {title, named: true});
                    this.chat.keep(kept);
                }
            }
            box.remove();
            this.drawList();
            this.drawTitle();
            byId("conversations").querySelector(`[data-id="${head.id}"] a`)?.focus();
        };
        box.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Enter" && !event.isComposing)
                leave(true);
            else if (event.key === "Escape")
                leave(false);
        });
        box.addEventListener("blur", () => leave(true));
        row.replaceChildren(box);
        box.focus();
        box.select();
    }

    remove(head) {
        const kept = this.chat.streams.get(head.id)?.conversation || store.loadConversation(head.id);
        this.chat.streams.get(head.id)?.controller.abort();
        store.deleteConversation(head.id);
        if (head.id === this.conversation.id)
            this.conversation = store.newConversation(this.settings);
        if (!this.onBoard())
            history.replaceState(null, "", "#/chat");
        this.drawAll();
        this.drawList();
        byId("new-chat").focus();
        toast(`Deleted “${head.title}”.`, "Undo", () => {
            if (kept && store.saveConversation(kept))
                this.drawList();
        });
    }

    /* Another tab of this browser wrote. */
    changedElsewhere(event) {
        if (event.key === "avocet.theme")
            this.drawTheme();
        const id = event.key === null ? null : store.isConversationKey(event.key);
        if (event.key !== null && id === null)
            return;
        store.forgetHeads();
        if (id === this.conversation.id && !this.chat.streams.has(id)) {
            this.conversation = store.loadConversation(id) || this.conversation;
            this.chat.draw();
            this.drawTitle();
        }
        this.drawList();
    }

    download(name, conversations) {
        const url = URL.createObjectURL(new Blob([store.exportConversations(conversations)],
            {type: "application/json"}));
        el("a", {href: url, download: name}).click();
        setTimeout(() => URL.revokeObjectURL(url), 10000);
    }

    exportOne() {
        const name = this.conversation.title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
        this.download(`${name || "conversation"}.json`, [this.conversation]);
    }

    exportAll() {
        const all = store.listConversations().map((head) => store.loadConversation(head.id));
        this.download("avocet-conversations.json", all.filter((kept) => kept !== null));
    }

    async importFile(input) {
        const file = input.files[0];
        if (!file)
            return;
        try {
            const found = store.importConversations(await file.text());
            const kept = found.filter((conversation) => store.saveConversation(conversation)).length;
            toast(kept === found.length ? `Imported ${kept} ${kept === 1 ? "conversation" : "conversations"}.`
                : `Imported ${kept} of ${found.length}: this browser has no room for the rest.`);
        } catch (error) {
            toast(error.message);
        }
        input.value = "";
        this.drawList();
    }

    /* ---- Models and settings ---- */

    base() {
        return this.models.find((model) => model.parent === null)?.id || this.models[0]?.id || "";
    }

    adapters() {
        const base = this.base();
        return this.models.map((model) => model.id).filter((id) => id !== base);
    }

    async modelsChanged() {
        let reached = false;
        clearTimeout(this.again);
        try {
            this.models = await listModels();
            reached = true;
            this.drawServer("good", shortName(this.base()) || "no model", this.base());
        } catch (error) {
            const locked = error instanceof ServerError && error.status === 401;
            this.drawServer("bad", locked ? "Key wanted" : error.status ? "Failing" : "Unreachable");
            if (locked)
                this.keyWanted();
            else
                this.again = setTimeout(() => !document.hidden && this.modelsChanged(), RECONNECT_MS);
        }
        this.drawPicker();
        this.panel.drawMix();
        if (reached)
            await this.trainingChanged();
    }

    /* The view is offered where the server has something to show there. A question whose answer
     * was lost is asked again. */
    async trainingChanged() {
        clearTimeout(this.againTraining);
        try {
            const version = await getJson("/version");
            byId("view-training").hidden = !version.training;
            this.serverSampling = version.sampling;
        } catch (error) {
            byId("view-training").hidden = true;
            if (!(error.status >= 400))
                this.againTraining = setTimeout(() => this.trainingChanged(), RECONNECT_MS);
        }
    }

    drawServer(state, text, title) {
        byId("server-state").className = `server-state ${state}`;
        byId("server-text").textContent = text;
        byId("server-state").title = title || text;
        byId("server-state").setAttribute("aria-label", `The server: ${text}. Ask again`);
        if (state === "good")
            byId("welcome-model").textContent = text;
    }

    keyWanted() {
        if (this.onBoard())
            return;
        this.openSettings(true);
        byId("key").focus();
    }

    /* One of the list, or the mixture that the panel made. */
    drawPicker() {
        const picker = byId("model");
        const base = this.base();
        const parts = Object.entries(this.conversation.mix);
        const single = parts.length === 1 && parts[0][1] === 1 ? parts[0][0] : null;
        const names = [base, ...this.adapters()];
        if (single && !names.includes(single))
            names.push(single);
        const options = names.map((name) => el("option", {value: name}, shortName(name) || "No model"));
        if (parts.length > 0 && !single)
            options.push(el("option", {value: "\u0000mix"},
                parts.length === 1 ? `${parts[0][0]} × ${parts[0][1]}` : `${parts.length} adapters`));
        picker.replaceChildren(...options);
        picker.value = parts.length === 0 ? base : single || "\u0000mix";
        this.drawChip();
    }

    drawChip() {
        const {sampling} = this.settings;
        const words = [];
        if (this.conversation.system.trim() !== "")
            words.push("System prompt");
        if (sampling.temperature !== undefined)
            words.push(`Temperature ${sampling.temperature}`);
        const rest = Object.keys(sampling).filter((name) => name !== "temperature").length;
        if (rest > 0)
            words.push(words.length ? `${rest} more` : `${rest} set`);
        byId("settings-chip").replaceChildren(icon("sliders"),
            el("span", {}, words.join(" · ") || "Defaults"));
        byId("settings-chip").setAttribute("aria-label",
            `Settings: ${words.join(", ") || "defaults of the server"}`);
    }

    modelPicked() {
        const picked = byId("model").value;
        if (picked === "\u0000mix")
            return;
        this.conversation.mix = picked === this.base() ? {} : {[picked]: 1};
        this.settings.mix = {...this.conversation.mix};
        this.settingsChanged();
        this.panel.drawMix();
        announce(`${shortName(picked)} answers from now on`);
    }

    settingsChanged() {
        store.saveSettings(this.settings);
        if (Object.keys(this.conversation.nodes).length > 0)
            this.chat.keep(this.conversation);
        this.drawPicker();
    }

    /* ---- Panels ---- */

    openSidebar(open) {
        byId("frame").classList.toggle("sidebar-shown", open);
        byId("sidebar-open").setAttribute("aria-expanded", String(open));
        this.shade();
        if (!NARROW.matches)
            return;
        if (open)
            byId("sidebar-close").focus();
        else if (byId("sidebar").contains(document.activeElement) || document.activeElement === document.body)
            byId("sidebar-open").focus();
    }

    openSettings(open) {
        const was = !byId("settings").hidden;
        byId("settings").hidden = !open;
        byId("settings-open").setAttribute("aria-expanded", String(open));
        if (open) {
            this.panel.draw();
            byId("settings-close").focus();
        } else if (was && !this.onBoard()) {
            byId("settings-open").focus();
        }
        this.shade();
    }

    /* On narrow screens a panel lies over the rest, which cannot be reached meanwhile. */
    shade() {
        const narrow = NARROW.matches;
        const sidebar = byId("frame").classList.contains("sidebar-shown");
        const settings = !byId("settings").hidden;
        byId("sidebar").inert = narrow && !sidebar;
        byId("main").inert = narrow && (sidebar || settings);
        byId("shade").hidden = !narrow || !(sidebar || settings);
    }

    closePanels() {
        if (byId("frame").classList.contains("sidebar-shown"))
            this.openSidebar(false);
        if (!byId("settings").hidden)
            this.openSettings(false);
        this.shade();
    }

    /* ---- Theme ---- */

    nextTheme() {
        const order = ["system", "light", "dark"];
        store.saveTheme(order[(order.indexOf(store.loadTheme()) + 1) % order.length]);
        this.drawTheme();
        announce(byId("theme-name").textContent);
    }

    drawTheme() {
        const theme = store.loadTheme();
        if (theme === "system")
            delete document.documentElement.dataset.theme;
        else
            document.documentElement.dataset.theme = theme;
        byId("theme-name").textContent = {system: "System theme", light: "Light theme", dark: "Dark theme"}[theme];
    }

    /* ---- Keyboard ---- */

    key(event) {
        const typing = event.target.closest?.("input, textarea, select");
        if (byId("shortcuts-dialog").open || event.isComposing)
            return;
        const control = event.ctrlKey || event.metaKey;
        if (event.key === "Escape") {
            if (this.onBoard() && byId("shade").hidden)
                return;
            const inPanel = byId("settings").contains(event.target) || !byId("shade").hidden;
            if (this.chat.stream() && !inPanel)
                this.chat.stop();
            else
                this.closePanels();
        } else if (control && !event.shiftKey && !event.altKey && event.key.toLowerCase() === "k") {
            event.preventDefault();
            this.startNew();
        } else if (control && event.key === ",") {
            event.preventDefault();
            if (!this.onBoard())
                this.openSettings(byId("settings").hidden);
        } else if (control || event.altKey || typing) {
            return;
        } else if (event.key === "/") {
            event.preventDefault();
            if (this.onBoard())
                location.hash = byId("view-chat").hash;
            this.chat.focusPrompt();
        } else if (event.key === "?") {
            byId("shortcuts-dialog").showModal();
        }
    }
}

fillIcons(document);
new App();
