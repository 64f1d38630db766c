"""The program of the compact layout: the hostpath driver and its sidecars as one process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import until

from kubecore.wire import load_interface, unix

_COMMAND = (sys.executable, "-m", "virtplane.cli.main", "hostpath-csi")
_NAME = "driver.example"


@contextmanager
def _running(folder: Path, *, pools: str) -> Iterator[subprocess.Popen[str]]:
    sidecars = [
        "registrar",
        f"--csi-address={folder}/csi.sock",
        "--kubelet-registration-path=/k/csi.sock",
        f"--plugin-registration-path={folder}/registration",
    ]
    driver = [
        f"--drivername={_NAME}",
        f"--endpoint=unix://{folder}/csi.sock",
        "--nodeid=node1",
        "--version=v1",
        "--metrics-port=0",
        f"--datadir={pools}",
    ]
    command = [*_COMMAND, *sidecars, "--", *driver]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_one_process_serves_volumes_and_registers_them_and_ends_when_told(tmp_path: Path) -> None:
    (tmp_path / "registration").mkdir()
    (tmp_path / "pool").mkdir()
    registration = tmp_path / "registration" / f"{_NAME}-reg.sock"
    with _running(tmp_path, pools=f'[{{"name":"p","path":"{tmp_path}/pool"}}]') as process:
        await until(lambda: registration.exists() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        interface = load_interface("csi-v1")
        async with unix.channel_to(str(tmp_path / "csi.sock")) as channel:
            node = interface.stub(channel, "Node")
            asked = interface.methods["Node"]["NodeGetInfo"].request()
            assert (await node["NodeGetInfo"](asked, timeout=10)).node_id == "node1"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    assert not registration.exists()
    assert not (tmp_path / "csi.sock").exists()


def test_a_driver_that_cannot_be_set_up_ends_the_process(tmp_path: Path) -> None:
    with _running(tmp_path, pools="none") as process:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "failed to initialize driver" in errors
