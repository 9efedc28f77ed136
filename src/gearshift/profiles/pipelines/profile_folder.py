"""Profiles of several operators, and of the pipelines that they make: a folder with one for each.

The folder holds `pipelines.json`, a profile folder for each operator, and for each pipeline that
was recorded a folder with `tuples.csv`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from gearshift.errors import require
from gearshift.pipeline import Edge, Node
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import METADATA_FILE, REMEDY, TUPLES_FILE, read_profile, write_profile
from gearshift.support.decoding import decode_json, schema_version
from gearshift.support.files import PathLike, read_bytes, write_atomically

if TYPE_CHECKING:
    from gearshift.profiles.tuples import JointRecords

PIPELINES_FILE = "pipelines.json"
SCHEMA_VERSION = 1


class RecordedPipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pipeline, and how many requests were recorded; 0 where its operators were measured apart.

    `right` is the share of the requests that the strongest models answer right, if these have
    labels. `warnings` are sentences about its records.
    """

    output: str
    nodes: dict[str, Node]
    edges: tuple[Edge, ...] = ()
    requests: int = 0
    right: float | None = None
    warnings: tuple[str, ...] = ()


class PipelinesFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of `pipelines.json`; each operator's profile is in the folder of its name."""

    schema_version: int = SCHEMA_VERSION
    seed: int
    operators: tuple[str, ...]
    pipelines: dict[str, RecordedPipeline]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiles:
    """Profiles by operator, pipelines by name, and the joint records of those that were recorded.

    `seed` split the requests into parts A and B.
    """

    operators: dict[str, Profile]
    pipelines: dict[str, RecordedPipeline]
    tuples: "dict[str, JointRecords]" = field(default_factory=dict)
    seed: int = 0

    def items_by_node(self, pipeline: str) -> dict[str, int]:
        """How many items of each node were recorded; empty for a pipeline without joint records."""
        if pipeline not in self.tuples:
            return {}
        records = self.tuples[pipeline]
        counts = np.bincount(records.node, minlength=len(records.nodes)).tolist()
        return dict(zip(records.nodes, counts, strict=True))


def write_profiles(profiles: Profiles, folder: PathLike) -> Profiles:
    """Write `profiles` into `folder`, and return them with their hashes; older ones are replaced."""
    from gearshift.profiles.tuples_file import encoded_joint_records

    folder = Path(folder)
    require_folder_replaceable(folder)
    (folder / PIPELINES_FILE).unlink(missing_ok=True)
    written = {name: write_profile(profile, folder / name) for name, profile in profiles.operators.items()}
    for name, records in profiles.tuples.items():
        write_atomically(folder / name / TUPLES_FILE, encoded_joint_records(records))
    file = PipelinesFile(seed=profiles.seed, operators=tuple(written), pipelines=profiles.pipelines)
    encoded = msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"
    write_atomically(folder / PIPELINES_FILE, encoded)
    return replace(profiles, operators=written)


def read_profiles(folder: PathLike, *, remedy: str = REMEDY) -> Profiles:
    """Read what `write_profiles` wrote; raises `InvalidInput` as `read_profile` does."""
    folder = Path(folder)
    path = folder / PIPELINES_FILE
    require(path.is_file(), "there is no such file", where=str(path), remedy=remedy)
    data = read_bytes(path, remedy=remedy)
    schema_version(data, [SCHEMA_VERSION], reads=str(SCHEMA_VERSION), where=str(path), remedy=remedy)
    file = decode_json(data, PipelinesFile, where=str(path), remedy=remedy)
    operators = {name: read_profile(folder / name, remedy=remedy) for name in file.operators}
    return Profiles(
        operators=operators,
        pipelines=file.pipelines,
        tuples={
            name: read_tuples(folder / name, pipeline.nodes, pipeline.edges, operators)
            for name, pipeline in file.pipelines.items()
            if pipeline.requests
        },
        seed=file.seed,
    )


def read_tuples(
    folder: Path, nodes: Mapping[str, Node], edges: Sequence[Edge], operators: Mapping[str, Profile]
) -> "JointRecords":
    """Joint records whose parts are those of their items' predictions; `operators` are their profiles."""
    from gearshift.profiles.tuples_file import read_joint_records

    counts = {name: len(profile.predictions.part) for name, profile in operators.items()}
    records = read_joint_records(folder, nodes, edges, counts)
    first = records.begin[:-1]
    operator_of = [nodes[node].operator for node in records.nodes]
    part = [
        operators[operator_of[node]].predictions.part[row]
        for node, row in zip(records.node[first].tolist(), records.row[first].tolist(), strict=True)
    ]
    return replace(records, part=np.array(part, dtype=np.int8))


def holds_profiles(folder: PathLike) -> bool:
    return (Path(folder) / PIPELINES_FILE).is_file()


def require_folder_replaceable(folder: Path) -> None:
    """Raise `InvalidInput` where `folder` holds anything but profiles of several operators."""
    if not folder.exists():
        return
    require(folder.is_dir(), "is a file, needs a folder", where=str(folder), remedy="choose another place")
    ours = {PIPELINES_FILE, *(entry.name for entry in folder.iterdir() if _is_part(entry))}
    others = sorted({entry.name for entry in folder.iterdir()} - ours)
    require(
        not others,
        f"the folder holds {others[0]!r}, which is no part of a profile of pipelines" if others else "",
        where=str(folder),
        remedy="choose a new or empty folder, or move its files away",
    )


def _is_part(entry: Path) -> bool:
    return entry.is_dir() and any((entry / name).exists() for name in (METADATA_FILE, TUPLES_FILE))
