#!/usr/bin/env bash
# `make demo`: runs examples/hello on a SQLite file in build/demo, until Ctrl-C or for DEMO_SECONDS seconds.
set -euo pipefail
cd "$(dirname "$0")/.."

store="sqlite:///$PWD/build/demo/pitboss.db"
logs=$PWD/build/demo/logs
pitboss=$PWD/.venv/bin/pitboss
python=$PWD/.venv/bin/python
demo=$PWD/build/demo
# Another program may have port 8000.
port=$("$python" -c 'import socket
for port in (8000, 0):
    try:
        print(socket.create_server(("127.0.0.1", port)).getsockname()[1])
        break
    except OSError:
        continue')
rm -rf build/demo
mkdir -p build/demo

cat >&2 <<TEXT

Pitboss runs examples/hello/app.py on a SQLite file in build/demo, without a database server.

  The dashboard:  http://127.0.0.1:$port/ui

There are three worker pools: main for quick tasks, reports for slow ones, which grows with its load, and couriers, whose
workers divide the cities of the queue deliveries among themselves.
A remote worker, examples/hello/remote_worker.py, takes its tasks over HTTP; its log is build/demo/remote_worker.log.
The HTTP API is at http://127.0.0.1:$port, and a page to try it at http://127.0.0.1:$port/docs.

In a second terminal, from this folder:

  export PITBOSS_STORE=$store
  export PITBOSS_LOGS=$logs
  .venv/bin/pitboss status --watch 1s
  .venv/bin/pitboss top
  .venv/bin/pitboss tasks list state:running
  .venv/bin/pitboss dead list
  .venv/bin/pitboss batches list --watch 1s
  .venv/bin/pitboss schedules list
  .venv/bin/pitboss alerts list
  .venv/bin/pitboss schedules run count_stock --wait
  .venv/bin/pitboss events list
  .venv/bin/pitboss resources show keys
  .venv/bin/pitboss partitions show deliveries
  .venv/bin/pitboss pools scale couriers 3
  .venv/bin/pitboss queues pause web
  .venv/bin/pitboss pools scale reports 3
  .venv/bin/pitboss pools restart main --wait
  .venv/bin/pitboss logs -f
  .venv/bin/pitboss audit
  curl -s localhost:$port/api/workers
  curl -s localhost:$port/api/tasks?type=thumbnail
  curl -s localhost:$port/metrics
  .venv/bin/pitboss tasks enqueue greet '{"name": "you"}' --wait

Ctrl-C stops it.

TEXT

export PITBOSS_HTTP__PORT=$port
cd examples/hello
(
    # The API is there a moment after the workers.
    for _ in $(seq 100); do
        curl -fs "localhost:$port/readyz" >/dev/null 2>&1 && break
        sleep 0.2
    done
    exec env TASKMANAGER_API_URL="http://127.0.0.1:$port/api" WORKER_ID=remote-1 POLL_INTERVAL=2 \
        "$python" -m pitboss.remote remote_worker.py:Thumbnails
) >"$demo/remote_worker.log" 2>&1 &
remote=$!
trap 'kill $remote 2>/dev/null || true; wait $remote 2>/dev/null || true' EXIT
if [ -z "${DEMO_SECONDS:-}" ]; then
    PITBOSS_STORE=$store PITBOSS_LOGS=$logs "$pitboss" up --verbose
    exit
fi
# `timeout` exits with 124 when the time is over, which is the expected end.
code=0
PITBOSS_STORE=$store PITBOSS_LOGS=$logs timeout --foreground --signal=INT "$DEMO_SECONDS" "$pitboss" up --verbose || code=$?
[ "$code" -eq 124 ] || exit "$code"
