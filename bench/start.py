"""How long the command takes to start: `spillway --help`, and `spillway decide qod` and `capacity` on a small world.

Capacity is a linear program, and the import of its solver alone takes about half a second, so it may take longer.

Each is run as it is installed, in a process of its own, one after the other in turn; the time is from its start to its end.

make bench NAME=start
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from _common import alternate, exit_code, fail, finish, spread
from spillway.decide.capacity.examples import chain
from spillway.decide.qod.examples import chain_observation

ROUNDS_MIN = 10
MOST_S: Mapping[str, float] = {"help": 0.5, "decide_qod": 0.5, "decide_capacity": 1.0}
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "help": ("--help",),
    "decide_capacity": ("decide", "capacity", "-"),
    "decide_qod": ("decide", "qod", "-"),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help=f"runs of each command, at least {ROUNDS_MIN}")
    args = parser.parse_args(argv)
    if args.rounds < ROUNDS_MIN:
        return fail(f"--rounds is {args.rounds}, too few for a median: give at least {ROUNDS_MIN}.")
    command = installed(Path(sys.executable).parent)
    if command is None:
        return fail(f"There is no command spillway beside {sys.executable}: run `make setup` first.")
    seen = {"help": "", "decide_qod": chain_observation().to_json(), "decide_capacity": chain().to_json()}
    try:
        took = alternate(
            {
                name: lambda _, words=words, given=seen[name]: seconds([command, *words], given)
                for name, words in COMMANDS.items()
            },
            rounds=args.rounds,
        )
    except subprocess.CalledProcessError as error:
        return fail(f"`{' '.join(error.cmd)}` ended with code {error.returncode}: {error.stderr.strip() or 'it said nothing'}.")
    return conclude(took)


def installed(folder: Path) -> str | None:
    """The command of the environment that runs the bench."""
    return shutil.which("spillway", path=str(folder))


def seconds(command: Sequence[str], given: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    return time.perf_counter() - began


def conclude(took: Mapping[str, Sequence[float]]) -> int:
    print(f"{'command':<18}{'median':>9}{'least':>9}{'most':>9}")
    for name, values in took.items():
        print(f"{name:<18}{statistics.median(values):>7.3f} s{min(values):>7.3f} s{max(values):>7.3f} s")
    goals = {f"{name}_within_{MOST_S[name]:g}_s": statistics.median(values) <= MOST_S[name] for name, values in took.items()}
    runs = min(len(values) for values in took.values())
    finish("start", {"runs": runs, "seconds": {name: spread(values) for name, values in took.items()}, "goals": goals})
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
