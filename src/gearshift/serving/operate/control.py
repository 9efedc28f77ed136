"""Administration of a server: its status, pinning a gear, draining and undoing a drain."""

import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import msgspec

from gearshift.errors import Forbidden, InvalidInput
from gearshift.model import Arrays
from gearshift.request import Answer
from gearshift.runtime.router.status import ReplanStatus, ServedPlan, Status
from gearshift.runtime.service.answers import Done, Withdraw, answer_to
from gearshift.runtime.service.room import Reading
from gearshift.runtime.service.service import Service
from gearshift.serving.door.keys import Keys
from gearshift.serving.operate.shadow import Shadow

STATUS_PATH = "/v2/gearshift/status"
GEAR_PATH = "/v2/gearshift/gear"
DRAIN_PATH = "/v2/gearshift/drain"
SWAP_PATH = "/v2/gearshift/swap"
OF_OTHERS = frozenset({b"origin", b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via"})
"""Headers that browsers add for pages, and proxies for their clients."""

Body = TypeVar("Body")


class GearBody(msgspec.Struct, forbid_unknown_fields=True):
    """The gear to keep at any load, or null to let the load choose again."""

    pin: int | None


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to accept new requests again; without a body they are refused from now on."""

    undo: bool = False


class Inference(Protocol):
    """The part of `Service` that requests need; a front end's process has its own version."""

    @property
    def accepting(self) -> bool: ...

    @property
    def most_waiting(self) -> int: ...

    def now_ns(self) -> int: ...

    def require_room(self, rows: int, held_bytes: int) -> None:
        """Raise `NotReady`, `QueueFull` or `TooLarge` if `rows` would not be accepted now."""
        ...

    def reading(self, announced_bytes: int) -> Reading: ...

    @property
    def submit(self) -> Callable[..., Withdraw]:
        """As `Service.submit`; a front end's errors arrive in the answer."""
        ...


NOT_FROM_A_FILE = ServedPlan(path="", sha256="")


class Control:
    """The service in force and its plan, with the means to steer them."""

    def __init__(self, service: Inference, plan: ServedPlan = NOT_FROM_A_FILE) -> None:
        self.inference = service
        self.plan = plan
        self.shadow: Shadow | None = None
        self.replan: ReplanStatus | None = None

    @property
    def service(self) -> Service:
        """The service in force; only the router's process may ask for it."""
        return cast(Service, self.inference)

    @property
    def ready(self) -> bool:
        return self.service.ready

    async def infer(self, inputs: Arrays, **asked: Any) -> Answer:
        """Infer as `Service.infer`; a shadow is offered a copy of each answered request."""
        return await answer_to(self.submit, inputs, **asked)

    @property
    def submit(self) -> Callable[..., Withdraw]:
        return self.inference.submit if self.shadow is None else self._submit_to_both

    def _submit_to_both(self, inputs: Arrays, done: Done, **asked: Any) -> Withdraw:
        service, shadow = self.service, self.shadow
        began_ns = service.now_ns()

        def compared(answer: Answer) -> None:
            if shadow is not None and self.shadow is shadow and answer.outcome != "refused":
                shadow.offer(inputs, answer, service.now_ns() - began_ns, asked.get("payload_bytes", 0))
            done(answer)

        return service.submit(inputs, compared, **asked)

    def status(self) -> Status:
        replan = self.replan
        if replan is not None and replan.offered == Path(self.plan.path).name:  # now in force
            replan = msgspec.structs.replace(replan, offered=None)
        return msgspec.structs.replace(self.service.status(self.plan), replan=replan)

    def pin_or_free(self, body: bytes) -> Status:
        """Pin or free the gear as `body`, a `GearBody`, says; raises `InvalidInput`."""
        asked = decode(body, GearBody)
        if asked.pin is None:
            self.service.free_gear()
        else:
            self.service.pin_gear(asked.pin)
        return self.status()

    def drain_or_not(self, body: bytes) -> Status:
        """Start or undo a drain as `body`, a `DrainBody`, says.

        Raises `InvalidInput` for an invalid body, `NotReady` if the server is ending.
        """
        asked = decode(body, DrainBody) if body else DrainBody()
        if asked.undo:
            self.service.undo_drain()
        else:
            self.service.refuse_new()
        return self.status()


def decode(body: bytes, kind: type[Body]) -> Body:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the body does not fit: {error}", remedy="see /openapi.json") from None


def require_operator(keys: Keys | None, address: str | None, headers: Mapping[bytes, bytes]) -> None:
    """Raise `NoAccess` without a valid key; without keys, `Forbidden` for other machines.

    Without keys, browser pages on this machine are refused too (browsers send `Origin`), and so
    are requests that a proxy on this machine forwards.
    """
    if keys is not None:
        keys.require_admin(headers)
    elif not _is_local(address) or not OF_OTHERS.isdisjoint(headers):
        raise Forbidden(
            "without keys only programs on the server's own machine may do this",
            remedy="do it there, or serve with --admin-keys",
        )


def _is_local(address: str | None) -> bool:
    if address is None:
        return False
    ip = ipaddress.ip_address(address.partition("%")[0])
    return (getattr(ip, "ipv4_mapped", None) or ip).is_loopback
