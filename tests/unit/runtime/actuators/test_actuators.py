"""What is particular to one actuator; what all must do is in `test_contract`."""

import os
from pathlib import Path

import pytest

from gearshift.clock import NS_PER_S
from gearshift.errors import InvalidInput
from gearshift.runtime.actuators.affinity import AffinityActuator
from gearshift.runtime.actuators.base import ActuatorChain, Effect, EmulatedActuator
from gearshift.runtime.actuators.cgroup import CgroupActuator, cores_of_group, own_groups
from gearshift.runtime.actuators.kubernetes import SHARE_FOR_WHY, Container, KubernetesActuator, refusal
from gearshift.runtime.actuators.threads import SessionsByThreads
from tests.unit.runtime.actuators.stand_ins import api_server, group_v1, group_v2

LONGEST_S = 20.0


class Noted(EmulatedActuator):
    def __init__(self, name: str, order: list[tuple[str, float]], *, most: float = 99) -> None:
        super().__init__(most=most)
        self.name, self._order = name, order

    def apply(self, cores: float) -> Effect:
        self._order.append((self.name, cores))
        return super().apply(cores)


def test_growing_begins_with_the_quota_and_shrinking_with_the_threads() -> None:
    order: list[tuple[str, float]] = []
    chain = ActuatorChain([Noted(name, order) for name in ("quota", "affinity", "threads")], cores=1, say=print)
    chain.apply(4)
    chain.apply(2)
    assert [name for name, _ in order] == ["quota", "affinity", "threads", "threads", "affinity", "quota"]


def test_threads_get_no_more_than_the_quota_got() -> None:
    order: list[tuple[str, float]] = []
    said: list[str] = []
    chain = ActuatorChain([Noted("quota", order, most=2), Noted("threads", order)], cores=1, say=said.append)
    assert chain.apply(4).cores == 2
    assert order == [("quota", 4), ("threads", 2)]
    chain.apply(4)
    assert said == ["quota: 4 cores were asked for, there are 2; serving goes on with the cores there are"]


def test_a_problem_that_went_and_came_back_is_said_again() -> None:
    said: list[str] = []
    quota = EmulatedActuator(most=2)
    chain = ActuatorChain([quota], cores=1, say=said.append)
    for cores in (4, 4, 1, 4):
        chain.apply(cores)
    assert len(said) == 2


def test_a_read_only_group_keeps_its_quota(tmp_path: Path) -> None:
    group = group_v2(tmp_path / "group", cores=1)
    actuator = CgroupActuator(group)
    (group / "cpu.max").unlink()
    (group / "cpu.max").mkdir()  # nobody, not even root, can write into it
    effect = actuator.apply(2)
    assert effect.cores == 1
    assert "cannot be changed" in effect.problem


def test_version_1_gets_a_short_period_before_its_quota(tmp_path: Path) -> None:
    group = group_v1(tmp_path / "group")
    CgroupActuator(group).apply(0.5)
    assert (group / "cpu.cfs_period_us").read_text() == "5000"
    assert (group / "cpu.cfs_quota_us").read_text().strip().startswith("2500")


def test_a_group_without_a_bound_has_infinitely_many_cores(tmp_path: Path) -> None:
    group = group_v2(tmp_path / "group")
    (group / "cpu.max").write_text("max 100000\n")
    assert cores_of_group(group, 2) == float("inf")


def test_what_somebody_else_changes_is_in_force_and_what_cannot_be_read_stays_as_known(tmp_path: Path) -> None:
    group = group_v2(tmp_path / "group", cores=2)
    actuator = CgroupActuator(group)
    (group / "cpu.max").write_text("5000 10000\n")
    assert actuator.in_force() == 0.5
    (group / "cpu.max").unlink()
    assert actuator.in_force() == 0.5


def test_a_folder_that_is_no_group_and_a_long_period_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="neither cpu"):
        CgroupActuator(tmp_path)
    with pytest.raises(InvalidInput, match="give 5000 to 10000"):
        CgroupActuator(group_v2(tmp_path / "group"), period_us=100_000)


def test_own_groups_are_those_with_processor_time(tmp_path: Path) -> None:
    for folder in ("cpu,cpuacct/a", "unified/b", "memory/a"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "cgroup.procs").touch()
    lines = ["4:memory:/a", "2:cpu,cpuacct:/a", "0::/b"]
    assert own_groups(lines, tmp_path) == [tmp_path / "unified/b", tmp_path / "cpu,cpuacct/a"]


def test_threads_of_a_session_never_exceed_what_is_asked_for() -> None:
    made: list[int] = []
    sessions = SessionsByThreads(lambda count: made.append(count) or count, [4, 1, 2])
    assert made == [1, 2, 4]
    used = []
    for threads in (1, 2, 3, 4, 9):
        sessions.use(threads)
        used.append(sessions.session)
    assert used == [1, 2, 2, 4, 4]


