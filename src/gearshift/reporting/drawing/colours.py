"""One colour for each thing, the same on all pages; they are CSS variables, which `page.css` defines.

The colours are Okabe and Ito's, which colour-blind eyes tell apart; dark pages have lighter ones.
"""

from collections.abc import Sequence
from typing import Literal

Style = Literal["solid", "dash", "dot"]
STYLES: tuple[Style, ...] = ("solid", "dash", "dot")
MODELS = tuple(f"--m{n}" for n in range(1, 8))
"""By rising cost: the cheapest model of a plan has the first."""
ACCURACY, LATENCY, LOAD, LIMIT, PLAN, DOTS = "--accuracy", "--latency", "--load", "--warn", "--plan", "--dots"


def of_models(models: Sequence[str]) -> dict[str, str]:
    """The colours of models, given from cheap to expensive; after seven they come again."""
    return {model: MODELS[n % len(MODELS)] for n, model in enumerate(models)}


def of_names(names: Sequence[str]) -> dict[str, tuple[str, Style]]:
    """A colour and a line style for each of some systems, such as planners, in a fixed order."""
    return {
        name: (MODELS[n % len(MODELS)], STYLES[n // len(MODELS) % len(STYLES)])
        for n, name in enumerate(dict.fromkeys(names))
    }
