/* The panel at the side: system prompt, adapters and their weights, sampling, the key, and the
 * conversations as a file. What is changed holds for the open conversation and for new ones. */
import {postJson} from "./api.js";
import {announce, byId, el, icon, toast} from "./dom.js";
import {loadKey, SAMPLING, saveKey} from "./store.js";

const WEIGHT_MAX = 2;

export class Settings {
    /* `app` gives: conversation, settings, base(), adapters(), and settingsChanged(),
     * modelsChanged(), exportAll(), exportOne(), importFile(). */
    constructor(app) {
        this.app = app;
        this.panel = byId("settings");
        this.body = byId("settings-body");
        this.build();
    }

    build() {
        this.system = el("textarea", {id: "system", rows: 4, dir: "auto",
            placeholder: "You are a helpful assistant."});
        this.system.addEventListener("input", () => {
            this.app.conversation.system = this.system.value;
            this.app.settings.system = this.system.value;
            this.app.settingsChanged();
        });
        this.mix = el("div", {class: "mix"});
        this.key = el("input", {id: "key", type: "password", autocomplete: "off", spellcheck: "false",
            placeholder: "none"});
        this.key.addEventListener("change", () => {
            saveKey(this.key.value.trim());
            this.app.modelsChanged();
        });
        this.body.replaceChildren(
            section("System prompt", el("label", {class: "hidden", for: "system"}, "System prompt"),
                this.system),
            section("Adapters", this.mix, this.loader()),
            section("Sampling", ...SAMPLING.map((field) => this.samplingRow(field)),
                el("p", {class: "note"}, "Empty fields leave the choice to the server.")),
            section("Access", row("API key", "key", this.key, "kept for this tab alone")),
            section("Conversations", el("div", {class: "button-row"},
                el("button", {type: "button", class: "outline", id: "export-one",
                    onclick: () => this.app.exportOne()}, icon("save"), "Export"),
                el("button", {type: "button", class: "outline", id: "export-all",
                    onclick: () => this.app.exportAll()}, "Export all"),
                el("button", {type: "button", class: "outline", id: "import",
                    onclick: () => byId("import-file").click()}, "Import"))));
    }

    /* A number, and a slider beside it where its range is one that a hand can choose from. */
    samplingRow(field) {
        const id = `s-${field.name}`;
        const box = el("input", {id, type: "number", min: field.min, max: field.max,
            step: field.whole ? 1 : "any", inputmode: field.whole ? "numeric" : "decimal",
            placeholder: "auto", "aria-describedby": `${id}-hint`});
        const slides = field.max <= 2;
        const slider = slides ? el("input", {type: "range", min: field.min, max: field.max,
            step: field.step, "aria-label": field.label, tabindex: -1}) : null;
        const take = (text) => {
            const value = text === "" ? null : Number(text);
            const good = value === null || Number.isFinite(value) && value >= field.min &&
                value <= field.max && (!field.whole || Number.isInteger(value));
            box.setAttribute("aria-invalid", String(!good || box.validity.badInput));
            if (!good || box.validity.badInput)
                return;
            if (value === null)
                delete this.app.settings.sampling[field.name];
            else
                this.app.settings.sampling[field.name] = value;
            this.app.settingsChanged();
        };
        box.addEventListener("input", () => {
            take(box.value);
            if (slider)
                drawSlider(slider, box.value);
        });
        slider?.addEventListener("input", () => {
            box.value = slider.value;
            take(slider.value);
            drawSlider(slider, slider.value);
        });
        return row(field.label, id, box, field.hint, slider);
    }

