/* The server, as the page sees it: requests with the key, answers as they stream, failures in
 * words. Only paths of this very server are ever asked. */
import {loadKey} from "./store.js";

/* What went wrong, in words for people; `status` 0 where no answer came at all. */
export class ServerError extends Error {
    constructor(message, status, retrySeconds) {
        super(message);
        this.status = status;
        this.retrySeconds = retrySeconds || null;
    }
}

function headers(more) {
    const key = loadKey();
    return {...more, ...(key ? {Authorization: `Bearer ${key}`} : {})};
}

async function ask(path, options) {
    let response;
    try {
        response = await fetch(path, {cache: "no-store", credentials: "same-origin",
            referrerPolicy: "no-referrer", redirect: "error", ...options,
            headers: headers(options?.headers)});
    } catch (error) {
        if (error.name === "AbortError")
            throw error;
        throw new ServerError("The server cannot be reached.", 0);
    }
    if (!response.ok)
        throw await failure(response);
    return response;
}

async function failure(response) {
    let said = "";
    try {
        const body = JSON.parse((await response.text()).slice(0, 100000));
        said = typeof body?.error === "string" ? body.error : body?.error?.message;
    } catch (error) {
        /* An answer in another form, from something in between; the status has to say it. */
    }
    said = typeof said === "string" ? said.slice(0, 1000).trim() : "";
    const wait = parseFloat(response.headers.get("Retry-After"));
    return new ServerError(words(response.status, said), response.status,
        Number.isFinite(wait) ? Math.min(Math.max(1, wait), 600) : null);
}

function words(status, said) {
    const more = said ? ` ${sentence(said)}` : "";
    switch (status) {
    case 401:
        return `The server wants an API key.${more}`;
    case 403:
        return `The key is not allowed to do this.${more}`;
    case 404:
        return said ? sentence(said) : "The server does not know this.";
    case 413:
        return `The message is too large for the server.${more}`;
    case 429:
    case 503:
        return `The server is busy.${more}`;
    default:
        return said ? sentence(said) : status >= 500 ? `The server failed (${status}).`
            : `The server refused the request (${status}).`;
    }
}

function sentence(text) {
    const first = text[0].toUpperCase() + text.slice(1);
    return /[.!?…]$/.test(first) ? first : `${first}.`;
}

export async function getJson(path, signal) {
    const response = await ask(path, {signal});
    try {
        return await response.json();
    } catch (error) {
        if (error.name === "AbortError")
            throw error;
        throw new ServerError("The server's answer is not JSON.", response.status);
    }
}

export async function postJson(path, body) {
    const response = await ask(path, {method: "POST", body: JSON.stringify(body),
        headers: {"Content-Type": "application/json"}});
    return response.text();
}

/* The base model and its adapters. */
export async function listModels() {
    const answer = await getJson("/v1/models");
    const models = Array.isArray(answer?.data) ? answer.data : [];
    return models.filter((model) => typeof model?.id === "string").map((model) => ({
        id: model.id, parent: typeof model.parent === "string" ? model.parent : null}));
}

/* Server-sent events out of pieces that may be cut anywhere. */
export class EventReader {
    constructor(onData) {
        this.rest = "";
        this.data = [];
        this.onData = onData;
    }

    push(text) {
        this.rest += text;
        let begin = 0;
        for (;;) {
            const found = /\r\n|\n|\r(?!$)/g;
            found.lastIndex = begin;
            const end = found.exec(this.rest);
            if (end === null)
                break;
            this.line(this.rest.slice(begin, end.index));
            begin = found.lastIndex;
        }
        this.rest = this.rest.slice(begin);
    }

    line(line) {
        if (line === "") {
            if (this.data.length)
                this.onData(this.data.join("\n"));
            this.data = [];
        } else if (line.startsWith("data:")) {
            this.data.push(line.slice(line[5] === " " ? 6 : 5));
        }
    }
}

/* Streams one answer. `onText(piece)` as it comes; returns {finish, usage}. Throws ServerError,
 * or AbortError where it was stopped. */
export async function streamChat(body, signal, onText) {
    const response = await ask("/v1/chat/completions", {method: "POST", signal,
        headers: {"Content-Type": "application/json", Accept: "text/event-stream"},
        body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}})});
    const state = {finish: null, usage: null, ended: false};
    const events = new EventReader((data) => takeEvent(data, state, onText));
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    try {
        for (;;) {
            const {done, value} = await reader.read();
            if (done)
                break;
            events.push(decoder.decode(value, {stream: true}));
        }
        events.push("\n\n");
    } catch (error) {
        if (error.name === "AbortError" || error instanceof ServerError)
            throw error;
        throw new ServerError("The connection broke before the answer ended.", 0);
    } finally {
        reader.cancel().catch(() => {});
    }
    if (!state.ended && state.finish === null)
        throw new ServerError("The server ended the answer before it was complete.", 0);
    return state;
}

function takeEvent(data, state, onText) {
    if (data === "[DONE]") {
        state.ended = true;
        return;
    }
    let event;
    try {
        event = JSON.parse(data);
    } catch (error) {
        throw new ServerError("The server sent something that is no answer.", 0);
    }
    if (event?.error)
        throw new ServerError(sentence(String(event.error.message || "the server failed")
            .slice(0, 1000)), Number(event.error.code) || 500);
    const choice = Array.isArray(event?.choices) ? event.choices[0] : null;
    const piece = choice?.delta?.content;
    if (typeof piece === "string" && piece !== "")
        onText(piece);
    if (typeof choice?.finish_reason === "string")
        state.finish = choice.finish_reason;
    if (event?.usage && typeof event.usage === "object")
        state.usage = event.usage;
}
