"""Findings, said to people."""

from __future__ import annotations

from collections.abc import Sequence

from spillway.model.capacity import DrainPath

SHOWN = 4


def rows(rate: float) -> str:
    """
    >>> rows(900.9), rows(12345.0), rows(0.25), rows(0.0)
    ('901 rows/s', '12345 rows/s', '0.25 rows/s', '0 rows/s')
    """
    return f"{rate:.0f} rows/s" if rate >= 100.0 or rate == 0.0 else f"{rate:.3g} rows/s"


def names(words: Sequence[str]) -> str:
    """
    >>> names(["a"]), names(["a", "b", "c"]), names(list("abcdef"))
    ('a', 'a, b and c', 'a, b, c, d and 2 more')
    """
    some = [*words[:SHOWN], *([f"{len(words) - SHOWN} more"] if len(words) > SHOWN else [])]
    return some[0] if len(some) == 1 else f"{', '.join(some[:-1])} and {some[-1]}"


def bottleneck(source: str, found: Sequence[str], value: float, present: float, arrival: float | None) -> str:
    """
    >>> bottleneck("ads", ["count"], 900.9, 900.0, None)
    'count lets no more than 901 rows/s of ads through, which carries 900 rows/s: there is no room left'
    >>> bottleneck("ads", ["count"], 900.9, 1500.0, 1500.0)
    'count lets no more than 901 rows/s of ads through, to which 1500 rows/s are written: there is no room left'
    """
    verb = "lets" if len(found) == 1 else "let"
    asked = f"which carries {rows(present)}" if arrival is None else f"to which {rows(arrival)} are written"
    return f"{names(found)} {verb} no more than {rows(value)} of {source} through, {asked}: there is no room left"


def overfilled(source: str, found: Sequence[str]) -> str:
    return f"{names(found)} {'lets' if len(found) == 1 else 'let'} nothing of {source} through: the other sources alone fill it"


def dispatch(source: str, waiting: float, path: DrainPath) -> str:
    """
    >>> dispatch("ads", 50000.0, DrainPath(path=("ads", "parse", "count"), value=300.0))
    '50000 rows of ads wait, and 300 rows/s more fit through ads → parse → count'
    """
    waits = f"1 row of {source} waits" if round(waiting) == 1 else f"{waiting:.0f} rows of {source} wait"
    return f"{waits}, and {rows(path.value)} more fit through {' → '.join(path.path)}"


def keeps_up(source: str, present: float, value: float, waiting: float | None) -> str:
    """
    >>> keeps_up("ads", 300.0, 900.9, 0.0)
    'ads carries 300 rows/s of the 901 rows/s that fit, and nothing waits'
    """
    waits = "and whether anything waits is not known" if waiting is None else "and nothing waits"
    return f"{source} carries {rows(present)} of the {rows(value)} that fit, {waits}"


def not_known(missing: Sequence[str], found: str) -> str:
    """
    >>> not_known(["operators.count.capacity"], "how much fits")
    'operators.count.capacity is missing, so it is not known how much fits'
    """
    return f"{names(missing)} {'is' if len(missing) == 1 else 'are'} missing, so it is not known {found}"
