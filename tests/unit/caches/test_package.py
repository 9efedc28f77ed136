import subprocess
import sys

import pytest

from gearshift import caches
from gearshift.errors import InvalidInput


def test_without_torch_it_is_said_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InvalidInput, match=r"learned caches: needs torch, .* `pip install 'gearshift\[torch\]'`"):
        _ = caches.build


def test_composition_and_manifests_do_without_torch() -> None:
    code = (
        "import sys, gearshift.caches.building.compose, gearshift.caches.store.manifest;"
        "import gearshift.cli.offline.caches; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_every_public_name_is_what_it_says_again_and_again() -> None:
    for _ in range(2):
        assert all(callable(getattr(caches, name)) for name in caches.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = caches.nothing
