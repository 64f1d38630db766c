"""How the long-running processes start."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kindling.apiserver import main as api_server
from kindling.cluster import cli, components, instance, namespaces

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
    result = CliRunner().invoke(cli.main, ["apiserver", "--state", str(tmp_path)])
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
