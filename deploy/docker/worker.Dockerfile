# A remote worker. Build it in the root of the repository; WORKER is the folder of its code and its requirements.txt:
#   docker build -f deploy/docker/worker.Dockerfile --build-arg WORKER=examples/video_metadata -t pitboss-worker:0.1 .

# Pitboss has no release yet, and the name belongs to another project on the Python Package Index: build our wheel.
FROM python:3.11-slim AS wheel
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
ARG WORKER=examples/video_metadata
WORKDIR /app

# What changes seldom comes first, so that a change of the code does not install everything again.
COPY ${WORKER}/requirements.txt ./
RUN --mount=type=bind,from=wheel,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/*.whl -r requirements.txt
RUN useradd --uid 1000 --create-home worker
COPY ${WORKER} ./
USER 1000:1000
ENV PYTHONUNBUFFERED=1

# Says whether the API answers and accepts the key. A worker whose process has ended is restarted without it.
HEALTHCHECK --interval=30s --timeout=10s --start-period=5s --retries=3 \
    CMD ["python", "-c", "from worker import Worker; raise SystemExit(not Worker().health_check())"]

ENTRYPOINT ["python", "-m", "pitboss.remote"]
CMD ["worker.py:Worker"]
