/* The dashboard: /telemetry once a second while it is looked at, five minutes of it as charts. It
 * asks for nothing while another view or another tab is in front. */
import {getJson} from "./api.js";
import {BarTable, SPAN_SECONDS, TimeChart} from "./charts.js";
import {announce, el, formatBytes, formatNumber, formatSeconds, icon} from "./dom.js";

const POLL_MS = 1000;
const TIMEOUT_MS = 5000;
const WINDOW_SECONDS = 10; /* over which rates of growing totals are taken */
const ADAPTERS_MAX = 7;    /* named in the chart; the rest is one area */

/* A request's way; what else is named are the phases of a step. */
const STAGES = ["tokenise", "queue", "prefill", "decode", "sample", "deliver"];

const seconds = (value) => formatSeconds(value);
const count = (value) => formatNumber(value, value !== null && value % 1 !== 0 ? 1 : 0);
const percent = (value) => value === null ? "–" : `${formatNumber(value * 100, 0)} %`;
const rate = (value) => value === null ? "–" : `${formatBytes(value)}/s`;

/* Short on the axis: the unit is chosen by the top, and zero needs none. */
function secondsTick(value, top) {
    if (value === 0)
        return "0";
    return top < 0.001 ? `${+(value * 1e6).toPrecision(3)} µs` : top < 1
        ? `${+(value * 1e3).toPrecision(3)} ms` : `${+value.toPrecision(3)} s`;
}

function bytesTick(value, top) {
    if (value === 0)
        return "0";
    const [unit, name] = top >= 1e9 ? [1e9, "GB"] : top >= 1e6 ? [1e6, "MB"] : [1e3, "KB"];
    return `${+(value / unit).toPrecision(3)} ${name}`;
}

function countTick(value) {
    return value >= 10000 ? `${+(value / 1000).toPrecision(3)}k` : String(+value.toPrecision(3));
}

const PERCENTILES = (name) => [{key: `${name}50`, label: "median"},
    {key: `${name}90`, label: "90 %", dash: "6 3"}, {key: `${name}99`, label: "99 %", dash: "2 3"}];

function number(value) {
    return typeof value === "number" && Number.isFinite(value) ? value : null;
}

/* What of one answer is kept: flat, by the names the charts use. */
export function sampleOf(said, time) {
    const sample = {time, said, newRate: number(said.rates?.new_tokens),
        promptRate: number(said.rates?.prompt_tokens),
        running: number(said.requests?.running), waiting: number(said.requests?.waiting),
        kvUsed: null, kvCached: null, kvFree: null,
        bandwidth: number(said.bandwidth?.bytes_per_second),
        bandwidthLimit: number(said.bandwidth?.limit_bytes_per_second)};
    for (const [name, key] of [["first_token", "first"], ["inter_token", "inter"], ["queue", "queue"]]) {
        for (const p of [50, 90, 99])
            sample[key + p] = number(said.latency?.[name]?.[`p${p}`]);
    }
    const kv = said.kv || {};
    if (number(kv.pages) !== null) {
        sample.kvFree = number(kv.free);
        sample.kvCached = number(kv.cached);
        sample.kvUsed = number(kv.used) ?? kv.pages - (kv.free || 0) - (kv.cached || 0);
    }
    const memory = said.memory || {};
    sample.weights = number(memory.weight_bytes);
    sample.kvBytes = number(memory.kv_bytes);
    sample.scratch = number(memory.scratch_bytes);
    sample.resident = number(memory.resident_bytes);
    for (const adapter of Array.isArray(said.batch?.adapters) ? said.batch.adapters : [])
        sample[`adapter:${adapter.name}`] = number(adapter.running);
    return sample;
}

/* How fast a total grows, over the last seconds; null where it cannot be known. */
export function growth(samples, read, span = WINDOW_SECONDS) {
    const last = samples[samples.length - 1];
    const first = samples.find((sample) => last.time - sample.time <= span);
    if (!last || first === last)
        return null;
    const a = number(read(first.said)), b = number(read(last.said));
    return a === null || b === null || b < a ? null : (b - a) / (last.time - first.time);
}

