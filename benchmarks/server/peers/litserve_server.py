"""LitServe: one worker process."""

import sys

import litserve
import numpy as np
from served import BATCH, BOUND_S, load


class Model(litserve.LitAPI):
    def setup(self, device):
        self.run = load()

    def decode_request(self, request):
        return np.array(request["data"], dtype=np.float32)

    def batch(self, inputs):
        return np.stack(inputs)

    def predict(self, x):
        return self.run(x)

    def unbatch(self, output):
        return list(output)

    def encode_response(self, output):
        return {"data": output.tolist()}


if __name__ == "__main__":
    api = Model(max_batch_size=BATCH, batch_timeout=0.0)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=BOUND_S or 30)
    server.run(
        host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, log_level="warning", generate_client_file=False
    )
