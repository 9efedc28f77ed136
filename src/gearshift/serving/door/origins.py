"""Requests that a page in a browser makes: by a name of its own for this server, or from another site.

A page can have its own name lead to this machine (DNS rebinding), and is then allowed by the browser to read what the
server answers; but the request says that name in `Host`.  An address in `Host` cannot be led elsewhere, and a name
without a dot is of the machine's own network, where no stranger gives names; so these are trusted, and of other names
only those that are known to be the server's.  A page of another site cannot read answers, but it can send; then the
browser says so in `Origin` and `Sec-Fetch-Site`.
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
    """The name or address in a `Host`, without its port; None if it is malformed (RFC 9112, section 3.2)."""
    match = _HOST.fullmatch(host) if len(host) <= LONGEST_HOST_BYTES else None
    return None if match is None else match[1].decode().lower()


def allowed_names(text: str | None, *, where: str = "") -> tuple[str, ...]:
    """The names in a list with commas; raises `InvalidInput` for an impossible name."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    for name in names:
        plain = host_name(name.encode(errors="replace")) == name.lower()
        require(
            plain, f"{name[:100]!r} is no host's name", where=where, remedy="give names without ports, between commas"
        )
    return names


class OwnNames:
    """The names under which a server may be asked: its `host`, the `allowed`, names without a dot, and every address.

    Pages of `allowed` hosts may send requests too, for a proxy with such a name that uses another one here.
    """

    def __init__(self, host: str = LOCALHOST, allowed: Iterable[str] = ()) -> None:
        self._allowed = frozenset(name.lower() for name in allowed)
        self._names = self._allowed | {LOCALHOST, host.lower()}
        self._known = lru_cache(MOST_REMEMBERED)(self._is_known)

    def require_known(self, headers: Mapping[bytes, bytes]) -> None:
        """Raise `Forbidden` for a request to another name; browsers always send one, HTTP/1.0 clients may not."""
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
        """Whether an `Origin` is that of the server itself or of an allowed host."""
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
