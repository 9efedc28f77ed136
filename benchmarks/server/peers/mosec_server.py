"""mosec: a Rust front end, one Python worker that decodes, runs and encodes."""

import json

import numpy as np
from mosec import Server, Worker
from served import BATCH, load


class Model(Worker):
    def __init__(self):
        self.run = load()

    def deserialize(self, data):
        return np.array(json.loads(data)["data"], dtype=np.float32)

    def forward(self, data):
        return list(self.run(np.stack(data))) if BATCH > 1 else self.run(data)

    def serialize(self, data):
        return json.dumps({"data": data.tolist()}).encode()


if __name__ == "__main__":
    server = Server()
    server.append_worker(Model, num=1, max_batch_size=BATCH, max_wait_time=1)
    server.run()
