"""The time that requests give themselves."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.support.apiserver import running_server, sample_definitions

from kindling.apiserver.http.deadlines import Deadlines
from kindling.apiserver.registry.admission import Admission, AdmissionAttributes
from kubecore import errors
from kubecore.resources import CONFIG_MAPS

MAPS = "/api/v1/namespaces/default/configmaps"


class _Slow(Admission):
    """Lets writes wait until it is told to go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def validate(self, attributes: AdmissionAttributes) -> None:
        await self.go_on.wait()


async def test_a_request_fails_after_the_time_it_asks_for_and_what_it_began_is_done(tmp_path: Path) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        slow = running.server.registry.chain = _Slow()
        body = {"metadata": {"name": "late"}}
        with pytest.raises(errors.StatusError, match="request did not complete within") as refused:
            await client.request("POST", MAPS, query={"timeout": "100ms"}, body=body)
        assert (refused.value.code, refused.value.reason) == (504, "Timeout")
        assert (await client.list(CONFIG_MAPS, "default"))["items"] == []
        slow.go_on.set()
        async with asyncio.timeout(30):
            async for event in client.watch(CONFIG_MAPS, "default"):
                assert event.object["metadata"]["name"] == "late"
                break
        await client.request("POST", MAPS, query={"timeout": "30s"}, body={"metadata": {"name": "soon"}})


async def test_a_time_that_cannot_be_understood_is_a_bad_request(tmp_path: Path) -> None:
    async with running_server(tmp_path, sample_definitions()) as running, running.client() as client:
        with pytest.raises(errors.StatusError) as refused:
            await client.request("GET", MAPS, query={"timeout": "soon"})
        assert refused.value.code == 400
        assert refused.value.message == (
            'invalid timeout specified in the request URL - time: invalid duration "soon"'
        )
        # A watch lasts as long as its timeoutSeconds say.
        query = {"timeout": "soon", "watch": "1", "timeoutSeconds": "1"}
        assert (await client.request("GET", MAPS, query=query)).status == 200


async def test_a_cancelled_request_takes_its_work_along() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    request = asyncio.create_task(Deadlines().within(30, work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    await asyncio.wait_for(ended.wait(), 1)
