"""Lines as runtimes of containers keep them: the time to the nanosecond, then what the container wrote."""

import re

from gearshift.traces.stamps import stamp_ns

_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
_BEFORE = re.compile(
    # of docker compose (`web-1  | `), and of kubectl (`[pod/web/nginx] `)
    rf"(?:[\w./-]{{1,128}} *\| ?|\[[\w./-]{{1,256}}\] )?({_STAMP}) (?:std(?:out|err) [FP] )?"
)
_NAMED = re.compile(r"[\w./-]{1,128} *\| ?|\[[a-z]+/[\w./-]{1,256}\] ")


def contained(text: str) -> tuple[int | None, str]:
    """The time in nanoseconds that a runtime put before a line, None without one, and the line itself.

    `2025-11-03T09:00:00.100000000Z stdout F ` is that of Kubernetes; `docker logs -t`, `docker compose logs -t`
    and `kubectl logs --timestamps --prefix` are much like it. Without a time a container's name goes, too.
    """
    found = _BEFORE.match(text)
    if found is None:
        named = _NAMED.match(text)
        return None, text if named is None else text[named.end() :]
    try:
        return stamp_ns(found[1]), text[found.end() :]
    except ValueError:
        return None, text
