"""What `spillway rescale` says, and what it does not take."""

from __future__ import annotations

import pytest
from spillway.cli.app import app
from spillway.cli.rescale import explain
from spillway.decide.rescale import plan_request
from spillway.decide.rescale.examples import ads
from spillway.model.rescale import Request
from spillway.policy import Policy
from typer.testing import CliRunner


def test_a_plan_in_words():
    said = explain(plan_request(ads(), Request(operator="count", to=4), Policy()))
    assert said[0].startswith("count from 1 to 4 executors by handover")
    assert said[1] == "  application count: executors 1 → 4"
    assert said[2].startswith("  by handover, with a pause of about ")
    assert said[-1] == "  steps: validate, launch, rehearsed, cutover, taken_over, verify, digest, done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give PIPELINE and OPERATOR"),
        (("taxi",), "give PIPELINE and OPERATOR"),
        (("taxi", "heavy", "--to", "0"), "--to 0 is not possible: give 1 or more."),
        (("taxi", "heavy", "--buckets", "-2"), "--buckets -2 is not possible: give 1 or more."),
        (("taxi", "heavy", "--kind", "magic"), "magic is not a way to rescale: give restart, executors, handover or shadow."),
        (("taxi", "heavy", "--to", "2", "--timeout", "soon"), "--timeout soon is not a duration"),
        (("taxi", "--cancel", "7"), "--cancel takes back one plan: give nothing else."),
    ],
)
def test_bad_input_is_one_sentence(arguments, words):
    result = CliRunner().invoke(app, ["rescale", *arguments], prog_name="spillway")
    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1
