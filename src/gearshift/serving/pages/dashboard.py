"""The live page at `/dashboard`: a file of its own, which reads a stream of looks at the server."""

import base64
from functools import cache
from hashlib import sha256
from importlib import resources

Headers = tuple[tuple[bytes, bytes], ...]


@cache
def dashboard_page() -> tuple[bytes, Headers]:
    """The page, and the headers by which it runs its own script and asks its own server alone."""
    script, style, body = (_file(f"dashboard.{kind}") for kind in ("js", "css", "html"))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Gearshift: live</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style></head>'
        f"<body>{body}<script>{script}</script></body></html>\n"
    )
    hashed = base64.b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{hashed}'; style-src 'unsafe-inline'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )
    headers = ((b"content-security-policy", policy.encode()), (b"x-content-type-options", b"nosniff"))
    return page.encode(), headers


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text()
