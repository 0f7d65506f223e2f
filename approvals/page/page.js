// The page: who is signed in, what waits, the history, the keys.
import * as api from './api.js';
import { Card } from './card.js';
import { el, isolated, json, plainSeen, seen } from './text.js';
import { acts, outcome } from './words.js';

const $ = (id) => document.getElementById(id);
const storage = 'opa-gate approvals token';
const pageSize = 100;

let you = null; // {name, role}
let stream = null;
let view = 'waiting';
let ahead = 0; // milliseconds that the server's clock is ahead of this one
const waiting = new Map(); // cards by id, oldest first
const rows = new Map(); // of the history, newest first
let olderWaiting; // where the page before begins
let olderRows;
let total = 0; // how many wait, as the server said, less what ceased to

const now = () => Date.now() + ahead;
const approver = () => you?.role === 'approver';

// --- signing in ---

function tokenOfAddress() {
  const token = new URLSearchParams(location.hash.slice(1)).get('token');
  if (token === null) return null;
  history.replaceState(null, '', location.pathname + location.search); // not for the history, or over a shoulder
  return token;
}

async function signIn(token, quiet) {
  api.setToken(token);
  try {
    await load();
  } catch (e) {
    if (e.status === 401 || !quiet) {
      signOut(e.status === 401 ? 'The server does not know this token.' : e.message);
      return;
    }
    link('lost', `${e.message} Reload the page to try again.`);
    return;
  }
  sessionStorage.setItem(storage, token);
  $('token').value = '';
  $('sign-in').hidden = true;
  $('views').hidden = false;
  $('who').hidden = false;
  $('who').replaceChildren(isolated(you.name), el('span', { class: 'role' }, you.role));
  $('viewer-note').hidden = approver();
  choose('waiting');
  $('main').focus();
}

function signOut(problem = '') {
  stream?.stop();
  stream = null;
  you = null;
  api.setToken('');
  sessionStorage.removeItem(storage);
  closeAll();
  forget(waiting);
  forget(rows);
  for (const id of ['waiting', 'history', 'views', 'who']) $(id).hidden = true;
  $('sign-in').hidden = false;
  $('sign-in-problem').textContent = problem;
  document.title = 'Approvals';
  link('off', 'not signed in');
  $('token').focus();
}

function forget(cards) {
  for (const card of cards.values()) card.node.remove();
  cards.clear();
}

// --- what waits ---

// load reads what waits anew, and follows what comes after that.
async function load() {
  const answer = await api.list({ state: 'waiting', limit: pageSize });
  ahead = Date.parse(answer.now) - Date.now();
  you = answer.you;
  total = answer.waiting;
  olderWaiting = answer.next;
  const fresh = new Set(answer.approvals.map((p) => p.id));
  for (const [id, card] of waiting) { // decided while nobody told this page
    if (!fresh.has(id) && !card.settled) api.show(id).then((p) => changed(p, true), () => {});
  }
  for (const p of answer.approvals.reverse()) add(p);
  count();
  stream?.stop();
  const mine = api.follow(answer.head, {
    change: (p) => { if (stream === mine) changed(p); },
    reset: () => { if (stream === mine) load().catch(() => {}); },
    ledger: (up) => link(up ? 'live' : 'lost', up ? 'live' : 'The ledger cannot be asked now. What you see may be old.'),
    beat: (at) => { ahead = Date.parse(at) - Date.now(); },
    lost: (delay) => link('lost', `Not connected. Trying again in ${Math.ceil(delay / 1000)} s.`),
    refused: (e) => signOut(e.status === 401 ? 'The server does not know this token any more.' : e.message),
  });
  stream = mine;
  link('wait', 'connecting');
}

// add shows a call that waits below those that were there, so that nothing moves
// under somebody's hand.
function add(p, before) {
  if (waiting.has(p.id)) { waiting.get(p.id).update(p); return; }
  const card = new Card(p, { act: ask, now, approver: approver() });
  waiting.set(p.id, card);
  $('cards').insertBefore(card.node, before ?? null);
}

function changed(p, silent = false) {
  const card = waiting.get(p.id);
  rows.get(p.id)?.update(p);
  if (!card) {
    if (p.state === 'waiting') {
      add(p);
      total += 1;
      if (!silent) say(`A new call waits: ${plainSeen(p.tool)}`);
    }
  } else if (card.update(p)) {
    total -= 1;
    if (!silent) say(`${plainSeen(p.tool)}: ${plainSeen(outcome(p).text)}`);
    if (asked?.card === card && !asked.sent) tooLate(p);
  }
  if (p.state !== 'waiting' && view === 'history' && $('q').value === '' && $('state').value === 'all' && !rows.has(p.id)) addRow(p, true);
  count();
}

