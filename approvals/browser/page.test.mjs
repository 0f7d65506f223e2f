// Has people decide on the page in Chromium. Every page is watched: what it
// complains of, and whatever it asks of anybody but its own server, is a failure.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { chromium } from 'playwright-core';
import { admit, Place, unique } from './server.mjs';

const { SHOTS, CHROMIUM = '/usr/bin/chromium' } = process.env;
const leastContrast = 4.5; // WCAG 2, level AA
const evil = [
  '<script>window.owned = 1</script>',
  '<img src=x onerror="window.owned = 1">',
  '"><svg onload=window.owned=1>',
  'javascript:window.owned=1',
  '{{constructor.constructor("window.owned=1")()}}',
];

let browser;
let place;
let server;
const tokens = {};

before(async () => {
  browser = await chromium.launch({
    executablePath: CHROMIUM,
    // No sandbox: builds run as root. The rest keeps it from calling home.
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  place = new Place();
  for (const [name, role] of [['anna', 'approver'], ['ben', 'approver'], ['vera', 'viewer']]) tokens[name] = place.token(name, role);
  server = await place.serve();
});
after(async () => {
  await browser?.close();
  await place?.close();
});

// visit opens the page in a browser of its own.
async function visit(options = {}, at = server, token = undefined) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const page = await context.newPage();
  const seen = [];
  page.on('console', (m) => seen.push(`console ${m.type()}: ${m.text()}`));
  page.on('pageerror', (e) => seen.push(`error: ${e.message}`));
  page.on('dialog', (d) => { seen.push(`dialog: ${d.message()}`); d.dismiss(); });
  page.on('request', (r) => { if (!r.url().startsWith(`${at.url}/`)) seen.push(`request ${r.url()}`); });
  await page.addInitScript(() => {
    window.violations = [];
    document.addEventListener('securitypolicyviolation', (e) => window.violations.push(`${e.violatedDirective} ${e.blockedURI}`));
  });
  await page.goto(`${at.url}/approvals${token ? `#token=${token}` : ''}`);
  if (token) await live(page);
  const done = async (expected = /^$/) => {
    assert.deepEqual(seen.filter((s) => !expected.test(s)), []);
    assert.deepEqual(await page.evaluate(() => window.violations), []);
    assert.equal(await page.evaluate(() => window.owned), undefined, 'a script of the input ran');
    await context.close();
  };
  return { page, done };
}

const live = (page) => page.waitForSelector('#link[data-state=live]');
const card = (page, id, list = '#cards') => page.locator(`${list} .card[data-id="${id}"]`);
const settled = (page, id) => page.waitForSelector(`#cards .card[data-id="${id}"]:not([data-state=waiting])`);
const isFocused = (locator) => locator.evaluate((e) => document.activeElement === e);

test('two browsers: one approves, and the other sees it within a second', async () => {
  const anna = await visit({}, server, tokens.anna);
  const ben = await visit({}, server, tokens.ben);
  let pending;
  const took = [];
  for (let round = 0; round < 3; round += 1) { // the best of them: machines are busy
    ({ pending } = await admit(server, `mail ${unique()}`, { to: 'a@example.org' }));
    await card(anna.page, pending.id).waitFor();
    await card(ben.page, pending.id).waitFor();
    await card(anna.page, pending.id).getByRole('button', { name: 'Approve once' }).click();
    await anna.page.locator('#comment').fill('fine');
    const sent = anna.page.waitForRequest(/decision$/).then(() => Date.now());
    const seen = settled(ben.page, pending.id).then(() => Date.now());
    await anna.page.locator('#ask-yes').click();
    took.push(await seen - await sent);
  }
  assert.ok(Math.min(...took) < 1000, `it took ${took} ms`);
  const text = await card(ben.page, pending.id).innerText();
  assert.match(text, /anna approved it once/);
  assert.match(text, /fine/);
  assert.equal(await card(ben.page, pending.id).getByRole('button', { name: /Approve|Reject/ }).count(), 0);
  assert.match(await ben.page.locator('#said').textContent(), /anna approved it once/);
  await anna.done();
  await ben.done();
});

test('a server beside it decides, and the page sees it within a second', async () => {
  const other = await place.serve();
  const { page, done } = await visit({}, server, tokens.anna);
  const { pending } = await admit(other, `other ${unique()}`);
  await card(page, pending.id).waitFor();
  const began = Date.now();
  const response = await fetch(`${other.url}/v1/gate/approvals/${pending.id}/decision`, {
    method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${tokens.ben}` }, body: '{"decision":"reject"}' });
  assert.equal(response.status, 200);
  await settled(page, pending.id);
  assert.ok(Date.now() - began < 1000, `it took ${Date.now() - began} ms`);
  await done();
  other.process.kill('SIGTERM');
  await other.ended;
});

test('the loser of two approvers is told', async () => {
  const anna = await visit({}, server, tokens.anna);
  const ben = await visit({}, server, tokens.ben);
  const { pending } = await admit(server, `race ${unique()}`);
  for (const who of [anna, ben]) await card(who.page, pending.id).getByRole('button', { name: /^Reject/ }).click();
  await ben.page.route('**/decision', async (route) => { await anna.page.locator('#ask-yes').click(); await settled(anna.page, pending.id); await route.continue(); });
  await ben.page.route('**/events', (route) => route.abort());
  await ben.page.locator('#ask-yes').click();
  await ben.page.waitForFunction(() => /Too late/.test(document.querySelector('#alarm').textContent));
  assert.match(await card(ben.page, pending.id).innerText(), /Too late, your answer does not count.*anna/s);
  await anna.done();
  await ben.done(/409|ERR_FAILED|ERR_ABORTED/);

  // And so is who has not confirmed yet: there is nothing left to confirm.
  const carl = await visit({}, server, tokens.anna);
  const { pending: next } = await admit(server, `race ${unique()}`);
  await card(carl.page, next.id).getByRole('button', { name: /^Reject/ }).click();
  await fetch(`${server.url}/v1/gate/approvals/${next.id}/decision`, {
    method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${tokens.ben}` }, body: '{"decision":"approve"}' });
  await carl.page.waitForFunction(() => /Too late: ben approved it once/.test(document.querySelector('#ask-problem').textContent));
  assert.equal(await carl.page.locator('#ask-yes').isDisabled(), true);
  await carl.done();
});

test('script as tool, argument, comment, session and reason is text', async () => {
  const { page, done } = await visit({}, server, tokens.anna);
  for (const text of evil) {
    const { pending } = await admit(server, text, { [text]: text, deep: { list: [text, { [text]: [text] }] } }, { session: text });
    const at = card(page, pending.id);
    await at.waitFor();
    assert.equal(await at.locator('.tool').textContent(), text);
    await at.evaluate((e) => e.querySelectorAll('details').forEach((d) => { d.open = true; }));
    assert.ok((await at.locator('.reason').textContent()).includes(text));
    assert.ok((await at.locator('.string').allTextContents()).includes(text));
    assert.ok((await at.locator('dt').allTextContents()).includes(text));
    await at.getByRole('button', { name: /^Reject/ }).click();
    await page.locator('#comment').fill(text);
    await page.locator('#ask-yes').click();
    await settled(page, pending.id);
    assert.ok((await at.locator('.comment').textContent()).includes(text));
  }
  await page.locator('#view-history').click();
  await page.locator('#q').fill('<script>');
  await page.waitForFunction(() => document.querySelectorAll('#rows .card').length === 1);
  assert.equal(await page.locator('script').count(), 1, 'the page has its own script and no other');
  assert.equal(await page.locator('main img, main svg, main iframe').count(), 0);
  await done();
});

test('what cannot be seen is marked', async () => {
  const { page, done } = await visit({}, server, tokens.vera);
  const { pending } = await admit(server, 'read\u202Etxt.exe', { 'na\u200Bme': 'a\u0000b\u2066c\u00A0d\ufeff', lines: 'one\ntwo\tthree' });
  const text = await card(page, pending.id).innerText();
  for (const mark of ['⟦U+202E⟧', '⟦U+200B⟧', '⟦U+0000⟧', '⟦U+2066⟧', '⟦U+00A0⟧', '⟦U+FEFF⟧']) assert.ok(text.includes(mark), `${mark} in ${text}`);
  assert.ok(!/[\u202e\u200b\u0000\u2066\u00a0\ufeff]/.test(text), 'and nothing hidden is left');
  assert.match(text, /one↵\ntwo⇥/);
  assert.ok(!/[\u202e]/.test(await page.locator('#said').textContent()));
  await done();
});

test('arguments are shown as they were sent: numbers, order, long and deep ones', async () => {
  const { page, done } = await visit({}, server, tokens.anna);
  const response = await fetch(`${server.url}/v1/gate/admit`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: `{"call":{"tool":{"name":"exact ${unique()}","origin":"fetcher"},"taint":"tainted","policy":{"transform":{"kind":"rewrite","arguments":{"n":1.0}}}},
      "arguments":{"10":9007199254740993,"2":1e2,"__proto__":{"x":null},"long":"${'x'.repeat(5000)}end","deep":{"a":{"b":{"c":"found"}}},"many":[${Array.from({ length: 250 }, (_, i) => i)}]}}` });
  const { pending } = await response.json();
  const at = card(page, pending.id);
  await at.waitFor();
  const text = await at.innerText();
  assert.match(text, /your hook changes the arguments to\s+n\s+1\.0/);
  assert.ok(text.indexOf('9007199254740993') > 0 && text.includes('1e2') && text.includes('__proto__'));
  assert.ok(text.indexOf('\n10\n') < text.indexOf('\n2\n'), 'members stand in their order');
  assert.ok(!text.includes('xend'));
  await at.getByRole('button', { name: /show all 5,003 characters/ }).click();
  assert.ok((await at.innerText()).includes('xend'));
  for (let i = 0; i < 4; i += 1) await at.evaluate((e) => e.querySelectorAll('.arguments details').forEach((d) => { d.open = true; }));
  await page.waitForFunction((id) => document.querySelector(`[data-id="${id}"]`).innerText.includes('found'), pending.id);
  await at.getByRole('button', { name: '150 more' }).click();
  await done();
});

