"""BentoML: a front service, and the model behind it in a process of its own, which batches."""

import bentoml
import numpy as np
from served import BATCH, BOUND_S, WAITING, load

LONGEST_S = BOUND_S or 60
BOUND = {"timeout": LONGEST_S} if WAITING is None else {"timeout": LONGEST_S, "max_concurrency": WAITING}


@bentoml.service(workers=1)
class Model:
    def __init__(self) -> None:
        self.answer = load()

    @bentoml.api(batchable=BATCH > 1, max_batch_size=max(2, BATCH), max_latency_ms=round(1000 * LONGEST_S))
    def run(self, x: np.ndarray) -> np.ndarray:
        return self.answer(x)


@bentoml.service(workers=1, traffic=BOUND)
class Front:
    model = bentoml.depends(Model)

    @bentoml.api
    async def predict(self, data: list[float]) -> dict[str, list[float]]:
        x = np.array([data], dtype=np.float32)
        return {"data": (await self.model.to_async.run(x))[0].tolist()}
