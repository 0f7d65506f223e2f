// Everything that a client of the reference servers can do, done in a fixed
// order. What came of it is written as one JSON object, for compare.mjs.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import * as types from '@modelcontextprotocol/sdk/types.js';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const pixel = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';

// The arguments of every tool, in the order of the calls; some tools are called
// more than once. A tool that a server lists and that is not here fails the
// comparison.
const calls = {
  everything: () => [
    ['echo', { message: 'grüße \u{1f600} <&> "quoted"' }],
    ['echo', {}], // an error
    ['get-annotated-message', { messageType: 'error', includeImage: true }],
    ['get-annotated-message', { messageType: 'debug' }],
    ['get-env', {}],
    ['get-resource-links', { count: 4 }],
    ['get-resource-reference', { resourceType: 'Blob', resourceId: 2 }],
    ['get-structured-content', { location: 'Chicago' }],
    ['get-sum', { a: 0.1, b: 9007199254740991 }],
    ['get-tiny-image', {}],
    ['gzip-file-as-resource', { name: 'x.gz', data: 'data:text/plain,hello', outputType: 'resource' }],
    ['toggle-simulated-logging', {}],
    ['toggle-simulated-logging', {}],
    ['toggle-subscriber-updates', {}],
    ['toggle-subscriber-updates', {}],
    ['trigger-long-running-operation', { duration: 0.3, steps: 3 }],
    ['get-roots-list', {}],
    ['trigger-elicitation-request', {}],
    ['trigger-url-elicitation', { url: 'https://example.org/x', elicitationId: 'e1' }],
    ['trigger-sampling-request', { prompt: 'say hello', maxTokens: 10 }],
    ['simulate-research-query', { topic: 'bees' }],
  ],
  filesystem: (dir) => [
    ['list_allowed_directories', {}],
    ['create_directory', { path: `${dir}/sub` }],
    ['write_file', { path: `${dir}/sub/a.txt`, content: 'one\ntwo\nthree\n\u2028end\n' }],
    ['read_file', { path: `${dir}/sub/a.txt`, head: 2 }],
    ['read_text_file', { path: `${dir}/sub/a.txt`, tail: 2 }],
    ['read_text_file', { path: `${dir}/absent` }], // an error
    ['read_text_file', { path: '/etc/passwd' }], // an error
    ['read_media_file', { path: `${dir}/pixel.png` }],
    ['read_multiple_files', { paths: [`${dir}/sub/a.txt`, `${dir}/absent`] }],
    ['edit_file', { path: `${dir}/sub/a.txt`, edits: [{ oldText: 'two', newText: '2' }], dryRun: false }],
    ['list_directory', { path: dir }],
    ['list_directory_with_sizes', { path: dir, sortBy: 'size' }],
    ['directory_tree', { path: dir }],
    ['move_file', { source: `${dir}/sub/a.txt`, destination: `${dir}/b.txt` }],
    ['search_files', { path: dir, pattern: '**/*.txt' }],
    ['get_file_info', { path: `${dir}/pixel.png` }],
  ],
  memory: () => [
    ['create_entities', { entities: [{ name: 'Ada', entityType: 'person', observations: ['writes programs'] }, { name: 'Engine', entityType: 'machine', observations: [] }] }],
    ['create_relations', { relations: [{ from: 'Ada', to: 'Engine', relationType: 'programs' }] }],
    ['add_observations', { observations: [{ entityName: 'Ada', contents: ['likes numbers'] }] }],
    ['search_nodes', { query: 'numbers' }],
    ['open_nodes', { names: ['Ada'] }],
    ['read_graph', {}],
    ['delete_observations', { deletions: [{ entityName: 'Ada', observations: ['likes numbers'] }] }],
    ['delete_relations', { relations: [{ from: 'Ada', to: 'Engine', relationType: 'programs' }] }],
    ['delete_entities', { entityNames: ['Ada', 'Engine'] }],
    ['read_graph', {}],
  ],
};

// prepare puts the directory of the servers into its first state.
export function prepare(dir) {
  fs.rmSync(dir, { recursive: true, force: true });
  fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(path.join(dir, 'pixel.png'), Buffer.from(pixel, 'base64'));
  fs.utimesSync(path.join(dir, 'pixel.png'), 1e9, 1e9);
}

export function transport(to) {
  if (to.url) return new StreamableHTTPClientTransport(new URL(to.url));
  return new StdioClientTransport({ ...to, stderr: process.env.VERBOSE ? 'inherit' : 'ignore' });
}