    /* Loading asks for a path on the server, and on guarded servers for the operator's key. */
    loader() {
        const name = el("input", {id: "load-name", autocomplete: "off", required: true,
            placeholder: "poetry"});
        const path = el("input", {id: "load-path", autocomplete: "off", required: true,
            placeholder: "adapters/poetry"});
        const form = el("form", {class: "loader"},
            row("Name", "load-name", name), row("Path on the server", "load-path", path),
            el("button", {class: "outline"}, "Load"));
        form.addEventListener("submit", async (event) => {
            event.preventDefault();
            try {
                await postJson("/v1/load_lora_adapter", {lora_name: name.value.trim(),
                    lora_path: path.value.trim()});
                toast(`Loaded ${name.value.trim()}.`);
                name.value = path.value = "";
                this.app.modelsChanged();
            } catch (error) {
                toast(error.message);
            }
        });
        return el("details", {}, el("summary", {}, "Load an adapter"), form);
    }

    /* Everything as it now is; called when the panel opens, and when the conversation or the list
     * of models changes. */
    draw() {
        const {conversation, settings} = this.app;
        if (document.activeElement !== this.system)
            this.system.value = conversation.system;
        this.key.value = loadKey();
        for (const {name} of SAMPLING) {
            const box = byId(`s-${name}`);
            if (document.activeElement !== box)
                box.value = settings.sampling[name] ?? "";
            const slider = box.parentElement.querySelector("[type=range]");
            if (slider)
                drawSlider(slider, box.value);
        }
        this.drawMix();
    }

    drawMix() {
        const {conversation} = this.app;
        const adapters = this.app.adapters();
        const known = new Set(adapters);
        const missing = Object.keys(conversation.mix).filter((name) => !known.has(name));
        if (adapters.length === 0 && missing.length === 0) {
            this.mix.replaceChildren(el("p", {class: "note"}, "This server has no adapters loaded."));
            return;
        }
        const focused = document.activeElement?.id;
        this.mix.replaceChildren(...[...adapters, ...missing].map((name, i) =>
            this.mixRow(name, i, known.has(name))));
        if (focused)
            byId(focused)?.focus();
    }

    mixRow(name, i, known) {
        const {mix} = this.app.conversation;
        const on = Object.hasOwn(mix, name);
        const set = (weight) => {
            if (weight === null)
                delete mix[name];
            else
                mix[name] = weight;
            this.app.settings.mix = {...mix};
            this.app.settingsChanged();
        };
        const check = el("input", {type: "checkbox", id: `mix-${i}`, checked: on});
        check.addEventListener("change", () => {
            set(check.checked ? 1 : null);
            this.drawMix();
            announce(check.checked ? `${name} added` : `${name} removed`);
        });
        const shown = el("output", {for: `mix-weight-${i}`}, on ? mix[name].toFixed(2) : "");
        const slider = el("input", {type: "range", id: `mix-weight-${i}`, min: 0, max: WEIGHT_MAX,
            step: 0.05, value: on ? mix[name] : 1, disabled: !on, "aria-label": `Weight of ${name}`});
        drawSlider(slider, on ? mix[name] : "");
        slider.addEventListener("input", () => {
            set(Number(slider.value));
            shown.textContent = Number(slider.value).toFixed(2);
            drawSlider(slider, slider.value);
        });
        return el("div", {class: `mix-row${on ? " on" : ""}`},
            el("label", {for: `mix-${i}`}, check, el("span", {}, name),
                known ? null : el("em", {}, "not loaded")), slider, shown);
    }
}

/* The part of the track that is chosen; empty where nothing is. */
function drawSlider(slider, value) {
    const share = value === "" ? 0 : (Number(value) - slider.min) / (slider.max - slider.min);
    slider.classList.toggle("unset", value === "");
    slider.value = value === "" ? 1 : value; /* unset, it rests where it changes nothing */
    slider.style.setProperty("--share", `${Math.max(0, Math.min(1, share)) * 100}%`);
}

let sections = 0;

function section(title, ...children) {
    const id = `settings-section-${sections++}`;
    return el("section", {"aria-labelledby": id}, el("h3", {id}, title), ...children);
}

function row(label, id, input, hint, slider) {
    return el("div", {class: `row${slider ? " with-slider" : ""}`},
        el("label", {for: id}, label, hint ? el("small", {id: `${id}-hint`}, hint) : null),
        slider, input);
}
