"""All controllers, the scheduler, nodes and users on virtual time, while everything goes wrong that can."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

import pytest
from tests.simulation.guests import SimulatedMachine
from tests.simulation.server import VM_KINDS, SimulatedApi, unguarded_lists
from tests.simulation.simulation import Outcome, simulate

from kubecore.client.discovery import discover
from kubecore.testing import MemoryApi
from virtplane.compute.handler.machine import Machine

DETERMINISM_SEED = 7


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """As many processes as there are processors."""
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), initializer=collect_no_garbage
    ) as found:
        yield found


def collect_no_garbage() -> None:
    """Leave it to the end of each seed: looking for garbage in cycles meanwhile takes a sixth of the time."""
    gc.freeze()
    gc.disable()


@pytest.mark.timeout(600)
def test_everything_comes_true_and_to_rest(seeds: range, pool: ProcessPoolExecutor) -> None:
    failed = [report for report in pool.map(failure_of, seeds) if report]
    if failed:
        pytest.fail("\n\n".join(failed), pytrace=False)


def failure_of(seed: int) -> str:
    """The report of a seed that went wrong, or nothing."""
    outcome = simulate(seed)
    report = outcome.report() if outcome.wrong else ""
    del outcome
    gc.collect()
    return report


@pytest.fixture(scope="module")
def first() -> Outcome:
    """What comes of the seed that is repeated."""
    return simulate(DETERMINISM_SEED)


def test_a_seed_gives_the_same_trace_every_time(first: Outcome) -> None:
    second = simulate(DETERMINISM_SEED)
    assert list(first.trace.lines) == list(second.trace.lines)
    assert (first.trace.count, first.trace.digest) == (second.trace.count, second.trace.digest)
    assert first.trace.count > 100


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_gives_the_same_trace_in_every_process(hash_seed: str, first: Outcome) -> None:
    """Whatever the hashes of strings are there, which decide the order of sets."""
    program = (
        f"from tests.simulation import simulation as s; print(s.simulate({DETERMINISM_SEED}).trace.digest)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == first.trace.digest


def test_a_failure_tells_its_seed_and_what_happened_last(first: Outcome) -> None:
    outcome = replace(first, wrong=["something is wrong"])
    report = outcome.report()
    assert "seed=7" in report
    assert "--seed 7" in report
    assert "something is wrong" in report
    assert outcome.trace.lines[-1] in report


def test_a_simulated_machine_answers_all_that_the_real_one_does() -> None:
    """Where virt-handler asks something new of its machines, the simulation must learn to answer it."""
    asked = {name for name, member in vars(Machine).items() if callable(member) and not name.startswith("_")}
    assert asked <= set(vars(SimulatedMachine))


async def test_discovery_in_one_document_says_the_same_as_group_by_group() -> None:
    in_one, by_group = SimulatedApi(), MemoryApi(VM_KINDS)
    async with in_one.client() as short, by_group.client() as long:
        first, second = await discover(short), await discover(long)
    assert len(in_one.requests) == 2
    assert {(each.resource, each.verbs) for each in first.resources} == {
        (each.resource, each.verbs) for each in second.resources
    }


@pytest.mark.parametrize(
    ("form", "patch", "expected"),
    [
        ("json-patch", [{"op": "add", "path": "/a", "value": [1]}], ["/a"]),
        (
            "json-patch",
            [{"op": "test", "path": "/a", "value": None}, {"op": "add", "path": "/a", "value": [1]}],
            [],
        ),
        ("json-patch", [{"op": "replace", "path": "/a", "value": "text"}], []),
        ("merge-patch", {"metadata": {"finalizers": ["a"]}}, ["/metadata/finalizers"]),
        ("merge-patch", {"metadata": {"finalizers": ["a"], "resourceVersion": "1"}}, []),
    ],
)
def test_lists_that_are_overwritten_unseen_are_found(form: str, patch: Any, expected: list[str]) -> None:
    assert unguarded_lists(patch, f"application/{form}+json") == expected
