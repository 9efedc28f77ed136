"""The page at `/`, and the description of the API at `/docs`."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from math import prod
from typing import Any

from gearshift import __version__
from gearshift.serving.door.signature import Signature
from gearshift.serving.operate.kind import Shown
from gearshift.serving.pages.own_script import with_script
from gearshift.v2.json import encode
from gearshift.v2.records import example_record

MOST_VALUES = 32
HTML = b"text/html; charset=utf-8"
HEADERS = (
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)
_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8881}
body{font:16px/1.5 system-ui,sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
pre,code{font-family:ui-monospace,monospace;font-size:.875rem}
pre{background:var(--soft);padding:.75rem;white-space:pre-wrap;overflow-wrap:anywhere;border-radius:.375rem}
table{border-collapse:collapse;width:100%}
td,th{border-top:1px solid var(--line);padding:.375rem .5rem;text-align:left;vertical-align:top}
td code{overflow-wrap:anywhere}
"""
_KEY_FORM = """
<p>This server asks for a key to show what it serves. Programs send it as
<code>Authorization: Bearer KEY</code> or <code>X-Api-Key: KEY</code>.</p>
<form><label>Key <input type="password" autocomplete="off"></label> <button>Show</button></form>
<p role="status"></p>
"""
_LIVE_ASKS_TOO = '<p>The <a href="/dashboard">live page</a> asks for it as well.</p>'
_KEY_SCRIPT = """
"use strict";
const form = document.querySelector("form"), said = document.querySelector("[role=status]");
async function open(key) {
  try {
    const headers = { Accept: "text/html", Authorization: `Bearer ${key}` };
    const answer = await fetch(location.pathname, { headers, cache: "no-store" });
    const why = answer.status === 401 ? "the server does not know this key" : `the server answers ${answer.status}`;
    if (!answer.ok) throw new Error(why);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    sessionStorage.setItem("key", key);
    document.title = page.title;
    document.body.replaceWith(page.body);
  } catch (error) {
    said.textContent = error.message;
  }
}
form.addEventListener("submit", (event) => { event.preventDefault(); open(form.querySelector("input").value); });
if (sessionStorage.getItem("key")) open(sessionStorage.getItem("key"));
"""
_DASHBOARD = ("/dashboard", "the live page")
_LINKS = (
    ("/docs", "the API"),
    ("/openapi.json", "its description in OpenAPI"),
    ("/v2/gearshift/status", "what the server is doing"),
    ("/metrics", "metrics"),
    ("/readyz", "whether it is ready"),
)


def shown_tensors(served: Signature) -> Shown:
    is_long = any(prod(spec.shape[1:]) > MOST_VALUES for spec in served.inputs) or len(served.inputs) > MOST_VALUES
    record = example_record({spec.name: spec for spec in served.inputs})
    return Shown(served.name, _signature(served), f"/predict/{served.name}", record, is_long)


def front_page(shown: Sequence[Shown], *, has_keys: bool, has_dashboard: bool = True) -> bytes:
    """The pipelines that are served, with a request that works for each."""
    parts = [
        f"<h2>{escape(each.name)}</h2>{each.about}"
        f"<pre>{escape(example_call(each, 'http://HOST', has_keys=has_keys))}</pre>"
        for each in shown
    ]
    links = (*_LINKS, _DASHBOARD) if has_dashboard else _LINKS
    listed = "".join(f'<li><a href="{path}">{path}</a>: {text}</li>' for path, text in links)
    body = f"<p>This server answers with:</p>{''.join(parts)}<h2>More</h2><ul>{listed}</ul>"
    return _page("Gearshift: " + ", ".join(each.name for each in shown), body)


def key_page(*, has_dashboard: bool = True) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    """In place of a page that needs a key: a form that asks for it, and opens the page; with its headers."""
    return with_script(_page("Gearshift", _KEY_FORM + (_LIVE_ASKS_TOO if has_dashboard else "")), _KEY_SCRIPT)


def example_call(shown: Shown, origin: str, *, has_keys: bool, certificate: str | None = None) -> str:
    """A command that asks the server at `origin`; a body too long for a line is written by Python.

    KEY is to be replaced where the server has keys; `certificate` is the file that a client trusts.
    """
    key = " -H 'Authorization: Bearer KEY'" if has_keys else ""
    trust = "" if certificate is None else f" --cacert {_quoted(certificate)}"
    call = f"curl {origin}{shown.path}{trust}{key} -d"
    if not shown.is_long:
        return f"{call} {_quoted(encode(shown.body).decode())}"
    program = f"import json; print(json.dumps({_expression(shown.body)}))"
    return f"python3 -c {_quoted(program)} | {call} @-"


def _expression(value: Any) -> str:
    """The JSON of a record whose lists repeat one value, in Python and short: {"image": [[0.5]*28]*28}."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_expression(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{_expression(value[0])}]*{len(value)}"
    return repr(value)


def docs_page(description: Mapping[str, Any]) -> bytes:
    """The operations of an OpenAPI description, each with its answers."""
    rows = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            answers = "".join(
                f"<li>{status}: {_with_code(answer['description'])}</li>"
                for status, answer in sorted(operation["responses"].items())
            )
            headers = "".join(
                f"<li><code>{escape(one['name'])}</code>: {_with_code(one.get('description', ''))}</li>"
                for one in operation.get("parameters", ())
            )
            more = f"<details><summary>answers</summary><ul>{answers}</ul></details>"
            if headers:
                more += f"<details><summary>headers</summary><ul>{headers}</ul></details>"
            name = f"<code>{method.upper()} {escape(path)}</code>"
            rows.append(f"<tr><td>{name}</td><td>{_with_code(operation['summary'])}{more}</td></tr>")
    body = (
        f"<p>{_with_code(description['info']['description'])} All of it, with the schemas of bodies, is in "
        '<a href="/openapi.json">/openapi.json</a>.</p>'
        f"<table><thead><tr><th>request</th><th>gives</th></tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )
    return _page(f"{description['info']['title']}: the API", body)


def _with_code(text: str) -> str:
    """As HTML; words between backticks are code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _signature(served: Signature) -> str:
    def named(specs: Sequence[Any]) -> str:
        return ", ".join(f"<code>{escape(spec.name)}</code> {spec.datatype} {list(spec.shape)}" for spec in specs)

    given = f"; outputs: {named(served.outputs)}" if served.outputs else ""
    return f"<p>inputs: {named(served.inputs)}{given}</p>"


def _quoted(text: str) -> str:
    """As one word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{_STYLE}</style></head>'
        f"<body><h1>{escape(title)}</h1>{body}<p>Gearshift {__version__}</p></body></html>\n"
    ).encode()
