#!/usr/bin/env bash
# Has people decide on the page of opa-gate serve in headless Chromium: with real
# servers over one ledger, as PROGRAM or a build of this checkout has them.
# Whatever it installs from npm goes to a temporary place. It prints SKIP and why
# where there is no Chromium or Node.js to be had, and fails instead if
# OPA_GATE_REQUIRE_SERVERS is set. SHOTS names a directory for screenshots.
set -euo pipefail
program=${PROGRAM:+$(realpath "$PROGRAM")}
cd "$(dirname "$0")"

skip() {
  echo "SKIP the page of approvals in Chromium: $*"
  [ -z "${OPA_GATE_REQUIRE_SERVERS:-}" ] || exit 1
  exit 0
}

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  command -v apt-get >/dev/null || skip "no Chromium, and no apt-get to install it"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 ||
    skip "apt-get cannot install chromium"
  chromium=$(command -v chromium) || skip "apt-get installed no chromium"
fi
command -v node >/dev/null && command -v npm >/dev/null || skip "no Node.js with npm"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 20 ] || skip "Node.js $major is older than 20, which Playwright needs"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp .npmrc package.json package-lock.json ./*.mjs "$work"
(cd "$work" && npm ci --silent --ignore-scripts --cache "$work/cache" >"$work/npm.log" 2>&1) || skip "npm ci failed: $(tail -n 1 "$work/npm.log")"
if [ -z "$program" ]; then
  program=$work/opa-gate
  (cd ../.. && CGO_ENABLED=0 go build -o "$program" ./cmd/opa-gate)
fi
shots=${SHOTS:-$work/shots}
mkdir -p "$shots"
cd "$work"
PROGRAM=$program CHROMIUM=$chromium SHOTS=$shots node --test --test-reporter=spec page.test.mjs
