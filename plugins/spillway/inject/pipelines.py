"""The pipelines of a scenario: asked to run and to stop through the store, beside the events."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from spillway.inject.broker import PlayError
from spillway.inject.scenario import Scenario


class PipelineSwitch:
    """Writes the desired state when its time has come, in a thread of its own, so that a slow store never delays events."""

    def __init__(self, scenario: Scenario) -> None:
        self._actor = f"scenario {scenario.name}"
        starts = [(run.start_at_s, run.name, "running") for run in scenario.pipelines]
        stops = [(run.stop_at_s, run.name, "stopped") for run in scenario.pipelines if run.stop_at_s is not None]
        self._left = sorted([*starts, *stops])
        self._done: list[tuple[str, str, Future[None]]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pipelines") if self._left else None
        if self._left:
            self._check({run.name for run in scenario.pipelines})

    def at(self, now_s: float) -> None:
        """Everything due by now."""
        while self._thread and self._left and self._left[0][0] <= now_s:
            _, name, desired = self._left.pop(0)
            self._done.append((name, desired, self._thread.submit(self._set, name, desired)))

    def finish(self) -> list[str]:
        """Waits for what was asked; the problems there were, one sentence each."""
        if self._thread is None:
            return []
        self._thread.shutdown(wait=True)
        failures = [(name, desired, future.exception()) for name, desired, future in self._done]
        return [f"Pipeline {name} was not asked to be {desired}: {error}" for name, desired, error in failures if error]

    def _set(self, name: str, desired: str) -> None:
        from spillway.store import session
        from spillway.store.pipelines import set_desired

        with session("control") as connection:
            set_desired(connection, name, "running" if desired == "running" else "stopped", self._actor)

    @staticmethod
    def _check(names: set[str]) -> None:
        from spillway.store import StoreError, session
        from spillway.store.pipelines import in_force, unknown

        try:
            with session("control") as connection:
                for name in sorted(names):
                    if in_force(connection, name) is None:
                        raise unknown(connection, name)
        except StoreError as error:
            raise PlayError(f"The scenario's pipelines cannot be started: {error}") from error
