"""Whether other machines could reach a port of this one."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import suppress

import psutil

CONNECT_S = 0.5
MOST_ADDRESSES = 16


async def open_at(port: int) -> str:
    """An address of this machine, not of its loopback, at which somebody listens on the port; empty without one.

    It is tried and not looked up, as a container's port is opened by another process.
    """
    for address in list(addresses())[:MOST_ADDRESSES]:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                _, writer = await asyncio.open_connection(address, port)
            writer.close()
            return address
    return ""


def addresses() -> Iterator[str]:
    """Those of this machine by which others may reach it."""
    for given in psutil.net_if_addrs().values():
        for one in given:
            if one.family in (socket.AF_INET, socket.AF_INET6):
                with suppress(ValueError):
                    address = ipaddress.ip_address(one.address)
                    if not (address.is_loopback or address.is_link_local):
                        yield one.address
