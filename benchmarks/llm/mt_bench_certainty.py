"""The worth of the published certainties of MT-Bench: for 3b and 8b no more than a random split.

    python -m benchmarks.llm.mt_bench_certainty --data DIR

The bar: `profile` finds that neither 3b nor 8b ranks its answers, and says so in a sentence, also
where the published cascades' own certainty, that of 3b, is taken for all models.

Beside it, what else is known of a turn: lengths, and its category. Log-probabilities of more than the
first token were not published, so the judge that `profile` fits on them cannot be fitted here.
"""

import ast
import json
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.llm.mt_bench import certainty_by_category, judged_turns, scores_of
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


def told_by_prompts(data: Path) -> list[tuple[str, Ranking]]:
    """Each smaller model against the largest, by lengths, and by the category on other questions."""
    tokens = json.loads((data / "llm" / "mt_bench_tokens.json").read_text())
    scores, known, found = scores_of(data), judged_turns(data), []
    for model in MODELS[:-1]:
        measures = {
            "short prompt": -np.array(tokens["prompt"], dtype=float),
            "short answer": -np.array(tokens[model], dtype=float),
            "category": certainty_by_category(scores[model] / 10, scores[MODELS[-1]] / 10, known),
        }
        for name, certainty in measures.items():
            of, best = scores[model][known] / 10, scores[MODELS[-1]][known] / 10
            found.append((name, ranking(model, MODELS[-1], None, certainty[known], of, best, seed=0)))
    return found


def main() -> None:
    args = parser_of(__doc__, data=True).parse_args()
    quality, certainty = recorded(data_of(args) / "predictions" / "mt_bench")
    found = found_for(quality, certainty)
    more = told_by_prompts(data_of(args))
    print_table(
        ("model", "certainty of, or measure", "AUROC", "gain", "ranks"),
        [(one.model, of, str(one.auroc), str(one.gain), one.ranks) for of, one in [*found, *more]],
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
