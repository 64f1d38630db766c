"""container-disk: what keeps an attachment pod up."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from virtplane.compute.launcher import containerdisk

_COMMAND = [sys.executable, "-S", containerdisk.__file__]
_ENVIRONMENT = {"PYTHONPATH": str(Path(containerdisk.__file__).parents[3])}


def test_it_listens_at_its_socket_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "hp.sock"
    command = [*_COMMAND, "--copy-path", str(tmp_path / "hp")]
    with subprocess.Popen(command, env=_ENVIRONMENT) as process:
        deadline = time.monotonic() + 30
        while not path.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
        process.terminate()
        assert process.wait(30) == 0
    assert not path.exists()


def test_without_work_it_ends_at_once(tmp_path: Path) -> None:
    command = [*_COMMAND, "--no-op", "--copy-path", str(tmp_path / "hp")]
    assert subprocess.run(command, env=_ENVIRONMENT, timeout=30, check=False).returncode == 0
    assert not list(tmp_path.iterdir())


def test_wrong_arguments_are_told_with_code_2() -> None:
    done = subprocess.run(_COMMAND, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "container-disk: --copy-path is missing\n")
