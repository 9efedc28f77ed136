from pathlib import Path

import numpy as np
import torch

from benchmarks.caches.alternatives import Contest
from benchmarks.caches.tasks import Task


def test_caches_and_cascades_are_asked_for_the_agreement_that_another_has_on_the_images_that_choose() -> None:
    images = np.eye(4, dtype=np.float32)
    contest = Contest(Task(Path("work"), None, "resnet20", 1, quick=True), torch.nn.Identity(), (images, np.zeros(4)))
    alike = contest.as_agreeing_as(lambda images: images)
    assert list(alike) == ["caches for 100.00%", "cascade for 100.00%"]
    other = contest.as_agreeing_as(lambda images: images - 2 * np.eye(4, dtype=np.float32)[:1])
    assert list(other) == ["caches for 75.00%", "cascade for 75.00%"]
