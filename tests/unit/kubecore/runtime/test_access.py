"""Who may read metrics, by an API server's reviews."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import orjson
import pytest
from aiohttp import ClientSession
from prometheus_client import CollectorRegistry, Counter

from kubecore import errors
from kubecore.client import Request, Response
from kubecore.errors import StatusError
from kubecore.json import JsonObject
from kubecore.runtime import Health, serve_health
from kubecore.runtime.access import TokenAccess
from kubecore.testing import MemoryApi

_USERS: Mapping[str, JsonObject] = {
    "good": {"username": "prometheus", "groups": ["g"], "extra": {"e": ["1"]}, "uid": "u"},
    "other": {"username": "tenant"},
}


class Reviews:
    """Answers reviews: `good` is a reader's token, `other` a tenant's."""

    def __init__(self) -> None:
        self.api = MemoryApi()
        self.api.reactions.append(self._answer)
        self.fails = False
        self.asked: list[JsonObject] = []

    def _answer(self, request: Request) -> Response | StatusError | None:
        if self.fails:
            return errors.service_unavailable("no quorum")
        spec = orjson.loads(request.body or b"{}")["spec"]
        self.asked.append(spec)
        if request.path.endswith("/tokenreviews"):
            user = _USERS.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else {"authenticated": False}
        else:
            status = {"allowed": spec["user"] == "prometheus"}
        return Response(201, {"content-type": "application/json"}, orjson.dumps({"status": status}))


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer good", 200),
        ("bearer  good ", 200),
        ("Bearer other", 403),
        ("Bearer bad", 401),
        ("Bearer", 401),
        ("Bearer ", 401),
        ("Basic good", 401),
        ("good", 401),
        ("", 401),
    ],
)
async def test_a_reader_needs_a_token_and_the_right(authorization: str, status: int) -> None:
    reviews = Reviews()
    async with reviews.api.client() as client:
        assert await TokenAccess(client).status(authorization, "/metrics") == status
    if status == 200:
        assert reviews.asked[1] == {
            "user": "prometheus",
            "groups": ["g"],
            "extra": {"e": ["1"]},
            "uid": "u",
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }


async def test_a_reader_is_remembered_for_a_short_while_and_a_stranger_not_at_all() -> None:
    reviews, clock = Reviews(), [0.0]
    async with reviews.api.client() as client:
        access = TokenAccess(client, lambda: clock[0])
        for _ in range(3):
            assert await access.status("Bearer good", "/metrics") == 200
        assert len(reviews.asked) == 2
        clock[0] = 11.0
        assert await access.status("Bearer good", "/metrics") == 200
        assert len(reviews.asked) == 4
        for _ in range(2):
            assert await access.status("Bearer other", "/metrics") == 403
        assert len(reviews.asked) == 8


async def test_nobody_reads_while_the_api_server_cannot_tell() -> None:
    reviews = Reviews()
    reviews.fails = True
    async with reviews.api.client() as client:
        assert await TokenAccess(client).status("Bearer good", "/metrics") == 503


async def test_a_crowd_of_strangers_is_told_to_come_again() -> None:
    reviews = Reviews()
    async with reviews.api.client() as client:
        access = TokenAccess(client)
        tokens = [f"Bearer invented-{number}" for number in range(1000)]
        statuses = await asyncio.gather(*(access.status(token, "/metrics") for token in tokens))
        assert set(statuses) == {401, 429}
        assert len(reviews.asked) == statuses.count(401) < 100
        assert await access.status("Bearer good", "/metrics") == 200


async def test_metrics_are_for_readers_and_health_for_everybody() -> None:
    registry, reviews = CollectorRegistry(), Reviews()
    Counter("things", "Things", registry=registry).inc()
    async with reviews.api.client() as client:
        access = TokenAccess(client).status
        serving = serve_health(Health(), 0, host="127.0.0.1", registry=registry, metrics_access=access)
        async with serving as port, ClientSession(f"http://127.0.0.1:{port}") as session:

            async def get(path: str, token: str = "") -> tuple[int, str]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(path, headers=headers) as answer:
                    return answer.status, await answer.text()

            answers = await asyncio.gather(*(get("/metrics", token) for token in ("", "bad", "other")))
            assert answers == [(401, "Unauthorized"), (401, "Unauthorized"), (403, "Forbidden")]
            status, text = await get("/metrics", "good")
            assert (status, "things_total 1.0" in text) == (200, True)
            for path in ("/healthz", "/readyz", "/livez"):
                assert (await get(path))[0] == 200
