#!/usr/bin/env bash
# `make demo`: examples/hello on an embedded SQLite file in build/demo, until Ctrl-C (or for DEMO_SECONDS seconds).
set -euo pipefail
cd "$(dirname "$0")/.."

store="sqlite:///$PWD/build/demo/pitboss.db"
logs=$PWD/build/demo/logs
pitboss=$PWD/.venv/bin/pitboss
rm -rf build/demo
mkdir -p build/demo

cat >&2 <<TEXT

Pitboss runs examples/hello/app.py here, on a SQLite file in build/demo. There is no server.
Two pools of worker processes: main for quick tasks, reports for slow ones, which grows with its load.

In a second terminal, from this folder:

  export PITBOSS_STORE=$store
  export PITBOSS_LOGS=$logs
  .venv/bin/pitboss status --watch 1s
  .venv/bin/pitboss top
  .venv/bin/pitboss tasks list state:running
  .venv/bin/pitboss dead list
  .venv/bin/pitboss batches list --watch 1s
  .venv/bin/pitboss resources show keys
  .venv/bin/pitboss queues pause web
  .venv/bin/pitboss pools scale reports 3
  .venv/bin/pitboss pools restart main --wait
  .venv/bin/pitboss logs -f
  .venv/bin/pitboss tasks enqueue greet '{"name": "you"}' --wait

Ctrl-C ends it.

TEXT

cd examples/hello
if [ -z "${DEMO_SECONDS:-}" ]; then
    exec env PITBOSS_STORE="$store" PITBOSS_LOGS="$logs" "$pitboss" up --verbose
fi
# `timeout` says 124 when the time was over, which is what was asked for.
code=0
PITBOSS_STORE=$store PITBOSS_LOGS=$logs timeout --foreground --signal=INT "$DEMO_SECONDS" "$pitboss" up --verbose || code=$?
[ "$code" -eq 124 ] || exit "$code"
