// Texts that others wrote, shown so that nothing in them hides, and JSON as it
// was sent. Everything goes into text nodes.

// el makes an element. Texts among the children become text nodes.
export function el(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === undefined || value === null) continue;
    if (name === 'onclick') e.addEventListener('click', value);
    else e.setAttribute(name, value === true ? '' : value);
  }
  e.append(...children);
  return e;
}

// Characters without a shape of their own, or that move others about: controls,
// formats, separators, blanks other than the usual one, fillers, selectors, and
// what is no character.
const unseen = /[\p{C}\p{Zl}\p{Zp}\p{Variation_Selector}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0]|(?<=\p{M}{3})\p{M}/gu;

// seen returns text as nodes, with marks for what cannot be seen. Lines says that
// line breaks and tabs are a part of the text's shape: 'marked', or 'own' where
// this page made them.
export function seen(text, lines = '') {
  const out = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(unseen)) {
    out.append(text.slice(from, match.index));
    from = match.index + match[0].length;
    const c = match[0];
    if (lines === 'own' && c === '\n') out.append('\n');
    else if (lines && c === '\n') out.append(el('span', { class: 'mark faint', title: 'a line break' }, '↵'), '\n');
    else if (lines && c === '\t') out.append(el('span', { class: 'mark faint', title: 'a tab' }, '⇥'), '\t');
    else out.append(el('span', { class: 'mark', title: 'a character that cannot be seen' }, code(c)));
  }
  out.append(text.slice(from));
  return out;
}

const code = (c) => `⟦U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟧`;

// plainSeen is seen as a text, where there can be no nodes.
export const plainSeen = (text) => text.replace(unseen, code);

// isolated keeps the direction of a text from what stands beside it.
export const isolated = (text, tag = 'bdi', attributes = {}) => el(tag, { dir: 'ltr', ...attributes }, seen(text));

const longText = 400; // characters that are shown at first
const manyMembers = 100;

// long returns text that is cut, with a way to see all of it.
export function long(text, limit = longText, marked = true) {
  const lines = marked ? 'marked' : 'own';
  const shown = el('span', { class: 'text', dir: 'ltr' });
  if (text.length <= limit * 1.25) {
    shown.append(seen(text, lines));
    return shown;
  }
  let end = limit;
  if (/[\ud800-\udbff]/.test(text[end - 1])) end -= 1; // not between the halves of a character
  shown.append(seen(text.slice(0, end), lines));
  const more = el('button', {
    type: 'button', class: 'all',
    onclick: () => {
      shown.replaceChildren(seen(text, lines));
      shown.setAttribute('tabindex', '-1');
      shown.focus();
    },
  }, `… show all ${text.length.toLocaleString('en')} characters`);
  return el('span', {}, shown, more);
}

// parse reads JSON and keeps what JavaScript would lose: how a number is written,
// and the order of members. A node is {kind, ...}.
export function parse(text) {
  let at = 0;
  const fail = () => { throw new SyntaxError(`no JSON at ${at}`); };
  const blank = () => { while (' \n\r\t'.includes(text[at]) && at < text.length) at += 1; };
  const string = () => {
    let end = at;
    do {
      end = text.indexOf('"', end + 1);
      if (end < 0) fail();
    } while (escaped(end));
    const value = JSON.parse(text.slice(at, end + 1));
    at = end + 1;
    return value;
  };
  const escaped = (end) => {
    let n = 0;
    while (text[end - 1 - n] === '\\') n += 1;
    return n % 2 === 1;
  };
  const value = () => {
    blank();
    const c = text[at];
    if (c === '"') return { kind: 'string', value: string() };
    if (c === '{' || c === '[') return list(c === '{');
    const word = /[-+.\w]+/y;
    word.lastIndex = at;
    const found = word.exec(text)?.[0] ?? fail();
    at += found.length;
    const parsed = JSON.parse(found);
    return { kind: parsed === null ? 'null' : typeof parsed, value: parsed, written: found };
  };
  const list = (object) => {
    const node = object ? { kind: 'object', members: [] } : { kind: 'array', members: [] };
    const close = object ? '}' : ']';
    at += 1;
    blank();
    if (text[at] === close) { at += 1; return node; }
    for (;;) {
      blank();
      let key = String(node.members.length);
      if (object) {
        if (text[at] !== '"') fail();
        key = string();
        blank();
        if (text[at] !== ':') fail();
        at += 1;
      }
      node.members.push([key, value()]);
      blank();
      const next = text[at];
      at += 1;
      if (next === close) return node;
      if (next !== ',') fail();
    }
  };
  const root = value();
  blank();
  if (at !== text.length) fail();
  return root;
}

// plain makes JavaScript's values of nodes, except of members that are named
// arguments: those stay nodes.
export function plain(node) {
  switch (node.kind) {
    case 'object': return Object.fromEntries(node.members.map(([k, v]) => [k, k === 'arguments' ? v : plain(v)]));
    case 'array': return node.members.map(([, v]) => plain(v));
    default: return node.value;
  }
}

// json shows a node; lists are folded from a depth on.
export function json(node, open = 1) {
  switch (node.kind) {
    case 'string': return el('span', { class: 'string' }, long(node.value));
    case 'object':
    case 'array': {
      const n = node.members.length;
      if (n === 0) return el('span', { class: 'faint' }, node.kind === 'object' ? 'nothing: {}' : 'an empty list: []');
      if (open > 0 && n <= manyMembers) return members(node, open - 1);
      const what = node.kind === 'object' ? (n === 1 ? '1 member' : `${n} members`) : (n === 1 ? 'a list of 1' : `a list of ${n}`);
      const fold = el('details', {}, el('summary', {}, what));
      fold.addEventListener('toggle', () => { // made when it is looked at
        if (fold.open && fold.children.length === 1) fold.append(members(node, 0));
      });
      return fold;
    }
    default: return el('span', { class: 'literal' }, node.written);
  }
}

function members(node, open) {
  const list = el('dl', { class: node.kind });
  let from = 0;
  const add = () => {
    for (const [key, value] of node.members.slice(from, from + manyMembers)) {
      list.append(el('div', {}, el('dt', {}, isolated(key)), el('dd', {}, json(value, open))));
    }
    from += manyMembers;
    if (from >= node.members.length) return;
    const more = el('button', { type: 'button', class: 'all', onclick: () => { more.remove(); add(); } }, `… ${node.members.length - from} more`);
    list.append(el('div', {}, more));
  };
  add();
  return list;
}

// written writes a node as JSON.
export function written(node, indent = '') {
  const inner = `${indent}  `;
  switch (node.kind) {
    case 'object':
    case 'array': {
      const [a, z] = node.kind === 'object' ? '{}' : '[]';
      if (node.members.length === 0) return a + z;
      const parts = node.members.map(([k, v]) => inner + (node.kind === 'object' ? `${JSON.stringify(k)}: ` : '') + written(v, inner));
      return `${a}\n${parts.join(',\n')}\n${indent}${z}`;
    }
    case 'string': return JSON.stringify(node.value);
    default: return node.written;
  }
}
