"""Administration of a server: its status, pinning a gear, draining and undoing a drain."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from gearshift.errors import Forbidden, InvalidInput
from gearshift.runtime.router.status import ReplanStatus, ServedPlan, Status
from gearshift.runtime.service.service import Service
from gearshift.serving.operate.in_force import InForce

STATUS_PATH = "/v2/gearshift/status"
GEAR_PATH = "/v2/gearshift/gear"
DRAIN_PATH = "/v2/gearshift/drain"
SWAP_PATH = "/v2/gearshift/swap"
OF_OTHERS = frozenset({b"origin", b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""Headers that browsers add for pages, and proxies for their clients."""

Body = TypeVar("Body")


class GearBody(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The gear to keep at any load, or null to let the load choose again.

    `pipeline` names the one that is meant, where the server has several.
    """

    pin: int | None
    pipeline: str | None = None


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to accept new requests again; without a body they are refused from now on."""

    undo: bool = False


NOT_FROM_A_FILE = ServedPlan(path="", sha256="")


class Serving(Protocol):
    """The part of a service that a control needs; a front end's process has its own version."""

    @property
    def accepting(self) -> bool: ...

    @property
    def pipelines(self) -> Mapping[str, Any]:
        """An `Inference` each, where it is asked in tensors; for operators it is `ready`, or not."""
        ...


@runtime_checkable
class Operated(Serving, Protocol):
    """The things that operators see and steer: the service of a deployment."""

    @property
    def ready(self) -> bool: ...

    @property
    def degraded(self) -> list[str]: ...

    def status(self, plan: ServedPlan) -> Status: ...

    def pin_gear(self, gear: int, pipeline: str | None = None) -> None: ...

    def free_gear(self, pipeline: str | None = None) -> None: ...

    def refuse_new(self) -> None: ...

    def undo_drain(self) -> None: ...

    async def drain(self, longest_s: float) -> bool: ...


class Control:
    """The service in force and its plan, with the means to steer them."""

    def __init__(self, serving: Serving, plan: ServedPlan = NOT_FROM_A_FILE) -> None:
        self._serving, self.plan = serving, plan
        self.pipelines = {name: InForce(inference) for name, inference in serving.pipelines.items()}
        self.replan: ReplanStatus | None = None

    def put_in_force(self, serving: Serving, plan: ServedPlan) -> None:
        """Send all requests to another service, whose plan has the same pipelines."""
        self._serving, self.plan = serving, plan
        for name, in_force in self.pipelines.items():
            in_force.inference = serving.pipelines[name]

    @property
    def service(self) -> Service:
        """The service in force; only the router's process may ask for it."""
        return cast(Service, self._serving)

    @property
    def operated(self) -> Operated:
        """The steered service; only the router's process may ask for it."""
        assert isinstance(self._serving, Operated), "a front end's process has nothing to steer"
        return self._serving

    @property
    def accepting(self) -> bool:
        return self._serving.accepting

    @property
    def ready(self) -> bool:
        return self.operated.ready

    @property
    def degraded(self) -> list[str]:
        return self.operated.degraded

    def ready_by_name(self) -> dict[str, bool]:
        return {name: pipeline.ready for name, pipeline in self.operated.pipelines.items()}

    def status(self) -> Status:
        replan, status = self.replan, self.operated.status(self.plan)
        if replan is not None and replan.offered == Path(self.plan.path).name:  # now in force
            replan = msgspec.structs.replace(replan, offered=None)
        pipelines = [msgspec.structs.replace(each, replan=replan) for each in status.pipelines]
        return msgspec.structs.replace(status, replan=replan, pipelines=pipelines)

    def pin_or_free(self, body: bytes) -> Status:
        """Pin or free the gear as `body`, a `GearBody`, says; raises `InvalidInput`."""
        asked = decode(body, GearBody)
        if asked.pin is None:
            self.operated.free_gear(asked.pipeline)
        else:
            self.operated.pin_gear(asked.pin, asked.pipeline)
        return self.status()

    def drain_or_not(self, body: bytes) -> Status:
        """Start or undo a drain as `body`, a `DrainBody`, says.

        Raises `InvalidInput` for an invalid body, `NotReady` if the server is ending.
        """
        asked = decode(body, DrainBody) if body else DrainBody()
        if asked.undo:
            self.operated.undo_drain()
        else:
            self.operated.refuse_new()
        return self.status()


def decode(body: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}", remedy="see /openapi.json") from None


def require_local(address: str | None, headers: Mapping[bytes, bytes]) -> None:
    """Raise `Forbidden` for other machines, where no keys tell who may steer.

    Browser pages on this machine are refused too (browsers send `Origin`), and so are requests that
    a proxy on this machine forwards.
    """
    if not _is_local(address) or not OF_OTHERS.isdisjoint(headers):
        raise Forbidden(
            "without keys only programs on the server's own machine may do this",
            remedy="do it there, or serve with --admin-keys",
        )


def _is_local(address: str | None) -> bool:
    if address is None:
        return False
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
