"""One cell of the table that bench/rescale_faults.py makes: a plan to rescale under kill -9. Drivers: test_rescale_driver.py."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from spillway.embedded import Stack

from tests.support.benches import BENCH
from tests.support.line import driver_log

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
CELLS = [("restart", "stopped", "scheduler", {"done"})]
"""Kind, step, fault and how the plan may end: beyond its point of no return it only goes forward."""


@pytest.fixture(scope="module")
def bed(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(BENCH))
        faults = importlib.import_module("rescale_faults")
        with faults.bed(stack, tmp_path_factory.mktemp("carrier"), "faulty", rescale_digest="never") as made:
            yield made


@pytest.mark.parametrize(("kind", "step", "fault", "outcomes"), CELLS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_plan_ends_by_itself_and_nothing_is_lost_or_doubled(
    bed: Any, stack: Stack, kind: str, step: str, fault: str, outcomes: set[str]
) -> None:
    cell = bed.cell(kind, step, fault)
    if not cell.good:
        print(bed.carrier.log.read_text()[-4000:], driver_log(stack), sep="\n")
    assert cell.good and cell.outcome in outcomes, cell
    assert cell.verdict.events > 0
