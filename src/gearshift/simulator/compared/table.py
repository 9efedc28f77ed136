"""The one table of scalers that are simulated: those of the server, and those that only the simulator has."""

from typing import NamedTuple

PERIOD, MARGIN = "period_s", "margin"
HERE = "gearshift.simulator.compared"


class Simulated(NamedTuple):
    """The module and class of a scaler, of those of the server nothing, and the fields of `Scaling` that it reads."""

    place: str = ""
    reads: tuple[str, ...] = (PERIOD, MARGIN)


SCALERS = {
    "exact": Simulated(),
    "paper": Simulated(),
    "static": Simulated(reads=()),
    "replicas": Simulated(f"{HERE}.scalers:ReplicasScaler"),
    "fa2": Simulated(f"{HERE}.scalers:Fa2Scaler", (PERIOD,)),
    "vpa": Simulated(f"{HERE}.scalers:VpaScaler", (PERIOD,)),
}
COMPARED = {name: one.place for name, one in SCALERS.items() if one.place}
"""Those that only the simulator has, for plans of one model on one worker: each is a `scalers.Bounded`."""