function count() {
  const open = [...waiting.values()].filter((c) => !c.settled).length;
  const shown = waiting.size;
  total = Math.max(total, open);
  $('count').textContent = total;
  document.title = total > 0 ? `(${total}) Approvals` : 'Approvals';
  $('nothing').hidden = shown > 0;
  const settled = shown - open;
  $('settled-note').hidden = settled === 0;
  $('settled-text').textContent = settled === 1 ? '1 call here is decided.' : `${settled} calls here are decided.`;
  $('older-note').hidden = !olderWaiting;
  $('older-text').textContent = `The last ${shown} of ${total} are shown.`;
}

$('clear').addEventListener('click', () => {
  for (const [id, card] of waiting) {
    if (card.settled) { card.node.remove(); waiting.delete(id); }
  }
  count();
  $('main').focus();
});

$('older-waiting').addEventListener('click', async () => {
  const answer = await attempt(api.list({ state: 'waiting', limit: pageSize, before: olderWaiting }));
  if (!answer) return;
  olderWaiting = answer.next;
  const first = $('cards').firstChild;
  for (const p of answer.approvals.reverse()) add(p, first);
  count();
});

// --- deciding ---

let asked = null; // {card, id, digest, name, sent} that the dialog is about

// ask has a decision confirmed. It is bound to the call that is shown.
function ask(card, name) {
  if (asked || !card.can(name)) return;
  const { p } = card;
  const act = acts[name];
  asked = { card, id: p.id, digest: p.digest, name };
  $('ask-title').textContent = act.title;
  $('ask-tool').replaceChildren(isolated(p.tool));
  $('ask-means').textContent = act.means();
  const runs = p.transform?.kind === 'rewrite' ? p.transform.arguments : p.arguments;
  $('ask-arguments').replaceChildren(json(runs, 1));
  $('ask-arguments').hidden = runs.members.length === 0;
  $('comment').value = '';
  $('ask-problem').textContent = '';
  $('ask-yes').replaceChildren(act.button, ' ', el('kbd', { 'aria-hidden': 'true' }, 'Enter'));
  $('ask-yes').className = act.class;
  $('ask-yes').disabled = false;
  $('ask').showModal();
  $('ask-yes').focus();
}

// tooLate tells that somebody else was faster, before or after the confirmation.
function tooLate(p) {
  $('ask-problem').textContent = plainSeen(`Too late: ${outcome(p).text}`);
  $('ask-yes').disabled = true;
  $('ask-no').focus();
}

async function confirm() {
  if (!asked || $('ask-yes').disabled) return;
  const mine = asked;
  const comment = $('comment').value;
  $('ask-yes').disabled = true;
  mine.sent = true; // the stream may tell of this decision before its answer comes
  try {
    const p = mine.name === 'withdraw' ? await api.withdraw(mine.id, comment) : await api.decide(mine.id, {
      decision: mine.name === 'reject' ? 'reject' : 'approve', comment, digest: mine.digest,
      ...(mine.name === 'reject' ? {} : { scope: mine.name }),
    });
    close(mine);
    changed(p, true);
    mine.card.update(p);
    mine.card.say(acts[mine.name].said);
    say(`${plainSeen(mine.card.p.tool)}: ${acts[mine.name].said}`);
  } catch (e) {
    if (e.status === 409) {
      const p = await attempt(api.show(mine.id));
      close(mine);
      if (p) { changed(p, true); mine.card.update(p); }
      const text = `Too late, your answer does not count. ${e.message}`;
      mine.card.say(text);
      alarm(plainSeen(text));
    } else if (e.status === 401) {
      signOut('The server does not know this token any more.');
    } else if (asked === mine) {
      mine.sent = false;
      if (mine.card.settled) { tooLate(mine.card.p); return; }
      $('ask-problem').textContent = plainSeen(`It is not decided. ${e.message}`);
      $('ask-yes').disabled = false;
    }
  }
}

// close ends the dialog about mine. The focus goes back at once: the dialog's own
// event comes later, when the next key may have moved it already.
function close(mine) {
  if (!asked || asked !== mine) return;
  asked = null;
  $('ask').close();
  mine.card.node.focus({ preventScroll: true });
}

$('ask').addEventListener('cancel', () => close(asked));
$('ask').addEventListener('close', () => close(asked));
$('ask-yes').addEventListener('click', confirm);
$('ask-no').addEventListener('click', () => close(asked));
$('comment').addEventListener('keydown', (e) => {
  if (e.key === 'Enter' && (e.ctrlKey || e.metaKey) && !e.repeat) confirm();
});

// --- the history ---

let searching = 0;