export class Dashboard {
    constructor(root) {
        this.root = root;
        this.samples = [];
        this.adapters = [];
        this.shown = this.paused = false;
        document.addEventListener("visibilitychange", () => this.poll());
    }

    show(shown) {
        this.shown = shown;
        if (shown && !this.built)
            this.build();
        this.poll();
    }

    build() {
        this.built = true;
        this.state = el("p", {class: "live", role: "status"});
        this.about = el("p", {class: "about"});
        this.pauseButton = el("button", {type: "button", class: "outline", onclick: () => {
            this.paused = !this.paused;
            this.drawPause();
            announce(this.paused ? "Paused" : "Live");
            this.poll();
        }});
        this.tiles = {};
        const tile = (key, label) => {
            const value = el("b"), more = el("small");
            this.tiles[key] = {value, more};
            return el("div", {class: "tile"}, el("span", {}, label), value, more);
        };
        this.charts = makeCharts();
        this.stages = new BarTable({title: "Time by stage", note: "of each second, last 10 s",
            columns: ["Stage", "Time per second", "Each", "Calls/s"]});
        this.phases = new BarTable({title: "Inside a step", note: "of each second, last 10 s", wide: true,
            columns: ["Phase", "Time per second", "Each", "Calls/s"]});
        this.root.replaceChildren(el("div", {class: "dashboard-body"},
            el("header", {class: "dashboard-head"}, this.state, this.about, this.pauseButton),
            el("div", {class: "tiles"}, tile("rate", "New tokens"), tile("first", "First token"),
                tile("inter", "Between tokens"), tile("requests", "Requests"), tile("kv", "KV pages"),
                tile("bandwidth", "Memory bandwidth")),
            el("div", {class: "charts"}, Object.values(this.charts).map((chart) => chart.node),
                this.stages.node, this.phases.node)));
        this.drawPause();
        this.drawState("", "Waiting for the first figures");
    }

    drawPause() {
        this.pauseButton.replaceChildren(icon(this.paused ? "play" : "pause"), this.paused ? "Go on" : "Pause");
    }

    drawState(kind, text) {
        if (this.state.textContent === text)
            return;
        this.state.className = `live ${kind}`;
        this.state.replaceChildren(el("span", {class: "dot", "aria-hidden": "true"}), text);
    }

    wanted() {
        return this.shown && !this.paused && !document.hidden;
    }

    /* One question at a time, the next a second after the last was asked. */
    async poll() {
        clearTimeout(this.timer);
        if (this.built && this.paused)
            this.drawState("", "Paused");
        if (!this.wanted() || this.asking)
            return;
        this.asking = true;
        const begin = performance.now();
        const stop = new AbortController();
        const late = setTimeout(() => stop.abort(), TIMEOUT_MS);
        try {
            const said = await getJson("/telemetry", stop.signal);
            if (this.wanted())
                this.take(said);
        } catch (error) {
            this.drawState("bad", error.name === "AbortError" ? "The server takes long to answer"
                : error.message);
        }
        clearTimeout(late);
        this.asking = false;
        this.timer = setTimeout(() => this.poll(), Math.max(0, begin + POLL_MS - performance.now()));
    }

    take(said) {
        if (!said || typeof said !== "object")
            return;
        const now = performance.now() / 1000;
        const before = this.samples[this.samples.length - 1];
        if (before && number(said.uptime) !== null && said.uptime < before.said.uptime)
            this.samples = []; /* another server: its totals begin again */
        this.samples.push(sampleOf(said, now));
        this.samples = this.samples.filter((sample) => now - sample.time <= SPAN_SECONDS);
        this.derive();
        this.draw(said, now);
    }

