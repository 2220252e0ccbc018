/* The training page: runs of `avocet train` in the folder that the server shows. The list every two
 * seconds while the page is looked at, and the metrics of the chosen run when they have grown. */
import {getJson} from "./api.js";
import {StepChart} from "./charts.js";
import {append, el, formatNumber} from "./dom.js";

const POLL_MS = 2000;
const TIMEOUT_MS = 10000;
const VALUE_MAX = 1e100; /* larger ones are no metric, and would leave no room for the others */

function number(value) {
    return typeof value === "number" && Number.isFinite(value) ? value : null;
}

const decimal = (value) => value === null ? "–" : Math.abs(value) >= 0.001 && Math.abs(value) < 1e5 || value === 0
    ? String(+value.toPrecision(4)) : (+value.toPrecision(3)).toExponential();
const whole = (value) => formatNumber(value, 0);
const tick = (value) => value !== 0 && (Math.abs(value) < 0.001 || Math.abs(value) >= 1e5)
    ? value.toExponential(0) : String(+value.toPrecision(4));

export function durationText(seconds) {
    if (seconds === null)
        return "–";
    if (seconds < 90)
        return `${Math.ceil(seconds)} s`;
    const minutes = Math.round(seconds / 60);
    return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const STATES = {running: ["good", "Running"], finished: ["", "Finished"], stopped: ["", "Stopped"]};

/* What the charts show, in their order; a chart without a value is hidden. "*": every such name. */
const CHARTS = [
    {title: "Loss", note: "of each step; dashed: of the valid data", names: ["loss", "eval_loss"]},
    {title: "Reward", note: "mean of each step", names: ["reward", "rewards/*/mean"]},
    {title: "Preference", note: "rewards of preferred and rejected answers",
        names: ["rewards/margins", "rewards/chosen", "rewards/rejected"]},
    {title: "Accuracy", note: "share of pairs in the right order", names: ["rewards/accuracies"]},
    {title: "Learning rate", note: "", names: ["learning_rate"]},
    {title: "Speed", note: "tokens per second", names: ["tokens_per_second"]},
    {title: "Gradient norm", note: "before clipping", names: ["grad_norm"]},
    {title: "Entropy", note: "of the distributions of tokens", names: ["entropy"]},
    {title: "Divergence", note: "from the model without the adapter", names: ["kl"]},
    {title: "Completions", note: "mean length in tokens", names: ["completions/mean_length"]},
];
const DASHES = [undefined, "6 3", "2 3", "8 3 2 3"];

/* Names that a chart shows, among those that the run has. */
export function namesOf(chart, known) {
    return chart.names.flatMap((name) => {
        const [before, after] = name.split("*");
        return after === undefined ? known.filter((one) => one === name)
            : known.filter((one) => one.startsWith(before) && one.endsWith(after) &&
                one.length > before.length + after.length);
    }).slice(0, 8);
}

/* {loss: [[1, 2.5], …], …} as one sample for each step. */
export function samplesOf(series, names) {
    const steps = new Map();
    for (const name of names) {
        for (const point of series[name]) {
            const step = number(point?.[0]), value = number(point?.[1]);
            if (step === null || value === null || Math.abs(value) > VALUE_MAX)
                continue;
            if (!steps.has(step))
                steps.set(step, {time: step});
            steps.get(step)[name] = value;
        }
    }
    return [...steps.values()].sort((a, b) => a.time - b.time);
}

function labelOf(name) {
    return name.replace(/^rewards\/(.+)\/mean$/, "$1").replace(/^rewards\//, "").replace(/^completions\//, "")
        .replace("eval_loss", "valid data").replace(/_/g, " ");
}

export class Training {
    constructor(root) {
        this.root = root;
        this.shown = false;
        document.addEventListener("visibilitychange", () => this.poll());
    }

    /* `wanted`: the run that the address names; without one the newest. */
    show(shown, wanted) {
        this.shown = shown;
        if (shown && !this.built)
            this.build();
        if (shown) {
            this.wantedRun = decode(wanted);
            this.known = null;
            this.stop?.abort(); /* what is asked may be of another run */
        }
        this.poll();
    }

    build() {
        this.built = true;
        this.state = el("p", {class: "live", role: "status"});
        this.about = el("p", {class: "about"});
        this.picker = el("select", {onchange: () => {
            location.hash = `#/training/${encodeURIComponent(this.picker.value)}`;
        }});
        this.pick = el("label", {class: "run-pick", hidden: true}, el("span", {}, "Run"), this.picker);
        this.progress = el("progress", {class: "run-progress", "aria-label": "Steps done", max: 1, hidden: true});
        this.tiles = {};
        const tile = (key, label) => {
            const value = el("b"), more = el("small");
            const node = el("div", {class: "tile"}, el("span", {}, label), value, more);
            this.tiles[key] = {node, value, more};
            return node;
        };
        this.board = el("div", {class: "tiles", hidden: true}, tile("step", "Step"), tile("loss", "Loss"),
            tile("reward", "Reward"), tile("rate", "Learning rate"), tile("speed", "Speed"), tile("left", "Time left"));
        this.charts = el("div", {class: "charts"});
        this.note = el("p", {class: "run-note", role: "note", hidden: true});
        this.root.replaceChildren(el("div", {class: "dashboard-body"},
            el("header", {class: "dashboard-head"}, this.state, this.about, this.pick),
            this.progress, this.board, this.note, this.charts));
        this.drawState("", "Looking for runs");
    }

    drawState(kind, text) {
        if (this.state.textContent === text)
            return;
        this.state.className = `live ${kind}`;
        this.state.replaceChildren(el("span", {class: "dot", "aria-hidden": "true"}), text);
    }

    wanted() {
        return this.shown && !document.hidden;
    }

    async poll() {
        clearTimeout(this.timer);
        if (!this.wanted() || this.stop)
            return;
        const stop = this.stop = new AbortController();
        let slow = false;
        const late = setTimeout(() => {
            slow = true;
            stop.abort();
        }, TIMEOUT_MS);
        try {
            await this.ask(stop.signal);
        } catch (error) {
            if (this.wanted() && (slow || error.name !== "AbortError"))
                this.drawState("bad", slow ? "The server takes long to answer" : error.message);
        }
        clearTimeout(late);
        this.stop = null;
        this.timer = setTimeout(() => this.poll(), stop.signal.aborted && !slow ? 0 : POLL_MS);
    }

    async ask(signal) {
        const said = await getJson("/training", signal);
        const runs = Array.isArray(said?.runs) ? said.runs.filter((run) => typeof run?.run === "string") : [];
        if (!this.wanted())
            return;
        const head = runs.find((run) => run.run === this.wantedRun) || (this.wantedRun === null ? runs[0] : null);
        this.drawPicker(runs, head, number(said?.more) || 0);
        if (!head) {
            this.drawEmpty(this.wantedRun === null ? "No training run in the server's folder yet"
                : `There is no training run named ${this.wantedRun}`);
            return;
        }
        const now = `${head.run}\n${head.bytes}`;
        if (this.known !== now) {
            const run = await getJson(`/training?run=${encodeURIComponent(head.run)}`, signal);
            if (!this.wanted())
                return;
            this.known = now;
            this.drawCharts(run);
            this.drawNote(run);
        }
        this.drawHead(head);
    }

    drawEmpty(text) {
        this.drawState("", text);
        this.about.textContent = "";
        this.board.hidden = this.progress.hidden = this.note.hidden = true;
        this.charts.replaceChildren();
        this.drawn = this.known = null;
    }

    drawPicker(runs, head, more) {
        const names = runs.map((run) => `${run.run}\n${run.title}\n${run.state}`).join("\n\n") + more;
        if (this.pickerNames !== names) {
            this.pickerNames = names;
            this.picker.replaceChildren(...runs.map((run) => el("option", {value: run.run},
                `${run.title}${run.state === "running" ? " (running)" : ""}`)));
            if (more > 0)
                this.picker.append(el("option", {disabled: true}, `${whole(more)} older ones are not shown`));
        }
        this.picker.value = head ? head.run : "";
        this.pick.hidden = runs.length < (head ? 2 : 1);
    }

    drawHead(head) {
        const [kind, text] = STATES[head.state] || ["", "Unknown"];
        this.drawState(kind, text);
        const words = [head.title];
        for (const word of [head.task, head.model])
            if (word)
                words.push(word);
        if (number(head.batch) !== null)
            words.push(`batches of ${whole(head.batch)}`);
        if (head.state !== "running" && number(head.age_seconds) !== null)
            words.push(`last written ${durationText(head.age_seconds)} ago`);
        this.about.textContent = words.join(" · ");
        const step = number(head.step) || 0, steps = number(head.steps);
        const set = (key, value, more) => {
            this.tiles[key].value.textContent = value;
            this.tiles[key].more.textContent = more;
        };
        const last = this.latest || {};
        const left = number(head.seconds_left);
        set("step", whole(step), steps ? `of ${whole(steps)}` : "");
        set("loss", decimal(number(last.loss)), number(last.eval_loss) === null ? "" : `valid data ${decimal(last.eval_loss)}`);
        set("reward", decimal(number(last.reward)), "mean of the step");
        set("rate", decimal(number(last.learning_rate)), "");
        set("speed", number(last.tokens_per_second) === null ? "–" : `${whole(last.tokens_per_second)} /s`,
            number(last.num_tokens) === null ? "tokens" : `tokens, ${whole(last.num_tokens)} in all`);
        set("left", head.state === "finished" ? "done" : durationText(left), number(last.step_time) === null ? ""
            : `${decimal(last.step_time)} s a step`);
        this.tiles.reward.node.hidden = number(last.reward) === null;
        this.board.hidden = false;
        this.progress.hidden = !steps;
        if (steps)
            this.progress.value = Math.min(1, step / steps);
    }

    drawNote(run) {
        const words = [];
        if (run.skipped > 0)
            words.push(`${whole(run.skipped)} ${run.skipped === 1 ? "line" : "lines"} of metrics.jsonl ` +
                "could not be read and are left out.");
        if (run.cut)
            words.push("metrics.jsonl is long: only its newest part is shown.");
        this.note.textContent = words.join(" ");
        this.note.hidden = words.length === 0;
    }

    /* Charts stay while the run has the same metrics, so that a value under the pointer stays, too. */
    drawCharts(run) {
        const series = run?.series && typeof run.series === "object" ? run.series : {};
        const known = Object.keys(series).filter((name) => Array.isArray(series[name]) && series[name].length > 0);
        this.latest = run?.latest || {};
        const now = `${run.run}\n${known.join("\n")}`;
        if (this.drawn !== now) {
            this.drawn = now;
            this.parts = CHARTS.map((chart) => ({chart, names: namesOf(chart, known)}))
                .filter(({names}) => names.length > 0);
            for (const part of this.parts)
                part.view = new StepChart({title: part.chart.title, note: part.chart.note, format: decimal, tick,
                    series: part.names.map((name, i) => ({key: name, label: labelOf(name), dash: DASHES[i % 4]}))});
            this.charts.replaceChildren();
            append(this.charts, this.parts.map(({view}) => view.node));
        }
        for (const {names, view} of this.parts)
            view.setSteps(samplesOf(series, names));
    }
}

function decode(text) {
    try {
        return text ? decodeURIComponent(text) : null;
    } catch (error) {
        return text; /* no such run, then */
    }
}
