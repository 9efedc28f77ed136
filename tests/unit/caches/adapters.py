"""Adapters of the little trained caches for digits, and streams that they see; times count samples."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.shared.class_local_streams import corrupted
from gearshift.caches.adapting.adapter import Adapter, open_adapter
from gearshift.caches.adapting.settings import Adaptation
from gearshift.caches.loading import load_caches
from tests.unit.caches.digit_networks import built, digits, network

SETTINGS = Adaptation(
    window_s=2000,
    interval_s=500,
    half_life_s=500,
    learn_share=1.0,
    audit_share=0.0,
    least_samples=60,
    follow_classes=False,
)
Told = list[dict[str, Any]]


def saved_in(tmp_path: Path) -> Path:
    """The folder of a build."""
    built().save(tmp_path / "caches")
    return tmp_path / "caches"


def adapter_in(folder: Path, settings: Adaptation = SETTINGS, **options: Any) -> tuple[Adapter, Told]:
    """An adapter of the caches in `folder`, and where its events go."""
    told: Told = []

    def tell(event: str, **facts: object) -> None:
        told.append({"event": event, **facts})

    return open_adapter(load_caches(folder, network()), settings, tell=tell, **options), told


def images_of(*classes: int, count: int = 200) -> Any:
    """Images of digits that nobody was trained on, drawn with replacement."""
    images, labels = digits()
    unseen = np.r_[500:700, 1300 : len(labels)]
    rows = unseen[np.isin(labels[unseen], classes)]
    return images[np.random.default_rng(0).choice(rows, count)]


def dim(images: Any) -> Any:
    """The same in another light."""
    return corrupted(images, kind="contrast", strength=0.35)


def stream(adapter: Adapter, rows: Any, at_s: float = 0.0) -> list[int]:
    """Have the model answer rows one after the other from `at_s` on, and work meanwhile; where they left."""
    left = []
    for i, row in enumerate(rows):
        answer = adapter.model.predict(row[None])
        left.append(int(answer["exit_segment"][0]))
        adapter.answered(row[None], answer, at_s + i)
    work(adapter, at_s + len(rows) - 1)
    return left


def work(adapter: Adapter, now_s: float) -> None:
    """Do all that is to be done by then."""
    while adapter.step(now_s):
        pass
