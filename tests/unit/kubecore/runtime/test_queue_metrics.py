"""Metrics of work queues, on virtual time: client-go's meanings."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from kubecore.runtime import DONE, Controller, Key, RequeueAfter, Result
from kubecore.runtime.queuemetrics import QueueMetrics

pytestmark = pytest.mark.looptime


class Measured:
    """A controller whose queue is told of; its work on a key takes `seconds`."""

    def __init__(self, seconds: float, result: Result = DONE, *, fails: bool = False) -> None:
        self.registry = CollectorRegistry()
        self._seconds, self._result, self._fails = seconds, result, fails
        self.controller = Controller("it", self._reconcile)
        self.controller.measure(QueueMetrics(self.registry, "kubevirt_workqueue"))

    async def _reconcile(self, _: Key) -> Result:
        await asyncio.sleep(self._seconds)
        if self._fails:
            self._fails = False
            raise OSError("once")
        return self._result

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"kubevirt_workqueue_{name}", {"name": "it", **labels})


async def test_adds_waits_and_works_are_counted_for_each_key() -> None:
    measured = Measured(seconds=2)
    for name in ("a", "b", "a"):
        measured.controller.enqueue(("", name))
    running = asyncio.create_task(measured.controller.run())
    await asyncio.sleep(1)
    assert measured.value("adds_total") == 2
    assert measured.value("depth") == 1
    assert measured.value("unfinished_work_seconds") == pytest.approx(1)
    assert measured.value("longest_running_processor_seconds") == pytest.approx(1)
    await asyncio.sleep(4)
    assert measured.value("depth") == measured.value("unfinished_work_seconds") == 0
    assert measured.value("work_duration_seconds_count") == 2
    assert measured.value("work_duration_seconds_sum") == pytest.approx(4)
    # One waited for the other.
    assert measured.value("queue_duration_seconds_sum") == pytest.approx(2)
    assert measured.value("work_duration_seconds_bucket", le="1.0") == 0
    assert measured.value("work_duration_seconds_bucket", le="10.0") == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_key_that_is_added_while_it_is_worked_on_waits_from_then_on() -> None:
    measured = Measured(seconds=2)
    measured.controller.enqueue(("", "a"))
    running = asyncio.create_task(measured.controller.run())
    await asyncio.sleep(0.5)
    measured.controller.enqueue(("", "a"))
    assert (measured.value("adds_total"), measured.value("depth")) == (2, 1)
    await asyncio.sleep(2)
    assert measured.value("queue_duration_seconds_sum") == pytest.approx(1.5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    "measured", [Measured(1, RequeueAfter(100)), Measured(1, fails=True)], ids=["later", "failed"]
)
async def test_what_is_added_for_a_later_time_is_a_retry(measured: Measured) -> None:
    measured.controller.enqueue(("", "a"))
    running = asyncio.create_task(measured.controller.run())
    await asyncio.sleep(5)
    assert measured.value("retries_total") == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_queue_that_is_gone_has_no_depth_and_its_successor_counts_on() -> None:
    measured = Measured(seconds=1)
    for _ in range(2):
        measured.controller.enqueue(("", "a"))
        running = asyncio.create_task(measured.controller.run())
        await asyncio.sleep(0.5)
        assert measured.value("unfinished_work_seconds") == pytest.approx(0.5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert measured.value("depth") is None
    assert measured.value("adds_total") == 2


def test_the_names_are_those_that_dashboards_of_kubevirt_ask_for() -> None:
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry, "kubevirt_workqueue")
    metrics.observer("virt-controller-vm")
    text = generate_latest(registry).decode()
    kinds = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    expected = {
        "adds_total": "counter",
        "depth": "gauge",
        "longest_running_processor_seconds": "gauge",
        "queue_duration_seconds": "histogram",
        "retries_total": "counter",
        "unfinished_work_seconds": "gauge",
        "work_duration_seconds": "histogram",
    }
    found = {name.removeprefix("kubevirt_workqueue_"): kind for name, kind in kinds.items()}
    assert {name: found.get(name) for name in expected} == expected
    bucket = 'kubevirt_workqueue_work_duration_seconds_bucket{le="1e-08",name="virt-controller-vm"} 0.0'
    assert bucket in text
