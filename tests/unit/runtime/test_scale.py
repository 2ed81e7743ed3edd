"""More and fewer executors: what is asked of the cluster, pass by pass."""

from __future__ import annotations

from spark_jobs.runtime.scale import Executors


class Cluster:
    """Gives what is asked for when `settle` is called."""

    def __init__(self, there: int) -> None:
        self.ids, self.total, self.gone = [str(n) for n in range(there)], there, list[str]()
        self.asked: list[int] = []

    def registered(self) -> list[str]:
        return list(self.ids)

    def ask_for(self, total: int) -> None:
        self.asked.append(total)
        self.total = total

    def decommission(self, executor: str) -> None:
        self.gone.append(executor)

    def settle(self) -> None:
        newest = int(self.ids[-1])
        self.ids = [i for i in self.ids if i not in self.gone]
        while len(self.ids) < self.total:
            newest += 1
            self.ids.append(str(newest))


def test_more_are_asked_for_once_and_fewer_leave_newest_first() -> None:
    cluster = Cluster(2)
    executors = Executors(cluster)
    assert [executors.bring_to(2), executors.bring_to(4), executors.bring_to(4)] == [2, 2, 2]
    assert cluster.asked == [2, 4]
    cluster.settle()
    assert executors.bring_to(4) == 4 and cluster.gone == []

    assert [executors.bring_to(2), executors.bring_to(2)] == [4, 4]
    assert cluster.asked == [2, 4, 2] and cluster.gone == ["3", "2"], "each is sent away once"
    cluster.settle()
    assert executors.bring_to(2) == 2 and len(cluster.gone) == 2


def test_an_executor_that_registers_late_is_sent_away_too() -> None:
    cluster = Cluster(2)
    executors = Executors(cluster)
    executors.bring_to(3)
    executors.bring_to(2)
    cluster.ids.append("7")
    assert executors.bring_to(2) == 3 and cluster.gone == ["7"]


def test_never_below_what_is_wanted() -> None:
    cluster = Cluster(4)
    executors = Executors(cluster)
    executors.bring_to(2)
    executors.bring_to(3)
    assert cluster.gone == ["3", "2"], "those two leave, and one more comes"
    cluster.settle()
    assert executors.bring_to(3) == 3 and len(cluster.gone) == 2
