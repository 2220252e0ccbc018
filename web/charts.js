/* Charts over time or steps, in SVG: axes with units, values under the pointer or the arrow keys, lines or
 * stacked areas. Colours are classes (s1 … s8) that the style sheet gives, for light and dark. */
import {el, svg} from "./dom.js";

export const SPAN_SECONDS = 300;
const GAP_SECONDS = 4; /* a hole longer than this is shown as one */
const MARGIN = {top: 8, right: 10, bottom: 22, left: 48};
const HEIGHT = 176;

/* 1, 2, 2.5 or 5 times a power of ten, so that about `count` steps reach `max`. */
export function niceStep(max, count) {
    const rough = max / count;
    const power = 10 ** Math.floor(Math.log10(rough));
    for (const step of [1, 2, 2.5, 5, 10]) {
        if (step * power >= rough * 0.999)
            return step * power;
    }
    return 10 * power;
}

/* A series has its own colour, or that of its place. */
export function colourOf(series, i) {
    return `s${series.colour || i % 8 + 1}`;
}

export class TimeChart {
    /* options: title, note, series: [{key, label, dash}], format(value), tick(value, top), stacked,
     * least (what the axis at least reaches), whole (steps are whole numbers), limit {key, label} */
    constructor(options) {
        this.options = options;
        this.samples = [];
        this.cursor = null; /* seconds before now, where the values are shown */
        this.note = el("p", {class: "note"}, options.note);
        this.legend = el("ul", {class: "legend"});
        this.plot = svg("svg", {class: "plot", role: "img", tabindex: 0, height: HEIGHT});
        this.tip = el("div", {class: "tip", hidden: true});
        this.node = el("section", {class: "card chart", "aria-label": options.title},
            el("header", {}, el("h3", {}, options.title), this.note),
            el("div", {class: "plot-box"}, this.plot, this.tip), this.legend);
        this.plot.addEventListener("pointermove", (event) => this.point(event));
        this.plot.addEventListener("pointerdown", (event) => this.point(event));
        this.plot.addEventListener("pointerleave", () => this.leave());
        this.plot.addEventListener("keydown", (event) => this.key(event));
        this.plot.addEventListener("blur", () => this.leave());
        this.width = 0; /* known from the observer: asking for it would lay the page out each time */
        new ResizeObserver(([entry]) => {
            this.width = entry.contentRect.width;
            this.draw();
        }).observe(this.plot);
    }

    /* samples: [{time, …values by key}], oldest first; `now` in seconds. */
    set(samples, now, series) {
        this.samples = samples;
        this.now = now;
        this.series = series || this.options.series;
        this.draw();
    }

    value(sample, key) {
        const value = sample[key];
        return typeof value === "number" && Number.isFinite(value) ? value : null;
    }

    top() {
        const {stacked, least = 0, limit, whole} = this.options;
        let top = least;
        for (const sample of this.samples) {
            const values = this.series.map(({key}) => this.value(sample, key) ?? 0);
            const reached = stacked ? values.reduce((a, b) => a + b, 0) : Math.max(0, ...values);
            top = Math.max(top, reached, limit ? this.value(sample, limit.key) ?? 0 : 0);
        }
        top = top > 0 ? top * 1.05 : 1;
        let step = niceStep(top, 4);
        if (whole)
            step = Math.max(1, Math.ceil(step));
        return {top: Math.ceil(top / step - 1e-9) * step, step, bottom: 0};
    }

    /* From what samples lie on (here their time) to the place in the picture. */
    across(area) {
        return (time) => area.right - (this.now - time) / SPAN_SECONDS * (area.right - area.left);
    }

    draw() {
        const {width} = this;
        if (!this.series || width < 80 || this.now === undefined)
            return;
        const area = {left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top,
            bottom: HEIGHT - MARGIN.bottom};
        const {top, step, bottom} = this.top();
        this.scale = {
            x: this.across(area),
            y: (value) => area.bottom - (value - bottom) / (top - bottom) * (area.bottom - area.top), area,
        };
        this.plot.replaceChildren(...this.valueAxis(bottom, top, step), ...this.baseAxis(),
            ...(this.options.stacked ? this.areas() : this.lines()), ...this.limitLine());
        this.drawLegend();
        this.drawCursor();
    }