async function search(more) {
  searching += 1;
  const mine = searching;
  const query = { state: $('state').value, limit: 50 };
  if ($('q').value !== '') query.q = $('q').value;
  if (more) query.before = olderRows;
  const answer = await attempt(api.list(query));
  if (!answer || mine !== searching) return;
  if (!more) forget(rows);
  olderRows = answer.next;
  for (const p of answer.approvals) if (p.state !== 'waiting') addRow(p);
  $('older').hidden = !olderRows;
  $('no-rows').hidden = rows.size > 0;
  $('no-rows').textContent = olderRows ? 'Nothing was found so far: there are older ones.' : 'Nothing was found.';
}

function addRow(p, first = false) {
  const card = new Card(p, { act: ask, now, approver: approver(), folded: true });
  rows.set(p.id, card);
  $('rows').insertBefore(card.node, first ? $('rows').firstChild : null);
  $('no-rows').hidden = true;
}

let pause;
$('q').addEventListener('input', () => { clearTimeout(pause); pause = setTimeout(search, 200); });
$('state').addEventListener('change', () => search());
$('search').addEventListener('submit', (e) => { e.preventDefault(); clearTimeout(pause); search(); });
$('older').addEventListener('click', () => search(true));

// --- around it ---

function choose(name) {
  view = name;
  for (const v of ['waiting', 'history']) {
    $(v).hidden = v !== name;
    $(`view-${v}`).setAttribute('aria-pressed', String(v === name));
  }
  if (name === 'history') search();
}

function link(state, text) {
  $('link').dataset.state = state;
  if ($('link-text').textContent === text) return;
  $('link-text').textContent = text;
  document.body.dataset.link = state;
}

const say = (text) => { $('said').textContent = text; };
const alarm = (text) => { $('alarm').textContent = ''; $('alarm').append(seen(text)); };

// attempt returns what came, or undefined after it told why nothing did.
async function attempt(promise) {
  try {
    return await promise;
  } catch (e) {
    if (e.status === 401) signOut('The server does not know this token any more.');
    else link('lost', e.message);
    return undefined;
  }
}

function closeAll() {
  close(asked);
  if ($('help').open) $('help').close();
}

setInterval(() => {
  for (const card of view === 'waiting' ? waiting.values() : rows.values()) {
    if (card.tick() && !card.asking) {
      card.asking = true; // whether it has ended the server knows
      setTimeout(() => api.show(card.p.id).then((p) => changed(p), () => {}).finally(() => { card.asking = false; }), 1000);
    }
  }
}, 1000);

const cardsShown = () => [...(view === 'waiting' ? waiting : rows).values()].map((c) => c.node)
  .sort((a, b) => (a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING ? -1 : 1));
const cardAt = () => {
  const node = document.activeElement?.closest('.card');
  return node ? (waiting.get(node.dataset.id)?.node === node ? waiting : rows).get(node.dataset.id) : undefined;
};

function move(by) {
  const all = cardsShown();
  if (all.length === 0) return;
  const at = all.indexOf(document.activeElement?.closest('.card'));
  const next = all[at < 0 ? 0 : Math.min(all.length - 1, Math.max(0, at + by))];
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: next.offsetHeight > innerHeight * 0.7 ? 'start' : 'nearest' });
}

const keys = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1),
  Enter: () => cardAt()?.unfold(),
  a: () => act('once'), s: () => act('session'), r: () => act('reject'),
  w: () => choose('waiting'), h: () => choose('history'),
  '/': () => { choose('history'); $('q').focus(); },
  '?': () => $('help').showModal(),
};

function act(name) {
  const card = cardAt();
  if (card) ask(card, name);
}

document.addEventListener('keydown', (e) => {
  const target = e.target;
  if (!you || e.ctrlKey || e.metaKey || e.altKey || e.isComposing || $('ask').open || $('help').open) return;
  if (target.matches('input, textarea, select')) {
    if (e.key === 'Escape') target.blur();
    return;
  }
  const key = keys[e.key];
  const moves = ['j', 'k', 'ArrowDown', 'ArrowUp'].includes(e.key);
  if (!key || (e.repeat && !moves)) return;
  if (e.key === 'Enter' && !target.matches('.card')) return; // a button or a fold has its own
  e.preventDefault();
  key();
});

$('sign-in').addEventListener('submit', (e) => {
  e.preventDefault();
  $('sign-in-problem').textContent = '';
  const token = $('token').value.trim();
  if (token === '') $('sign-in-problem').textContent = 'Paste a token first.';
  else signIn(token, false);
});
$('sign-out').addEventListener('click', () => signOut());
$('help-open').addEventListener('click', () => $('help').showModal());
$('help-close').addEventListener('click', () => $('help').close());
$('view-waiting').addEventListener('click', () => choose('waiting'));
$('view-history').addEventListener('click', () => choose('history'));
addEventListener('online', () => stream?.hurry());
addEventListener('hashchange', () => { const token = tokenOfAddress(); if (token) { signOut(); signIn(token, false); } });

const token = tokenOfAddress() ?? sessionStorage.getItem(storage);
if (token) signIn(token, true);
else signOut();
