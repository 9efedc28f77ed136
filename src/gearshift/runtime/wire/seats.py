"""Connection seats: if none is free, the caller that keeps the server waiting longest loses its.

Strangers go before callers that have shown a key; among strangers, those of an address with more
than its share go first. So a client that holds many idle seats loses them one by one to active
clients, and no address is refused while there is room.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

MOST_LOOKED_AT = 64
"""At most this many callers are compared to find the one that goes."""


class Caller(Protocol):
    @property
    def waited_for_since_s(self) -> float | None:
        """When its turn to send began, on a common clock; None while it waits for the server."""
        ...

    def abort(self) -> None: ...


@dataclass(slots=True, eq=False)
class _Address:
    name: str | None
    seats: int = 0
    strangers: OrderedDict[Caller, None] = field(default_factory=OrderedDict)


class Seats:
    """All holders of a seat, in the order of search; `most_of_address` is an address's share.

    A request costs nothing here: callers are asked when their turn began only when one has to go.
    """

    def __init__(self, most_of_address: int) -> None:
        self._most_of_address = most_of_address
        self._strangers: OrderedDict[Caller, _Address] = OrderedDict()
        self._known: OrderedDict[Caller, _Address] = OrderedDict()
        self._addresses: dict[str | None, _Address] = {}
        self._crowded: dict[_Address, None] = {}

    def __iter__(self) -> Iterator[Caller]:
        yield from self._strangers
        yield from self._known

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def add(self, caller: Caller, address: str | None) -> None:
        name = _network_of(address)
        place = self._addresses.get(name)
        if place is None:
            place = self._addresses[name] = _Address(name)
        self._strangers[caller] = place
        place.strangers[caller] = None
        place.seats += 1
        if place.seats > self._most_of_address:
            self._crowded[place] = None

    def remove(self, caller: Caller) -> None:
        place = self._strangers.pop(caller, None) or self._known.pop(caller, None)
        if place is None:
            return
        place.strangers.pop(caller, None)
        place.seats -= 1
        if place.seats <= self._most_of_address:
            self._crowded.pop(place, None)
        if place.seats == 0:
            del self._addresses[place.name]

    def vouch(self, caller: Caller) -> None:
        place = self._strangers.pop(caller, None)
        if place is not None:
            del place.strangers[caller]
            self._known[caller] = place

    def longest_waited_for(self) -> Caller | None:
        """The caller to remove for a new one; None if all those compared wait for the server."""
        found = None
        if self._crowded:
            found = _longest_waited_for(max(self._crowded, key=lambda place: place.seats).strangers)
        return found or _longest_waited_for(self._strangers) or _longest_waited_for(self._known)


def _network_of(address: str | None) -> str | None:
    """The owner's part of an address: for IPv6 the first half, as clients choose the second."""
    if address is None or ":" not in address:
        return address
    whole = ipaddress.IPv6Address(address.partition("%")[0])
    return str(whole.ipv4_mapped or int(whole) >> 64)


def _longest_waited_for(order: OrderedDict[Caller, None] | OrderedDict[Caller, _Address]) -> Caller | None:
    """The longest idle among the first `MOST_LOOKED_AT` of `order`; these move to its end."""
    found, since_s = None, math.inf
    for _ in range(min(len(order), MOST_LOOKED_AT)):
        caller = next(iter(order))
        order.move_to_end(caller)
        its_s = caller.waited_for_since_s
        if its_s is not None and its_s < since_s:
            found, since_s = caller, its_s
    return found