// run does everything with the named servers, all behind one endpoint, and
// returns what came of it by what was done.
export async function run(to, servers, dir) {
  const out = {};
  const client = new Client({ name: 'battery', version: '1.0.0' }, {
    capabilities: { sampling: {}, elicitation: { form: {}, url: {} }, roots: { listChanged: true } },
  });
  const asked = [];
  client.setRequestHandler(types.CreateMessageRequestSchema, async (r) => {
    asked.push(r);
    return { role: 'assistant', content: { type: 'text', text: 'hello' }, model: 'none' };
  });
  client.setRequestHandler(types.ElicitRequestSchema, async (r) => {
    asked.push(r);
    return r.params.mode === 'url' ? { action: 'accept' } : { action: 'accept', content: { name: 'Ada', check: true } };
  });
  client.setRequestHandler(types.ListRootsRequestSchema, async () => ({ roots: [{ uri: pathToFileURL(dir).href, name: 'work' }] }));
  const updates = [];
  client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (n) => { updates.push(n); });

  const does = async (what, f) => {
    try {
      out[what] = await f();
    } catch (e) {
      out[what] = { error: { code: e.code, message: e.message, data: e.data } };
    }
  };
  await client.connect(transport(to));
  if (servers.length === 1) {
    out.capabilities = client.getServerCapabilities();
    out.server = client.getServerVersion();
    out.instructions = client.getInstructions();
  }
  await new Promise((r) => setTimeout(r, 400)); // servers ask for roots and list anew
  await does('ping', () => client.ping());
  await does('tools/list', () => client.listTools());
  const all = { tools: out['tools/list'].tools ?? [] };
  const covered = new Set();
  for (const server of servers) {
    for (const [i, [name, args]] of calls[server](dir).entries()) {
      covered.add(name);
      const progress = [];
      const options = { onprogress: (p) => progress.push(p), timeout: 20000 };
      const what = `tools/call ${name}, ${server} ${i}`;
      await does(what, async () => {
        const tool = all.tools.find((t) => t.name === name);
        if (tool?.execution?.taskSupport !== 'required') {
          const result = await client.request({ method: 'tools/call', params: { name, arguments: args } }, types.CallToolResultSchema, options);
          // The client drops what comes in one breath with the result.
          return { result, progress: progress.filter((p) => p.progress !== p.total) };
        }
        const steps = [];
        for await (const step of client.experimental.tasks.callToolStream({ name, arguments: args }, types.CallToolResultSchema, { ...options, task: { ttl: 60000 } })) {
          if (step.type === 'result' || step.type === 'error') steps.push(step);
          if (step.type === 'taskCreated') steps.push({ created: step.task.status, interval: step.task.pollInterval });
        }
        return { steps };
      });
    }
  }
  out.uncovered = all.tools.map((t) => t.name).filter((name) => !covered.has(name));

  if (client.getServerCapabilities().resources) {
    await does('resources/list', () => client.listResources());
    for (const { uri } of out['resources/list'].resources ?? []) await does(`resources/read ${uri}`, () => client.readResource({ uri }));
  }
  if (servers.includes('everything')) {
    await does('cancel', async () => {
      const abort = new AbortController();
      const long = client.request({ method: 'tools/call', params: { name: 'trigger-long-running-operation', arguments: { duration: 30, steps: 3 } } }, types.CallToolResultSchema, { signal: abort.signal, timeout: 60000 });
      setTimeout(() => abort.abort('enough'), 150);
      return long;
    });
    await does('after cancel', () => client.callTool({ name: 'echo', arguments: { message: 'still here' } }));
    await does('logging/setLevel', () => client.setLoggingLevel('debug'));
    await does('resources/templates/list', () => client.listResourceTemplates());
    const uris = ['demo://resource/dynamic/text/7', 'demo://resource/dynamic/blob/8', 'demo://resource/absent'];
    for (const uri of uris) await does(`resources/read ${uri}`, () => client.readResource({ uri }));
    await does('resources/subscribe', () => client.subscribeResource({ uri: 'demo://resource/dynamic/text/7' }));
    await does('resources/unsubscribe', () => client.unsubscribeResource({ uri: 'demo://resource/dynamic/text/7' }));
    await does('prompts/list', () => client.listPrompts());
    await does('prompts/get 1', () => client.getPrompt({ name: 'simple-prompt' }));
    await does('prompts/get 2', () => client.getPrompt({ name: 'args-prompt', arguments: { city: 'Köln', state: 'NW' } }));
    await does('prompts/get 3', () => client.getPrompt({ name: 'completable-prompt', arguments: { department: 'Engineering', name: 'Alice' } }));
    await does('prompts/get 4', () => client.getPrompt({ name: 'resource-prompt', arguments: { resourceType: 'Text', resourceId: '3' } }));
    await does('prompts/get 5', () => client.getPrompt({ name: 'absent' }));
    await does('completion 1', () => client.complete({ ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'E' } }));
    await does('completion 2', () => client.complete({ ref: { type: 'ref/resource', uri: 'demo://resource/dynamic/text/{resourceId}' }, argument: { name: 'resourceId', value: '1' } }));
    await does('tasks/list', async () => ({ n: (await client.experimental.tasks.listTasks()).tasks.length }));
    await does('unknown', () => client.request({ method: 'x/unknown', params: {} }, types.EmptyResultSchema));
  }
  out.asked = asked;
  out.updates = updates;
  await client.close();
  return out;
}
