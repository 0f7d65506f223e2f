// compare.mjs GATE DIR: the reference servers with and without the gateway GATE
// (the program opa-gate) before them, and what differs. Exit code 1 if anything
// does. DIR is a scratch directory.

import { spawn } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { getDefaultEnvironment } from '@modelcontextprotocol/sdk/client/stdio.js';
import { prepare, run } from './battery.mjs';

const [gate, scratch] = process.argv.slice(2);
const here = path.dirname(fileURLToPath(import.meta.url));
const work = path.join(scratch, 'work');
const entry = (name) => path.join(here, 'node_modules/@modelcontextprotocol', `server-${name}`, 'dist/index.js');
const memory = { MEMORY_FILE_PATH: path.join(scratch, 'memory.jsonl') };
const commands = {
  everything: { command: process.execPath, args: [entry('everything'), 'stdio'] },
  filesystem: { command: process.execPath, args: [entry('filesystem'), work] },
  memory: { command: process.execPath, args: [entry('memory')], env: memory },
};
const ledger = ['--ledger', path.join(scratch, 'ledger.db'), '--key', path.join(scratch, 'key.pem')];

function through(name, servers) {
  const file = path.join(scratch, `${name}.json`);
  const mcpServers = Object.fromEntries(Object.entries(servers).map(([k, v]) => [k, { ...v, origin: 'local-sandbox' }]));
  fs.writeFileSync(file, JSON.stringify({ mcpServers }));
  return ['mcp', '--config', file, ...ledger];
}

// What two runs of one server differ in by themselves.
function settle(value) {
  const text = JSON.stringify(value)
    .replace(/"blob":"([\w+/]+=*)"/g, (whole, b) => (b.length > 200 ? whole : `"blob":${JSON.stringify(Buffer.from(b, 'base64').toString())}`))
    .replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')
    .replace(/\d{1,2}:\d\d:\d\d ?(AM|PM)/g, 'TIME')
    .replace(/(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \w{3} \d\d \d{4} [\d:]+ [^"\\]*/g, 'TIME')
    .replace(/(taskId":")[0-9a-f]{32}/g, '$1TASK')
    .replace(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, 'UUID')
    .replace(/The server \\*"\w+\\*" asks \(this is not opa-gate\): /g, ''); // what the gateway adds on purpose
  const settled = JSON.parse(text);
  for (const [what, done] of Object.entries(settled)) { // the order of variables is nobody's promise
    if (!what.startsWith('tools/call get-env')) continue;
    const part = done.result.content[0];
    part.text = Object.entries(JSON.parse(part.text)).sort();
  }
  return settled;
}

function differences(a, b, at, out) {
  if (a === b) return;
  if (typeof a !== 'object' || typeof b !== 'object' || !a || !b || Array.isArray(a) !== Array.isArray(b)) {
    out.push(`${at}:\n  direct   ${JSON.stringify(a)?.slice(0, 600)}\n  gateway  ${JSON.stringify(b)?.slice(0, 600)}`);
    return;
  }
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) differences(a[key], b[key], `${at}/${key}`, out);
}

let failed = false;

// once does everything with one endpoint.
async function once(to, servers) {
  prepare(work);
  fs.rmSync(memory.MEMORY_FILE_PATH, { force: true });
  const server = to.listen && (await listen(to));
  const out = settle(await run(server ? { url: server.url } : to, servers, work));
  server?.child.kill();
  return out;
}

function report(title, direct, gateway) {
  const out = [];
  differences(direct, gateway, '', out);
  const done = Object.keys(direct).length;
  if (direct.uncovered.length > 0) out.push(`tools that nobody called: ${direct.uncovered}`);
  if (done < 14) out.push(`only ${done} things were done`);
  const errors = Object.values(direct).filter((v) => v?.error || v?.result?.isError).length;
  console.log(`${out.length === 0 ? 'same' : 'DIFFERENT'}  ${title}: ${done} things done, ${errors} of them errors`);
  for (const line of out) console.log(line);
  failed ||= out.length > 0;
}

async function hold(title, name, direct, gateway) {
  report(title, await once(direct, [name]), await once(gateway, [name]));
}

async function freePort() {
  return new Promise((resolve) => {
    const s = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = s.address();
      s.close(() => resolve(port));
    });
  });
}

// listen starts a server on a port of this machine, and waits until it answers.
async function listen(to) {
  const port = to.port ?? (await freePort());
  const child = spawn(to.command, to.args.map((a) => a.replace('PORT', port)), { env: { ...getDefaultEnvironment(), ...to.env, PORT: String(port) }, stdio: ['ignore', 'ignore', process.env.VERBOSE ? 'inherit' : 'ignore'] });
  for (let i = 0; ; i++) {
    const up = await new Promise((resolve) => {
      const s = net.connect(port, '127.0.0.1', () => { s.destroy(); resolve(true); }).on('error', () => resolve(false));
    });
    if (up) return { child, url: `http://127.0.0.1:${port}/mcp` };
    if (i === 200) throw new Error(`${to.command} does not listen`);
    await new Promise((r) => setTimeout(r, 50));
  }
}

const names = Object.keys(commands);
for (const name of names) {
  await hold(`${name}, on standard streams`, name, commands[name], { command: gate, args: through(name, { [name]: commands[name] }) });
}
const { everything } = commands;
await hold('everything, a client over HTTP', 'everything', everything, { listen: true, command: gate, args: [...through('listening', { everything }), '--listen', '127.0.0.1:PORT'] });
const far = await listen({ command: process.execPath, args: [entry('everything'), 'streamableHttp'] });
await hold('everything, a server over HTTP', 'everything', { url: far.url }, { command: gate, args: through('far', { everything: { url: far.url } }) });
far.child.kill();

// What the servers do one by one, put together, is what they do together.
const apart = {};
const lists = { tools: [], resources: [], uncovered: [], asked: [], updates: [] };
for (const name of names) {
  const { capabilities, server, instructions, ...rest } = await once(commands[name], [name]);
  lists.tools.push(...rest['tools/list'].tools);
  lists.resources.push(...(rest['resources/list']?.resources ?? []));
  for (const list of ['uncovered', 'asked', 'updates']) lists[list].push(...rest[list]);
  Object.assign(apart, rest);
}
const { tools, resources, ...others } = lists;
Object.assign(apart, others, { 'tools/list': { tools }, 'resources/list': { resources } });
const together = await once({ command: gate, args: through('three', commands) }, names);
for (const out of [apart, together]) { // which server lacks a thing is in the words, not in the code
  for (const { error } of Object.values(out)) delete error?.message;
}
report('all three behind one endpoint', apart, together);
process.exit(failed ? 1 : 0);
