"""An option of a verb: written once, in the type of the Python keyword that it sets.

    def explain(plan, ..., *, devices_too: Annotated[bool, Option("Also plan for one device fewer.")] = False)

`gearshift.cli.common.options.options_of` makes the flags of `gearshift explain` from it, and
docs/reference/generate.py their page. Keywords that several verbs share stand in a `TypedDict`,
which each of these verbs takes with `Unpack`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

from gearshift.hardware import GIB
from gearshift.support.files import PathLike


class Unit(NamedTuple):
    """The unit of a flag whose value must be positive, and its value in the keyword's unit."""

    name: str
    convert: Callable[[float], float]


SECONDS = Unit("seconds", float)
MILLISECONDS = Unit("milliseconds", lambda ms: ms / 1e3)
GIBIBYTES = Unit("GiB", lambda gib: int(gib * GIB))


class Option(NamedTuple):
    """The flag of a keyword.

    `flag` is given where its name is not the keyword's, `default` where the keyword stands in a
    `TypedDict`. `least` and `most` bound a number, `choices` a text.
    """

    help: str
    flag: str = ""
    default: object = None
    unit: Unit | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None


_MOVED = Option("The plan's profile, where it has moved.", "--profile")
ProfileOfPlan = Annotated[Any | PathLike | None, _MOVED]
ProfileFolder = Annotated[PathLike | None, _MOVED]
ProjectOfPlan = Annotated[
    PathLike | None, Option("The gearshift.toml with the models, where it has moved.", "--project")
]
Backend = Annotated[
    Literal["local", "emulated", "ray"],
    Option("Models in processes here, devices that sleep for the profiled time, or models on a Ray cluster."),
]