    valueAxis(bottom, top, step) {
        const {y, area} = this.scale;
        const out = [];
        for (let i = 0; bottom + i * step <= top + step / 1000; i++) {
            const value = Math.abs(bottom + i * step) < step / 1000 ? 0 : bottom + i * step;
            out.push(svg("line", {class: value === 0 ? "axis" : "grid", x1: area.left, x2: area.right,
                y1: y(value), y2: y(value)}));
            out.push(svg("text", {class: "tick", x: area.left - 8, y: y(value) + 3.5,
                "text-anchor": "end"}, this.options.tick(value, top)));
        }
        return out;
    }

    baseAxis() {
        const {x, area} = this.scale;
        const out = [];
        const every = area.right - area.left < 320 ? 120 : 60;
        for (let ago = 0; ago <= SPAN_SECONDS; ago += every) {
            const at = x(this.now - ago);
            out.push(svg("line", {class: "axis", x1: at, x2: at, y1: area.bottom, y2: area.bottom + 4}));
            out.push(svg("text", {class: "tick", x: at, y: area.bottom + 17,
                "text-anchor": ago === 0 ? "end" : "middle"}, ago === 0 ? "now" : `−${ago / 60} min`));
        }
        return out;
    }

    /* Runs of samples without holes. */
    runs(key) {
        const runs = [];
        let run = null, before = null;
        for (const sample of this.samples) {
            const value = key === null ? 0 : this.value(sample, key);
            if (value === null) {
                run = null;
                continue;
            }
            if (run === null || sample.time - before > GAP_SECONDS)
                runs.push(run = []);
            run.push(sample);
            before = sample.time;
        }
        return runs;
    }

    lines() {
        const {x, y} = this.scale;
        return this.series.map((series, i) => svg("path", {class: `line ${colourOf(series, i)}`,
            "stroke-dasharray": series.dash, d: this.runs(series.key).map((run) => run.map((sample, j) =>
                `${j ? "L" : "M"}${x(sample.time).toFixed(1)} ${y(sample[series.key]).toFixed(1)}`).join("") +
                (run.length === 1 ? "h.1" : "")).join("")}));
    }

    areas() {
        const {x, y} = this.scale;
        const below = new Map(this.samples.map((sample) => [sample, 0]));
        return this.series.map((series, i) => {
            const {key} = series;
            let d = "";
            for (const run of this.runs(null)) {
                const upper = [], lower = [];
                for (const sample of run) {
                    const base = below.get(sample), value = this.value(sample, key) ?? 0;
                    const at = x(sample.time).toFixed(1);
                    lower.unshift(`L${at} ${y(base).toFixed(1)}`);
                    upper.push(`${upper.length ? "L" : "M"}${at} ${y(base + value).toFixed(1)}`);
                    below.set(sample, base + value);
                }
                d += `${upper.join("")}${lower.join("")}Z`;
            }
            return svg("path", {class: `area ${colourOf(series, i)}`, d});
        });
    }

    limitLine() {
        const {limit} = this.options;
        const last = this.samples[this.samples.length - 1];
        const value = limit && last ? this.value(last, limit.key) : null;
        if (value === null)
            return [];
        const {y, area} = this.scale;
        return [svg("line", {class: "limit", x1: area.left, x2: area.right, y1: y(value), y2: y(value)})];
    }

    newest() {
        return this.samples[this.samples.length - 1];
    }

    drawLegend() {
        const last = this.newest();
        const {limit} = this.options;
        const shown = [...this.series];
        if (limit && last && this.value(last, limit.key) !== null)
            shown.push({...limit, limit: true});
        const text = (key) => last ? this.options.format(this.value(last, key)) : "–";
        const keys = shown.map(({key, label}) => key + label).join();
        if (this.legendKeys !== keys) {
            this.legendKeys = keys;
            this.legend.replaceChildren(...shown.map((series, i) => el("li", {},
                svg("svg", {width: 18, height: 10, "aria-hidden": "true"}, series.limit
                    ? svg("line", {class: "limit", x1: 0, x2: 18, y1: 5, y2: 5})
                    : this.options.stacked ? svg("rect", {class: `area ${colourOf(series, i)}`, x: 2, width: 12, height: 10, rx: 2.5})
                        : svg("line", {class: `line ${colourOf(series, i)}`, "stroke-dasharray": series.dash, x1: 0, x2: 18, y1: 5, y2: 5})),
                el("span", {}, series.label), el("b"))));
        }
        shown.forEach(({key}, i) => {
            this.legend.children[i].lastChild.textContent = text(key);
        });
        this.plot.setAttribute("aria-label", `${this.options.title}: ` + (last
            ? shown.map(({key, label}) => `${label} ${text(key)}`).join(", ") : "no values yet"));
    }