test('by keyboard alone, from signing in to an approval', async () => {
  const { page, done } = await visit();
  const first = (await admit(server, `keys ${unique()}`, { n: 1 })).pending;
  const second = (await admit(server, `keys ${unique()}`, { n: 2 })).pending;
  await page.waitForFunction(() => document.activeElement.id === 'token');
  await page.keyboard.type(tokens.ben);
  await page.keyboard.press('Enter');
  await live(page);
  await card(page, second.id).waitFor();
  const at = card(page, first.id);
  for (let i = 0; i < 100 && !(await isFocused(at)); i += 1) await page.keyboard.press('j');
  assert.ok(await isFocused(at));
  assert.notEqual(await at.evaluate((e) => getComputedStyle(e).outlineStyle), 'none', 'the focus is seen');
  await page.keyboard.press('ArrowDown');
  assert.ok(await isFocused(card(page, second.id)));
  await page.keyboard.press('k');
  assert.ok(await isFocused(at));
  await page.keyboard.press('Enter');
  assert.equal(await at.locator('details').first().evaluate((d) => d.open), true);
  await page.keyboard.press('?');
  assert.ok(await page.locator('#help').isVisible());
  await page.keyboard.press('Escape');
  assert.ok(await isFocused(at));
  await page.keyboard.press('a');
  assert.ok(await page.locator('#ask').isVisible());
  await page.keyboard.press('Escape');
  await page.locator('#ask').waitFor({ state: 'hidden' });
  await page.waitForFunction((id) => document.activeElement.dataset.id === id, first.id);
  assert.equal((await at.getAttribute('data-state')), 'waiting', 'a key alone decides nothing');
  await page.keyboard.press('s');
  assert.match(await page.locator('#ask-means').innerText(), /Every further call of this tool in this session.*whatever its arguments/);
  await page.keyboard.press('Enter');
  await settled(page, first.id);
  assert.match(await at.innerText(), /ben approved every call of this tool in this session/);
  await page.waitForFunction((id) => document.activeElement.dataset.id === id, first.id);
  await page.keyboard.press('j');
  await page.keyboard.press('r');
  await page.keyboard.press('Shift+Tab'); // to the comment
  await page.keyboard.type('a comment with a, s and r');
  await page.keyboard.press('Control+Enter');
  await settled(page, second.id);
  assert.match(await card(page, second.id).innerText(), /a comment with a, s and r/);
  await page.keyboard.press('/');
  await page.keyboard.type(second.id);
  await page.waitForFunction(() => document.querySelectorAll('#rows .card').length === 1);
  await done();
});

