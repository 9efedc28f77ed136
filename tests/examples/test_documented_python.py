"""Python blocks of the pages run as they are written, where no command line of the page runs them as a file."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gearshift
from gearshift.profiles.store import write_profile
from gearshift.traces.generate import steady
from gearshift.traces.read import write_trace
from tests.worlds import synthetic_profile

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^(?:<!-- (?P<by>file|live): \S+ -->\n)?```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SLOW = ("learned-caches",)


def blocks_of(page: Path) -> list[str]:
    """Those that are not files, which `test_documented_commands` and `test_vertical` run."""
    return [found["text"] for found in BLOCK.finditer(page.read_text()) if found["by"] is None]


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if blocks_of(page)]


def of_a_planner() -> dict[str, Any]:
    profile, trace = synthetic_profile(models=3, samples=400), steady(60, 5, seed=1)
    write_trace(trace, "trace.csv")
    return {"gearshift": gearshift, "profile": write_profile(profile, "profile"), "trace": trace}


def of_own_models() -> dict[str, Any]:
    return {"gearshift": gearshift, "x": np.zeros((4, 2)), "y": np.arange(4), "video_id": np.arange(4)}


def of_learned_caches() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    from gearshift import caches

    torch.manual_seed(0)
    layers = [torch.nn.Flatten(), torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(32, 3)).eval()
    images = np.random.default_rng(0).normal(size=(500, 1, 4, 4)).astype(np.float32)
    with torch.no_grad():
        labels = network(torch.from_numpy(images)).argmax(1).numpy()

    def head(shape: tuple[int, ...], classes: int) -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), classes))

    return {
        **{"gearshift": gearshift, "caches": caches, "np": np, "network": network, "images": images},
        **{"labels": labels, "rows": images[:5], "MyHead": head},
    }


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "traces": dict,
    "pipelines": dict,
    "language-models": dict,
    "your-own-models": of_own_models,
    "coordinate": of_a_planner,
    "frontier": of_a_planner,
    "learned-caches": of_learned_caches,
}
"""What a reader of each page has already."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page.stem in SLOW), id=page.stem) for page in PAGES]
)
def test_python_of_a_page_runs_in_the_order_in_which_it_stands(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = GIVEN[page.stem]()
    for block in blocks_of(page):
        exec(compile(block, str(page), "exec"), names)
