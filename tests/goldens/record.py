"""Write down what Gearshift does with every kind of plan, as text files that can be compared.

    python tests/goldens/record.py OUT [--only PART]... [--brief]

Kinds are one operator of rows, several operators, a graph of several nodes, and language models. For each there are
plans (by an objective, and a frontier), what the verbs print and write with `--json`, what they refuse, and a server
over emulated devices: its metrics by name, its description, its pages and its answers. The help of all verbs and the
public names are beside them. Nothing depends on time or on the place; `compare.py` shows what differs. With `--brief`
what is large is kept as a hash alone, as in the folder `recorded`, which is renewed so:

    rm -r tests/goldens/recorded; python tests/goldens/record.py tests/goldens/recorded --brief
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("names", "verbs", "refusals", "served")
KEPT_WHOLE = ("names.txt", "init.txt", "refused/*.txt", "*/*.txt", "*/served/log.txt")
HASHES = "hashes.txt"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="a new or empty folder")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; all if none is named")
    parser.add_argument("--brief", action="store_true", help="keep what is large as a hash alone")
    given = parser.parse_args()
    out, parts = given.out.resolve(), given.only or PARTS
    if out.exists() and any(out.iterdir()):
        parser.error(f"{out} is not empty; name a new folder")
    use_this_source()
    from tests.goldens import inputs, refusals, served, verbs
    from tests.goldens.running import run

    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        worlds = Path(scratch).resolve()
        tempfile.tempdir = scratch  # where tracebacks of bugs are kept, which are gone with it

        def gearshift(folder: Path, *words: object) -> None:
            said = run(folder, *words)
            if said.code:
                sys.exit(f"{said.line}: {said.error}")

        inputs.make_worlds(worlds, gearshift)
        if "names" in parts:
            tell("names", partial(verbs.record_names, out))
            verbs.record_init(worlds, out)
        for kind in verbs.KINDS:
            world = worlds / kind
            if "verbs" in parts:
                verbs.record_profile(world, out / kind)
                tell(f"{kind}: verbs", partial(verbs.record_kind, world, out / kind, kind))
            else:
                verbs.plan_kind(world, kind)
        if "refusals" in parts:
            tell("refusals", partial(refusals.record, worlds, out / "refused"))
        if "served" in parts:
            for kind in verbs.KINDS:
                tell(f"{kind}: served", partial(served.record, worlds / kind, out / kind / "served", kind))
    if given.brief:
        make_brief(out)


def make_brief(out: Path) -> None:
    whole = {file for pattern in KEPT_WHOLE for file in out.glob(pattern)}
    lines = []
    for file in sorted(file for file in out.rglob("*") if file.is_file() and file not in whole):
        content = file.read_bytes()
        count = content.count(b"\n")
        lines.append(f"{file.relative_to(out).as_posix()} {count} lines {hashlib.sha256(content).hexdigest()[:16]}\n")
        file.unlink()
    for folder in sorted((one for one in out.rglob("*") if one.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    (out / HASHES).write_text("".join(lines))


def tell(what: str, do: Callable[[], None]) -> None:
    began = sum(os.times()[:4])
    do()
    sys.stderr.write(f"{what}: {sum(os.times()[:4]) - began:.1f} s of a processor\n")


def use_this_source() -> None:
    """Record the source beside this file, whatever is installed, in processes that are started, too."""
    here = [str(ROOT / "src"), str(ROOT)]
    sys.path[:0] = here
    for name in [name for name in os.environ if name.startswith("GEARSHIFT_")]:
        del os.environ[name]
    os.environ |= {
        "PYTHONPATH": os.pathsep.join(here),
        "GEARSHIFT_WHOLE_KERNEL": "1",  # three kernels in place of eight, with the same results
        "COLUMNS": "120",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
    }
    time.tzset()


if __name__ == "__main__":
    main()
