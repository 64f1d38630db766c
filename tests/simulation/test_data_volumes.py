"""DataVolumes while everything goes wrong: nobody gets a volume that is half written; none is left over."""

from __future__ import annotations

import pytest
from tests.simulation.data_volumes import simulate
from tests.simulation.volume_world import Volumes

_SHARE = 15
"""One seed here takes as long as several of the whole cluster, which has many more things to try."""


@pytest.mark.timeout(600)
def test_data_volumes_get_whole_volumes_and_leave_nothing(seeds: range) -> None:
    for seed in seeds[: max(1, len(seeds) // _SHARE)]:
        outcome = simulate(seed)
        if outcome.wrong:
            pytest.fail(outcome.report(), pytrace=False)


def test_a_seed_gives_the_same_trace_every_time() -> None:
    assert simulate(3).trace.digest == simulate(3).trace.digest


def test_the_world_notices_what_must_not_be() -> None:
    volumes = Volumes()
    volumes.begin("pod", "v")
    volumes.given("v", "claim a")
    volumes.whole.add("v")
    volumes.begin("pod-2", "v")
    assert volumes.wrong == [
        "claim a has volume v, which is half written",
        "claim a has volume v, to which a worker writes",
        "pod pod-2 writes to volume v, which is whole",
    ]
