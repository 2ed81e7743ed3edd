"""The campaigns of the ad pipeline: the injector makes events for them, the job joins with them."""

from __future__ import annotations

import random
from functools import lru_cache
from types import MappingProxyType
from uuid import UUID


@lru_cache(maxsize=8)
def campaign_of_ad(seed: int, campaigns: int, ads_per_campaign: int) -> MappingProxyType[str, str]:
    """Campaign id by ad id, the same for the same arguments everywhere.

    >>> len(campaign_of_ad(1, 100, 10)), len(set(campaign_of_ad(1, 100, 10).values()))
    (1000, 100)
    """
    rng = random.Random(f"campaigns-{seed}")

    def new_id() -> str:
        return str(UUID(int=rng.getrandbits(128), version=4))

    table: dict[str, str] = {}
    for _ in range(campaigns):
        campaign = new_id()
        table.update((new_id(), campaign) for _ in range(ads_per_campaign))
    return MappingProxyType(table)
