"""How the long-running processes start."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kindling.apiserver import main as api_server
from kindling.cluster import commands, components, instance, namespaces

LOW = 512


class Started(Exception):
    """The process has come as far as its real work."""


@pytest.fixture
def few_files() -> Iterator[int]:
    """The hard limit, while the soft one is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def own_name() -> Iterator[Path]:
    """The file with this process's name, which has to be as before afterwards."""
    file = Path("/proc/self/comm")
    name = file.read_text()
    yield file
    file.write_text(name)


def test_the_api_server_may_open_as_many_files_as_the_system_grants(
    tmp_path: Path, few_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = []

    def serve(_arguments: object) -> int:
        limits.append(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        return 0

    made = instance.Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    monkeypatch.setattr(instance, "require", lambda _state: made)
    monkeypatch.setattr(api_server, "main", serve)
    result = CliRunner().invoke(commands.main, ["apiserver", "--state", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert limits == [few_files]


def test_a_node_agent_may_open_as_many_files_as_the_system_grants(
    tmp_path: Path, few_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enter(_node: object) -> None:
        raise Started

    made = instance.Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    monkeypatch.setattr(namespaces, "enter", enter)
    with pytest.raises(Started):
        components.run_node(made, "node01")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == few_files


def test_a_node_agent_is_called_as_what_it_stands_for(
    tmp_path: Path, own_name: Path, few_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enter(_node: object) -> None:
        raise Started

    made = instance.Instance(tmp_path, "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    monkeypatch.setattr(namespaces, "enter", enter)
    with pytest.raises(Started):
        components.run_node(made, "node01")
    assert own_name.read_text() == "kubelet\n"


@pytest.mark.parametrize(
    "words",
    [["apiserver"], ["controllers"], ["supervise"], ["run-node", "node01"]],
    ids=lambda given: given[0],
)
def test_a_process_of_no_cluster_says_so_as_commands_do_and_its_way_there_needs_no_commands(
    tmp_path: Path, words: list[str]
) -> None:
    program = "import sys; from kindling.cluster import cli; assert 'click' not in sys.modules; cli.main()"
    command = [sys.executable, "-c", program, *words, "--state", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    as_command = subprocess.run(
        [sys.executable, "-m", "kindling.cluster.cli", *words, f"--state={tmp_path}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (as_command.returncode, as_command.stderr)
    assert done.returncode != 0
    assert str(tmp_path) in done.stderr
