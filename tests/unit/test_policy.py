"""Tunables: defaults, files, variables, and the sentence for each wrong one."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from spillway.policy import Policy, PolicyError

NUMBERS = [tunable for tunable in fields(Policy) if "low" in tunable.metadata]
CHOICES = [tunable for tunable in fields(Policy) if "choices" in tunable.metadata]


def test_defaults_are_within_their_ranges() -> None:
    assert Policy() == Policy.load(environ={})
    for tunable in NUMBERS:
        assert tunable.metadata["low"] <= tunable.default <= tunable.metadata["high"], tunable.name
    for tunable in CHOICES:
        assert tunable.default in tunable.metadata["choices"], tunable.name


@pytest.mark.parametrize("tunable", CHOICES, ids=lambda t: t.name)
def test_a_choice_is_one_of_its_words(tunable) -> None:  # type: ignore[no-untyped-def]
    for value in ("other", 1, None):
        with pytest.raises(
            PolicyError, match=f"{tunable.name} is {value!r}, but must be {' or '.join(tunable.metadata['choices'])} "
        ):
            Policy(**{tunable.name: value})
    for word in tunable.metadata["choices"]:
        variable = {f"SPILLWAY_POLICY_{tunable.name.upper()}": word}
        assert getattr(Policy.load(environ=variable), tunable.name) == word


@pytest.mark.parametrize("tunable", NUMBERS, ids=lambda t: t.name)
def test_out_of_range_names_field_and_range(tunable) -> None:  # type: ignore[no-untyped-def]
    low, high = tunable.metadata["low"], tunable.metadata["high"]
    kind = int if tunable.type == "int" else float
    for value in (kind(high + 1), kind(low - 1)):
        with pytest.raises(PolicyError) as raised:
            Policy(**{tunable.name: value})
        assert str(raised.value).startswith(f"{tunable.name} is {value}, but must be a ")
        assert f"number from {low:g} to {high:g} (" in str(raised.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lease_s": "600"}, "lease_s is '600', but must be a number from 30 to 86400"),
        ({"lease_s": float("nan")}, "lease_s is nan, but must be a number from 30 to 86400"),
        ({"retention_days": True}, "retention_days is True, but must be a whole number from 1 to 3650"),
        ({"retention_days": 1.5}, "retention_days is 1.5, but must be a whole number from 1 to 3650"),
        ({"heartbeat_s": 6.0}, "fence_s is 15, but must be at least three heartbeats (heartbeat_s is 6): at least 18"),
        ({"lease_s": 30.0, "fence_s": 40.0}, "lease_s is 30, but must be at least fence_s, which is 40"),
        ({"backoff_first_s": 400.0}, "backoff_most_s is 300, but must be at least backoff_first_s, which is 400"),
        (
            {"rescale_launch_timeout_s": 30.0},
            "rescale_launch_timeout_s is 30, but must be at least rescale_calm_s, which is 45",
        ),
        ({"rescale_frozen": "22-06"}, "rescale_frozen is '22-06', but '22-06' is no period such as 22:00-06:00"),
        ({"rescale_frozen": ["22:00-06:00"]}, "rescale_frozen is ['22:00-06:00'], but must be text (when nothing is rescaled"),
        (
            {"rescale_down_utilisation": 0.8},
            "rescale_target_utilisation is 0.75, but must be at least rescale_down_utilisation, which is 0.8",
        ),
    ],
)
def test_wrong_values(values: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError) as raised:
        Policy(**values)  # type: ignore[arg-type]
    assert str(raised.value).startswith(message)


def test_periods_are_text_in_files_and_variables(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("rescale_frozen: 22:00-06:00, sat-sun 00:00-24:00\n")
    assert Policy.load(file, environ={}).rescale_frozen == "22:00-06:00, sat-sun 00:00-24:00"
    variable = {"SPILLWAY_POLICY_RESCALE_FROZEN": "12:00-13:00"}
    assert Policy.load(file, environ=variable).rescale_frozen == "12:00-13:00"


def test_file_then_variables(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("lease_s: 100\nretention_days: 3\n")
    policy = Policy.load(environ={"SPILLWAY_POLICY": str(file), "SPILLWAY_POLICY_RETENTION_DAYS": "5"})
    assert (policy.lease_s, policy.retention_days) == (100, 5)
    assert Policy.load(file, environ={}).retention_days == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("leese_s: 1\n", "has the unknown field leese_s; did you mean lease_s?"),
        ("- 1\n", "must be a mapping of fields to values"),
        ("lease_s: [\n", "policy.yaml:2 is not valid YAML: "),
        ("lease_s: 1\n", "lease_s is 1, but must be a number from 30 to 86400"),
    ],
)
def test_wrong_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(PolicyError) as raised:
        Policy.load(file, environ={})
    assert message in str(raised.value)


def test_wrong_variable_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="SPILLWAY_POLICY_LEASE_S is 'long', but must be a number"):
        Policy.load(environ={"SPILLWAY_POLICY_LEASE_S": "long"})
    with pytest.raises(PolicyError, match=r"the policy file .*none\.yaml cannot be read: No such file or directory"):
        Policy.load(tmp_path / "none.yaml", environ={})


def test_back_off_grows_to_its_bound() -> None:
    policy = Policy(backoff_first_s=1.0, backoff_factor=3.0, backoff_most_s=20.0)
    assert [policy.backoff_s(n) for n in range(6)] == [0.0, 1.0, 3.0, 9.0, 20.0, 20.0]
    assert policy.backoff_s(10**9) == 20.0


def test_a_variable_that_is_no_field_is_refused() -> None:
    with pytest.raises(PolicyError) as refused:
        Policy.load(environ={"SPILLWAY_POLICY_QOD_CYCLE": "5"})
    assert str(refused.value) == (
        "the environment has the unknown field SPILLWAY_POLICY_QOD_CYCLE; did you mean SPILLWAY_POLICY_QOD_CYCLE_S?"
    )
