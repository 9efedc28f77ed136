"""A profile on disk: a folder of readable metadata and plain arrays, with a hash of both."""

from pathlib import Path

from gearshift.errors import require
from gearshift.model import TensorSpec
from gearshift.models.loaded_from import LoadedFrom
from gearshift.profiles.performance_model import PerformanceModel
from gearshift.profiles.profile import PredictionRecords, Profile, RunTimeCurve
from gearshift.support.files import PathLike
from gearshift.support.stored_arrays import RecordsFolder, StoredMetadata

SCHEMA_VERSION = 1
TUPLES, TUPLES_FILE = "tuples", "tuples.csv"
METADATA_FILE = "profile.json"
ARRAYS_FILE = "predictions.npz"
LANGUAGE_FILE = "language.json"
"""In the place of `METADATA_FILE`, where models are language models (`profiles/engines/store.py`)."""
REMEDY = "make the profile anew with `gearshift profile`"
NAME_IT = "name the folder of the plan's profile with --profile"

# Names, types and dimensions of the arrays; "U" is text of any width.
_FORMATS = {
    "quality": ("<f8", 2),
    "certainty": ("<f8", 2),
    "part": ("|i1", 1),
    "label": ("U", 1),
    "prediction": ("U", 2),
    "output_tokens": ("<i8", 2),
    "exit_segment": ("<i8", 2),
}


class _Metadata(StoredMetadata, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    operator: str
    project: str | None
    certainty: str
    front_end_s: float
    notes: dict[str, str]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    models: tuple[str, ...]
    labelled: bool
    arrays: tuple[str, ...]
    curves: tuple[RunTimeCurve, ...]
    performance: tuple[PerformanceModel, ...] = ()
    router_s: float = 0.0
    warnings: tuple[str, ...] = ()
    loaded_from: tuple[LoadedFrom, ...] = ()


_FOLDER = RecordsFolder(
    "a profile",
    _Metadata,
    SCHEMA_VERSION,
    METADATA_FILE,
    ARRAYS_FILE,
    _FORMATS,
    REMEDY,
    Profile,
    "predictions",
    PredictionRecords,
    ("quality", "certainty", "part"),
)


def write_profile(profile: Profile, folder: PathLike) -> Profile:
    """Write `profile` into `folder`, whole or not at all, and return it with its hash.

    The same profile gives the same bytes. An older profile there is replaced; raises
    `InvalidInput` for a folder that holds anything else, and where writing fails.
    """
    return _FOLDER.write(folder, profile)


def read_profile(folder: PathLike, *, remedy: str = REMEDY) -> Profile:
    """Read the profile in `folder`.

    Raises `InvalidInput` where it is missing (with `remedy`), damaged, changed or of another
    version.
    """
    folder = Path(folder)
    holds_others = [path.parent.name for path in sorted(folder.glob(f"*/{METADATA_FILE}"))]
    require(
        not holds_others or (folder / METADATA_FILE).exists(),
        f"it holds the profiles of several operators ({', '.join(holds_others[:5])}), and one is needed here",
        where=str(folder),
        remedy=f"name the folder of one, such as {folder / holds_others[0]}" if holds_others else "",
    )
    require(
        not (folder / LANGUAGE_FILE).exists() or (folder / METADATA_FILE).exists(),
        "it holds a profile of language models, and one of other models is needed here",
        where=str(folder),
        remedy="name another, or plan, simulate, compare and explain with this one",
    )
    return _FOLDER.read(folder, remedy=remedy)


def require_replaceable(folder: PathLike) -> None:
    _FOLDER.require_replaceable(Path(folder))
