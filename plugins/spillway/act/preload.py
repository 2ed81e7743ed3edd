"""What tasks need and what takes long to import, for a process that is about to fork them."""

from __future__ import annotations

import gc
import logging
import warnings

log = logging.getLogger("spillway.preload")


def preload() -> bool:
    """Never stops its caller: a task whose imports are not there yet imports them itself."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the libraries warn about each other
            import psycopg2  # noqa: F401

            import spillway.act.capacity_live
            import spillway.act.publish  # noqa: F401
            from spillway.decide.capacity import detect
            from spillway.decide.capacity.examples import chain
            from spillway.gates import capacity
            from spillway.gates.run import warm_up
            from spillway.policy import Policy

            policy = Policy.load()
            warm_up(policy.qod_ahead_s)
            capacity.warm_up(policy.qod_ahead_s)
            detect(chain(), policy)  # which imports its solver
    except Exception:
        log.exception("what cycles need was not imported ahead; each task does it for itself")
        return False
    gc.freeze()  # so that a fork does not copy what it only looks at
    return True
