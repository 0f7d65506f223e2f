// One call as a card: what it would do, with which arguments, and what can be
// done about it.
import { el, isolated, json, long, seen, written } from './text.js';
import { acts, couldDo, grave, outcome, span } from './words.js';

// A Card shows one escalation for as long as the page is open. Its id and its call
// never change; its state does.
export class Card {
  constructor(p, { act, now, approver, folded }) {
    this.p = p;
    this.now = now;
    this.act = act;
    this.approver = approver;
    this.settled = false;
    this.time = el('p', { class: 'time' });
    this.foot = el('div', { class: 'foot' });
    const name = `tool-${p.id}`;
    const head = el('div', { class: 'head' }, el('h3', { id: name, class: 'tool' }, isolated(p.tool)), this.time);
    const body = el('div', { class: 'body' }, this.does(), this.arguments(), this.facts());
    this.node = el('article', { class: 'card', tabindex: '-1', 'aria-labelledby': name, 'data-id': p.id });
    if (folded) {
      this.badge = el('span', { class: 'badge' });
      this.line = el('p', { class: 'line' });
      this.fold = el('details', { class: 'row' }, el('summary', {}, el('span', { class: 'sum' }, this.badge, head), this.line), body);
      this.node.append(this.fold, this.foot);
    } else {
      this.node.append(head, body, this.foot);
    }
    this.update(p);
  }

  // does says in plain words what would happen.
  does() {
    const { p } = this;
    const out = el('section', { class: 'does' });
    if (p.reason !== '') out.append(el('p', { class: 'reason' }, isolated(p.reason, 'span')));
    if (p.missing.length === 0) {
      out.append(el('p', {}, p.reason === '' ? 'Your policies want a person to confirm this call before it runs. It needs nothing that the conversation does not have.'
        : 'It needs nothing that the conversation does not have.'));
      return out;
    }
    const list = el('ul', { class: 'missing' }, ...p.missing.map((m) => el('li', {},
      el('span', { class: grave(m) ? 'label grave' : 'label' }, isolated(m)), ' ', el('span', {}, couldDo(m)))));
    out.append(el('p', { class: 'could' }, 'If you approve, this call could'), list);
    return out;
  }

  arguments() {
    const { p } = this;
    const out = el('section', { class: 'arguments', 'aria-label': 'What it is called with' });
    const transform = p.transform;
    const called = transform?.kind === 'rewrite' ? 'The model called it with' : 'It is called with';
    if (transform?.kind === 'rewrite') {
      out.append(el('h4', {}, 'What runs: your hook changes the arguments to'), json(transform.arguments, 2));
    }
    out.append(el('h4', {}, called), p.arguments.members.length === 0 ? el('p', { class: 'faint' }, 'No arguments.') : json(p.arguments, 2));
    if (transform?.kind === 'inject_context') {
      out.append(el('h4', {}, 'Your hook adds a note for the model'), el('p', {}, long(transform.note)));
    }
    if (p.arguments.members.length > 0) {
      const raw = el('details', { class: 'raw' }, el('summary', {}, 'As JSON'));
      raw.addEventListener('toggle', () => { // made when it is looked at
        if (raw.open && raw.children.length === 1) raw.append(el('pre', {}, long(written(p.arguments), 4000, false)));
      });
      out.append(raw);
    }
    return out;
  }

  facts() {
    const { p } = this;
    const fact = (name, text, more) => el('div', {}, el('dt', {}, name), el('dd', {}, text === '' ? el('span', { class: 'faint' }, more ?? 'none') : long(text, 120)));
    return el('details', { class: 'facts' }, el('summary', {}, 'Session, policies and digest'), el('dl', {},
      fact('Session', p.session, 'it belongs to none'), fact('Policies', p.revision), fact('Call', p.digest),
      fact('Id', p.id), fact('Filed', new Date(p.filed_at).toString()), fact('Ends', new Date(p.expires_at).toString())));
  }

  // update takes a new state in. It tells whether the call has just ceased to wait.
  update(p) {
    const before = this.p.state;
    const first = this.foot.childNodes.length === 0;
    const height = this.foot.offsetHeight;
    this.p = { ...p, arguments: this.p.arguments };
    if (first || before !== p.state || p.uses !== this.uses) {
      this.uses = p.uses;
      this.showState();
      // What stands below must not move under somebody's hand.
      if (before === 'waiting' && p.state !== 'waiting' && height > 0 && !this.badge) {
        this.foot.style.height = `${height}px`;
        this.foot.classList.add('held');
      }
    }
    this.tick();
    return before === 'waiting' && p.state !== 'waiting';
  }

  showState() {
    const { p } = this;
    const { label, text } = outcome(p);
    this.settled = p.state !== 'waiting';
    this.node.dataset.state = p.state;
    const comment = p.decision?.comment ? el('p', { class: 'comment' }, '“', long(p.decision.comment), '”') : '';
    const parts = [];
    if (this.badge) {
      this.badge.textContent = label;
      this.line.replaceChildren(seen(text));
    } else if (this.settled) {
      parts.push(el('p', { class: 'outcome' }, el('span', { class: 'badge' }, label), ' ', seen(text)));
    }
    if (comment) parts.push(comment);
    if (this.approver) {
      const can = p.state === 'waiting' ? ['once', ...(p.session_allowed ? ['session'] : []), 'reject']
        : p.state === 'approved' && this.badge ? ['withdraw'] : [];
      if (can.length > 0) parts.push(el('div', { class: 'actions' }, ...can.map((name) => this.button(name))));
      if (p.state === 'waiting' && !p.session_allowed) {
        parts.push(el('p', { class: 'faint' }, p.session === '' ? 'It belongs to no session, so it can be approved once.'
          : 'Who may do what in the system is approved one call at a time.'));
      }
    }
    this.tell ??= el('p', { class: 'tell', hidden: true });
    this.foot.replaceChildren(this.tell, ...parts);
  }

  button(name) {
    const { button, key, class: kind } = acts[name];
    const b = el('button', { type: 'button', class: kind, 'data-act': name, onclick: () => this.act(this, name) }, button);
    if (key) b.append(' ', el('kbd', { 'aria-hidden': 'true' }, key));
    return b;
  }

  can(name) { return this.foot.querySelector(`[data-act="${name}"]`) !== null; }

  // say has a sentence stand on the card.
  say(text) {
    this.foot.style.height = ''; // it was this person's own hand
    this.tell.replaceChildren(seen(text));
    this.tell.hidden = false;
  }

  // tick keeps the times current. It tells whether the call's time is over.
  tick() {
    const { p } = this;
    const now = this.now();
    const filed = Date.parse(p.filed_at);
    const left = Date.parse(p.expires_at) - now;
    const decided = p.decision ? Date.parse(p.decision.at) : 0;
    const text = p.state === 'waiting' ? `asked ${span(now - filed)} ago, ends in ${span(left)}`
      : decided ? `decided ${span(now - decided)} ago` : `asked ${span(now - filed)} ago`;
    if (this.time.textContent !== text) this.time.textContent = text;
    return p.state === 'waiting' && left <= 0;
  }

  // unfold opens all that is folded, or folds it again.
  unfold() {
    const open = !(this.fold?.open ?? this.node.querySelector('details')?.open);
    for (let left = 200, folds = [...this.node.querySelectorAll('details')]; folds.length > 0 && left > 0; left -= 1) {
      folds.shift().open = open;
    }
  }
}
