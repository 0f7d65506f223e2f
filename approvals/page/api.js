// The server's API: requests with the token, and the stream of what changes.
import { parse, plain } from './text.js';

const base = 'v1/gate/approvals';
const silence = 40_000; // milliseconds without a word of the stream, which speaks every 15 s

// A Refusal is an answer that is none.
export class Refusal extends Error {
  constructor(status, error) {
    super(error?.message || `The server answered with status ${status}.`);
    this.status = status;
    this.error = error ?? {};
  }
}

let token = '';
export const setToken = (text) => { token = text; };

async function ask(path, init = {}) {
  let response;
  try {
    response = await fetch(base + path, { cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer', ...init,
      headers: { Authorization: `Bearer ${token}`, ...init.headers } });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Refusal(0, { message: 'The server cannot be reached.' });
  }
  if (response.ok) return response;
  let error;
  try {
    error = (await response.json()).error;
  } catch { /* not of this server's making */ }
  throw new Refusal(response.status, error);
}

const read = async (response) => plain(parse(await response.text()));
const post = (path, body) => ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) }).then(read);

export const list = (query) => ask(`?${new URLSearchParams(query)}`).then(read);
export const show = (id) => ask(`/${encodeURIComponent(id)}`).then(read);
export const decide = (id, body) => post(`/${encodeURIComponent(id)}/decision`, body);
export const withdraw = (id, reason) => post(`/${encodeURIComponent(id)}/withdraw`, { reason });

// follow keeps a stream open until it is stopped. It calls on.change, on.reset,
// on.ledger with what came, on.state with how it is, and on.refused when the
// token does not count any more.
export function follow(last, on) {
  let stopped = false;
  let abort = new AbortController();
  let wake = () => {};
  const run = async () => {
    for (let failures = 0; !stopped;) {
      abort = new AbortController();
      let timer;
      const heard = () => { clearTimeout(timer); timer = setTimeout(() => abort.abort(), silence); };
      try {
        heard();
        const response = await ask('/events', { signal: abort.signal, headers: { Accept: 'text/event-stream', 'Last-Event-ID': String(last) } });
        for await (const event of events(response.body, heard)) {
          if (stopped) return;
          failures = 0;
          if (event.id !== undefined) last = event.id;
          if (event.name === 'change') on.change(event.data.approval);
          else if (event.name === 'reset') on.reset();
          else if (event.name === 'ledger') on.ledger(event.data.available);
          else if (event.name === 'beat') on.beat(event.data.now);
        }
      } catch (e) {
        if (e.status === 401 || e.status === 403) { on.refused(e); return; }
        failures += 1;
      } finally {
        clearTimeout(timer);
      }
      if (stopped) return;
      const delay = failures === 0 ? 100 : Math.min(10_000, 500 * 2 ** (failures - 1));
      if (failures > 0) on.lost(delay);
      await new Promise((resolve) => { wake = resolve; setTimeout(resolve, delay); });
    }
  };
  run();
  return {
    stop: () => { stopped = true; abort.abort(); wake(); },
    hurry: () => wake(),
    last: () => last,
  };
}

// events reads a stream of server-sent events.
async function* events(body, heard) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    rest += value;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const event = { name: 'message' };
      let data = '';
      for (const line of rest.slice(0, end).split('\n')) {
        const [, name, text] = /^([a-z]*): ?(.*)$/s.exec(line) ?? [];
        if (name === 'id') event.id = Number(text);
        else if (name === 'event') event.name = text;
        else if (name === 'data') data += text;
      }
      rest = rest.slice(end + 2);
      if (data === '') continue;
      event.data = plain(parse(data));
      yield event;
    }
  }
}
