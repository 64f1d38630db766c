"""How far a worker is, read from the metrics that the importer really serves."""

from __future__ import annotations

import pytest

from virtplane.storage.cdi.controller.progress import ScrapedProgress, parsed
from virtplane.storage.cdi.importer.progress import Progress, served

METRIC = "kubevirt_cdi_import_progress_total"


async def test_progress_of_the_owner_is_read() -> None:
    running = Progress("uid-1")
    running.tell(12.345)
    async with served(running, port=0) as port:
        scraper = ScrapedProgress(port=port, timeout_seconds=30.0)
        assert await scraper.percent("127.0.0.1", "uid-1") in ("12.34%", "12.35%")
        assert await scraper.percent("127.0.0.1", "uid-2") is None


async def test_worker_that_does_not_answer_has_no_progress() -> None:
    assert await ScrapedProgress(port=1).percent("127.0.0.1", "uid-1") is None


@pytest.mark.parametrize(
    ("text", "percent"),
    [
        (f'{METRIC}{{ownerUID="u"}} 5\n', "5.00%"),
        (f'{METRIC}{{ownerUID="u"}} 1e3\n', "100.00%"),
        (f'{METRIC}{{ownerUID="u"}} NaN\n', None),
        (f'{METRIC}{{ownerUID="uu"}} 5\n', None),
        (f'{METRIC}{{ownerUID="u"}} {"9" * 400}\n', None),
        ("", None),
    ],
)
def test_only_numbers_are_progress(text: str, percent: str | None) -> None:
    assert parsed(text, METRIC, "u") == percent
