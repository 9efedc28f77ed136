"""The worth of the published certainties of MT-Bench: for 3b and 8b no more than a random split.

    python -m benchmarks.llm.mt_bench_certainty --data DIR

The bar: `profile` finds that neither 3b nor 8b ranks its answers, and says so in a sentence, also
where the published cascades' own certainty, that of 3b, is taken for all models.
"""

import ast
import json
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.shared.arguments import data_of, parser_of
from benchmarks.shared.bars import Bars
from benchmarks.shared.tables import print_table
from gearshift.profiles.engines.ranking import Ranking, ranking

MODELS = ("1b", "3b", "8b", "70b")
WORTHLESS = ("3b", "8b")
Floats = NDArray[np.float64]
_SCORES = re.compile(r".*_(\w+)\.txt: [\d.]+, (\[.*\])")


def recorded(folder: Path) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Quality and certainty of each model's turns, without the turn that the judge gave no score."""
    scores = {}
    for line in (folder / "scores.txt").read_text().splitlines():
        if found := _SCORES.match(line):
            scores[found[1]] = np.array(ast.literal_eval(found[2])) / 10
    judged = np.all([scores[model] >= 0 for model in MODELS], axis=0)
    certainty = {
        model: np.array([*json.loads((folder / f"certainty_{model}.json").read_text()).values()])[judged]
        for model in MODELS
    }
    return {model: scores[model][judged] for model in MODELS}, certainty


def found_for(quality: dict[str, Floats], certainty: dict[str, Floats]) -> list[tuple[str, Ranking]]:
    """Each smaller model against the largest, by its own certainty and by that of 3b."""
    return [
        (of, ranking(model, MODELS[-1], None, certainty[of], quality[model], quality[MODELS[-1]], seed=0))
        for model in MODELS[:-1]
        for of in dict.fromkeys((model, "3b"))
    ]


def main() -> None:
    args = parser_of(__doc__, data=True).parse_args()
    quality, certainty = recorded(data_of(args) / "predictions" / "mt_bench")
    found = found_for(quality, certainty)
    print_table(
        ("model", "certainty of", "AUROC", "gain", "ranks"),
        [(one.model, of, str(one.auroc), str(one.gain), one.ranks) for of, one in found],
    )
    bars = Bars()
    for of, one in found:
        if one.model in WORTHLESS:
            print(one)
            bars.at_most(f"low end of the gain of {one.model}, by the certainty of {of}", one.gain.low, 0.0)
            bars.at_least(f"high end of the gain of {one.model}, by the certainty of {of}", one.gain.high, 0.0)
    print(bars)


if __name__ == "__main__":
    main()
