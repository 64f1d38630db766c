"""State directories: which are taken, and what of them is removed."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from kindling import program
from kindling.cluster import bringup, commands, machine, namespaces, processes, state_directory, supervisor
from kindling.cluster import instance as instances
from kindling.cluster.errors import ExitCode, SetupError
from kubecore import mountinfo


@pytest.fixture(autouse=True)
def _registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's list of instances, of this test alone."""
    monkeypatch.setattr(instances, "REGISTRY", tmp_path / "registry")


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(commands.main, [str(argument) for argument in arguments])
    assert not isinstance(done.exception, Exception), done.output
    return done.exit_code, done.output


def test_a_new_or_empty_directory_is_taken(tmp_path: Path) -> None:
    state_directory.make_directory(tmp_path / "a/b")
    state_directory.make_directory(tmp_path / "a/b")
    (tmp_path / "a/b/lost+found").mkdir()
    state_directory.make_directory(tmp_path / "a/b")


def test_a_directory_with_other_things_is_not_taken(tmp_path: Path) -> None:
    for name in ("alice", "bob", "images", "logs"):
        (tmp_path / name).mkdir()
    with pytest.raises(SetupError, match="alice, bob, images and 1 more") as caught:
        state_directory.make_directory(tmp_path)
    assert caught.value.code is ExitCode.UNUSABLE


def test_images_that_were_built_before_are_no_other_things(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    with pytest.raises(SetupError, match="images"):
        state_directory.make_directory(tmp_path)
    (tmp_path / "images/CACHEDIR.TAG").touch()
    state_directory.make_directory(tmp_path)
    (tmp_path / "alice").mkdir()
    with pytest.raises(SetupError, match="alice, and no cluster"):
        state_directory.make_directory(tmp_path)


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    for state in (Path("/proc/no-such-directory"), tmp_path / "file/below"):
        (tmp_path / "file").touch()
        with pytest.raises(SetupError, match=str(state)) as caught:
            state_directory.make_directory(state)
        assert caught.value.code is ExitCode.UNUSABLE


def test_reset_refuses_a_directory_without_a_cluster(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "alice").mkdir(parents=True)
    code, output = invoke("reset", "--state", home)
    assert code == ExitCode.UNUSABLE
    assert "holds no cluster" in output
    assert (home / "alice").is_dir()


def test_reset_without_a_directory_says_that_nothing_is_there(tmp_path: Path) -> None:
    code, output = invoke("reset", "--state", tmp_path / "none")
    assert (code, output) == (0, f"{tmp_path}/none: there is no cluster, nothing to remove\n")


def test_only_what_a_cluster_made_is_removed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for name in ("nodes/node01/kubelet", "pki", "pki.replaced-1", "logs", "images"):
        (state / name).mkdir(parents=True)
    for name in ("instance.json", "apiserver.db", "apiserver.db-wal", "apiserver.db.replaced-1-wal", "token"):
        (state / name).touch()
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (state / "kubeconfig").symlink_to(outside)
    (state / "backup").touch()
    assert state_directory.remove(state) == ["backup"]
    assert [path.name for path in state.iterdir()] == ["backup"]
    assert (outside / "kept").exists()
    (state / "backup").unlink()
    assert state_directory.remove(state) == []
    assert not state.exists()


def test_nothing_is_removed_below_a_mount_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes/node01").mkdir(parents=True)
    (tmp_path / "instance.json").touch()
    monkeypatch.setattr(mountinfo, "mount_points", lambda: [tmp_path / "nodes/node01"])
    with pytest.raises(SetupError, match="is a mount point"):
        state_directory.remove(tmp_path)
    assert (tmp_path / "instance.json").exists() and (tmp_path / "nodes/node01").exists()


@pytest.mark.parametrize("command", ["up", "status", "reset"])
def test_a_file_is_no_state_directory(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(program.VARIABLE, "./virtplane")
    monkeypatch.setattr(machine, "check_machine", lambda: None)
    (tmp_path / "file").touch()
    code, output = invoke(command, "--state", tmp_path / "file")
    assert code in (ExitCode.FAILED, ExitCode.UNUSABLE)
    assert "./virtplane: " in output and "kindling" not in output


def test_taking_a_node_away_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    instances.Instance(state, instances.instance_id(state), "10.70.0.0/16", 6443, ("node01", "node02")).save()
    monkeypatch.setattr(bringup, "_check_still_free", lambda *_: None)
    with pytest.raises(SetupError, match="has 2 nodes") as caught:
        bringup._load_or_create(bringup.UpOptions(state, nodes=1))
    assert caught.value.code is ExitCode.UNUSABLE
    assert bringup._load_or_create(bringup.UpOptions(state)).node_names == ("node01", "node02")
    assert bringup._load_or_create(bringup.UpOptions(state, nodes=3)).node_names == (
        "node01",
        "node02",
        "node03",
    )


def test_a_new_cluster_is_refused_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(SetupError, match=f"port {port}: another program listens on it"):
            bringup._load_or_create(bringup.UpOptions(tmp_path / "state", api_port=port))
    assert instances.load(tmp_path / "state") is None


@pytest.mark.parametrize("command", ["down", "status", "kubeconfig", "logs"])
def test_hints_name_the_program_that_the_user_runs(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(program.VARIABLE, "./virtplane")
    code, output = invoke(command, "--state", tmp_path)
    assert code == ExitCode.FAILED
    assert output == (
        f"./virtplane: cluster in {tmp_path}: there is none\nWhat to do: ./virtplane up --state {tmp_path}\n"
    )


def test_the_status_is_not_told_wrongly_to_those_who_may_not_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    instances.Instance(state, instances.instance_id(state), "10.70.0.0/16", 6443, ("node01",)).save()
    monkeypatch.setattr(os, "access", lambda *_: False)
    code, output = invoke("status", "--state", state)
    assert code == ExitCode.NOT_PERMITTED
    assert f"'{state}/pki'" in output and output.endswith("What to do: run this as root, or with sudo\n")
    assert "not running" not in output


def test_starting_without_root_ends_with_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert invoke("up", "--state", tmp_path)[0] == ExitCode.NOT_PERMITTED


def test_loading_into_a_stopped_cluster_names_the_way_to_start_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    instances.Instance(state, instances.instance_id(state), "10.70.0.0/16", 6443, ("node01",)).save()
    assert not namespaces.exists(instances.require(state).node("node01"))
    assert supervisor.find_children("ffffffff", processes.specs(instances.require(state))) == {}
    archive = tmp_path / "image.tar"
    archive.touch()
    code, output = invoke("load", "--state", state, archive)
    assert code == ExitCode.FAILED
    assert f"kindling up --state {state}" in output
