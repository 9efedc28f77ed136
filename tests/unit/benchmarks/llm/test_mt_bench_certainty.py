import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.llm.mt_bench import categories, certainty_by_category
from benchmarks.llm.mt_bench_certainty import MODELS, WORTHLESS, found_for, main, recorded

MEANS = {"1b": 4.0, "3b": 6.0, "8b": 7.0, "70b": 8.0}


def write(folder: Path, *, informed: bool) -> None:
    """Made-up turns, of which the judge gave one no score; with certainties that know quality, or do not."""
    place = folder / "predictions/mt_bench"
    place.mkdir(parents=True)
    generator = np.random.default_rng(0)
    lines = []
    for model in MODELS:
        scores = np.clip(np.rint(generator.normal(MEANS[model], 2, 160)), 1, 10)
        certainty = generator.random(160) + informed * scores
        if model == "70b":
            scores[7] = -1
        lines.append(f"samples/2x1600_{model}.txt: {scores.mean()}, {scores.tolist()}")
        (place / f"certainty_{model}.json").write_text(json.dumps(dict(enumerate(certainty.tolist()))))
    (place / "scores.txt").write_text("\n".join(lines))
    (folder / "llm").mkdir()
    tokens = {name: generator.integers(5, 500, 160).tolist() for name in ("prompt", *MODELS)}
    (folder / "llm/mt_bench_tokens.json").write_text(json.dumps(tokens))


def test_turns_without_a_score_are_left_out_for_all(tmp_path: Path) -> None:
    write(tmp_path, informed=False)
    quality, certainty = recorded(tmp_path / "predictions/mt_bench")
    assert {len(one) for one in (*quality.values(), *certainty.values())} == {159}
    assert all(one.min() >= 0.1 for one in quality.values())


@pytest.mark.parametrize("informed", [False, True])
def test_the_bar_is_held_only_where_certainty_knows_nothing(
    tmp_path: Path, informed: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, informed=informed)
    found = found_for(*recorded(tmp_path / "predictions/mt_bench"))
    own = {one.model: one for of, one in found if of == one.model}
    assert [own[model].ranks for model in WORTHLESS] == [informed, informed]
    monkeypatch.setattr("sys.argv", ["x", "--data", str(tmp_path)])
    main()
    said = capsys.readouterr().out
    assert ("MISSED" in said) == informed
    assert ("so its requests are split by their id" in said) or informed


def test_a_category_is_judged_by_other_questions_alone() -> None:
    known = np.ones(160, dtype=bool)
    better = np.zeros(160)
    better[[3, 83]] = 1.0  # both turns of the fourth question, of the first category
    certainty = certainty_by_category(np.zeros(160), better, known)
    first = np.flatnonzero(categories() == 0)
    assert (certainty[[3, 83]] == 0).all()
    np.testing.assert_allclose(np.delete(certainty[first], [3, 13]), -2 / 18)
    assert (np.delete(certainty, first) == 0).all()
