"""Did a change bring what was expected of it?"""

from __future__ import annotations

from datetime import datetime

from spillway.model.rescale import Change, Effect, Sample
from spillway.policy import Policy


def judge(change: Change, observed: Sample | None, policy: Policy, *, now: datetime) -> Effect:
    """Compares the capacity after a change with what it was made for.

    Scaling up is effective when the capacity gained a share (`rescale_effective_share`) of what was expected to be gained;
    anything else when it is no further below what was expected than the tolerance. It is too early while nothing is measured at
    the new parallelism, and where the plan expected nothing it cannot be told.

    >>> from datetime import timedelta
    >>> from spillway.decide.rescale.examples import NOW
    >>> from spillway.model.rescale import Kind
    >>> up = Change(at=NOW, operator="a", application="a", kind=Kind.RESTART, executors_from=2, executors_to=4, rate_before=100.0,
    ...             expected_rate=200.0)
    >>> later = NOW + timedelta(seconds=300)
    >>> [judge(up, Sample(parallelism=4, capacity=c), Policy(), now=later).value for c in (190.0, 130.0, 110.0)]
    ['effective', 'effective', 'ineffective']
    >>> judge(up, None, Policy(), now=later).value, judge(up, Sample(parallelism=2, capacity=100.0), Policy(), now=later).value
    ('too_early', 'too_early')
    """
    early = (now - change.over).total_seconds() < policy.rescale_judge_after_s
    if early or observed is None or observed.parallelism != change.executors_to or change.expected_rate is None:
        return Effect.TOO_EARLY
    expected, before = change.expected_rate, change.rate_before
    if change.up and before is not None and expected > before:
        enough = before + policy.rescale_effective_share * (expected - before)
    else:
        enough = (1.0 - policy.rescale_tolerance) * expected
    return Effect.EFFECTIVE if observed.capacity >= enough else Effect.INEFFECTIVE
