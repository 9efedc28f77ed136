"""The container of this process, as Kubernetes describes it; its cores include the router's."""

import os
from collections.abc import Mapping
from pathlib import Path

from gearshift.errors import InvalidInput, require
from gearshift.runtime.actuators.base import Actuator, Effect, Now
from gearshift.runtime.actuators.cgroup import own_groups
from gearshift.runtime.actuators.kubernetes import ACCOUNT, Container, KubernetesActuator, in_a_pod
from gearshift.runtime.actuators.own_group import NO_GROUP

ROUTER_CORES = 1
"""Cores of the container that the router takes."""


class BesideRouter:
    """An actuator of a container, for the worker in it: the container has `ROUTER_CORES` more.

    Before the first request 0 cores are in force, so that a pod does not keep its first ones.
    """

    name = "kubernetes"

    def __init__(self, container: Actuator) -> None:
        self._container, self._asked = container, False

    def apply(self, cores: float) -> Effect:
        self._asked = True
        effect = self._container.apply(cores + ROUTER_CORES)
        return Effect(
            cores=self._of_worker(effect.cores),
            asked_ns=effect.asked_ns,
            effective_ns=effect.effective_ns,
            problem=effect.problem,
        )

    def in_force(self) -> float:
        return self._of_worker(self._container.in_force()) if self._asked else 0.0

    def _of_worker(self, cores: float) -> float:
        return round(cores - ROUTER_CORES, 6)


def container_here(name: str, *, environ: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> Container:
    """The container `name` of this pod, from the environment (API server, `HOSTNAME`).

    Namespace, token and certificates are files in `account`. Raises `InvalidInput` outside a pod.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    namespace = account / "namespace"
    require(
        bool(host) and in_a_pod(account) and namespace.is_file(),
        f"this process is in no pod with a service account ({account})",
        remedy="serve in one whose account may patch pods/resize, or with --actuator processors",
    )
    return Container(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip(),
        pod=environ.get("HOSTNAME", ""),
        container=name,
        token_file=account / "token",
        ca_file=account / "ca.crt",
    )


def this_pod(container: str, now: Now) -> Actuator:
    """The actuator for this process's container, on clock `now`; raises `InvalidInput`."""
    here, groups = container_here(container), own_groups()
    if not groups:
        raise InvalidInput(NO_GROUP, remedy="serve with --actuator processors")
    return BesideRouter(KubernetesActuator(here, groups[0], now=now))
