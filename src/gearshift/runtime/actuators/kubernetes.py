"""Changes a container's cores by the Kubernetes API: the pod's `resize`, general since 1.35."""

import contextlib
import json
import os
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gearshift.errors import InvalidInput, require
from gearshift.runtime.actuators.base import Actuator, Effect, Now
from gearshift.runtime.actuators.cgroup import NO_GROUP, cgroup_version, cores_of_group, own_groups
from gearshift.support.http import Connections, Failure, Response, address_of

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
LONGEST_S = 5.0
LOOK_EVERY_S = 0.01
SHARE_FOR_WHY = 0.2
"""Share of the time that is kept for asking why a change does not take effect."""
MOST_BYTES = 4 << 20
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_PATCH = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container, its pod and its API server; raises `InvalidInput` for malformed names."""

    server: str
    namespace: str
    pod: str
    container: str
    token_file: Path | None = ACCOUNT / "token"
    ca_file: Path | None = ACCOUNT / "ca.crt"

    def __post_init__(self) -> None:
        for field in ("namespace", "pod", "container"):
            name = getattr(self, field)
            require(_NAME.fullmatch(name) is not None, f"{field} {name!r} is no name that Kubernetes allows")
        address = urlsplit(self.server)
        require(
            address.scheme in ("http", "https") and bool(address.hostname),
            f"the API server is {self.server!r}",
            remedy="give it as https://HOST:PORT",
        )


class KubernetesActuator:
    """Resizes a container in place, and waits until its own control group shows it.

    It waits `longest_s` at most. The pod's status is no acknowledgement: it was measured to follow
    the control group by more than a minute. It is only asked for the reason, `Deferred` or
    `Infeasible`, if a change does not take effect.
    """

    name = "kubernetes"

    def __init__(
        self,
        container: Container,
        group: Path,
        *,
        longest_s: float = LONGEST_S,
        now: Now = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        require(0 < longest_s <= 300, f"longest_s is {longest_s}, needs more than 0, up to 300")
        self._container, self._group, self._longest_s = container, group, longest_s
        self._now, self._sleep = now, sleep
        self._version = cgroup_version(group)
        self._known = cores_of_group(group, self._version)

    def apply(self, cores: float) -> Effect:
        asked_ns = self._now()
        until_ns = asked_ns + round(self._longest_s * 1e9)
        millicores = max(1, round(cores * 1000))
        amount = {"cpu": f"{millicores}m"}
        change = {"name": self._container.container, "resources": {"requests": amount, "limits": amount}}
        problem = ""
        try:
            answer = self._ask("PATCH", "/resize", {"spec": {"containers": [change]}}, until_ns)
            problem = refusal(answer)
            while not problem and abs(self.in_force() - millicores / 1000) > 5e-3:
                if self._now() >= until_ns - round(SHARE_FOR_WHY * self._longest_s * 1e9):
                    status = refusal(self._ask("GET", "", None, until_ns))
                    problem = status or f"{millicores}m of processor were accepted, but are not in force"
                    break
                self._sleep(LOOK_EVERY_S)
        except (*Failure, InvalidInput, ValueError) as error:
            problem = f"the API server at {self._container.server} did not resize the pod ({_why(error)})"
        return Effect(cores=self.in_force(), asked_ns=asked_ns, effective_ns=self._now(), problem=problem)

    def in_force(self) -> float:
        with contextlib.suppress(OSError, ValueError):
            self._known = cores_of_group(self._group, self._version)
        return self._known

    def _ask(self, method: str, what: str, body: object, until_ns: int) -> dict[str, Any]:
        """The API server's answer; raises `OSError` if late, `InvalidInput` if an error."""
        where = self._container
        path = f"/api/v1/namespaces/{where.namespace}/pods/{where.pod}{what}"
        headers = {"Content-Type": _PATCH, "Accept": "application/json"}
        if where.token_file is not None:
            headers["Authorization"] = f"Bearer {where.token_file.read_text().strip()}"
        try:
            response = self._response(
                method, path, None if body is None else json.dumps(body).encode(), headers, until_ns
            )
        except Failure:
            self._left_s(until_ns)
            raise
        self._left_s(until_ns)
        require(not response.too_large, "the answer is too large")
        answer = json.loads(response.body)
        if not isinstance(answer, dict):
            raise InvalidInput("the answer is no object")
        if response.status >= 300:
            raise InvalidInput(f"status {response.status}: {str(answer.get('message', ''))[:300]}")
        return answer

    def _response(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], until_ns: int
    ) -> Response:
        address, ca_file = address_of(self._container.server), self._container.ca_file
        tls = ssl.create_default_context(cafile=ca_file) if address.secure else None
        left_s = partial(self._left_s, until_ns)
        server = Connections(address, tls, MOST_BYTES)
        watch = threading.Timer(left_s(), server.cut_off)  # even if data still trickles in
        watch.start()
        try:
            return server.exchange(server.connected(left_s), method, path, body, headers, left_s)
        finally:
            watch.cancel()
            server.close()

    def _left_s(self, until_ns: int) -> float:
        left_s = (until_ns - self._now()) / 1e9
        if left_s <= 0:
            raise TimeoutError(f"no answer within {self._longest_s:g} s")
        return left_s


def refusal(pod: dict[str, Any]) -> str:
    """The reason why the node does not resize the pod now, from its conditions; empty if none."""
    status = pod.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else ():
        if not isinstance(condition, dict) or condition.get("type") != "PodResizePending":
            continue
        if condition.get("status") == "True":
            reason, message = str(condition.get("reason", "Pending"))[:60], str(condition.get("message", ""))[:300]
            return f"the node answers {reason}{f' ({message})' if message else ''}"
    return ""


def _why(error: Exception) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__


def in_a_pod(account: Path = ACCOUNT) -> bool:
    return (account / "token").is_file()


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
        return replace(effect, cores=self._of_worker(effect.cores))

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
