"""A model with learned caches, run as any other model: rows that hit leave, the rest goes on compacted."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches.chain import Chain
from gearshift.caches.collect import as_probabilities, as_tensor
from gearshift.caches.networks import LearnedCache
from gearshift.errors import ModelFailed

SCORES, EXIT_SEGMENT = "scores", "exit_segment"


class CachedModel:
    """A chain of segments with learned caches after some of them (`gearshift.model.Model`).

    It answers probabilities `scores` (n, classes) and `exit_segment` (n,), the number of the segment after which each
    row left.  Lookups run in line, between two segments.  Attributes `classes_`, `decode` and `encode` of the module
    keep their meaning.
    """

    def __init__(self, chain: Chain, caches: Mapping[int, LearnedCache], *, logits: bool) -> None:
        self.chain, self.caches, self.logits = chain, dict(caches), logits
        for attribute in ("classes_", "decode", "encode"):
            if hasattr(chain.module, attribute):
                setattr(self, attribute, getattr(chain.module, attribute))

    def setup(self) -> None:
        """Move to the CUDA device that this process may use, if any, and use all cores that it may."""
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        for part in (self.chain.module, *self.chain.segments, *self.caches.values()):
            part.to(device)

    def predict(self, batch: Any) -> dict[str, NDArray[Any]]:
        """Probabilities `scores` (n, classes), and `exit_segment` (n,), for a batch of n rows.

        Raises `ModelFailed` for several inputs.
        """
        if isinstance(batch, Mapping):
            raise ModelFailed("a model with learned caches takes one input; give the module a method `decode`")
        with torch.inference_mode():
            given = batch if isinstance(batch, torch.Tensor) else as_tensor(np.asarray(batch))
            hidden = given.to(self.chain.device)
            return self._answers(hidden)

    def _answers(self, hidden: torch.Tensor) -> dict[str, NDArray[Any]]:
        n, last = len(hidden), len(self.chain) - 1
        rows = torch.arange(n, device=hidden.device)
        left: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        for segment, run in enumerate(self.chain.segments):
            hidden = run(hidden)
            if segment == last:
                left.append((rows, as_probabilities(hidden, logits=self.logits), last))
            elif segment in self.caches:
                probabilities, hits = self.caches[segment](hidden)
                count = int(hits.sum())
                if count == 0:
                    continue
                left.append((rows[hits], probabilities[hits], segment))
                if count == len(rows):
                    break
                rows, hidden = rows[~hits], hidden[~hits]
        order = torch.cat([rows for rows, _, _ in left])
        scores = torch.empty((n, left[0][1].shape[1]), device=order.device)
        scores[order] = torch.cat([scores for _, scores, _ in left])
        exits = np.empty(n, dtype=np.int64)
        exits[order.cpu().numpy()] = np.repeat([at for _, _, at in left], [len(rows) for rows, _, _ in left])
        return {SCORES: scores.cpu().numpy(), EXIT_SEGMENT: exits}
