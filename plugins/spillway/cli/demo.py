"""`spillway demo [--keep]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence


def demo(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="spillway demo", description="Run the taxi pipeline through rush hour, ending in a verdict."
    )
    parser.add_argument("--keep", action="store_true", help="leave everything up afterwards")
    args = parser.parse_args(list(argv))

    from spillway.demo.run import run

    return run(keep_up=args.keep)
