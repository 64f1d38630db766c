"""How far a worker is, read from the metrics that the importer really serves."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from tests.support.waiting import until
from tests.support.web import serve_app

from kubecore.self_signed import self_signed_tls
from virtplane.storage.cdi.controller.progress import ScrapedProgress, parsed
from virtplane.storage.cdi.importer.progress import Progress, served, served_from

METRIC = "kubevirt_cdi_import_progress_total"


async def test_progress_of_the_owner_is_read() -> None:
    running = Progress("uid-1")
    running.tell(12.345)
    async with served(running, port=0) as port:
        scraper = ScrapedProgress(port=port, timeout_seconds=30.0, patience_seconds=30.0)
        assert await scraper.percent("127.0.0.1", "uid-1") in ("12.34%", "12.35%")
        assert await scraper.percent("127.0.0.1", "uid-2") is None


async def test_progress_can_be_asked_for_once_an_import_has_lasted_a_moment() -> None:
    running, port = Progress('u"1\\'), _free_port()
    running.tell(50.0)
    running.tell(20.0)
    assert f'{METRIC}{{ownerUID="u\\"1\\\\"}} 50.0\n' in running.text().decode()
    async with served_from(0.01, running, port), asyncio.timeout(30.0):
        scraper = ScrapedProgress(port=port, timeout_seconds=30.0, patience_seconds=30.0, valid_seconds=0.0)
        while await scraper.percent("127.0.0.1", 'u\\"1\\\\') is None:
            pass
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_import_goes_on_where_its_progress_cannot_be_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served(Progress("u"), port=0) as taken, served_from(0.0, Progress("u"), taken):
        await until(lambda: "nobody can ask how far this is" in caplog.text)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def answering(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> AsyncIterator[int]:
    """Something in the place of a worker; its port."""
    application = web.Application()
    application.router.add_get("/metrics", answer)
    async with serve_app(application, self_signed_tls("worker")) as port:
        yield port


async def test_worker_that_is_slow_holds_nobody_up_and_is_heard_later() -> None:
    go_on, asked = asyncio.Event(), 0

    async def slow(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await go_on.wait()
        return web.Response(text=f'{METRIC}{{ownerUID="u"}} 5\n')

    async with answering(slow) as port:
        scraper = ScrapedProgress(port=port, timeout_seconds=30.0, patience_seconds=0.01)
        assert await scraper.percent("127.0.0.1", "u") is None
        assert await scraper.percent("127.0.0.1", "u") is None
        go_on.set()
        async with asyncio.timeout(30.0):
            while (found := await scraper.percent("127.0.0.1", "u")) is None:
                pass
        assert (found, asked) == ("5.00%", 1)


async def test_worker_is_not_asked_again_while_its_answer_is_new() -> None:
    asked = 0

    async def answer(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(text=f'{METRIC}{{ownerUID="u"}} {asked}\n')

    async with answering(answer) as port:
        scraper = ScrapedProgress(port=port, patience_seconds=30.0, valid_seconds=3600.0)
        assert [await scraper.percent("127.0.0.1", "u") for _ in range(3)] == ["1.00%"] * 3
        brief = ScrapedProgress(port=port, patience_seconds=30.0, valid_seconds=0.0)
        assert await brief.percent("127.0.0.1", "u") == "2.00%"
        is_old = asyncio.Event()
        asyncio.get_running_loop().call_soon(is_old.set)
        await is_old.wait()
        assert await brief.percent("127.0.0.1", "u") == "3.00%"


async def test_what_a_worker_sends_is_bounded() -> None:
    async def bomb(_: web.Request) -> web.Response:
        body = gzip.compress(f'{METRIC}{{ownerUID="u"}} 5\n'.encode() * 100_000)
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    async def behind_much(_: web.Request) -> web.Response:
        return web.Response(text="#" * (1 << 20) + f'\n{METRIC}{{ownerUID="u"}} 5\n')

    for answer in (bomb, behind_much):
        async with answering(answer) as port:
            scraper = ScrapedProgress(port=port, timeout_seconds=30.0, patience_seconds=30.0)
            assert await scraper.percent("127.0.0.1", "u") is None


def test_time_to_read_metrics_grows_with_their_length_only() -> None:
    uid = "0f2a1c9e-1111-2222-3333-444455556666"
    began = time.process_time()
    assert parsed(METRIC + "{" + f'ownerUID="{uid}"' * 20_000 + "\n", METRIC, uid) is None
    assert time.process_time() - began < 1.0  # it takes milliseconds; growing as a square, a minute


async def test_worker_that_does_not_answer_has_no_progress() -> None:
    scraper = ScrapedProgress(port=1, patience_seconds=30.0)
    assert await scraper.percent("127.0.0.1", "uid-1") is None


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        (f'{METRIC}{{ownerUID="u"}} 5\n', "5.00%"),
        (f'{METRIC}{{ownerUID="u"}} 1e3\n', "100.00%"),
        (f'{METRIC}{{ownerUID="u"}} NaN\n', None),
        (f'{METRIC}{{ownerUID="uu"}} 5\n', None),
        (f'other{{ownerUID="u"}} 5\n# a comment\n{METRIC}{{a="b",ownerUID="u"}} 6\n', "6.00%"),
        (f'{METRIC}{{ownerUID="u"}} {"9" * 400}\n', None),
        ("", None),
    ],
)
def test_only_numbers_are_progress(text: str, percent: str | None) -> None:
    assert parsed(text, METRIC, "u") == percent
