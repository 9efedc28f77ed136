"""Who attends to learned caches, and how long endpoints may take."""

from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from gearshift.caches.adapting.settings import adaptation_of
from gearshift.errors import InvalidInput
from gearshift.models.config import ModelSettings, OneOperator
from gearshift.models.remote_settings import RemoteSettings
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.journal import Journal
from gearshift.runtime.backends.workers_backend import ReplicaListener, WorkersBackend
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.rows.assembly import attend_caches, longest_remote_s, make_cache_adaptation


@pytest.mark.parametrize(("longest_s", "waits_s"), [(1.0, 2.0), (60.0, 120.0)])
def test_a_worker_may_wait_for_an_endpoint_as_long_as_the_project_says(longest_s, waits_s):
    remote = RemoteSettings(url="https://models.example", protocol="v2", model="large", longest_s=longest_s)
    models = {"small": ModelSettings(load="a.py:b"), "large": ModelSettings(remote=remote)}
    project = OneOperator(operator="sums", samples="a.py:c", models=models).as_project()
    assert longest_remote_s(project) == waits_s


@pytest.fixture
def cached_task(tmp_path):
    """A task of one model with learned caches."""
    profile = SimpleNamespace(curves=[SimpleNamespace(model="cached", segment=1)], models=["cached"])
    return SimpleNamespace(
        profile=profile,
        profiles={"task": profile},
        projects={"task": tmp_path},
        backend="local",
        tables=SimpleNamespace(models=["cached"], replica_model=np.zeros(1, int), replica_ids=[]),
        router_cores=(0,),
    )


def attendance_of(task, **settings):
    """Who attends to its learned caches."""
    return make_cache_adaptation(task, ServerSettings(**settings), CacheMetrics(), Journal())


@pytest.mark.parametrize("fixed", [False, True])
def test_whether_caches_follow_classes_is_told_to_who_adapts_them(cached_task, fixed):
    made = attendance_of(cached_task, adapt="cached", adapt_fixed_classes=fixed)
    assert adaptation_of(made._settings).follow_classes is not fixed


def test_of_two_models_with_caches_those_adapt_that_are_named_and_both_are_audited(cached_task):
    cached_task.profile.curves.append(SimpleNamespace(model="other", segment=1))
    cached_task.profile.models.append("other")
    cached_task.tables.models.append("other")
    cached_task.tables.replica_model = np.arange(2)
    made = attendance_of(cached_task, adapt=" other ,")
    assert (set(made._projects), made._adapting) == ({"cached", "other"}, ["other"])


def test_to_adapt_a_model_without_caches_is_refused_by_name(cached_task):
    with pytest.raises(InvalidInput, match=r"adapt names 'plain', which is no model .* name one of cached"):
        attendance_of(cached_task, adapt="cached,plain")


@pytest.mark.parametrize(("adapt", "share", "told"), [(None, 0.01, 0), (None, 0.0, 1), ("cached", 0.0, 1)])
def test_that_nobody_audits_learned_caches_is_said(cached_task, caplog, adapt, share, told):
    caches = attendance_of(cached_task, adapt=adapt, cache_audit_share=share)
    backend = Mock(spec=WorkersBackend)
    backend.listener = listener = ReplicaListener()
    attend_caches(cached_task, backend, caches)
    assert (backend.listener is listener) == (caches is None)
    assert sum("should the learned caches of cached answer" in message for message in caplog.messages) == told
