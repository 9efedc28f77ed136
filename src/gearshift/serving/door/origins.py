"""Refuse requests from browser pages that use a foreign host name or come from another site.

A page can make its own host name resolve to this machine (DNS rebinding); the browser then lets it
read the server's answers, but the request gives that name in `Host`.  Addresses in `Host` cannot
be redirected, and a name without a dot belongs to the machine's own network, where no stranger
chooses names; both are trusted.  Other names must be known to be the server's.

A page of another site cannot read answers, but it can send requests; the browser then says so in
`Origin` and `Sec-Fetch-Site`.  Pages of hosts that the user allows may do both, but not steer: the
browser asks for permission first (a preflight, WHATWG Fetch, section 3.3), and is told in each answer.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from gearshift.errors import Forbidden, require

HOST, ORIGIN, FETCH_SITE = b"host", b"origin", b"sec-fetch-site"
ASKED_METHOD, ASKED_HEADERS = b"access-control-request-method", b"access-control-request-headers"
ASKED_NETWORK = b"access-control-request-private-network"
REMEMBERED_S = 600
"""For which a browser need not ask again."""
LOCALHOST = "localhost"
FROM_ELSEWHERE = frozenset({b"cross-site", b"same-site"})
LONGEST_HOST_BYTES = 300
LONGEST_NAMES_BYTES = 2000
MOST_REMEMBERED = 256

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+;=%-]*)(?::[0-9]*)?")

_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]*")
Headers = tuple[tuple[bytes, bytes], ...]


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

    Pages of `allowed` hosts may send requests too: through a proxy that uses another name here, or
    from their own site.
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

    def is_of_allowed(self, origin: bytes) -> bool:
        """Whether this is the `Origin` of a page of an allowed host, at any port."""
        authority = _authority(origin)
        return bool(authority) and host_name(authority) in self._allowed

    def _is_own(self, origin: bytes | None, host: bytes | None) -> bool:
        if origin is None or self.is_of_allowed(origin):
            return True
        authority = _authority(origin)
        return bool(authority) and authority.lower() == (host or b"").lower()

    def _is_known(self, host: bytes) -> bool:
        name = host_name(host)
        return name is not None and name != "" and ("." not in name or name in self._names or _is_address(name))


def readable_by(origin: bytes) -> Headers:
    """With these headers of an answer, the page may read it; cookies are neither sent nor set."""
    return (
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", b"*"),
        (b"vary", ORIGIN),
    )


def permission(headers: Mapping[bytes, bytes], methods: Iterable[str]) -> Headers:
    """The answer to a preflight: the page may send these methods, and all headers that it asks for."""
    asked = headers.get(ASKED_HEADERS, b"")
    granted = [
        (b"access-control-allow-methods", ", ".join(methods).encode()),
        (b"access-control-max-age", b"%d" % REMEMBERED_S),
    ]
    if asked and len(asked) <= LONGEST_NAMES_BYTES and _NAMES.fullmatch(asked):
        granted.append((b"access-control-allow-headers", asked))
    if ASKED_NETWORK in headers:
        granted.append((b"access-control-allow-private-network", b"true"))
    return tuple(granted)


def _authority(origin: bytes) -> bytes:
    """Host and port of an `Origin`; empty where it is none of a web page."""
    scheme, _, authority = origin.partition(b"://")
    return authority if scheme.lower() in (b"http", b"https") else b""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
