"""The demo's models of handwritten digits, trained and profiled for `cost_per_request.py`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

import gearshift
from benchmarks.server.compared import Cores, Served
from gearshift.demo import task
from gearshift.profiles.profile import Profile
from gearshift.profiles.store import read_profile

OPERATOR = "digits"
COPIES = {"tiny": 1, "small": 1, "medium": 1, "large": 4}
"""To learn from when all is only tried out."""
MODELS = """from pathlib import Path

import gearshift
from gearshift.demo import task

TRAINED = Path(__file__).parent.parent / "trained"


def load_samples():
    inputs, labels, groups = task.make_samples()
    return gearshift.Samples(inputs=inputs, labels=labels, groups=groups)
"""


@dataclass(frozen=True, slots=True)
class Digits:
    """The trained models, in a folder of their own, and the rows (n, 64) and labels (n,) that are asked about."""

    folder: Path
    rows: list[list[float]]
    labels: list[int]

    def served(self, model: str, cores: Cores) -> Served:
        return Served(self.folder / "trained", model, cores)


def trained(folder: Path, *, quick: bool) -> Digits:
    """The models, trained unless the folder has them."""
    if not all(task.model_path(folder / "trained", name).exists() for name in task.MODEL_NAMES):
        task.train(folder / "trained", lambda what: None, copies=COPIES if quick else task.TRAINING_COPIES)
    images, labels, _ = task.make_samples()
    return Digits(folder, np.round(images.astype(np.float64), 4).tolist(), labels.tolist())


def profiled(digits: Digits, models: tuple[str, ...], *, quick: bool) -> Path:
    """The folder of a profile of these models alone."""
    folder = digits.folder / "-".join(models)
    folder.mkdir(exist_ok=True)
    loaders = [f'\n\ndef load_{name}():\n    return task.load(TRAINED, "{name}")\n' for name in models]
    (folder / "models.py").write_text(MODELS + "".join(loaders))
    tables = [f'[models.{name}]\nload = "models.py:load_{name}"\n' for name in models]
    repeats, longest_s = (3, 0.1) if quick else (12, 2.0)
    (folder / "gearshift.toml").write_text(
        f'operator = "{OPERATOR}"\nsamples = "models.py:load_samples"\n\n'
        + "\n".join(tables)
        + f"\n[profile]\nbatch_sizes = [1, 2, 4, 8, 16, 32]\nrepeats = {repeats}\nlongest_s = {longest_s}\n"
    )
    gearshift.profile(folder / "gearshift.toml", out=folder / "profile", seed=1)
    return folder / "profile"


def capacities(profile: Path) -> dict[str, float]:
    """Samples per second of each model alone at its best batch size."""
    return {curve.model: best_qps(read_profile(profile), curve.model) for curve in read_profile(profile).curves}


def best_qps(profile: Profile, model: str) -> float:
    seconds = next(curve for curve in profile.curves if curve.model == model).table_ns()[1:] / 1e9
    return float((np.arange(1, len(seconds) + 1) / seconds).max())


def accuracies(profile: Path) -> dict[str, float]:
    """Of each model alone, over all samples."""
    records = read_profile(profile).predictions
    return dict(zip(records.models, records.quality.mean(axis=1).tolist(), strict=True))
