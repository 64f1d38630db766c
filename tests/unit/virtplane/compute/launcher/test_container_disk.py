"""container-disk: what keeps an attachment pod up."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from virtplane.compute.launcher import containerdisk

_COMMAND = [sys.executable, "-S", containerdisk.__file__]
_ENVIRONMENT = {"PYTHONPATH": str(Path(containerdisk.__file__).parents[3])}


def test_it_listens_at_its_socket_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "hp.sock"
    command = [*_COMMAND, "--copy-path", str(tmp_path / "hp")]
    with subprocess.Popen(command, env=_ENVIRONMENT) as process:
        with socket.socket(socket.AF_UNIX) as client:
            while client.connect_ex(str(path)) != 0:
                assert process.poll() is None, "it ended before it listened"
                time.sleep(0.01)
        process.terminate()
        assert process.wait() == 0
    assert not path.exists()


def test_without_work_it_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["container-disk", "--no-op", "--copy-path", str(tmp_path / "hp")])
    monkeypatch.setattr(containerdisk, "hold", lambda path: pytest.fail(f"it holds {path}"))
    assert containerdisk.main() == 0


def test_wrong_arguments_are_told_with_code_2() -> None:
    done = subprocess.run(_COMMAND, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "container-disk: --copy-path is missing\n")