test('who decides is not told to be late when the stream is faster than the answer', async () => {
  const { page, done } = await visit({}, server, tokens.anna);
  const first = (await admit(server, `slow ${unique()}`, { n: 1 })).pending;
  const second = (await admit(server, `slow ${unique()}`, { n: 2 })).pending;
  await card(page, second.id).waitFor();
  await page.route(/decision$/, async (route) => {
    const response = await route.fetch();
    await settled(page, first.id);
    await route.fulfill({ response });
  });
  await page.evaluate(() => {
    window.problems = [];
    new MutationObserver(() => window.problems.push(document.querySelector('#ask-problem').textContent))
      .observe(document.querySelector('#ask-problem'), { childList: true, characterData: true, subtree: true });
    // The next key comes in the same moment as the end of the question.
    window.after = [];
    new MutationObserver(() => {
      if (document.querySelector('#ask').open) return;
      document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'j', bubbles: true }));
      requestAnimationFrame(() => setTimeout(() => window.after.push(document.activeElement.dataset.id), 100));
    }).observe(document.querySelector('#ask'), { attributes: true, attributeFilter: ['open'] });
  });
  await card(page, first.id).focus();
  await page.keyboard.press('a');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => window.after.length > 0);
  assert.deepEqual(await page.evaluate(() => window.problems.filter((p) => p !== '')), []);
  assert.match(await card(page, first.id).innerText(), /anna approved it once/);
  assert.deepEqual(await page.evaluate(() => window.after), [second.id], 'the focus is where the key moved it');
  await done();
});

