"""The live page at `/dashboard`: a file of its own, which reads a stream of looks at the server."""

from functools import cache
from importlib import resources

from gearshift.serving.pages.own_script import Headers, with_script


@cache
def dashboard_page() -> tuple[bytes, Headers]:
    """The page, and the headers by which it runs its own script and asks its own server alone."""
    script, style, body = (_file(f"dashboard.{kind}") for kind in ("js", "css", "html"))
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Gearshift: live</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style></head>'
        f"<body>{body}</body></html>\n"
    )
    return with_script(page.encode(), script)


def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text()
