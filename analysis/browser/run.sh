#!/usr/bin/env bash
# Opens pages of policy differences in headless Chromium: those made by hand,
# and with a directory the pages in there too, NAME.html beside NAME.json.
# Whatever it installs from npm goes to a temporary place.
# It prints SKIP and why where there is no Chromium or Node.js to be had.
set -euo pipefail
more=${1:+$(cd "$1" && pwd)}
cd "$(dirname "$0")"

skip() { echo "SKIP the difference page in Chromium: $*"; exit 0; }

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
cp .npmrc package.json package-lock.json page.test.mjs "$work"
(cd "$work" && npm ci --silent --ignore-scripts --cache "$work/cache" >"$work/npm.log" 2>&1) || skip "npm ci failed: $(tail -n 1 "$work/npm.log")"

pages=$work/pages
mkdir "$pages"
go run . "$pages"
[ -z "$more" ] || cp "$more"/*.html "$more"/*.json "$pages"
shots=${SHOTS:-$work/shots}
mkdir -p "$shots"
cd "$work"
CHROMIUM=$chromium PAGES=$pages SHOTS=$shots node --test --test-reporter=spec page.test.mjs