test('a viewer sees, and has no buttons; a wrong token is refused', async () => {
  const { pending } = await admit(server, `view ${unique()}`);
  const { page, done } = await visit({}, server, tokens.vera);
  await card(page, pending.id).waitFor();
  assert.match(await page.locator('#who').innerText(), /vera\s*viewer/);
  assert.equal(await page.locator('#cards [data-act]').count(), 0);
  await card(page, pending.id).focus();
  await page.keyboard.press('a');
  assert.equal(await page.locator('#ask').isVisible(), false);
  assert.equal(new URL(page.url()).hash, '', 'the token does not stay in the address');
  await page.reload();
  await live(page);
  await page.locator('#sign-out').click();
  assert.equal(await page.locator('#cards .card').count(), 0, 'nothing stays behind');
  await page.locator('#token').fill(`ogt_${'x'.repeat(43)}`);
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => /does not know this token/.test(document.querySelector('#sign-in-problem').textContent));
  await done(/401/);
});

test('what cannot be approved for a session has no button for it', async () => {
  const { page, done } = await visit({}, server, tokens.anna);
  const { pending: invite } = await admit(server, `invite ${unique()}`, { who: 'x' }, { origin: 'access-grant' });
  const { pending: alone } = await admit(server, `alone ${unique()}`, {}, { session: '' });
  for (const [p, why] of [[invite, /one call at a time/], [alone, /no session/]]) {
    await card(page, p.id).waitFor();
    assert.equal(await card(page, p.id).locator('[data-act=session]').count(), 0);
    assert.match(await card(page, p.id).innerText(), why);
    await card(page, p.id).focus();
    await page.keyboard.press('s');
    assert.equal(await page.locator('#ask').isVisible(), false);
  }
  await done();
});

