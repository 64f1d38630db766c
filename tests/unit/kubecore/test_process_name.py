"""What processes are called."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubecore import process_name

PROGRAM = """
import sys
from pathlib import Path
from kubecore.process_name import name_process
name_process(sys.argv[1])
print(Path("/proc/self/comm").read_text(), end="")
"""


def _named(name: str) -> str:
    command = [sys.executable, "-c", PROGRAM, name]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("virt-handler", "virt-handler"), ("kube-controller-manager", "kube-controller")],
)
def test_a_process_is_called_what_it_was_named_as_far_as_the_kernel_keeps_it(name: str, shown: str) -> None:
    assert _named(name) == shown


def test_a_process_that_may_not_be_named_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process_name, "_NAME", tmp_path / "none" / "comm")
    process_name.name_process("virt-handler")
