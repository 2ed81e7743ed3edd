"""What an edge could carry before anything was measured on it: what the network leaves for data (paper 002, section 3.1)."""

from __future__ import annotations

from spillway.model.capacity import Bandwidth


def left_for_data(bandwidth: Bandwidth) -> float:
    """(9): `N(data) = R − N(system) − N(heartbeat) − N(CK) − N(others)`, bytes per second, and never less than none.

    The paper's network of 100 Mb/s, of which a fifth is used otherwise:

    >>> left_for_data(Bandwidth(link=12.5e6, system=0.5e6, heartbeat=0.1e6, checkpoint=1.8e6, others=0.1e6, row_bytes=100.0))
    10000000.0
    """
    b = bandwidth
    return max(0.0, b.link - b.system - b.heartbeat - b.checkpoint - b.others)


def initial_capacity(bandwidth: Bandwidth, *, inputs: int, instances: int = 1) -> float:
    """(10): `c(i,j) = N(data) / (|E_j| · Σ size(tuple))`, rows per second, summed over the instances of the consumer.

    `inputs` is the number of links into one instance: as many as its operator has edges, for each edge is a topic that all its
    producers write to. The paper subtracts megabytes and divides by bytes; here all is in bytes.

    >>> tweets = Bandwidth(link=12.5e6, system=0.5e6, heartbeat=0.1e6, checkpoint=1.8e6, others=0.1e6, row_bytes=100.0)
    >>> initial_capacity(tweets, inputs=2), initial_capacity(tweets, inputs=2, instances=3)
    (50000.0, 150000.0)
    """
    return instances * left_for_data(bandwidth) / (inputs * bandwidth.row_bytes)
