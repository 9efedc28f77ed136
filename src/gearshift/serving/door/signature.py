"""A pipeline as its clients see it."""

from collections.abc import Sequence

import msgspec

from gearshift.errors import UnknownModel
from gearshift.model import TensorSpec


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The name of a pipeline, the inputs that its requests have, and the outputs of its answers."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


def unknown_model(name: str, served: Sequence[str]) -> UnknownModel:
    has = f"{served[0]!r}" if len(served) == 1 else f"{sorted(served)}"
    return UnknownModel(f"there is no model {name[:64]!r}; this server has {has}")
