"""Searches of a comparison that know what those before them found.

Planners and limits have placements and simulations in common, and single models and splits by id
are the same whatever the certainties.
"""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from gearshift.planner.contract.so_far import Search
from gearshift.planner.language.compared.control import permuted
from gearshift.planner.language.planners import Searches
from gearshift.planner.language.request import LanguageRequest
from gearshift.planner.language.search import LanguageSearch
from gearshift.workload import Trace


class SharedSearches:
    """Searches for requests that differ in latency alone, one after another; any other request begins anew.

    With a budget each search is by itself, so that none has the time of another.
    """

    def __init__(self) -> None:
        self._first: LanguageSearch | None = None
        self._permuted: dict[int, LanguageSearch] = {}

    def of(
        self, request: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = False
    ) -> LanguageSearch:
        if request.budget_s is not None or request.objective.latency_s is None:
            return LanguageSearch(request, so_far, single_models=single_models)
        return self._begun(request).within(request.latency_s, so_far, single_models=single_models)

    def permuted(self, seed: int) -> Searches:
        """Searches where certainties are permuted."""

        def search_for(
            request: LanguageRequest, so_far: Search[LanguageRequest], *, single_models: bool = False
        ) -> LanguageSearch:
            if request.budget_s is not None or request.objective.latency_s is None:
                other = replace(request, profile=permuted(request.profile, seed=seed))
                return LanguageSearch(other, so_far, single_models=single_models)
            first = self._begun(request)
            if seed not in self._permuted:
                self._permuted[seed] = first.with_certainties_of(permuted(request.profile, seed=seed))
            self._permuted[seed].known.clear()  # its simulations, of which few are asked for again
            return self._permuted[seed].within(request.latency_s, so_far, single_models=single_models)

        return search_for

    def _begun(self, request: LanguageRequest) -> LanguageSearch:
        if self._first is None or not _alike_but_for_latency(self._first.request, request):
            self._first, self._permuted = LanguageSearch(request, Search(request)), {}
            self._first.begins_alone = True
        return self._first


def _alike_but_for_latency(one: LanguageRequest, other: LanguageRequest) -> bool:
    one, other = one.within(None), other.within(None)
    return all(_same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Trace) and isinstance(other, Trace):
        return one.duration_s == other.duration_s and np.array_equal(one.arrivals_ns, other.arrivals_ns)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one is other or bool(one == other)
