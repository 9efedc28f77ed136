"""BentoML: a front service, and the model behind it in a process of its own, which batches."""

import bentoml
import numpy as np


@bentoml.service(workers=1)
class Model:
    @bentoml.api(batchable=True, max_batch_size=32, max_latency_ms=60_000)
    def echo(self, x: np.ndarray) -> np.ndarray:
        return x


@bentoml.service(workers=1)
class Front:
    model = bentoml.depends(Model)

    @bentoml.api
    async def predict(self, data: list[float]) -> dict[str, list[float]]:
        x = np.array([data], dtype=np.float32)
        return {"data": (await self.model.to_async.echo(x))[0].tolist()}