    /* ---- Values under the pointer ---- */

    point(event) {
        if (!this.scale)
            return;
        const {area} = this.scale;
        const at = event.clientX - this.plot.getBoundingClientRect().left;
        this.pointAt(Math.max(0, Math.min(1, (area.right - at) / (area.right - area.left))));
        this.drawCursor();
    }

    /* `share`: of the width, from the right. */
    pointAt(share) {
        this.cursor = share * SPAN_SECONDS;
    }

    cursorSample() {
        return nearest(this.samples, this.now - this.cursor);
    }

    cursorTitle(sample) {
        const ago = Math.round(this.now - sample.time);
        return ago < 2 ? "now" : `${ago} s ago`;
    }

    key(event) {
        const step = {ArrowLeft: 5, ArrowRight: -5, PageUp: 60, PageDown: -60}[event.key];
        if (step === undefined) {
            if (event.key === "Escape")
                this.leave();
            return;
        }
        event.preventDefault();
        this.cursor = Math.max(0, Math.min(SPAN_SECONDS, (this.cursor ?? (step > 0 ? -step : 5)) + step));
        this.drawCursor();
    }

    leave() {
        this.cursor = null;
        this.drawCursor();
    }

    drawCursor() {
        this.plot.querySelector(".cursor")?.remove();
        const sample = this.cursor === null ? null : this.cursorSample();
        this.tip.hidden = sample === null;
        if (sample === null)
            return;
        const {x, y, area} = this.scale;
        const at = x(sample.time);
        const marks = [svg("line", {x1: at, x2: at, y1: area.top, y2: area.bottom})];
        let below = 0;
        this.series.forEach((series, i) => {
            const value = this.value(sample, series.key);
            if (value === null)
                return;
            below = this.options.stacked ? below + value : value;
            marks.push(svg("circle", {class: `mark ${colourOf(series, i)}`, cx: at, cy: y(below), r: 3.5}));
        });
        this.plot.append(svg("g", {class: "cursor"}, marks));
        this.tip.replaceChildren(el("p", {}, this.cursorTitle(sample)),
            el("dl", {}, this.series.map((series, i) => el("div", {},
                el("dt", {}, el("i", {class: `dot ${colourOf(series, i)}`}), series.label),
                el("dd", {}, this.options.format(this.value(sample, series.key)))))));
        const left = at > (area.left + area.right) / 2;
        this.tip.style.left = left ? "auto" : `${at + 12}px`;
        this.tip.style.right = left ? `${this.width - at + 12}px` : "auto";
    }
}

function nearest(samples, time) {
    let best = null;
    for (const sample of samples) {
        if (best === null || Math.abs(sample.time - time) < Math.abs(best.time - time))
            best = sample;
    }
    return best !== null && Math.abs(best.time - time) < 15 ? best : null;
}

/* The same over the steps of a training run: all of them, from the first to the last. Metrics have
 * values at some steps only, so lines go from one to the next; values may be below 0. */
export class StepChart extends TimeChart {
    /* samples: [{time: the step, …values by key}], in order. */
    setSteps(samples) {
        this.set(samples, samples.length ? samples[samples.length - 1].time : 0);
    }

    top() {
        let highest = 0, lowest = 0;
        for (const sample of this.samples) {
            for (const {key} of this.series) {
                highest = Math.max(highest, this.value(sample, key) ?? 0);
                lowest = Math.min(lowest, this.value(sample, key) ?? 0);
            }
        }
        if (lowest === 0)
            return super.top();
        const step = niceStep((highest - lowest) * 1.05, 4);
        return {top: Math.ceil(highest / step - 1e-9) * step, step, bottom: Math.floor(lowest / step + 1e-9) * step};
    }

