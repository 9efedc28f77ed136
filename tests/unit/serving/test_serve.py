import socket
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import click
import numpy as np
import pytest

from gearshift.caches.adapting.settings import adaptation_of
from gearshift.cli.main import main_group
from gearshift.errors import InvalidInput
from gearshift.models.config import ModelSettings, OneOperator, read_project
from gearshift.models.loaded_from import LoadedFrom, fingerprint, settings_of
from gearshift.models.remote_settings import RemoteSettings
from gearshift.observability.cache_metrics import CacheMetrics
from gearshift.observability.journal import Journal
from gearshift.plans.plan_file import read_plan, write_plan
from gearshift.runtime.backends.workers_backend import ReplicaListener, WorkersBackend
from gearshift.serving.door.settings import ServerSettings
from gearshift.serving.door.sockets import beside, bound_socket, is_loopback, server_context
from gearshift.serving.operate.assembly import attend_caches, longest_remote_s, make_cache_adaptation
from gearshift.serving.operate.task import read_task
from gearshift.serving.serve import require_replannable, tell_changes, tell_quota
from tests.certificates import ANOTHER_KEY, CERTIFICATE, KEY_WITH_PASSWORD, write_certificate
from tests.little_task import under_other_names, write_little_task


def test_a_server_listens_on_this_machine_alone_unless_told_otherwise():
    with bound_socket(ServerSettings().host, 0) as sock:
        assert is_loopback(sock)


def test_a_model_that_was_replaced_since_profiling_is_logged(tmp_path, caplog):
    task = read_task(write_little_task(tmp_path), "local")
    operator = task.operators["sums"]
    settings = settings_of(read_project(operator.project), "small")
    before = LoadedFrom(model="small", settings=settings, files={"task.py": fingerprint(tmp_path / "task.py")})
    measured = replace(operator, profile=replace(operator.profile, loaded_from=(before,)))
    task = replace(task, operators={"sums": measured})
    tell_changes(task)
    assert not caplog.messages
    (tmp_path / "task.py").write_text("")
    tell_changes(task)
    (told,) = caplog.messages
    assert told.startswith("model 'small' may have been replaced since profiling: task.py changed")


def test_a_quota_below_the_plans_cores_is_logged(tmp_path, caplog):
    task = replace(read_task(write_little_task(tmp_path), "local"), device_cores={})
    tell_quota(task, 2.0)
    assert not caplog.messages
    tell_quota(task, 1.5)
    (told,) = caplog.messages
    assert told.startswith("the plan takes 2 processors with the router's, and a control group holds this process to")


def test_a_certificate_with_its_key_can_be_used(tmp_path):
    server_context(*write_certificate(tmp_path).values())


@pytest.mark.parametrize(
    ("key", "reason"),
    [(ANOTHER_KEY, "key values mismatch"), (KEY_WITH_PASSWORD, "cannot be used"), (CERTIFICATE, "cannot be used")],
)
def test_a_key_that_does_not_fit_the_certificate_is_refused(tmp_path, key, reason):
    with pytest.raises(InvalidInput, match=reason):
        server_context(*write_certificate(tmp_path, key).values())


def test_a_certificate_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="No such file"):
        server_context(str(tmp_path / "a.pem"), str(tmp_path / "b.pem"))


@pytest.mark.parametrize("one", ["tls_certificate", "tls_key"])
def test_certificate_and_key_come_together(one):
    with pytest.raises(InvalidInput, match="one is missing"):
        ServerSettings(**{one: "a.pem"})


@pytest.mark.parametrize(
    ("field", "choices"), [("log_level", "debug, info, warning, error"), ("log_format", "text, json")]
)
def test_logs_are_of_a_level_and_a_form_that_there_are(field, choices):
    with pytest.raises(InvalidInput, match=f"{field} is 'loud'; use one of {choices}"):
        ServerSettings(**{field: "loud"})


def test_the_command_line_has_a_flag_and_choices_for_them():
    command = main_group.get_command(None, "serve")
    given = ["plan.json", "--otel", "--log-level", "debug", "--log-format", "json"]
    with command.make_context("serve", given) as context:
        assert [context.params[name] for name in ("otel", "log_level", "log_format")] == [True, "debug", "json"]
    with pytest.raises(click.BadParameter, match="'loud' is not one of"):
        command.make_context("serve", ["plan.json", "--log-level", "loud"])


@pytest.mark.parametrize(("longest_s", "waits_s"), [(1.0, 2.0), (60.0, 120.0)])
def test_a_worker_may_wait_for_an_endpoint_as_long_as_the_project_says(longest_s, waits_s):
    remote = RemoteSettings(url="https://models.example", protocol="v2", model="large", longest_s=longest_s)
    models = {"small": ModelSettings(load="a.py:b"), "large": ModelSettings(remote=remote)}
    project = OneOperator(operator="sums", samples="a.py:c", models=models).as_project()
    assert longest_remote_s(project) == waits_s


@pytest.mark.parametrize(
    ("field", "value"), [("longest_retry_s", -1), ("shortest_hang_s", 0), ("probe_s", 0), ("probe_s", float("nan"))]
)
def test_times_for_failing_workers_have_bounds(field, value):
    with pytest.raises(InvalidInput, match=f"{field} is"):
        ServerSettings(**{field: value})


@pytest.mark.parametrize(
    ("field", "value", "kind"),
    [
        ("port", 8000.5, "a whole number"),
        ("front_ends", True, "a whole number"),
        ("most_tensors", None, "a whole number"),
        ("drain_s", True, "a number"),
        ("drain_s", "1", "a number"),
    ],
)
def test_numbers_are_of_the_kind_that_a_setting_has(field, value, kind):
    with pytest.raises(InvalidInput, match=f"{field} is {value!r}, needs {kind}$"):
        ServerSettings(**{field: value})


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_a_seed_is_one_that_generators_take(seed):
    with pytest.raises(InvalidInput, match=f"audit_seed is {seed}, needs 0 to {(1 << 63) - 1}"):
        ServerSettings(audit_seed=seed)


@pytest.mark.parametrize(("host", "loopback"), [("127.0.0.1", True), ("127.0.0.2", True), ("0.0.0.0", False)])
def test_only_this_machine_reaches_a_loopback_address(host, loopback):
    with socket.socket() as sock:
        sock.bind((host, 0))
        assert is_loopback(sock) == loopback


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_a_server_shares_among_its_own_is_in_use_for_others(shared):
    with bound_socket("127.0.0.1", 0, shared=True) as sock:
        port = sock.getsockname()[1]
        with beside(sock) as other:
            assert other.getsockname()[1] == port
            with (
                pytest.raises(InvalidInput, match=f"port {port} of 127.0.0.1 is in use"),
                bound_socket("127.0.0.1", port, shared=shared),
            ):
                pass


@pytest.mark.parametrize("count", [0, 65])
def test_front_ends_are_few(count):
    with pytest.raises(InvalidInput, match=f"front_ends is {count}, needs 1 to 64"):
        ServerSettings(front_ends=count)


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


def test_an_operator_under_another_name_cannot_be_planned_anew_while_serving(tmp_path):
    plan, offers = write_little_task(tmp_path), ServerSettings(replan="offer", plans=".")
    require_replannable(read_task(plan, "emulated"), offers)
    write_plan(under_other_names(read_plan(plan)), plan)
    renamed = read_task(plan, "emulated")
    require_replannable(renamed, ServerSettings())
    with pytest.raises(InvalidInput, match=r"pipeline 'shop' has the nodes \['look'\]"):
        require_replannable(renamed, offers)
