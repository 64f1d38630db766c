"""The importer as the process that a pod has, with its volumes in folders of a test."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PROGRAM = """
import sys
from pathlib import Path
from kubecore.logs import set_up_logging
from virtplane.storage.cdi.importer import http, main, remote_disk, settings
folder, pause = Path(sys.argv[1]), float(sys.argv[2])
http._PAUSE_SECONDS = remote_disk._PAUSE_SECONDS = pause
paths = settings.Paths(
    data=folder / "data",
    device=folder / "device",
    scratch=folder / "scratch",
    extra_headers=folder / "extraheaders",
    google=folder / "credentials.json",
    vddk=folder / "opt",
    vddk_arguments=folder / "vddk-args",
    termination=folder / "termination-log",
)
set_up_logging("importer", level=settings.log_level(sys.argv[3:]))
sys.exit(main.process(paths, 0))
"""


@dataclass
class ImporterProcess:
    """One run; the rest is known after its end."""

    folder: Path
    process: asyncio.subprocess.Process
    code: int = -1
    log: str = ""
    text: str = ""
    """The termination message."""
    peak_bytes: int = 0
    """The most memory that the process and what it has started had, without what files have in the cache."""
    seconds: float = 0.0
    _began: float = field(default_factory=lambda: asyncio.get_running_loop().time())

    @property
    def disk(self) -> Path:
        return self.folder / "data/disk.img"

    @property
    def message(self) -> str:
        """The message in the termination message."""
        return str(json.loads(self.text)["message"]) if self.text.startswith("{") else self.text

    async def ended(self, seconds: float = 60.0) -> ImporterProcess:
        """This run after its end."""
        async with asyncio.timeout(seconds):
            measuring = asyncio.create_task(self._measure())
            assert self.process.stderr is not None
            self.log = (await self.process.stderr.read()).decode()
            self.code = await self.process.wait()
            measuring.cancel()
        path = self.folder / "termination-log"
        self.text = path.read_text() if path.exists() else ""
        self.seconds = asyncio.get_running_loop().time() - self._began
        return self

    async def _measure(self) -> None:
        while True:
            self.peak_bytes = max(self.peak_bytes, sum(_own_memory(pid) for pid in _family(self.process.pid)))
            await asyncio.sleep(0.05)


@asynccontextmanager
async def importing(
    folder: Path, source: str, endpoint: str, *arguments: str, **environment: str
) -> AsyncIterator[ImporterProcess]:
    """The importer, running on volumes in `folder`, until the context ends.

    It tries again after ``PAUSE`` seconds (0.05).
    """
    (folder / "data").mkdir(exist_ok=True)
    (folder / "termination-log").unlink(missing_ok=True)
    variables = {
        **os.environ,
        "IMPORTER_SOURCE": source,
        "IMPORTER_ENDPOINT": endpoint,
        "IMPORTER_IMAGE_SIZE": str(64 << 20),
        **environment,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _PROGRAM,
        str(folder),
        environment.pop("PAUSE", "0.05"),
        *arguments,
        env=variables,
        stderr=asyncio.subprocess.PIPE,
        limit=8 << 20,
    )
    try:
        yield ImporterProcess(folder, process)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        await process.wait()


async def imported(
    folder: Path, source: str, endpoint: str, *arguments: str, **environment: str
) -> ImporterProcess:
    """A whole run."""
    async with importing(folder, source, endpoint, *arguments, **environment) as run:
        return await run.ended()


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    # Threads start processes, too.
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if task.name != str(pid):
                children += (task / "children").read_text().split()
    return [pid, *(each for child in children for each in _family(int(child)))]


def _own_memory(pid: int) -> int:
    """Bytes of memory of one process; pages that it shares count in part."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
