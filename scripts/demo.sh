#!/usr/bin/env bash
# `make demo`: examples/hello on an embedded SQLite file in build/demo, until Ctrl-C (or for DEMO_SECONDS seconds).
set -euo pipefail
cd "$(dirname "$0")/.."

store="sqlite:///$PWD/build/demo/pitboss.db"
pitboss=$PWD/.venv/bin/pitboss
rm -rf build/demo
mkdir -p build/demo

cat >&2 <<TEXT

Pitboss runs examples/hello/app.py here, on a SQLite file in build/demo. There is no server.

In a second terminal, from this folder:

  export PITBOSS_STORE=$store
  .venv/bin/pitboss status --watch 1s
  .venv/bin/pitboss tasks list state:running
  .venv/bin/pitboss dead list
  .venv/bin/pitboss queues pause web
  .venv/bin/pitboss tasks enqueue greet '{"name": "you"}' --wait

Ctrl-C ends it.

TEXT

cd examples/hello
if [ -z "${DEMO_SECONDS:-}" ]; then
    exec env PITBOSS_STORE="$store" "$pitboss" up --verbose
fi
# `timeout` says 124 when the time was over, which is what was asked for.
code=0
PITBOSS_STORE=$store timeout --foreground --signal=INT "$DEMO_SECONDS" "$pitboss" up --verbose || code=$?
[ "$code" -eq 124 ] || exit "$code"
