"""Refuse requests from browser pages that use a foreign host name or come from another site.

A page can make its own host name resolve to this machine (DNS rebinding); the browser then lets it
read the server's answers, but the request gives that name in `Host`.  Addresses in `Host` cannot
be redirected, and a name without a dot belongs to the machine's own network, where no stranger
chooses names; both are trusted.  Other names must be known to be the server's.

A page of another site cannot read answers, but it can send requests; the browser then says so in
`Origin` and `Sec-Fetch-Site`.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from gearshift.errors import Forbidden, require

HOST, ORIGIN, FETCH_SITE = b"host", b"origin", b"sec-fetch-site"
LOCALHOST = "localhost"
FROM_ELSEWHERE = frozenset({b"cross-site", b"same-site"})
LONGEST_HOST_BYTES = 300
MOST_REMEMBERED = 256

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]*)?")


@lru_cache(MOST_REMEMBERED)
def host_name(host: bytes) -> str | None:
    """Return the host in a `Host` without its port; None if malformed (RFC 9112, section 3.2)."""
    match = _HOST.fullmatch(host) if len(host) <= LONGEST_HOST_BYTES else None
    return None if match is None else match[1].decode().lower()


def allowed_names(text: str | None, *, where: str = "") -> tuple[str, ...]:
    """Split a comma-separated list of names; raises `InvalidInput` for an impossible one."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        plain = host_name(name.encode(errors="replace")) == name.lower()
        require(
            plain, f"{name[:100]!r} is no host's name", where=where, remedy="give names without ports, between commas"
        )
    return names


class OwnNames:
    """The names of a server: its `host`, the `allowed`, names without a dot, and all addresses.

    Pages of `allowed` hosts may send requests too, for a proxy that uses another name here.
    """

    def __init__(self, host: str = LOCALHOST, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)
        self._names = self._allowed | {LOCALHOST, host.lower()}
        self._known = lru_cache(MOST_REMEMBERED)(self._is_known)

    def require_known(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `Forbidden` for another name; browsers always send one, HTTP/1.0 may not."""
        host = headers.get(HOST)
        if host is not None and not self._known(host):
            raise Forbidden(
                f"this server is not known as {host[:100].decode('latin-1')!r}",
                remedy="ask it by an address or a name without a dot, or serve with --allowed-hosts or --api-keys",
            )

    def require_own_page(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `Forbidden` for a request that a browser sends for a page of another site."""
        if headers.get(FETCH_SITE) in FROM_ELSEWHERE or not self._is_own(headers.get(ORIGIN), headers.get(HOST)):
            raise Forbidden(
                "pages of other sites may not ask this server for anything",
                remedy="ask from a program, or name the page's host in --allowed-hosts",
            )

    def _is_own(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None:
            return True
        scheme, found, authority = origin.partition(b"://")
        if not found or scheme.lower() not in (b"http", b"https") or not authority:
            return False
        return authority.lower() == (host or b"").lower() or host_name(authority) in self._allowed

    def _is_known(self, host: bytes) -> bool:
        name = host_name(host)
        return name is not None and name != "" and ("." not in name or name in self._names or _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
