"""mosec: a Rust front end, one Python worker that decodes, echoes and encodes."""

import json

import numpy as np
from mosec import Server, Worker


class Echo(Worker):
    def deserialize(self, data):
        return np.array(json.loads(data)["data"], dtype=np.float32)

    def forward(self, data):
        return list(np.stack(data))

    def serialize(self, data):
        return json.dumps({"data": data.tolist()}).encode()


if __name__ == "__main__":
    server = Server()
    server.append_worker(Echo, num=1, max_batch_size=32, max_wait_time=1)
    server.run()