def test_processors_that_are_not_there_are_not_counted() -> None:
    mine = sorted(os.sched_getaffinity(0))
    try:
        actuator = AffinityActuator(os.getpid(), [mine[0], 4095])
        effect = actuator.apply(2)
        assert effect.cores == 1
        assert "someone else took the others away" in effect.problem
        assert actuator.in_force() == 1
        assert os.sched_getaffinity(0) == {mine[0]}
    finally:
        os.sched_setaffinity(0, mine)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one processor, which nobody can take away")
def test_processors_that_somebody_takes_away_are_missed_and_had_again() -> None:
    mine = sorted(os.sched_getaffinity(0))
    try:
        actuator = AffinityActuator(os.getpid(), mine)
        assert actuator.apply(2).cores == 2
        os.sched_setaffinity(0, {mine[1]})
        assert actuator.in_force() == 1
        assert (actuator.apply(2).problem, actuator.in_force()) == ("", 2)
    finally:
        os.sched_setaffinity(0, mine)


# Kubernetes ----------------------------------------------------------------------------------------------------------


def pod_at(url: str) -> Container:
    return Container(server=url, namespace="models", pod="gears", container="gearshift", token_file=None)


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("Deferred", "the node answers Deferred (node is full)"),
        ("Infeasible", "the node answers Infeasible (node is full)"),
        ("forbids", "status 403"),
        ("nonsense", "did not resize the pod"),
    ],
)
def test_a_refusal_leaves_the_cores_as_they_are_and_says_why(tmp_path: Path, mode: str, says: str) -> None:
    group = group_v2(tmp_path / "own", cores=1)
    with api_server(group) as server:
        server.mode = mode
        effect = KubernetesActuator(pod_at(server.url), group, longest_s=LONGEST_S).apply(2)
    assert effect.cores == 1
    assert says in effect.problem


@pytest.mark.parametrize(
    ("mode", "says"),
    [
        ("late refusal", "the node answers Deferred (node is full)"),
        ("ignores", "2000m of processor were accepted, but are not in force"),
    ],
)
def test_what_does_not_come_is_asked_after_in_time(tmp_path: Path, mode: str, says: str) -> None:
    """By a clock on which a second passes with each sleep."""
    group, slept = group_v2(tmp_path / "own", cores=1), list[float]()
    with api_server(group) as server:
        server.mode = mode
        effect = KubernetesActuator(
            pod_at(server.url), group, longest_s=LONGEST_S, now=lambda: len(slept) * NS_PER_S, sleep=slept.append
        ).apply(2)
    assert effect.cores == 1
    assert says in effect.problem
    assert len(slept) == (1 - SHARE_FOR_WHY) * LONGEST_S


@pytest.mark.parametrize("mode", ["hangs", "trickles"])
def test_an_answer_that_does_not_come_is_not_waited_for(tmp_path: Path, mode: str) -> None:
    group = group_v2(tmp_path / "own", cores=1)
    with api_server(group) as server:
        server.mode = mode
        effect = KubernetesActuator(pod_at(server.url), group, longest_s=0.3).apply(2)
    assert effect.cores == 1
    assert "no answer in time" in effect.problem


def test_nobody_listening_is_a_problem_and_no_error(tmp_path: Path) -> None:
    group = group_v2(tmp_path / "own", cores=1)
    effect = KubernetesActuator(pod_at("http://127.0.0.1:9"), group, longest_s=0.3).apply(2)
    assert "did not resize the pod" in effect.problem


def test_requests_and_limits_are_set_together_and_the_group_acknowledges(tmp_path: Path) -> None:
    group = group_v2(tmp_path / "own", cores=1)
    with api_server(group) as server:
        effect = KubernetesActuator(pod_at(server.url), group).apply(1.5)
    resources = {"requests": {"cpu": "1500m"}, "limits": {"cpu": "1500m"}}
    assert server.patches == [{"spec": {"containers": [{"name": "gearshift", "resources": resources}]}}]
    assert (effect.cores, effect.problem) == (1.5, "")
    assert effect.took_s >= 0.03


@pytest.mark.parametrize("name", ["", "../other", "a/b", "A", "x" * 300])
def test_names_that_would_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="no name that Kubernetes allows"):
        Container(server="http://127.0.0.1:1", namespace="models", pod=name, container="c")


@pytest.mark.parametrize("pod", [{}, {"status": None}, {"status": {"conditions": ["x", {"type": "PodResizePending"}]}}])
def test_a_pod_of_any_shape_without_a_pending_resize_is_no_refusal(pod: dict) -> None:
    assert refusal(pod) == ""
