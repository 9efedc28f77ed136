"""Spans of segments compiled ahead of time for one row (torch.export and AOTInductor), as files.

Code fits one kind of machine and one shape. It is optional: elsewhere PyTorch's operations give
the same answer, up to rounding.
"""

import hashlib
import io
import logging
import platform
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from gearshift.caches.network.chain import Chain, Step
from gearshift.caches.store.manifest import Compiled, CompiledSpan
from gearshift.errors import GearshiftError, InvalidInput, require
from gearshift.support.files import read_bytes, write_atomically

FILE = re.compile(r"span-[0-9a-f]{16}\.pt2")
REPEATS = 40
log = logging.getLogger(__name__)


class NotCompiled(GearshiftError):
    kind = "not_compiled"


@dataclass(frozen=True, slots=True, eq=False)
class Ahead:
    """A compiled span: its code, and a function that runs it on hidden outputs of one shape."""

    shape: tuple[int, ...]
    device: str
    code: bytes
    run: Step

    def or_else(self, plain: Step) -> Step:
        shape, device, run = torch.Size(self.shape), self.device, self.run

        def step(hidden: Tensor) -> Tensor:
            return run(hidden) if hidden.shape == shape and hidden.device.type == device else plain(hidden)

        return step


class Compiler:
    """Compiles spans of a chain, each once; `took_s` is the total time.

    Methods raise `NotCompiled` if there is no compiler, or the span cannot be exported.
    """

    def __init__(self, chain: Chain, row: Tensor) -> None:
        self._chain, self.took_s = chain, 0.0
        with torch.inference_mode():
            self._shapes = [tuple(row.shape), *(tuple(hidden.shape) for hidden in chain.hidden(row))]
            self._types = [row.dtype, *(hidden.dtype for hidden in chain.hidden(row))]
        self._made: dict[tuple[int, int], Ahead] = {}

    def span(self, first: int, last: int) -> Ahead:
        if (first, last) not in self._made:
            began = perf_counter()
            try:
                with warnings.catch_warnings(action="ignore"):  # from PyTorch itself
                    self._made[first, last] = self._compiled(first, last)
            except Exception as error:
                why = " ".join(str(error).split())[:300]
                raise NotCompiled(f"{type(error).__name__}: {why}") from error
            finally:
                self.took_s += perf_counter() - began
        return self._made[first, last]

    def _compiled(self, first: int, last: int) -> Ahead:
        import torch.export

        device = self._chain.device
        given = torch.zeros(self._shapes[first], dtype=self._types[first], device=device)
        with TemporaryDirectory() as folder, torch.no_grad():
            path = Path(folder) / "span.pt2"
            exported = torch.export.export(self._chain.span(first, last), (given,))
            import torch._inductor  # takes seconds, so only after a successful export

            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(path), inductor_configs={"freezing": True}
            )
            code = path.read_bytes()
        return Ahead(self._shapes[first], device.type, code, _loaded(code))

    def share_of_plain(self) -> float:
        """Return the compiled run time of the model as a share of the plain one, up to 1."""
        whole = self.span(0, len(self._chain) - 1)
        row = torch.zeros(self._shapes[0], dtype=self._types[0], device=self._chain.device)
        ways = whole.run, self._chain.body.forward
        seconds: tuple[list[float], list[float]] = ([], [])
        with torch.inference_mode():
            for _ in range(REPEATS):
                for way, took in zip(ways, seconds, strict=True):
                    began = perf_counter()
                    way(row)
                    if row.is_cuda:
                        torch.cuda.synchronize()
                    took.append(perf_counter() - began)
        return min(1.0, median(seconds[0]) / median(seconds[1]))


def described(spans: Mapping[tuple[int, int], Ahead], took_s: float) -> Compiled:
    entries = []
    for (first, last), span in sorted(spans.items()):
        digest = hashlib.sha256(span.code).hexdigest()
        named = {"file": f"span-{digest[:16]}.pt2", "file_sha256": digest}
        entries.append(CompiledSpan(first=first, last=last, shape=span.shape, **named))
    device = next(iter(spans.values())).device
    return Compiled(spans=tuple(entries), machine=machine_kind(device), device=device, took_s=took_s)


def save_compiled(folder: Path, spans: Mapping[tuple[int, int], Ahead], compiled: Compiled) -> None:
    for entry in compiled.spans:
        write_atomically(folder / entry.file, spans[entry.first, entry.last].code)


def load_compiled(folder: Path, compiled: Compiled | None) -> dict[tuple[int, int], Ahead]:
    """Load the spans that a manifest names; none, with a warning, on another kind of machine.

    This runs machine code. It is read once, only from that folder, and the bytes that are checked
    are the bytes that are loaded. Raises `InvalidInput` if a file does not match the manifest.
    """
    if compiled is None:
        log.warning("learned caches in %s were built without compiled segments", folder)
        return {}
    if compiled.machine != machine_kind(compiled.device):
        log.warning(
            "segments in %s were compiled on another kind of machine, or by another PyTorch, and are not used: build "
            "the learned caches here", folder,
        )  # fmt: skip
        return {}
    found = {}
    for entry in compiled.spans:
        where = str(folder / entry.file)
        require(bool(FILE.fullmatch(entry.file)), f"names the file {entry.file!r}", where=str(folder))
        code = read_bytes(folder / entry.file)
        if hashlib.sha256(code).hexdigest() != entry.file_sha256:
            raise InvalidInput("is not what its manifest says", where=where, remedy="build anew")
        try:
            with warnings.catch_warnings(action="ignore"):
                found[entry.first, entry.last] = Ahead(entry.shape, compiled.device, code, _loaded(code))
        except Exception as error:  # noqa: BLE001 - plain segments run instead
            log.warning("%s cannot be loaded and is not used: %s", where, " ".join(str(error).split())[:300])
    return found


def remove_others(folder: Path, compiled: Compiled | None) -> None:
    named = {entry.file for entry in compiled.spans} if compiled is not None else set()
    for path in folder.glob("span-*.pt2"):
        if FILE.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)


def machine_kind(device: str) -> str:
    facts = [torch.__version__, platform.machine(), *_processor()]
    if device == "cuda":
        facts.append(torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    return hashlib.sha256("\n".join(map(str, facts)).encode()).hexdigest()


def _processor() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return [platform.processor()]
    flags = next((line for line in lines if line.lower().startswith(("flags", "features"))), platform.processor())
    return sorted(flags.split(":")[-1].split())


def _loaded(code: bytes) -> Step:
    import torch._inductor

    loaded: Any = torch._inductor.aoti_load_package(io.BytesIO(code))
    run: Step = loaded
    return run
