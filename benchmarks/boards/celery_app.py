"""The Celery app that Flower watches; `python -m benchmarks.boards.celery_app 2000` puts its jobs."""

import os
import sys

import celery

from benchmarks.boards.plan import jobs

app = celery.Celery("boards", broker=os.environ["BENCH_STORE"])
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 64
app.conf.broker_connection_retry_on_startup = True


@app.task(name="work")
def work(n: int, word: str, good: bool) -> int:
    if not good:
        raise RuntimeError("no")
    return n


if __name__ == "__main__":
    with app.producer_or_acquire() as producer:
        for one in jobs(int(sys.argv[1])):
            work.apply_async(kwargs=one, producer=producer)
