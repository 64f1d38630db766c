"""The launcher as a real process, without a guest.

Nothing here is measured by the clock, which says little on a busy machine: where something has to happen by
itself, what would bring it about later is put off for longer than a test may take.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.waiting import until

from virtplane.compute.handler.launchers import control
from virtplane.compute.handler.launchers.control import LauncherGone, LauncherNotReady, connect
from virtplane.compute.launcher.probe import report
from virtplane.compute.launcher.settings import paused_probes


def ignore(_: object) -> None:
    """Nothing is expected."""


NEVER = 3600
"""Seconds: longer than a test may take."""

SOURCES = Path(__file__).parents[5] / "src"


@pytest.fixture
def flags() -> tuple[str, ...]:
    """Further flags of the launcher."""
    return ()


@pytest.fixture
async def process(tmp_path: Path, flags: tuple[str, ...]) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-S", "-m", "virtplane.compute.launcher.main", "--name", "vm", "--uid", "u"]
    command += ["--namespace", "ns", "--kubevirt-share-dir", str(tmp_path / "share")]
    command += ["--private-dir", str(tmp_path / "private"), "--runtime-dir", str(tmp_path / "run")]
    command += ["--grace-period-seconds", str(NEVER), *flags]
    started = await asyncio.create_subprocess_exec(
        *command, env={"PYTHONPATH": str(SOURCES), "PATH": "/usr/bin"}
    )

    def is_listening() -> bool:
        assert started.returncode is None, "the launcher ended before it opened its socket"
        return (tmp_path / "share/sockets/launcher-sock").exists()

    await until(is_listening)
    yield started
    if started.returncode is None:
        started.kill()
    await started.wait()


async def test_socket_appears_and_names_the_process(
    process: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, ignore)
    assert link.process.pid == process.pid
    assert (await link.request("ping"))["libvirt"] is None
    await link.close()


async def test_exit_command_ends_the_launcher_with_the_code(
    process: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    ended = asyncio.Event()
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, lambda _: ended.set())
    await link.request("exit", code=3)
    assert await process.wait() == 3
    await ended.wait()


async def test_killed_launcher_is_noticed_at_once(
    process: asyncio.subprocess.Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for deadline in ("ANSWER_SECONDS", "_ENDING_SECONDS"):
        monkeypatch.setattr(control, deadline, NEVER)
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, told.set_result)
    process.send_signal(signal.SIGKILL)
    assert await told is True
    with pytest.raises(LauncherGone):
        await link.request("ping")
    await process.wait()  # the kernel closes connections first, the listening socket after them
    with pytest.raises(LauncherGone):
        await connect(tmp_path / "share/sockets/launcher-sock", ignore, ignore)


async def test_unknown_command_is_refused(process: asyncio.subprocess.Process, tmp_path: Path) -> None:
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, ignore)
    with pytest.raises(ValueError, match="unknown command"):
        await link.request("dance")
    await link.close()


async def test_termination_without_guest_ends_at_once(process: asyncio.subprocess.Process) -> None:
    process.terminate()
    assert await process.wait() == 0


async def test_missing_socket_means_not_ready(tmp_path: Path) -> None:
    with pytest.raises(LauncherNotReady):
        await connect(tmp_path / "launcher-sock", ignore, ignore)


async def test_launcher_needs_only_the_standard_library() -> None:
    code = (
        "import sys, virtplane.compute.launcher.main;"
        "print([n for n in sys.modules if n.split('.')[0] not in sys.stdlib_module_names | {'virtplane'}])"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-S",
        "-c",
        code,
        env={"PYTHONPATH": str(SOURCES)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert output.strip() == b"['__main__']"


async def test_launcher_leaves_out_what_would_cost_every_guest_megabytes() -> None:
    heavy = "{'argparse', 'dataclasses', 'inspect', 'ipaddress', 'pathlib', 'shutil', 'typing', 'uuid'}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-S", "-c"),
        f"import sys, virtplane.compute.launcher.main; print({heavy} & set(sys.modules))",
        env={"PYTHONPATH": str(SOURCES)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert output.strip() == b"set()"


async def test_the_serial_console_is_logged_beside_its_pipe(
    process: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    folder = tmp_path / "private/u"
    with (folder / "virt-serial0-log").open("ab", buffering=0) as console:
        console.write(b"login: ")
    log = folder / "virt-serial0.log"
    await until(lambda: log.exists() and log.read_bytes() == b"login: ")
    assert process.returncode is None


async def test_a_launcher_that_is_to_crash_ends_at_once_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-S", "-m", "virtplane.compute.launcher.main", "--name", "vm", "--uid", "u"]
    command += ["--namespace", "ns", "--kubevirt-share-dir", str(tmp_path / "share"), "--simulate-crash"]
    started = await asyncio.create_subprocess_exec(
        *command, env={"PYTHONPATH": str(SOURCES), "PATH": "/usr/bin"}, stderr=asyncio.subprocess.PIPE
    )
    _, told = await started.communicate()
    assert started.returncode == 1
    assert b"--simulate-crash" in told
    assert not (tmp_path / "share").exists()


async def test_probes_are_paused_and_count_again(process: asyncio.subprocess.Process, tmp_path: Path) -> None:
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, ignore)
    file = Path(paused_probes(str(tmp_path / "run/libvirt/libvirt-sock")))
    for paused in (False, True, True, False):
        await link.request("pause-probes", paused=paused)
        assert file.exists() == paused
    await link.close()


async def test_a_failed_ping_is_passed_on(process: asyncio.subprocess.Process, tmp_path: Path) -> None:
    socket = tmp_path / "share/sockets/launcher-sock"
    told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    link = await connect(socket, told.set_result, ignore)
    await asyncio.to_thread(report, str(socket))
    assert await told == {"event": "ping-failed"}
    await link.close()


def test_a_ping_that_nobody_is_told_of_only_fails(tmp_path: Path) -> None:
    report(str(tmp_path / "nobody"))


async def refuses(path: Path) -> None:
    """Wait until the launcher has ended for virt-handler."""

    async def is_gone() -> bool:
        try:
            link = await connect(path, ignore, ignore)
        except LauncherGone:
            return True
        await link.close()
        return False

    await until(is_gone)


@pytest.mark.parametrize("flags", [("--keep-after-failure",), ("--keep-after-failure", "--simulate-crash")])
async def test_a_failed_guests_container_stays_until_its_pod_is_deleted(
    process: asyncio.subprocess.Process, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    socket = tmp_path / "share/sockets/launcher-sock"
    if "--simulate-crash" not in flags:
        link = await connect(socket, ignore, ignore)
        await link.request("exit", code=1)
        await link.close()
    await refuses(socket)
    assert process.returncode is None
    process.terminate()
    assert await process.wait() == 1


@pytest.mark.parametrize("flags", [("--keep-after-failure",)])
async def test_the_container_of_a_guest_that_has_shut_down_does_not_stay(
    process: asyncio.subprocess.Process, tmp_path: Path
) -> None:
    link = await connect(tmp_path / "share/sockets/launcher-sock", ignore, ignore)
    await link.request("exit", code=0)
    assert await process.wait() == 0
