"""The first process of a container ends when it is told to, from its beginning on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
