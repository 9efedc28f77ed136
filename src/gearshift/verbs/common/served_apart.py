"""A server of a plan in a process of its own, as `validate` has it."""

from pathlib import Path

from gearshift.serving.operate.child_server import ChildServer


def served_apart(
    plan: Path, *, backend: str, profile: object = None, project: object = None, cores: frozenset[int] | None = None
) -> ChildServer:
    """To be entered; `profile` and `project` are paths, if they are given."""
    flags = [f"--backend={backend}"]
    flags += [f"--{name}={place}" for name, place in (("profile", profile), ("project", project)) if place is not None]
    return ChildServer(plan, *flags, cores=cores)
