"""The model alone in a loop, on the core that it has when served: its best batch size, and samples per second."""

import json
import sys
import time

import numpy as np
from served import load

BATCH_SIZES = (1, 2, 4, 8, 16, 32)


def samples_per_second(answer, x, seconds):
    """Answer the same rows again and again for so long."""
    began, batches = time.perf_counter(), 0
    while (passed_s := time.perf_counter() - began) < seconds or not batches:
        answer(x)
        batches += 1
    return batches * len(x) / passed_s


if __name__ == "__main__":
    answer, row, seconds = load(), np.array(json.loads(sys.argv[1]), dtype=np.float32), float(sys.argv[2])
    rows = {size: np.tile(row, (size, 1)) for size in BATCH_SIZES}
    best = max(BATCH_SIZES, key=lambda size: samples_per_second(answer, rows[size], seconds / len(BATCH_SIZES)))
    print(json.dumps({"batch": best, "qps": samples_per_second(answer, rows[best], seconds)}))
