"""Options that many benchmarks have alike."""

import argparse
import os
from pathlib import Path


def parser_of(description: str | None, *, data: bool = False, quick: str | None = None) -> argparse.ArgumentParser:
    """A parser with this description, with `--data` if asked for, and with `--quick` where its help is given."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if data:
        default = os.environ.get("GEARSHIFT_DATA") or None
        parser.add_argument("--data", type=Path, default=default, help="the data's folder [default: $GEARSHIFT_DATA]")
    if quick is not None:
        parser.add_argument("--quick", action="store_true", help=quick)
    return parser


def data_of(options: argparse.Namespace) -> Path:
    """The folder of the data, for a benchmark that needs it."""
    if options.data is None:
        raise SystemExit("name the folder of the data with --data or $GEARSHIFT_DATA")
    return Path(options.data)
