"""A constant answer on the server that the API uses: `python -m benchmarks.http_constant raw|fastapi PORT`."""

import sys
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI
from pydantic import BaseModel

ANSWER = b'{"success":true,"message":"Task claimed","data":{"id":"01900000-0000-7000-8000-000000000000"},"timestamp":1}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def raw(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


class Body(BaseModel):
    worker_id: str
    types: list[str] = []


framework = FastAPI()


@framework.post("/api/tasks/claim")
async def claim(body: Body) -> dict[str, Any]:
    return {"success": True, "message": "Task claimed", "data": {"id": body.worker_id}, "timestamp": 1}


async def main() -> None:
    app: Any = raw if sys.argv[1] == "raw" else framework
    options: dict[str, Any] = {"http": "httptools", "ws": "none", "lifespan": "off", "access_log": False}
    config = uvicorn.Config(app, port=int(sys.argv[2]), log_level="warning", proxy_headers=False, **options)
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.run(main())
