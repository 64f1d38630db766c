"""Event recording and aggregation."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from kubecore.client import ConnectionFailed, Request
from kubecore.json import JsonObject
from kubecore.resources import EVENTS
from kubecore.runtime import EventRecorder
from kubecore.runtime.events import LONGEST_MESSAGE
from kubecore.testing import MemoryApi

pytestmark = pytest.mark.looptime

POD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "lab", "uid": "u-1", "resourceVersion": "5"},
}


async def test_an_event_has_the_form_that_readers_know() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "kubelet", "node-1") as recorder:
        recorder.event(POD, "Normal", "Started", "Started container", "spec.containers{c}")
    (event,) = api.list(EVENTS)
    assert event["metadata"]["name"].startswith("p.")
    assert event["metadata"]["namespace"] == "lab"
    assert event["involvedObject"] == {
        "kind": "Pod",
        "namespace": "lab",
        "name": "p",
        "uid": "u-1",
        "apiVersion": "v1",
        "resourceVersion": "5",
        "fieldPath": "spec.containers{c}",
    }
    assert event["source"] == {"component": "kubelet", "host": "node-1"}
    assert (event["type"], event["reason"], event["message"]) == ("Normal", "Started", "Started container")
    assert (event["count"], event["firstTimestamp"]) == (1, event["lastTimestamp"])
    assert (event["reportingComponent"], event["reportingInstance"]) == ("kubelet", "node-1")
    assert event["eventTime"] is None


async def test_equal_events_become_one_with_a_count() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        for _ in range(3):
            recorder.event(POD, "Warning", "Failed", "no")
    (event,) = api.list(EVENTS)
    assert event["count"] == 3


async def test_a_repeated_event_that_was_deleted_is_written_anew() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        recorder.event(POD, "Warning", "Failed", "no")
        await recorder.flush()
        (event,) = api.list(EVENTS)
        api.remove(EVENTS, event["metadata"]["name"], "lab")
        recorder.event(POD, "Warning", "Failed", "no")
        await recorder.flush()
        recorder.event(POD, "Warning", "Failed", "no")
    (event,) = api.list(EVENTS)
    assert event["count"] == 3


async def test_many_similar_events_are_combined() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        for number in range(15):
            recorder.event(POD, "Warning", "Failed", f"attempt {number}")
    events = api.list(EVENTS)
    combined = [event for event in events if event["message"].startswith("(combined from similar events): ")]
    assert (len(events), len(combined)) == (10, 1)
    assert combined[0]["message"].endswith("attempt 14")
    assert combined[0]["count"] == 6


async def test_messages_without_end_take_no_memory_without_end() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        tracemalloc.start()
        try:
            for number in range(5_000):
                recorder.event(POD, "Warning", "Failed", f"{number}" + "x" * 4096)
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert grown < 2 << 20


async def test_messages_of_any_length_take_no_memory() -> None:
    async with EventRecorder(MemoryApi().client(), "c") as recorder:
        tracemalloc.start()
        for number in range(50):
            pod = {**POD, "metadata": {**POD["metadata"], "uid": str(number)}}
            recorder.event(pod, "Warning", "FailedCreate", f"{number}: invalid value: " + "x" * 1_000_000)
            await recorder.flush()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held < 8 << 20


async def test_a_long_message_has_its_beginning() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        recorder.event(POD, "Warning", "Failed", "it is too long: " + "x" * 10_000)
    (event,) = api.list(EVENTS)
    assert len(event["message"]) == LONGEST_MESSAGE
    assert event["message"].startswith("it is too long: xxx")
    assert event["message"].endswith("x ...")


async def test_an_object_that_never_stops_is_throttled() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        for number in range(40):
            recorder.event(POD, "Warning", f"Reason{number}", "x")
    assert len(api.list(EVENTS)) == 25


async def test_events_about_objects_outside_namespaces_go_to_default() -> None:
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        recorder.event({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n"}}, "Normal", "R", "m")
    assert api.list(EVENTS)[0]["metadata"]["namespace"] == "default"


async def test_an_event_that_cannot_be_encoded_costs_no_other_event(caplog: pytest.LogCaptureFixture) -> None:
    """JSON that others write can have half a character, which their words in a message have then, too."""
    api = MemoryApi()
    async with EventRecorder(api.client(), "c") as recorder:
        recorder.event(POD, "Warning", "Refused", "\ud800")
        recorder.event(POD, "Normal", "Started", "m")
    assert [event["reason"] for event in api.list(EVENTS)] == ["Started"]
    assert "Refused" in caplog.text


async def test_lost_connections_are_waited_out() -> None:
    api = MemoryApi()
    failures = 2

    def fail(_: Request) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise ConnectionFailed("down")

    api.reactions.append(fail)
    recorder = EventRecorder(api.client(), "c")
    task = asyncio.create_task(recorder.run())
    recorder.event(POD, "Normal", "R", "m")
    await asyncio.sleep(60)
    assert len(api.list(EVENTS)) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
