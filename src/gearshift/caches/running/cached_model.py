"""A model with learned caches that runs like any other: rows that hit leave, the others go on."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gearshift.caches.network.chain import Chain, ForSome, Steps
from gearshift.caches.network.collect import as_probabilities, as_tensor
from gearshift.caches.network.learned_cache import Factory, LearnedCache
from gearshift.caches.running.concurrent_lookups import (
    ConcurrentLookups,
    LookupBatch,
    LookupThread,
    concurrent_exits,
    divided_cores,
    overwritten,
)
from gearshift.caches.running.lookup_process import fits, start_lookups
from gearshift.caches.running.row_lookup import Lookup, lookup_of
from gearshift.caches.store.manifest import MANIFEST, Lookups, Manifest
from gearshift.caches.store.weights import in_use, networks_of
from gearshift.errors import InvalidInput, ModelFailed, require
from gearshift.support.decoding import decode_json
from gearshift.support.processors import pin, usable_processors

SCORES, EXIT_SEGMENT = "scores", "exit_segment"
VERSION = "a version of learned caches"
Answer = dict[str, NDArray[Any]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Origin:
    """The folder of learned caches, the weights they belong to, the user's own predictors.

    `built` is the hash of their build; the folder may hold another build by now. `device` is the
    kind that segments and lookups were timed on, if known. `open_adapter` opens an adapter, given
    the model, its settings by name, and options.
    """

    folder: Path
    weights_sha256: str
    built: str
    own: Mapping[str, Factory]
    device: str | None
    open_adapter: Callable[..., Any]


class CachedModel:
    """A chain of segments with learned caches after some of them (`gearshift.model.Model`).

    It answers probabilities `scores` (n, classes) and `exit_segment` (n,), the number of the
    segment after which each row left. Lookups run inline, between two segments, or `beside` the
    module: on `lookup_cores` of this process's processors, or on CUDA in a separate stream. They
    run inline too if no core would be left for the module. Segments between two caches may be
    `compiled`, for a single row. The module's attributes `classes_`, `decode` and `encode` keep
    their meaning.
    """

    def __init__(
        self,
        chain: Chain,
        caches: Mapping[int, LearnedCache],
        *,
        logits: bool,
        lookups: Lookups = "inline",
        lookup_cores: int = 1,
        origin: Origin | None = None,
        compiled: Mapping[tuple[int, int], ForSome] | None = None,
        off: Iterable[int] = (),
        version: int = 0,
    ) -> None:
        self.chain, self.logits, self.origin = chain, logits, origin
        self.lookups, self.lookup_cores = lookups, lookup_cores
        self._concurrent: ConcurrentLookups | None = None
        self.compiled, self._device = dict(compiled or {}), chain.device
        self._steps = Steps(chain, compiled=self.compiled)
        self.use(caches, off, version=version)
        for attribute in ("classes_", "decode", "encode"):
            if hasattr(chain.module, attribute):
                setattr(self, attribute, getattr(chain.module, attribute))

    def use(self, caches: Mapping[int, LearnedCache], off: Iterable[int] = (), *, version: int = 0) -> None:
        """Look up these caches from the next batch on, except those after layers `off`."""
        skipped = frozenset(off)
        self.caches = {layer: cache.to(self._device) for layer, cache in caches.items() if layer not in skipped}
        self.version, self.layers_off = version, tuple(sorted(skipped))
        self._steps = self._steps.with_caches(self.caches)
        if self._concurrent is not None and not fits(self._concurrent, self.caches.values()):
            self._end_lookups()
        if self._concurrent is not None:
            self._concurrent.use(self.caches)
        self._looks = self._made_looks()

    def adopt(self, manifest: bytes, weights: bytes, off: Iterable[int]) -> int:
        """Use another version, given as the content of its files; return its number.

        Raises `InvalidInput` if they do not belong to this model, which then stays unchanged.
        """
        read = decode_json(manifest, Manifest, where=VERSION, remedy="")
        origin = self.origin
        ours = origin is not None and read.weights_sha256 == origin.weights_sha256 and read.blocks == self.chain.names
        require(ours, "belongs to another model", where=VERSION, remedy="adapt the model that is served")
        networks = networks_of(read, weights, None if origin is None else origin.own, where=MANIFEST)
        version = 0 if read.adapted is None else read.adapted.number
        self.use(in_use(read, networks), off, version=version)
        return version

    def loaded_from(self) -> "Origin":
        """Return the origin; raises `InvalidInput` if the model was not loaded from a folder."""
        if self.origin is None:
            raise InvalidInput(
                "the model was not loaded from a folder", where="learned caches", remedy="use gearshift.caches.load"
            )
        return self.origin

    def adapter(self, settings: Mapping[str, Any], **options: Any) -> Any:
        """Open an `Adapter` (`gearshift.caches.adapting.adapter`) that audits and adapts these caches.

        `settings` are those of `Adaptation`, by name. If several processes do so for one folder,
        only the first keeps its counts and samples there, until it ends. Raises `InvalidInput` if
        the model was not loaded from a folder.
        """
        return self.loaded_from().open_adapter(self, settings, **options)

    @property
    def not_finite(self) -> int:
        """Number of rows looked up that held NaN or infinity; they are misses."""
        return sum(getattr(cache, "not_finite", 0) for cache in self.caches.values())

    @property
    def segments(self) -> int:
        return len(self.chain)

    def setup(self) -> None:
        """Move to this process's CUDA device, if any, and use all cores that the process may use.

        With lookups beside the module on a processor, this pins the calling thread to the other
        cores.
        """
        device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
        if device.type == "cpu":
            import gearshift.caches.running.kernel  # noqa: F401  # compile now, for later versions too
        elif self.origin is not None and self.origin.device == "cpu":
            log.warning(
                "learned caches in %s were chosen by times of a processor, and run on CUDA: build them with "
                "--device cuda", self.origin.folder,
            )  # fmt: skip
        self.move(device)
        self._end_lookups()
        beside = self.concurrent_lookups() is not None
        if beside and device.type == "cpu" and (cores := divided_cores(self.lookup_cores)):
            pin(cores.base)
        torch.set_num_threads(usable_processors())

    def move(self, device: torch.device) -> None:
        self.chain.move(device)
        self._device = device
        for cache in self.caches.values():
            cache.to(device)
        self._steps = Steps(self.chain, compiled=self.compiled).with_caches(self.caches)  # new buffers on that device
        self._looks = self._made_looks()

    def concurrent_lookups(self) -> ConcurrentLookups | None:
        """Return the lookups beside the module, started on first use; None if inline."""
        if self.lookups == "inline":
            return None
        if self._concurrent is None:
            self._concurrent = start_lookups(self._device, self.lookup_cores, self.caches.values())
            if self._concurrent is not None:
                self._concurrent.use(self.caches)
            else:
                log.warning("these caches were chosen for lookups beside the model: build them with lookups in line")
        if self._concurrent is None or self._concurrent.why_ended:
            if self._concurrent is not None:
                log.warning(
                    "learned caches are looked up in line from now on, as their process %s", self._concurrent.why_ended
                )
            self.lookups, self._concurrent = "inline", None
        return self._concurrent

    def _end_lookups(self) -> None:
        if self._concurrent is not None:
            self._concurrent.close()
        self._concurrent = None

    def _begun(self, hidden: torch.Tensor) -> LookupBatch | None:
        beside = self.concurrent_lookups()
        if isinstance(beside, LookupThread) and beside.copied is None:
            beside.copied = overwritten(self.chain, hidden[:1].clone())
        return None if beside is None else beside.begin()

    def predict(self, batch: Any) -> Answer:
        """Return probabilities `scores` (n, classes) and `exit_segment` (n,) for n rows.

        Raises `ModelFailed` if the batch has several inputs.
        """
        hidden = self._given(batch)
        if len(hidden) == 1 and self.lookups == "inline":  # overhead dominates in small models
            return self._exit_of_row(hidden, -1)
        rows, answers = zip(*self.exits(hidden), strict=True)
        if len(answers) == 1:  # all rows left together, already in order
            only: Answer = answers[0]
            return only
        back = np.argsort(np.concatenate(rows))
        return {name: np.concatenate([answer[name] for answer in answers])[back] for name in (SCORES, EXIT_SEGMENT)}

    def exits(self, batch: Any) -> Iterator[tuple[NDArray[np.int64], Answer]]:
        """Yield, exit by exit, the numbers of the rows that leave and their answers.

        Raises `ModelFailed` if the batch has several inputs.
        """
        hidden = self._given(batch)
        if (lookups := self._begun(hidden)) is not None:
            leaving = concurrent_exits(self._steps, lookups, hidden, logits=self.logits)
            yield from ((rows, _answer(scores, segment)) for rows, scores, segment in leaving)
            return
        rows, segment, last = np.arange(len(hidden)), -1, len(self.chain) - 1
        while len(rows) > 1:
            segment, run = self._steps.after(segment)
            with torch.inference_mode():
                hidden = run(hidden)
                if segment == last:
                    probabilities = self._probabilities(hidden)
                    hit = np.ones(len(rows), dtype=np.bool_)
                else:
                    probabilities, hit = self._look(segment).rows(hidden)
                    if not len(probabilities):
                        continue
                    hidden = _only(hidden, ~hit)
            yield rows[hit], _answer(probabilities, segment)
            rows = rows[~hit]
        if len(rows):
            yield rows, self._exit_of_row(hidden, segment)

    def _exit_of_row(self, hidden: torch.Tensor, segment: int) -> Answer:
        last, found = len(self.chain) - 1, None
        with torch.inference_mode():
            while found is None:
                segment, run = self._steps.after(segment)
                hidden = run(hidden)
                found = self._probabilities(hidden) if segment == last else self._look(segment).row(hidden)
        return _answer(found, segment)

    def _look(self, segment: int) -> Lookup:
        if segment not in self._looks:
            self._looks[segment] = lookup_of(self.caches[segment])
        return self._looks[segment]

    def _made_looks(self) -> dict[int, Lookup]:
        """Make inline lookups early: compiling them takes seconds, once on a machine."""
        if self.lookups == "beside":
            return {}
        return {segment: lookup_of(cache) for segment, cache in self.caches.items()}

    def through(self, batch: Any) -> tuple[Answer, list[float]]:
        """Run every row to the end; return the answer and seconds per segment with its lookup.

        A lookup beside the model counts only for how much it slows the model. With several rows,
        the copy that compacts the batch is included as if nearly all rows stayed. Segments that
        run as one share its time evenly.
        """
        hidden, seconds = self._given(batch), list[float]()
        lookups, last = self._begun(hidden), len(self.chain) - 1
        try:
            with torch.inference_mode():
                while len(seconds) <= last:
                    began, first = perf_counter(), len(seconds)
                    while lookups is not None and lookups.found() is not None:
                        pass  # hits are ignored, every row goes through
                    segment, run = self._steps.after(first - 1, pending=lookups is not None and lookups.pending)
                    hidden = run(hidden)
                    if segment == last:
                        answer = _answer(self._probabilities(hidden), segment)
                    elif segment in self.caches:
                        every = np.ones(len(hidden), dtype=np.bool_)
                        if lookups is not None:
                            lookups.ask(segment, hidden, np.flatnonzero(every))
                        elif len(hidden) == 1:
                            self._look(segment).row(hidden)
                        else:
                            self._look(segment).rows(hidden)
                        hidden = _only(hidden, every) if len(hidden) > 1 else hidden
                    if hidden.is_cuda:
                        torch.cuda.current_stream(hidden.device).synchronize()
                    together = segment + 1 - first
                    seconds += [(perf_counter() - began) / together] * together
            while lookups is not None and lookups.found(wait=True) is not None:
                pass  # the next batch must find no lookup running
        finally:
            if lookups is not None:
                lookups.end()
        return answer, seconds

    def _probabilities(self, scores: torch.Tensor) -> NDArray[np.float32]:
        probabilities = as_probabilities(scores, logits=self.logits)
        found: NDArray[np.float32] = (probabilities.cpu() if self._device.type != "cpu" else probabilities).numpy()
        return found

    def _given(self, batch: Any) -> torch.Tensor:
        if isinstance(batch, torch.Tensor):
            return batch.to(self._device)
        if isinstance(batch, Mapping):
            raise ModelFailed("a model with learned caches takes one input; give the module a method `decode`")
        given = as_tensor(np.asarray(batch))
        return given if self._device.type == "cpu" else given.to(self._device)


def _only(hidden: torch.Tensor, stay: NDArray[np.bool_]) -> torch.Tensor:
    rows = np.flatnonzero(stay)
    if len(rows) == 1:
        return hidden[rows[0] : rows[0] + 1]
    return hidden.index_select(0, torch.from_numpy(rows).to(hidden.device))


def _answer(scores: NDArray[np.float32], segment: int) -> Answer:
    return {SCORES: scores, EXIT_SEGMENT: np.full(len(scores), segment, dtype=np.int64)}
