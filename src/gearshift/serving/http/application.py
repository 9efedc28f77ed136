"""Route HTTP requests by the table of `routes`: find the handler, and check who may ask."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from gearshift.errors import NoAccess
from gearshift.serving.door.keys import Keys
from gearshift.serving.door.origins import ASKED_METHOD, FETCH_SITE, ORIGIN, OwnNames, permission, readable_by
from gearshift.serving.door.signature import unknown_model
from gearshift.serving.http.attempts import Routed, respond_error
from gearshift.serving.http.handlers import ACCEPT, Handlers
from gearshift.serving.http.http_exchange import BEARER, HttpExchange, Then, Work, read_body
from gearshift.serving.http.inference import ModelHandlers
from gearshift.serving.http.openapi import describe
from gearshift.serving.http.routes import LITERAL_PATHS, Route, Who, routes_of
from gearshift.serving.operate.control import require_local
from gearshift.serving.operate.kind import Shown
from gearshift.serving.pages.front_page import HTML, docs_page, front_page, key_page, shown_tensors
from gearshift.v2 import json as v2_json

ENCODED_SLASH = "%252F"
"""An encoded slash does not divide a path; otherwise it would bypass proxies that filter by
prefix."""
PAGES = frozenset({"/", "/docs"})
"""A browser without a key gets a form for it here."""
HTML_TYPE = b"text/html"
V1 = "/v1"
"""Clients of OpenAI's API are given it with the address of the server, or twice, or not at all."""
Found = tuple[Route, Then]
OF_PAGES = frozenset[Who]({"anybody", "user"})
"""Who pages of other sites may be, where they are allowed: none of them may steer."""


class Application(Routed):
    """Lets `handlers`, and those of `others`, answer HTTP requests; checks keys and hosts.

    The page about the server shows the pipelines of `handlers`, or what is `shown` in their place.
    """

    def __init__(
        self,
        handlers: Handlers,
        *,
        keys: Keys | None = None,
        names: OwnNames | None = None,
        others: Sequence[Found] = (),
        shown: Sequence[Shown] | None = None,
    ) -> None:
        self._handlers, self._keys, self._names = handlers, keys, names or OwnNames()
        super().__init__(handlers.attempts, self._route)
        models = {model.served.name: model for model in handlers.models}
        routes: dict[str, Found] = {
            route.path: (route, route.step(models.get(route.model, handlers)))
            for route in routes_of(list(models), has_dashboard=handlers.has_dashboard)
        }
        routes |= {found[0].path: found for found in others}
        self._patterns = [
            (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), routes.pop(path)) for path in list(routes) if "{" in path
        ]
        self._routes = routes
        served, more = [model.served for model in handlers.models], [route for route, _ in others]
        description = describe(served, keys=keys, others=more, has_dashboard=handlers.has_dashboard)
        handlers.description = v2_json.encode(description)
        handlers.docs_page = docs_page(description)
        handlers.front_page = front_page(
            list(map(shown_tensors, served)) if shown is None else shown,
            has_keys=keys is not None and keys.of_users,
            has_dashboard=handlers.has_dashboard,
        )

    @property
    def inference_paths(self) -> dict[str, str]:
        """Return the paths at which pipelines answer, with their names."""
        return {path: route.model for path, (route, _) in self._routes.items() if route.handler is ModelHandlers.infer}

    @property
    def paths(self) -> dict[str, str]:
        """Return the method of each path, in lower case."""
        return {path: route.methods[0].lower() for path, (route, _) in self._routes.items()}

    def _route(self, exchange: HttpExchange) -> Work | None:
        path, method, headers = exchange.path, exchange.method, exchange.headers
        if path[-1:] == "/" or "%" in path or path[:1] != "/":
            path = _path_meant(path)
        found = self._routes.get(path) or self._found_by_pattern(path)
        who = "user" if found is None else found[0].who
        origin = headers.get(ORIGIN)
        if origin is not None and who in OF_PAGES and self._names.is_of_allowed(origin):
            exchange.more = readable_by(origin)
        elif method == "POST" and (origin is not None or FETCH_SITE in headers):
            self._names.require_own_page(headers)
        if who != "anybody":
            if self._keys is None or not self._keys.of_users:
                self._names.require_known(headers)
            if found is not None and exchange.more and method == "OPTIONS" and ASKED_METHOD in headers:
                exchange.respond(200, b"", extra=permission(headers, found[0].methods))  # it carries no key
                return None
            if self._keys is not None or who == "operator":
                try:
                    self._require_key(self._keys, who, exchange)
                except NoAccess:
                    if path not in PAGES or HTML_TYPE not in headers.get(ACCEPT, b""):
                        raise
                    page, policy = key_page(has_dashboard=self._handlers.has_dashboard)
                    exchange.respond(401, page, HTML, (*policy, BEARER))
                    return None
        if found is None or (method not in found[0].methods and "{" in found[0].path):
            respond_error(exchange, 404, self._not_found(path))
            return None
        route, step = found
        if method not in route.methods:
            text = f"{method} is not allowed here, {route.methods[0]} is"
            respond_error(exchange, 405, text, [(b"allow", ", ".join(route.methods).encode())])
            return None
        if route.most_body_bytes is None:
            return step(exchange)
        read_body(exchange, route.most_body_bytes, step)
        return None

    def _found_by_pattern(self, path: str) -> Found | None:
        return next((found for pattern, found in self._patterns if pattern.fullmatch(path)), None)

    def _require_key(self, keys: Keys | None, who: Who, exchange: HttpExchange) -> None:
        if keys is None:
            require_local(exchange.client.address, exchange.headers)
            return
        admit = keys.admit_user if who == "user" else keys.admit_admin
        exchange.on_end = admit(exchange.headers, exchange.revoke)
        if who == "operator":
            return
        if keys.of_users:
            exchange.client.vouch()

    def _not_found(self, path: str) -> str:
        parts, served = path.split("/"), [model.served.name for model in self._handlers.models]
        if parts[:3] == ["", "v2", "models"] and len(parts) > 3 and parts[3] not in served:
            return unknown_model(parts[3], served).what
        near = [one for one in (f"{V1}{path}", path.removeprefix(V1)) if one != path and one in self._routes]
        return f"there is nothing at {path[:200]!r}" + (f"; {near[0]!r} is there" if near else "")


def _path_meant(path: str) -> str:
    """Normalise a path: decode it, and remove a host and trailing slashes.

    A path for operators is not normalised: proxies restrict access to those by the literal path.
    """
    _, _, authority_and_path = path.partition("://") if path[:1] != "/" else ("", "", path)
    plain = "/" + authority_and_path.partition("/")[2]
    meant = unquote(plain.replace("%2f", ENCODED_SLASH).replace("%2F", ENCODED_SLASH)).rstrip("/") or "/"
    return path if LITERAL_PATHS.match(meant) else meant
