"""Does the injector hold the rate it is asked for, at what cost, and where does it end? (`make bench NAME=injector`)

Plays constant rates and a sine to an embedded Kafka, then asks for more than it can do. Every figure is of events the broker
has: the end offsets before and after, not what was handed to the client library.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

from _common import exit_code, fail, finish, say, services
from spillway.embedded import EmbeddedError
from spillway.inject.broker import PlayError
from spillway.inject.player import PlayOptions, play
from spillway.inject.profiles import Constant, Profile, Sine
from spillway.inject.report import Report, format_table
from spillway.inject.scenario import Scenario, TopicLoad

RATES = (1_000, 10_000, 50_000, 200_000)
UNREACHABLE = 5_000_000
PARTITIONS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    events: str
    rate: Profile
    seconds: float


def run(case: Case, bootstrap: str, options: PlayOptions | None = None) -> Report:
    say(f"{case.name}: {case.events} for {case.seconds:g} s")
    load = TopicLoad(topic=f"bench.{case.name}", events=case.events, rate=case.rate, partitions=PARTITIONS)
    return play(Scenario(name=case.name, duration_s=case.seconds, topics=(load,)), bootstrap, options=options)


def row(case: Case, report: Report) -> tuple[object, ...]:
    (topic,) = report.topics
    mean, worst = report.second_error_pct()
    return (
        case.name,
        case.events,
        round(topic.asked / case.seconds),
        round((topic.at_broker or 0) / report.ran_s),
        f"{topic.error_pct:+.3f}",
        f"{mean:.3f}",
        f"{worst:.3f}",
        f"{report.late_ms_p50:.1f}",
        f"{report.late_ms_p99:.1f}",
        f"{report.late_ms_max:.1f}",
        f"{report.cpu_s / report.ran_s:.2f}",
        "yes" if report.ok else "; ".join(report.problems),
    )


def largest_rate(bootstrap: str, seconds: float, rounds: int) -> tuple[float, float]:
    """Events per second that reach the broker when far more is asked for, best of `rounds`; and the cores it takes."""
    options = PlayOptions(catch_up_s=3600.0)
    best = (0.0, 0.0)
    for number in range(rounds):
        case = Case(name=f"unpaced{number}", events="points", rate=Constant(UNREACHABLE), seconds=seconds)
        report = run(case, bootstrap, options)
        (topic,) = report.topics
        best = max(best, ((topic.at_broker or 0) / report.flushed_s, report.cpu_s / report.ran_s))
    return best


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each paced run")
    parser.add_argument("--bootstrap", help="a running broker; without it an embedded one is started")
    args = parser.parse_args(argv)
    try:
        if args.bootstrap:
            return measure(args.bootstrap, args.seconds)
        with services("kafka") as env:
            return measure(env["SPILLWAY_KAFKA"], args.seconds)
    except (EmbeddedError, PlayError) as error:
        return fail(str(error))


def measure(bootstrap: str, seconds: float) -> int:
    cases = [Case(name=f"constant{rate}", events="points", rate=Constant(rate), seconds=seconds) for rate in RATES]
    swing = Sine(mean=50_000, amplitude=40_000, period_s=seconds / 2)
    cases.append(Case(name="sine50000", events="points", rate=swing, seconds=seconds))
    cases.append(Case(name="trips20000", events="yellow", rate=Constant(20_000), seconds=seconds))
    run(Case(name="warmup", events="points", rate=Constant(50_000), seconds=3), bootstrap)
    reports = [(case, run(case, bootstrap)) for case in cases]
    max_rate, max_cores = largest_rate(bootstrap, 0.4, rounds=3)

    head = (
        "run",
        "events",
        "asked/s",
        "held/s",
        "error %",
        "mean err/s %",
        "max err/s %",
        "late p50 ms",
        "p99",
        "max",
        "cores",
        "held",
    )
    print(format_table(head, [row(case, report) for case, report in reports]))
    print(f"largest rate, unpaced: {max_rate:.0f} events/s with {max_cores:.2f} core")

    held = {case.name: report for case, report in reports}
    top = held[f"constant{RATES[-1]}"]
    errors = [report.second_error_pct() for report in held.values()]
    goals = {
        "every_rate_held": all(report.ok for report in held.values()),
        f"largest_rate_at_least_{RATES[-1]}": max_rate >= RATES[-1],
    }
    finish(
        "injector",
        {
            "held_rate": round((top.topics[0].at_broker or 0) / top.ran_s),
            "asked_rate": RATES[-1],
            "error_pct": round(max(abs(t.error_pct) for report in held.values() for t in report.topics), 4),
            "second_error_pct_mean": round(max(mean for mean, _ in errors), 4),
            "second_error_pct_max": round(max(worst for _, worst in errors), 4),
            "late_ms_p99": top.late_ms_p99,
            "cores": round(top.cpu_s / top.ran_s, 3),
            "max_rate": round(max_rate),
            "goals": goals,
        },
    )
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
