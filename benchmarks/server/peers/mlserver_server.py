"""MLServer: one worker process, adaptive batching; it bounds neither its queue nor the time of an answer."""

import asyncio
import sys

from mlserver import MLModel, MLServer
from mlserver.codecs import NumpyCodec
from mlserver.settings import ModelParameters, ModelSettings, Settings
from mlserver.types import InferenceRequest, InferenceResponse
from served import BATCH, load

SHORTEST_WAIT_S = 1e-6
"""It batches only where it may wait."""


class Model(MLModel):
    async def load(self) -> bool:
        self.answer = load()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        x = NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("data", self.answer(x))])


async def main() -> None:
    settings = Settings(
        host="127.0.0.1",
        http_port=int(sys.argv[1]),
        grpc_port=0,
        metrics_endpoint=None,
        parallel_workers=1,
        debug=False,
    )
    model = ModelSettings(
        name="model",
        implementation=Model,
        max_batch_size=BATCH,
        max_batch_time=SHORTEST_WAIT_S if BATCH > 1 else 0,
        parameters=ModelParameters(uri="."),
    )
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main())
