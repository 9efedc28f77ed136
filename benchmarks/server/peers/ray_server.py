"""Ray Serve: one replica."""

import sys
import time

import numpy as np
import ray
from ray import serve
from served import BATCH, BOUND_S, WAITING, load
from starlette.requests import Request


@serve.deployment(
    num_replicas=1, max_ongoing_requests=WAITING or 1000, max_queued_requests=-1 if WAITING is None else 1
)
class Model:
    def __init__(self) -> None:
        self.answer = load()

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.0)
    async def run(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        return list(self.answer(np.stack(rows)))

    async def __call__(self, request: Request) -> dict[str, list[float]]:
        x = np.array((await request.json())["data"], dtype=np.float32)
        return {"data": (await self.run(x)).tolist()}


if __name__ == "__main__":
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    http = {"host": "127.0.0.1", "port": int(sys.argv[1]), "access_log": False}
    serve.start(http_options=http if BOUND_S is None else {**http, "request_timeout_s": BOUND_S})
    serve.run(Model.bind(), route_prefix="/predict")
    while True:
        time.sleep(1)
