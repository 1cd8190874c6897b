#!/usr/bin/env bash
# `make demo`: runs examples/hello on a SQLite file in build/demo, until Ctrl-C or for DEMO_SECONDS seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

store="sqlite:///$PWD/build/demo/pitboss.db"
logs=$PWD/build/demo/logs
pitboss=$PWD/.venv/bin/pitboss
rm -rf build/demo
mkdir -p build/demo

cat >&2 <<TEXT

Pitboss runs examples/hello/app.py on a SQLite file in build/demo, without a server.
There are two worker pools: main for quick tasks, and reports for slow ones. The second grows with its load.

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

Ctrl-C stops it.

TEXT

cd examples/hello
if [ -z "${DEMO_SECONDS:-}" ]; then
    exec env PITBOSS_STORE="$store" PITBOSS_LOGS="$logs" "$pitboss" up --verbose
fi
# `timeout` exits with 124 when the time is over, which is the expected end.
code=0
PITBOSS_STORE=$store PITBOSS_LOGS=$logs timeout --foreground --signal=INT "$DEMO_SECONDS" "$pitboss" up --verbose || code=$?
[ "$code" -eq 124 ] || exit "$code"
