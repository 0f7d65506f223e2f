// Opens every page of the directory PAGES in Chromium, at the width of a phone
// and of a desk, in light and in dark, and holds it against the difference that
// lies beside it as JSON. Screenshots go to SHOTS, if that is set.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const { PAGES, SHOTS, CHROMIUM = '/usr/bin/chromium' } = process.env;
assert.ok(PAGES, 'PAGES names the directory with the pages');
const names = readdirSync(PAGES).filter((f) => f.endsWith('.html')).map((f) => f.slice(0, -'.html'.length)).sort();
assert.ok(names.length > 0, `${PAGES} has no page`);

const widths = { phone: 360, desk: 1280 };
const schemes = ['light', 'dark'];
const leastContrast = 4.5; // WCAG 2, level AA, for text of this size

let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: CHROMIUM,
    // No sandbox: builds run as root. The rest keeps it from calling home.
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});
after(() => browser?.close());

for (const name of names) {
  describe(name, { concurrency: false }, () => {
    const difference = JSON.parse(readFileSync(path.join(PAGES, `${name}.json`), 'utf8'));
    const backgrounds = {};
    for (const [device, width] of Object.entries(widths)) {
      for (const colorScheme of schemes) {
        test(`${device}, ${colorScheme}`, async () => {
          const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme, reducedMotion: 'reduce' });
          try {
            const page = await context.newPage();
            const complaints = watch(page);
            const url = pathToFileURL(path.join(PAGES, `${name}.html`)).href;
            await page.goto(url);
            if (SHOTS) await page.screenshot({ path: path.join(SHOTS, `${name}-${device}-${colorScheme}.png`), fullPage: difference.changes.length < 100 });
            await holdsTheData(page, difference);
            await fits(page, 'folded');
            await page.evaluate(() => document.querySelectorAll('details').forEach((d) => { d.open = true; }));
            await fits(page, 'unfolded');
            await isReadable(page);
            if (SHOTS && difference.changes.length < 10) await page.screenshot({ path: path.join(SHOTS, `${name}-${device}-${colorScheme}-open.png`), fullPage: true });
            backgrounds[colorScheme] = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
            assert.deepEqual(complaints.filter((c) => c !== `request ${url}`), []);
          } finally {
            await context.close();
          }
        });
      }
    }
    test('dark is another page to look at than light', () => {
      assert.ok(backgrounds.light && backgrounds.dark);
      assert.notEqual(backgrounds.light, backgrounds.dark);
    });
  });
}

// watch collects whatever a page should not do: complain, or ask for anything.
function watch(page) {
  const seen = [];
  page.on('console', (m) => seen.push(`console ${m.type()}: ${m.text()}`));
  page.on('pageerror', (e) => seen.push(`error: ${e.message}`));
  page.on('dialog', (d) => { seen.push(`dialog: ${d.message()}`); d.dismiss(); });
  page.on('request', (r) => seen.push(`request ${r.url()}`));
  return seen;
}

// holdsTheData compares what is shown with what there is to show.
async function holdsTheData(page, difference) {
  const shown = await page.evaluate(() => {
    const taints = [...document.querySelectorAll('.matrix thead th')].slice(1).map((th) => th.textContent);
    const squares = [];
    for (const tr of document.querySelectorAll('.matrix tbody tr:not(.origin)')) {
      const origin = tr.parentElement.querySelector('.origin th').textContent;
      [...tr.querySelectorAll('td')].forEach((td, i) => {
        const flag = td.querySelector('.flag');
        squares.push({
          at: [origin, tr.querySelector('th').textContent, taints[i]].join(' / '),
          marked: td.classList.contains('changed'),
          flagged: Boolean(flag) && flag.getClientRects().length > 0 && flag.textContent === '◆',
          title: td.title,
          said: td.innerText.replace(/\s+/g, ' ').trim(),
          outcomes: [...td.querySelectorAll('.outcome')].map((o) => o.textContent),
        });
      });
    }
    return {
      squares,
      rows: document.querySelectorAll('.change').length,
      examples: [...document.querySelectorAll('.change pre')].map((pre) => pre.textContent),
      scripts: document.querySelectorAll('script, img, svg, iframe, [style], [onload], [onerror]').length,
      levels: [...document.querySelectorAll('h1, h2')].map((h) => h.tagName),
      unlabelled: [...document.querySelectorAll('th:not([scope])')].length,
    };
  });
  const rank = ['widening', 'narrowing', 'rewording'];
  const changes = rank.flatMap((d) => difference.changes.filter((c) => c.direction === d));
  assert.equal(shown.rows, difference.changes.length);
  assert.deepEqual(shown.examples.map((e) => JSON.parse(e)), changes.map((c) => c.example));
  assert.equal(shown.scripts, 0, 'nothing but text came of the texts');
  assert.equal(shown.unlabelled, 0);
  assert.equal(shown.levels[0], 'H1');

  const squares = difference.matrix.filter((s) => s.before.length > 0 || s.after.length > 0);
  const hostile = squares.some((s) => !/^[a-z_-]+$/.test(s.origin)); // the page writes these with escapes
  const marked = shown.squares.filter((s) => s.marked);
  assert.equal(marked.length, squares.filter((s) => s.changed).length);
  if (!hostile) {
    const key = (s) => [s.origin, s.capability, s.taint].join(' / ');
    assert.deepEqual(marked.map((s) => s.at).sort(), squares.filter((s) => s.changed).map(key).sort());
    for (const want of squares) {
      const got = shown.squares.find((s) => s.at === key(want));
      const same = String(want.before) === String(want.after);
      assert.deepEqual(got.outcomes, want.changed && !same ? [...want.before, ...want.after] : want.before, key(want));
      assert.notEqual(got.title, '');
    }
  }
  for (const s of shown.squares) {
    assert.equal(s.flagged, s.marked, `${s.at}: the mark is there for whoever sees no colour`);
    assert.equal(s.said.includes('changed:'), s.marked, `${s.at}: and for whoever hears the page`);
  }
}

// fits fails if the page has to be moved sideways, or if something is cut off.
async function fits(page, state) {
  const beyond = await page.evaluate(() => {
    const width = document.documentElement.clientWidth;
    const found = [];
    if (document.documentElement.scrollWidth > width) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
    for (const e of document.body.querySelectorAll('*')) {
      if (e.closest('.hidden') || e.getClientRects().length === 0) continue;
      const box = e.getBoundingClientRect();
      const cut = getComputedStyle(e).display !== 'inline' && e.scrollWidth > e.clientWidth + 1;
      if (box.right > width + 0.5 || box.left < -0.5 || cut) found.push(`${e.tagName}.${e.className} from ${box.left} to ${box.right}, ${e.scrollWidth} wide: ${e.textContent.slice(0, 60)}`);
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
      if (walker.currentNode.data.trim() === '' || e.closest('.hidden') || e.getClientRects().length === 0) continue;
      texts += 1;
      const [a, b] = [light(parse(getComputedStyle(e).color).rgb), light(backdrop(e))].sort((x, y) => y - x);
      const contrast = (a + 0.05) / (b + 0.05);
      if (contrast < least) found.set(`${e.tagName}.${e.className}`, contrast.toFixed(2));
    }
    return { texts, found: [...found] };
  }, leastContrast);
  assert.ok(weak.texts > 10, 'there are texts on the page');
  assert.deepEqual(weak.found, []);
}
