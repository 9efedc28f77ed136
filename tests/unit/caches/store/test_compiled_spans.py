import dataclasses
import logging
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from gearshift.caches.building.build import build
from gearshift.caches.building.evaluation import evaluate
from gearshift.caches.loading import load_caches
from gearshift.caches.network.chain import Chain, Steps
from gearshift.caches.network.tracing import chain_of
from gearshift.caches.running.cached_model import CachedModel
from gearshift.caches.store.compiled_spans import Ahead, Compiler, NotCompiled, described, load_compiled, save_compiled
from gearshift.caches.store.manifest import Compiled
from gearshift.errors import InvalidInput
from tests.unit.caches.digit_networks import BLOCKS, QUICK, VARIANTS, built, digits, network

WITHOUT = r"RuntimeError: no C\+\+ compiler"


def ahead(answer: float) -> Ahead:
    """A span that answers the same to whatever is of its shape."""
    return Ahead((1, 4), "cpu", f"code of {answer}".encode(), lambda hidden: torch.full((1, 4), answer))


def chain() -> Chain:
    torch.manual_seed(0)
    return chain_of(torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4))))


def saved(folder: Path) -> tuple[dict[tuple[int, int], Ahead], Compiled]:
    spans = {(0, 1): ahead(1.0), (2, 3): ahead(2.0)}
    compiled = described(spans, 12.0)
    save_compiled(folder, spans, compiled)
    return spans, compiled


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object, **__: object) -> None:
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr("torch.export.export", without)


def test_a_compiled_span_runs_for_a_row_of_its_shape_and_plain_segments_for_others() -> None:
    made = chain()
    model = CachedModel(made, {}, logits=False, compiled={(0, len(made) - 1): ahead(7.0)})
    one, two = np.zeros((1, 4), np.float32), np.zeros((2, 4), np.float32)
    assert model.predict(one)["scores"].tolist() == [[7.0] * 4]
    assert model.predict(two)["scores"] == pytest.approx(made.module(torch.zeros(2, 4)).detach().numpy())


def test_spans_run_compiled_where_they_lie_between_the_same_caches() -> None:
    steps = Steps(chain(), compiled={(0, 1): ahead(1.0)}).with_caches({1})
    assert steps.ends({1}) == {0: 1, 2: 3}
    end, run = steps.after(-1)
    assert (end, run(torch.ones(1, 4)).tolist()) == (1, [[1.0] * 4])
    end, run = steps.with_caches({0}).after(-1)
    assert end == 0
    assert run(torch.ones(1, 4)).tolist() != [[1.0] * 4]


def test_code_of_another_kind_of_machine_is_never_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    compiled = msgspec.structs.replace(saved(tmp_path)[1], machine="another")
    with caplog.at_level(logging.WARNING):
        assert load_compiled(tmp_path, compiled) == {}
        assert load_compiled(tmp_path, None) == {}
    assert "were compiled on another kind of machine" in caplog.text
    assert "were built without compiled segments" in caplog.text


def test_code_that_was_changed_or_lies_elsewhere_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    spans, compiled = saved(tmp_path)
    first = compiled.spans[0]
    elsewhere = msgspec.structs.replace(first, file=f"../{first.file}")
    (tmp_path.parent / first.file).write_bytes(spans[0, 1].code)
    with pytest.raises(InvalidInput, match="names the file"):
        load_compiled(tmp_path, msgspec.structs.replace(compiled, spans=(elsewhere,)))
    (tmp_path / first.file).write_bytes(b"changed")
    with pytest.raises(InvalidInput, match="is not what its manifest says"):
        load_compiled(tmp_path, compiled)


@pytest.mark.usefixtures("_no_compiler")
def test_what_cannot_be_compiled_says_why() -> None:
    compiler = Compiler(chain(), torch.zeros(1, 4))
    with pytest.raises(NotCompiled, match=WITHOUT):
        compiler.span(0, 1)


@pytest.mark.long
@pytest.mark.usefixtures("_no_compiler")
def test_where_no_compiler_is_the_build_goes_on_and_says_why() -> None:
    images, labels = digits()
    made = build(
        network(), images[700:900], labels[700:900],
        accuracy=0.8, blocks=BLOCKS[:1], variants=VARIANTS[:1], training=QUICK, compiled=True,
    )  # fmt: skip
    assert made.not_compiled == "RuntimeError: no C++ compiler"
    assert made.manifest.compiled is None
    assert made.model.compiled == {}


def test_files_that_no_manifest_names_any_more_are_deleted(tmp_path: Path) -> None:
    spans, compiled = saved(tmp_path)
    manifest = msgspec.structs.replace(built().manifest, compiled=compiled)
    dataclasses.replace(built(), manifest=manifest, compiled=spans).save(tmp_path)
    assert {entry.file for entry in compiled.spans} == {path.name for path in tmp_path.glob("span-*")}
    built().save(tmp_path)
    assert not list(tmp_path.glob("span-*"))


@pytest.mark.long
def test_segments_are_compiled_loaded_where_asked_for_and_answer_alike(tmp_path: Path) -> None:
    images, labels = digits()
    made = build(
        network(), images[700:1300], labels[700:1300],
        accuracy=0.8, blocks=BLOCKS, variants=VARIANTS, training=QUICK, compiled=True, out=tmp_path,
    )  # fmt: skip
    assert made.not_compiled == ""
    assert made.manifest.compiled is not None
    assert made.manifest.compiled.took_s > 0
    assert made.manifest.measured is not None
    assert made.manifest.measured.compiled_s is not None
    plain, compiled = load_caches(tmp_path, network()), load_caches(tmp_path, network(), compiled=True)
    assert plain.compiled == {}
    assert len(compiled.compiled) == len(made.manifest.chosen) + 1
    for image in images[1300:1320]:
        assert compiled.predict(image[None])["scores"] == pytest.approx(plain.predict(image[None])["scores"], abs=1e-4)
    assert evaluate(compiled, images[1300:], timed_rows=5).agreement == evaluate(plain, images[1300:]).agreement