test('what comes and goes moves nothing under the hand', async () => {
  const { page, done } = await visit({}, server, tokens.anna);
  const a = (await admit(server, `still ${unique()}`)).pending;
  const b = (await admit(server, `still ${unique()}`)).pending;
  await card(page, b.id).waitFor();
  await card(page, b.id).scrollIntoViewIfNeeded();
  const where = () => card(page, b.id).locator('[data-act=once]').boundingBox();
  const before = await where();
  await fetch(`${server.url}/v1/gate/approvals/${a.id}/withdraw`, {
    method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${tokens.ben}` }, body: '{}' });
  const c = (await admit(server, `still ${unique()}`)).pending;
  await settled(page, a.id);
  await card(page, c.id).waitFor();
  const now = await where();
  assert.ok(Math.abs(now.y - before.y) < 1, `the button went from ${before.y} to ${now.y}`);
  await done();
});

test('a server that goes away is told of, and come back is caught up with', async () => {
  let own = await place.serve();
  const { port } = own;
  const { page, done } = await visit({}, own, tokens.anna);
  own.process.kill('SIGTERM');
  const stopping = Date.now();
  await own.ended;
  assert.ok(Date.now() - stopping < 5000, 'a stream holds the server up');
  await page.waitForSelector('#link[data-state=lost]');
  assert.match(await page.locator('#link').innerText(), /Not connected/);
  const { pending } = await admit(server, `missed ${unique()}`);
  own = await place.serve({ port });
  await card(page, pending.id).waitFor({ timeout: 20_000 });
  await live(page);
  await done(/ERR_/);
});

test('the token of a run, and no token in the log', async () => {
  const own = await place.serve({ tokens: false });
  const url = /approvals at (\S+)/.exec(own.log)[1];
  const [, token] = /#token=(ogt_\S+)/.exec(url);
  const { page, done } = await visit({}, own, token);
  assert.match(await page.locator('#who').innerText(), /local\s*approver/);
  await page.locator('#view-history').click();
  await done();
  own.process.kill('SIGTERM');
  await own.ended;
  assert.equal(own.log.split(token).length, 2, 'the token is printed once');
  for (const t of Object.values(tokens)) assert.ok(!server.log.includes(t));
});

describe('to look at', { concurrency: false }, () => {
  let own;
  let shown;
  before(async () => {
    shown = new Place();
    tokens.look = shown.token('maria', 'approver');
    own = await shown.serve();
    const old = (await admit(own, 'calendar_create', { title: 'Dentist', when: '2026-12-04T09:30' })).pending;
    await fetch(`${own.url}/v1/gate/approvals/${old.id}/decision`, {
      method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: `Bearer ${tokens.look}` }, body: '{"decision":"reject","comment":"Wrong day, ask again."}' });
    await admit(own, 'send_email', { to: ['accounts@supplier.example'], subject: 'Invoice 2026-118', body: `Dear all,\n\nplease find our bank details below.\n\n${'The quick brown fox jumps over the lazy dog. '.repeat(20)}`, attachments: [{ name: 'invoice.pdf', size: 48213, meta: { pages: 2 } }] }, { session: 'claude-7f3a', origin: 'registered-connector' });
    await admit(own, 'invite_member', { email: 'new.person@example.org', role: 'editor' }, { session: 'claude-7f3a', origin: 'access-grant' });
    await admit(own, 'web_fetch', { url: 'https://files.example/\u202Egpj.exe', method: 'GET' }, { session: 'claude-7f3a' });
  });
  after(() => shown?.close());

  const backgrounds = {};
  for (const [device, width, height] of [['phone', 360, 740], ['desk', 1280, 900]]) {
    for (const colorScheme of ['light', 'dark']) {
      test(`${device}, ${colorScheme}`, async () => {
        const { page, done } = await visit({ viewport: { width, height }, colorScheme, reducedMotion: 'reduce' }, own);
        const look = async (name) => {
          await fits(page, name);
          await isReadable(page);
          if (SHOTS) await page.screenshot({ path: path.join(SHOTS, `${name}-${device}-${colorScheme}.png`), fullPage: !/ask|help/.test(name) });
        };
        await look('sign-in');
        await page.locator('#token').fill(tokens.look);
        await page.keyboard.press('Enter');
        await live(page);
        await page.waitForSelector('#cards .card');
        await look('waiting');
        await page.evaluate(() => document.querySelectorAll('#cards details').forEach((d) => { d.open = true; }));
        await look('unfolded');
        await page.locator('#cards [data-act=session]').first().click();
        await look('ask');
        await page.keyboard.press('Escape');
        await page.keyboard.press('?');
        await look('help');
        await page.keyboard.press('Escape');
        await page.locator('#view-history').click();
        await page.waitForSelector('#rows .card');
        await look('history');
        backgrounds[colorScheme] = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
        const small = await page.evaluate(() => [...document.querySelectorAll('button')].filter((b) => b.getClientRects().length && !b.classList.contains('all') && b.getBoundingClientRect().height < 40).map((b) => b.textContent));
        assert.deepEqual(small, [], 'buttons are large enough for a finger');
        await done();
      });
    }
  }
  test('dark is another page to look at than light', () => {
    assert.ok(backgrounds.light && backgrounds.dark);
    assert.notEqual(backgrounds.light, backgrounds.dark);
  });
});

// fits fails if the page has to be moved sideways.
async function fits(page, state) {
  const beyond = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const found = [];
    if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
    for (const e of document.body.querySelectorAll('*')) {
      if (e.closest('.unseen, .skip') || e.getClientRects().length === 0) continue;
      const box = e.getBoundingClientRect();
      if (box.right > width + 0.5 || box.left < -0.5) found.push(`${e.tagName}.${e.className} from ${box.left} to ${box.right}: ${e.textContent.slice(0, 60)}`);
    }
    return found.slice(0, 5);
  });
  assert.deepEqual(beyond, [], state);
}

// isReadable computes the contrast of every text that is shown.
async function isReadable(page) {
  const weak = await page.evaluate((least) => {
    const parse = (text) => {
      const m = /^rgba?\(([\d.]+), ([\d.]+), ([\d.]+)(?:, ([\d.]+))?\)$/.exec(text);
      if (!m) throw new Error(`no colour: ${text}`);
      return { rgb: m.slice(1, 4).map(Number), alpha: m[4] === undefined ? 1 : Number(m[4]) };
    };
    const backdrop = (e) => {
      for (let at = e; at; at = at.parentElement) {
        const c = parse(getComputedStyle(at).backgroundColor);
        if (c.alpha === 1) return c.rgb;
        if (c.alpha !== 0) throw new Error(`a translucent background: ${at.className}`);
      }
      throw new Error('no background');
    };
    const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
      .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const found = new Map();
    let texts = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const e = walker.currentNode.parentElement;
      if (walker.currentNode.data.trim() === '' || e.closest('.unseen, :disabled') || e.getClientRects().length === 0) continue;
      texts += 1;
      const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(backdrop(e))].sort((x, y) => y - x);
      const contrast = (a + 0.05) / (b + 0.05);
      if (contrast < least) found.set(`${e.tagName}.${e.className}`, contrast.toFixed(2));
    }
    return { texts, found: [...found] };
  }, leastContrast);
  assert.ok(weak.texts > 3, 'there are texts on the page');
  assert.deepEqual(weak.found, []);
}
