"""The first process of a container ends when it is told to, from its beginning on, and once it is done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from virtplane.storage.cdi.importer.sizedetection import INVALID_PATH

pytestmark = [pytest.mark.host]

_HANGING_LIBRARY = """
import sys, time
sys.stdout.write("loading\\n")
sys.stdout.flush()
time.sleep(60)
"""


@pytest.mark.parametrize(
    "command",
    [
        "virtplane run virt-operator",
        "virtplane csi provisioner",
        "virtplane hostpath-driver",
        "virtplane hostpath-mounter",
        "virt-cdi-importer",
        "virt-cdi-uploadserver",
        "virt-cdi-cloner",
        "cdi-image-size-detection",
        "cdi-source-update-poller",
    ],
)
def test_a_program_that_is_still_being_loaded_ends_when_it_is_told_to(command: str, tmp_path: Path) -> None:
    """The kernel lets the first process of a container ignore SIGTERM as long as it has no handler."""
    for library in ("argparse", "asyncio", "logging"):
        (tmp_path / f"{library}.py").write_text(_HANGING_LIBRARY)
    program, *arguments = command.split()
    path = str(Path(sys.executable).with_name(program))
    start = ["unshare", "--pid", "--fork", "--kill-child", path, *arguments]
    with subprocess.Popen(
        start, env={"PATH": "/usr/bin:/usr/sbin", "PYTHONPATH": str(tmp_path)}, stdout=subprocess.PIPE
    ) as parent:
        try:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"loading\n"
            children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
            assert len(children) == 1
            os.kill(int(children[0]), signal.SIGTERM)
            assert parent.wait(20) == 128 + signal.SIGTERM
        finally:
            parent.kill()


def _ran(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = str(Path(sys.executable).with_name(program))
    given = {"PATH": "/usr/bin:/usr/sbin", **environment}
    command = [path, *arguments]
    return subprocess.run(command, env=given, capture_output=True, check=False, text=True, timeout=60)


def test_what_a_worker_says_last_and_how_it_ends_arrive(tmp_path: Path) -> None:
    """Its output goes into pipes, which Python fills only when it has much to say or ends."""
    failed = _ran("virt-cdi-importer", IMPORTER_IMAGE_SIZE="much")
    assert failed.returncode == 1
    assert "IMPORTER_IMAGE_SIZE is no number of bytes: 'much'" in failed.stderr
    missing = _ran("cdi-image-size-detection", "-image-path", str(tmp_path / "none"))
    assert missing.returncode == INVALID_PATH
    assert "there is no image" in missing.stderr
    asked = _ran("cdi-image-size-detection", "--help")
    assert (asked.returncode, asked.stdout[:6]) == (0, "usage:")


def test_a_worker_that_is_done_does_not_take_python_down(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import atexit, time; atexit.register(time.sleep, 600)")
    assert _ran("virt-cdi-importer", IMPORTER_IMAGE_SIZE="much", PYTHONPATH=str(tmp_path)).returncode == 1