    /* What follows from how totals grew. */
    derive() {
        const last = this.samples[this.samples.length - 1];
        const queried = growth(this.samples, (said) => said.prefix?.queried_tokens);
        const hit = growth(this.samples, (said) => said.prefix?.hit_tokens);
        last.hits = queried > 0 && hit !== null ? Math.min(1, hit / queried) : null;
        const drafted = growth(this.samples, (said) => said.speculation?.draft_tokens);
        const accepted = growth(this.samples, (said) => said.speculation?.accepted_tokens);
        last.accepted = drafted > 0 && accepted !== null ? Math.min(1, accepted / drafted) : null;
        for (const sample of this.samples.slice(0, -2))
            sample.said = {prefix: sample.said.prefix, uptime: sample.said.uptime, stages: sample.said.stages,
                speculation: sample.said.speculation};
        for (const key of Object.keys(last)) {
            if (key.startsWith("adapter:") && !this.adapters.includes(key))
                this.adapters.push(key);
        }
    }

    adapterSeries() {
        const seen = this.adapters.filter((key) => this.samples.some((sample) => sample[key] > 0));
        const named = seen.slice(0, seen.length > ADAPTERS_MAX + 1 ? ADAPTERS_MAX : ADAPTERS_MAX + 1);
        const rest = seen.slice(named.length);
        for (const sample of rest.length ? this.samples : [])
            sample.otherAdapters = rest.reduce((sum, key) => sum + (sample[key] || 0), 0);
        return [...named.map((key) => ({key, label: key.slice("adapter:".length)})),
            ...(rest.length ? [{key: "otherAdapters", label: `${rest.length} others`}] : [])];
    }

    draw(said, now) {
        this.drawState("good", "Live, every second");
        this.drawAbout(said);
        this.drawTiles(said);
        for (const [name, chart] of Object.entries(this.charts))
            chart.set(this.samples, now, name === "adapters" ? this.adapterSeries() : undefined);
        const {rows, prefill} = said.batch || {};
        if (number(rows) !== null)
            this.charts.adapters.note.textContent = `running requests; ${count(rows)} rows in the ` +
                `step, ${count(number(prefill))} of prompts`;
        this.drawStages();
    }

    drawAbout(said) {
        const requests = said.requests || {};
        const words = [];
        if (said.isa)
            words.push(`${said.isa}, ${count(number(said.threads))} threads`);
        if (number(said.uptime) !== null)
            words.push(`up ${uptimeText(said.uptime)}`);
        for (const [key, name] of [["finished", "finished"], ["failed", "failed"],
            ["cancelled", "cancelled"], ["refused", "refused"], ["expired", "expired"],
            ["preemptions", "preempted"]]) {
            if (requests[key] > 0 || key === "finished")
                words.push(`${count(number(requests[key]))} ${name}`);
        }
        this.about.textContent = words.join(" · ");
    }

    drawTiles(said) {
        const last = this.samples[this.samples.length - 1];
        const set = (key, value, more) => {
            this.tiles[key].value.textContent = value;
            this.tiles[key].more.textContent = more;
        };
        set("rate", last.newRate === null ? "–" : `${formatNumber(last.newRate, last.newRate < 100 ? 1 : 0)} /s`,
            `${last.promptRate === null ? "–" : formatNumber(last.promptRate, 0)} prompt tokens/s`);
        set("first", seconds(last.first50), `${seconds(last.first99)} at 99 %`);
        set("inter", seconds(last.inter50), `${seconds(last.inter99)} at 99 %`);
        set("requests", count(last.running), `running, ${count(last.waiting)} waiting`);
        const pages = number(said.kv?.pages);
        set("kv", pages ? percent(last.kvUsed / pages) : "–", pages
            ? `${count(last.kvUsed)} of ${count(pages)} used` : "");
        set("bandwidth", rate(last.bandwidth), last.bandwidth !== null && last.bandwidthLimit
            ? `${percent(Math.min(1, last.bandwidth / last.bandwidthLimit))} of ${rate(last.bandwidthLimit)}` : "limit unknown");
    }

