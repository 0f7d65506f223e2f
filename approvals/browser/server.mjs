// Real servers for the page: processes of opa-gate serve over one ledger.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

const { PROGRAM } = process.env;
assert.ok(PROGRAM, 'PROGRAM names opa-gate');

// A Place has a ledger, tokens, and the servers that were started on them.
export class Place {
  constructor() {
    this.dir = mkdtempSync(path.join(tmpdir(), 'approvals-page-'));
    this.servers = [];
  }

  file(name) { return path.join(this.dir, name); }

  token(name, role) {
    return execFileSync(PROGRAM, ['approvals', 'token', name, '--role', role, '--file', this.file('tokens')], { encoding: 'utf8' }).trim();
  }

  // serve starts a server and waits until it listens.
  async serve({ port = 0, tokens = true } = {}) {
    const args = ['serve', '--addr', `127.0.0.1:${port}`, '--ledger', this.file('ledger.db'), '--key', this.file('key')];
    if (tokens) args.push('--approval-tokens', this.file('tokens'));
    const process = spawn(PROGRAM, args, { cwd: this.dir, stdio: ['ignore', 'ignore', 'pipe'] });
    const server = { process, log: '', ended: new Promise((resolve) => { process.on('exit', resolve); }) };
    this.servers.push(server);
    process.stderr.setEncoding('utf8');
    await new Promise((resolve, reject) => {
      process.stderr.on('data', (text) => {
        server.log += text;
        const found = /opa-gate: listening on (\S+);/.exec(server.log);
        if (found) { server.url = `http://${found[1].replace(/,.*/, '')}`; server.port = new URL(server.url).port; resolve(); }
      });
      server.ended.then(() => reject(new Error(`it does not listen: ${server.log}`)));
    });
    return server;
  }

  async close() {
    for (const s of this.servers) s.process.kill('SIGKILL');
    await Promise.all(this.servers.map((s) => s.ended));
    rmSync(this.dir, { recursive: true, force: true });
  }
}

// admit has a call wait, and returns what waits. It needs a person: its context is
// tainted, unless an origin is given.
export async function admit(server, tool, args = {}, { session = 's-1', origin = 'fetcher', call = {} } = {}) {
  const response = await fetch(`${server.url}/v1/gate/admit`, {
    method: 'POST', headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ call: { tool: { name: tool, origin }, taint: 'tainted', ...call }, arguments: typeof args === 'string' ? undefined : args, session })
      .replace('"arguments":null', ''),
  });
  const body = await response.json();
  assert.equal(response.status, 200, JSON.stringify(body));
  return body;
}

export const unique = () => randomUUID().slice(0, 8);
