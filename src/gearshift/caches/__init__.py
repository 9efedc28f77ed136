"""Learned caches: small networks that answer easy samples early, from a model's hidden outputs.

`build`, `load` and `evaluate` need PyTorch, which is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gearshift.support.extras import load_extra

if TYPE_CHECKING:
    from gearshift.caches.building.build import Built, build
    from gearshift.caches.building.evaluation import Evaluation, evaluate
    from gearshift.caches.loading import load_caches as load
    from gearshift.caches.network.train import Training
    from gearshift.caches.running.cached_model import CachedModel

_HOMES = {
    "Built": ("building.build", "Built"),
    "build": ("building.build", "build"),
    "CachedModel": ("running.cached_model", "CachedModel"),
    "Evaluation": ("building.evaluation", "Evaluation"),
    "evaluate": ("building.evaluation", "evaluate"),
    "load": ("loading", "load_caches"),
    "Training": ("network.train", "Training"),
}

__all__ = ["Built", "CachedModel", "Evaluation", "Training", "build", "evaluate", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gearshift.caches' has no attribute {name!r}")
    load_extra("torch", extra="torch", where="learned caches")
    home, inner = _HOMES[name]
    return getattr(import_module(f"gearshift.caches.{home}"), inner)