    drawStages() {
        const last = this.samples[this.samples.length - 1];
        const stages = (Array.isArray(last.said.stages) ? last.said.stages : []).map(({name}) => {
            const find = (said) => said.stages?.find((stage) => stage.name === name);
            const busy = growth(this.samples, (said) => find(said)?.seconds);
            const calls = growth(this.samples, (said) => find(said)?.count);
            return {name, busy: busy || 0, calls: calls || 0};
        });
        const set = (table, rows) => {
            const most = Math.max(1e-9, ...rows.map(({busy}) => busy));
            table.set(rows.map(({name, busy, calls}) => ({name: String(name).replace(/_/g, " "),
                share: busy / most, cells: [busy > 0 ? formatSeconds(busy) : "0",
                    calls > 0 ? formatSeconds(busy / calls) : "–",
                    formatNumber(calls, calls < 10 ? 1 : 0)]})));
            table.node.hidden = rows.length === 0;
        };
        set(this.stages, stages.filter(({name}) => STAGES.includes(name)));
        set(this.phases, stages.filter(({name}) => !STAGES.includes(name)));
    }
}

function makeCharts() {
    return {
        rate: new TimeChart({title: "Throughput", note: "tokens per second",
            series: [{key: "newRate", label: "new"}, {key: "promptRate", label: "prompt", dash: "6 3"}],
            format: count, tick: countTick, least: 1}),
        first: new TimeChart({title: "Time to first token", note: "last 60 s",
            series: PERCENTILES("first"), format: seconds, tick: secondsTick}),
        inter: new TimeChart({title: "Time between tokens", note: "last 60 s",
            series: PERCENTILES("inter"), format: seconds, tick: secondsTick}),
        requests: new TimeChart({title: "Queue", note: "requests",
            series: [{key: "running", label: "running"}, {key: "waiting", label: "waiting", dash: "6 3"}],
            format: count, tick: countTick, least: 3, whole: true}),
        adapters: new TimeChart({title: "Batch by adapter", note: "running requests", series: [],
            stacked: true, format: (value) => count(value ?? 0), tick: countTick, least: 3, whole: true}),
        kv: new TimeChart({title: "KV pages", note: "pages", stacked: true,
            series: [{key: "kvUsed", label: "used"}, {key: "kvCached", label: "cached", colour: 9},
                {key: "kvFree", label: "free", colour: 8}], format: count, tick: countTick, whole: true}),
        hits: new TimeChart({title: "Prefix hits", note: "share of prompt tokens found, last 10 s",
            series: [{key: "hits", label: "found"}], format: percent,
            tick: (value) => `${Math.round(value * 100)} %`, least: 0.95}),
        drafts: new TimeChart({title: "Drafts accepted", note: "share of draft tokens, last 10 s",
            series: [{key: "accepted", label: "accepted"}], format: percent,
            tick: (value) => `${Math.round(value * 100)} %`, least: 0.95}),
        memory: new TimeChart({title: "Memory", note: "resident, and what is planned for",
            series: [{key: "resident", label: "resident"}, {key: "weights", label: "weights", dash: "6 3"},
                {key: "kvBytes", label: "KV pool", dash: "2 3"},
                {key: "scratch", label: "scratch", dash: "8 3 2 3"}],
            format: formatBytes, tick: bytesTick}),
        bandwidth: new TimeChart({title: "Memory bandwidth", note: "bytes per second",
            series: [{key: "bandwidth", label: "read"}], limit: {key: "bandwidthLimit", label: "limit"},
            format: rate, tick: bytesTick}),
    };
}

function uptimeText(value) {
    const minutes = Math.floor(value / 60);
    if (minutes < 1)
        return `${Math.floor(value)} s`;
    if (minutes < 120)
        return `${minutes} min`;
    return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`;
}