    first() {
        return this.samples.length ? Math.min(this.samples[0].time, this.now - 1) : 0;
    }

    across(area) {
        const first = this.first(), steps = Math.max(1, this.now - first);
        return (step) => area.left + (step - first) / steps * (area.right - area.left);
    }

    baseAxis() {
        const {x, area} = this.scale;
        const out = [];
        const every = Math.max(1, niceStep(Math.max(1, this.now - this.first()), area.right - area.left < 320 ? 3 : 6));
        for (let step = Math.ceil(this.first() / every) * every; step <= this.now; step += Math.ceil(every)) {
            out.push(svg("line", {class: "axis", x1: x(step), x2: x(step), y1: area.bottom, y2: area.bottom + 4}));
            out.push(svg("text", {class: "tick", x: x(step), y: area.bottom + 17,
                "text-anchor": x(step) > area.right - 16 ? "end" : "middle"}, stepText(step)));
        }
        return out;
    }

    lines() {
        const {x, y} = this.scale;
        return this.series.map((series, i) => {
            const seen = this.samples.filter((sample) => this.value(sample, series.key) !== null);
            return svg("path", {class: `line ${colourOf(series, i)}`, "stroke-dasharray": series.dash,
                d: seen.map((sample, j) => `${j ? "L" : "M"}${x(sample.time).toFixed(1)} ` +
                    y(sample[series.key]).toFixed(1)).join("") + (seen.length === 1 ? "h2" : "")});
        });
    }

    /* The newest value of each metric, which the last step need not have. */
    set(samples, now) {
        const last = {time: now};
        for (const {key} of this.options.series)
            last[key] = samples.findLast((sample) => this.value(sample, key) !== null)?.[key];
        this.last = last;
        super.set(samples, now);
    }

    newest() {
        return this.samples.length ? this.last : undefined;
    }

    pointAt(share) {
        this.cursor = this.now - share * (this.now - this.first());
    }

    cursorSample() {
        return this.samples.reduce((best, sample) => best !== null &&
            Math.abs(best.time - this.cursor) <= Math.abs(sample.time - this.cursor) ? best : sample, null);
    }

    cursorTitle(sample) {
        return `step ${sample.time.toLocaleString("en")}`;
    }

    key(event) {
        const move = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
        if (move === undefined || this.samples.length === 0) {
            super.key(event);
            return;
        }
        event.preventDefault();
        const at = this.cursor === null ? this.samples.length - (move < 0 ? 0 : 1)
            : this.samples.indexOf(this.cursorSample());
        this.cursor = this.samples[Math.max(0, Math.min(this.samples.length - 1, at + move))].time;
        this.drawCursor();
    }
}

function stepText(step) {
    return step >= 10000 ? `${+(step / 1000).toPrecision(3)}k` : String(step);
}

/* Named amounts side by side: a table whose rows have a bar. */
export class BarTable {
    constructor(options) {
        this.options = options;
        this.rows = el("tbody");
        this.node = el("section", {class: `card bars${options.wide ? " wide" : ""}`, "aria-label": options.title},
            el("header", {}, el("h3", {}, options.title), el("p", {class: "note"}, options.note)),
            el("table", {}, el("caption", {class: "hidden"}, options.title),
                el("thead", {}, el("tr", {}, options.columns.map((name) => el("th", {scope: "col"}, name)))),
                this.rows));
    }

    /* rows: [{name, share 0…1, cells: [text, …]}] */
    set(rows) {
        while (this.rows.children.length > rows.length)
            this.rows.lastChild.remove();
        while (this.rows.children.length < rows.length)
            this.rows.append(el("tr", {}, el("th", {scope: "row"}),
                el("td", {class: "amount"}, el("i", {"aria-hidden": "true"}), el("span")),
                this.options.columns.slice(2).map(() => el("td"))));
        rows.forEach((row, i) => {
            const [name, bar, ...rest] = this.rows.children[i].children;
            name.textContent = row.name;
            bar.firstChild.style.width = `${Math.max(0, Math.min(1, row.share)) * 100}%`;
            bar.lastChild.textContent = row.cells[0];
            rest.forEach((cell, j) => {
                cell.textContent = row.cells[j + 1];
            });
        });
    }
}
