"""An engine from the times of its steps alone, as they are published: batched tokens and milliseconds, as CSV.

The time that contexts take is assumed from their bytes and the device's bandwidth, as no step curve has it.
"""

import math
from pathlib import Path

import msgspec

from gearshift.errors import InvalidInput, require, require_each
from gearshift.models.language_config import MEMORY_SHARE
from gearshift.profiles.engines.engine_profile import EngineProfile, StepCurve, curve_from_rows
from gearshift.support.decoding import csv_rows, decode_json
from gearshift.support.files import read_bytes, read_text

COLUMNS = "batch_size", "runtime_ms"
REMEDY = f"write the columns {','.join(COLUMNS)}: tokens of a step, and its milliseconds"


class StepFacts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The facts beside a model's step times: bytes of its weights over all devices, and of a token of context.

    `memory_bytes` and `bandwidth_bytes_per_s` are of one device. Steps have at most as many tokens as were
    measured, and at most `largest_running` requests.
    """

    weights_bytes: int
    kv_bytes_per_token: int
    memory_bytes: int
    bandwidth_bytes_per_s: float
    device_kind: str = "cuda"
    block_tokens: int = 16
    largest_running: int | None = None

    def __post_init__(self) -> None:
        sizes = "weights_bytes", "kv_bytes_per_token", "memory_bytes", "bandwidth_bytes_per_s", "block_tokens"
        require_each(self, sizes, lambda value: 0 < value < math.inf, "more than 0")
        enough = self.largest_running is None or self.largest_running >= 1
        require(enough, f"largest_running is {self.largest_running}, needs 1 or more")


def engine_from_steps(
    model: str, path: Path, facts_path: Path, *, tensor_parallel: int
) -> tuple[EngineProfile, float, list[str]]:
    """The engine, 0 seconds beside it, and a sentence about what is assumed; raises `InvalidInput`."""
    facts = decode_json(
        read_bytes(facts_path, remedy=f"give {', '.join(StepFacts.__struct_fields__[:4])} there"),
        StepFacts,
        where=str(facts_path),
        remedy="mend the file",
    )
    curve = _curve(path)
    most = curve.tokens[-1]
    free_bytes = facts.memory_bytes * MEMORY_SHARE * tensor_parallel - facts.weights_bytes
    blocks = int(free_bytes // (facts.kv_bytes_per_token * facts.block_tokens))
    require(
        blocks >= 1,
        f"{MEMORY_SHARE:g} of the memory of {tensor_parallel} devices holds the weights and no context",
        where=str(facts_path),
        remedy="mend weights_bytes and memory_bytes",
    )
    per_kv_token_s = facts.kv_bytes_per_token / (facts.bandwidth_bytes_per_s * tensor_parallel)
    engine = EngineProfile(
        model=model,
        device_kind=facts.device_kind,
        tensor_parallel=tensor_parallel,
        prefill=curve,
        decode=curve,
        per_kv_token_s=per_kv_token_s,
        block_tokens=facts.block_tokens,
        kv_blocks=blocks,
        largest_batched_tokens=most,
        largest_running=min(most, facts.largest_running or most),
        weights_bytes=facts.weights_bytes,
        kv_bytes_per_token=facts.kv_bytes_per_token,
    )
    return engine, 0.0, [_assumed(engine, path)]


def _assumed(engine: EngineProfile, path: Path) -> str:
    least = engine.decode.tokens[0]
    short = f", steps of fewer than {least} tokens take as long as one of {least}" if least > 1 else ""
    return (
        f"assumed for model {engine.model!r}, as {path.name} has times of steps alone: a token of context takes "
        f"{engine.per_kv_token_s * 1e9:.3g} ns (its bytes over the bandwidth), steps with prompts take as long as "
        f"those without{short}, and nothing is spent beside the engine"
    )


def _curve(path: Path) -> StepCurve:
    rows = csv_rows(read_text(path), where=str(path), remedy=REMEDY)
    require(bool(rows) and set(COLUMNS) <= set(rows[0]), "has no rows with its columns", where=str(path), remedy=REMEDY)
    try:
        return curve_from_rows([(int(row[COLUMNS[0]]), float(row[COLUMNS[1]]) / 1e3) for row in rows])
    except (TypeError, ValueError) as error:
        said = error.what if isinstance(error, InvalidInput) else f"a row is no pair of numbers ({error})"
        raise InvalidInput(said, where=str(path), remedy=REMEDY) from error
