// What things mean, in words for the person who decides.

// With each capability, a call could …
const could = {
  'local-read': 'read files inside the conversation’s own sandbox',
  'local-write': 'change or delete files inside the conversation’s own sandbox',
  'fixed-connector-read': 'read from a service that your operator vouched for',
  'arbitrary-egress': 'send data to an address that the model chose',
  'mutate-external': 'change something outside: send a message, edit a record, spend money',
  'grant-access': 'let somebody into the system: confirm exactly who',
  'revoke-access': 'take somebody’s access away: confirm exactly who',
  'manage-admin': 'take somebody’s admin role away: confirm exactly who',
  'grant-admin': 'make somebody an admin: confirm exactly who',
};

export const couldDo = (capability) => could[capability] ?? 'do something that this page has no words for';

export const grave = (capability) => ['grant-access', 'revoke-access', 'manage-admin', 'grant-admin'].includes(capability);

// who names a reviewer as a person would.
export const who = (reviewer) => reviewer.replace(/^token:/, '');

// outcome tells what became of a call.
export function outcome(p) {
  const d = p.decision;
  const by = d ? who(d.reviewer) : '';
  switch (p.state) {
    case 'waiting': return { label: 'waiting', text: 'It waits for a person.' };
    case 'approved': return d.scope === 'session'
      ? { label: 'approved', text: `${by} approved every call of this tool in this session. ${uses(p.uses)}` }
      : { label: 'approved', text: `${by} approved it once. It was not used yet.` };
    case 'used': return { label: 'used', text: `${by} approved it once, and it was used.` };
    case 'rejected': return { label: 'rejected', text: `${by} rejected it.` };
    case 'expired': return { label: 'expired', text: 'Nobody decided it in time.' };
    case 'withdrawn': return d
      ? { label: 'withdrawn', text: `${by} approved it, and the approval was taken back.` }
      : { label: 'withdrawn', text: 'It was withdrawn: nobody needs to decide it.' };
    default: return { label: p.state, text: '' };
  }
}

const uses = (n) => (n === 0 ? 'None came so far.' : n === 1 ? '1 call passed so far.' : `${n} calls passed so far.`);

// span says how long a time is.
export function span(milliseconds) {
  const s = Math.max(0, Math.round(milliseconds / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 48 * 3600) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

// acts are what a person can do, and what each means.
export const acts = {
  once: {
    button: 'Approve once', key: 'a', class: 'approve', title: 'Approve this call once?',
    means: () => 'Exactly this call, with exactly these arguments, may run one time. Everything else asks again.',
    said: 'You approved it once.',
  },
  session: {
    button: 'Approve for this session', key: 's', class: 'session', title: 'Approve this tool for the whole session?',
    means: () => 'Every further call of this tool in this session may run without asking, whatever its arguments are, until the approval ends.',
    said: 'You approved this tool for the session.',
  },
  reject: {
    button: 'Reject', key: 'r', class: 'reject', title: 'Reject this call?',
    means: () => 'The call does not run. If the agent tries exactly the same again, it is denied without asking you.',
    said: 'You rejected it.',
  },
  withdraw: {
    button: 'Take the approval back', key: '', class: 'reject', title: 'Take this approval back?',
    means: () => 'From now on no call passes by this approval. What has run already is not undone.',
    said: 'You took the approval back.',
  },
};
