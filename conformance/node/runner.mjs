// Answers for the WebAssembly build of policies, in Node with OPA's own package
// @open-policy-agent/opa-wasm, by OPA's Data API:
//
//     opa build --target wasm --entrypoint gate/call/decision --entrypoint gate/skill/decision \
//         --ignore '*_test.rego' --bundle ../../policies
//     npm ci
//     node runner.mjs bundle.tar.gz 8182
//     opa-gate conform --engine url=http://127.0.0.1:8182
//
// It listens on the loopback address only, writes its own address as the first
// line, and ends when its standard input does. Port 0, the default, is any.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { gunzipSync } from "node:zlib";
import opa from "@open-policy-agent/opa-wasm";

const maxRequest = 33 << 20; // bytes: a document of 16 MiB, and room

// files returns the regular files in a tar archive, by name.
function files(archive) {
  const found = new Map();
  const text = (from, length) => {
    const field = archive.subarray(from, from + length);
    const end = field.indexOf(0);
    return field.subarray(0, end < 0 ? length : end).toString("utf8");
  };
  for (let at = 0; at + 512 <= archive.length && archive[at] !== 0;) {
    const size = parseInt(text(at + 124, 12), 8);
    if (!(size >= 0) || at + 512 + size > archive.length) {
      throw new Error("the bundle is not a whole tar archive");
    }
    const prefix = text(at + 345, 155);
    const name = (prefix ? prefix + "/" : "") + text(at, 100);
    const kind = archive[at + 156];
    if (kind === 0 || kind === 0x30) {
      found.set(name.replace(/^(\.?\/)+/, ""), archive.subarray(at + 512, at + 512 + size));
    }
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return found;
}

// exact returns a copy of bytes in a buffer of its own.
const exact = (bytes) => bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);

async function load(path) {
  const bundle = files(gunzipSync(await readFile(path)));
  const wasm = bundle.get("policy.wasm");
  if (!wasm) {
    throw new Error(`${path} has no policy.wasm: it was not built with --target wasm`);
  }
  const policy = await opa.loadPolicy(exact(wasm));
  if (policy.minorVersion < 2) {
    throw new Error("the build has no opa_eval: it was made by an OPA that is too old");
  }
  const data = bundle.get("data.json");
  if (data) {
    policy.setData(exact(data));
  }
  return policy;
}

// evaluate does what policy.evaluate does, except that the answer stays the text
// that the build wrote: JSON.parse would round its numbers.
function evaluate(policy, entrypoint, input) {
  const { opa_eval } = policy.wasmInstance.exports;
  const at = policy.dataHeapPtr;
  const lacking = at + input.byteLength - policy.mem.buffer.byteLength;
  if (lacking > 0) {
    policy.mem.grow(Math.ceil(lacking / 65536));
  }
  new Uint8Array(policy.mem.buffer).set(input, at);
  const address = opa_eval(0, policy.entrypoints[entrypoint], policy.dataAddr, at, input.byteLength, at + input.byteLength, 0);
  const memory = new Uint8Array(policy.mem.buffer);
  const results = Buffer.from(memory.subarray(address, memory.indexOf(0, address))).toString("utf8");
  if (results === "[]") {
    return undefined;
  }
  const before = '[{"result":';
  if (!results.startsWith(before) || !results.endsWith("}]")) {
    throw new Error("the build's answer is not one result");
  }
  return results.slice(before.length, -2);
}

// inputOf returns the bytes of the member input of a request, as they are. The
// request is known to be JSON; of several such members the last one counts, as
// it does for JSON.parse.
function inputOf(body) {
  let found;
  let at = body.indexOf("{") + 1;
  const blank = () => {
    while (body[at] === 0x20 || body[at] === 0x09 || body[at] === 0x0a || body[at] === 0x0d) at++;
  };
  const string = () => {
    const start = at++;
    while (body[at] !== 0x22) at += body[at] === 0x5c ? 2 : 1;
    at++;
    return body.subarray(start, at);
  };
  const value = () => {
    const start = at;
    for (let depth = 0; at < body.length; at++) {
      const c = body[at];
      if (c === 0x22) {
        string();
        at--;
      } else if (c === 0x7b || c === 0x5b) {
        depth++;
      } else if (c === 0x7d || c === 0x5d) {
        if (depth-- === 0) break; // the end of the request
      } else if (c === 0x2c && depth === 0) {
        break;
      }
    }
    return body.subarray(start, at);
  };
  for (blank(); body[at] === 0x22; blank()) {
    const name = JSON.parse(string().toString("utf8"));
    blank();
    at++; // the colon
    blank();
    const member = value();
    if (name === "input") found = member;
    if (body[at] === 0x2c) at++;
  }
  return found;
}

async function bodyOf(request) {
  const parts = [];
  let length = 0;
  for await (const part of request) {
    length += part.length;
    if (length > maxRequest) throw new Error(`the request has more than ${maxRequest} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}

function serve(policy) {
  return async (request, response) => {
    const send = (status, text) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(text);
    };
    const complain = (status, code, message) => send(status, JSON.stringify({ code, message }));
    try {
      const path = new URL(request.url, "http://localhost").pathname;
      const entrypoint = path.replace(/^\/v1\/data\//, "");
      if (request.method !== "POST" || entrypoint === path) {
        return complain(404, "resource_not_found", "expected POST /v1/data/ENTRYPOINT");
      }
      const body = await bodyOf(request);
      if (!Object.hasOwn(policy.entrypoints, entrypoint)) {
        return send(200, "{}"); // undefined, as OPA has it
      }
      let parsed;
      try {
        parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
      } catch (error) {
        return complain(400, "invalid_parameter", `the request is not JSON: ${error.message}`);
      }
      if (parsed === null || typeof parsed !== "object" || Array.isArray(parsed) || !Object.hasOwn(parsed, "input")) {
        return complain(400, "invalid_parameter", "expected an object with the member input");
      }
      const result = evaluate(policy, entrypoint, inputOf(body));
      send(200, result === undefined ? "{}" : `{"result":${result}}`);
    } catch (error) {
      complain(500, "internal_error", String(error?.message ?? error));
    }
  };
}

const [path, port = "0"] = process.argv.slice(2);
if (!path) {
  console.error("usage: node runner.mjs BUNDLE [PORT]");
  process.exit(2);
}
try {
  const server = createServer(serve(await load(path)));
  server.listen(Number(port), "127.0.0.1", () => {
    console.log(`http://127.0.0.1:${server.address().port}`);
  });
  process.stdin.on("end", () => process.exit(0)).resume();
} catch (error) {
  console.error(String(error?.message ?? error));
  process.exit(1);
}
