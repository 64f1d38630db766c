"""Backups of clusters: what they hold, when they are refused, and who is still known after a restore."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from tests.support.apiserver import sample_definitions

from kindling.apiserver.app import ApiServer
from kindling.apiserver.main import parser, settings_of
from kindling.cluster import (
    backups,
    bringup,
    certificates,
    commands,
    kubeconfigs,
    processes,
    readiness,
    supervision,
    supervisor,
)
from kindling.cluster import instance as instances
from kindling.cluster.errors import ExitCode, SetupError
from kindling.cluster.instance import Instance
from kubecore import errors
from kubecore.client import Client, load_kubeconfig
from kubecore.resources import CONFIG_MAPS


@pytest.fixture(autouse=True)
def _registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's list of instances, of this test alone."""
    monkeypatch.setattr(instances, "REGISTRY", tmp_path / "registry")


def made(state: Path, port: int, subnet: str = "127.77.0.0/16") -> Instance:
    """A cluster that was brought up once, without its nodes. Its bridge's address is a loopback one."""
    state.mkdir(parents=True)
    cluster = Instance(state, instances.instance_id(state), subnet, port, ("node01",))
    cluster.save()
    certificates.ensure(cluster)
    kubeconfigs.ensure(cluster)
    return cluster


@asynccontextmanager
async def served(cluster: Instance) -> AsyncIterator[Client]:
    """The cluster's API server, and the administrator's client by the kubeconfig."""
    arguments = processes.api_server_arguments(cluster)
    server = ApiServer(settings_of(parser().parse_args(arguments)), sample_definitions())
    await server.start()
    try:
        async with Client(load_kubeconfig(cluster.kubeconfig)) as client:
            yield client
    finally:
        await server.stop()


def invoke(*arguments: str) -> tuple[int, str]:
    """Exit code and output of the command line."""
    done = CliRunner().invoke(commands.main, list(arguments))
    return done.exit_code, done.output


async def test_a_restored_cluster_has_the_objects_and_accepts_earlier_kubeconfigs(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    cluster, file = made(tmp_path / "state", unused_tcp_port), tmp_path / "backup"
    async with served(cluster) as client:
        await client.create(CONFIG_MAPS, {"metadata": {"name": "kept"}, "data": {"k": "v"}}, "default")
        code, output = await asyncio.to_thread(invoke, "backup", "--state", str(cluster.state), str(file))
        assert code == 0, output
        assert f"{file}: " in output
        await client.create(CONFIG_MAPS, {"metadata": {"name": "lost"}}, "default")
        seen = (await client.list(CONFIG_MAPS, "default"))["metadata"]["resourceVersion"]
        code, output = await asyncio.to_thread(invoke, "restore", "--state", str(cluster.state), str(file))
        assert code == 1
        assert "in use by another API server" in output

    old_kubeconfig = cluster.kubeconfig.read_bytes()
    for state in (cluster.state, tmp_path / "elsewhere"):
        code, output = invoke("restore", "--state", str(state), str(file))
        assert code == 0, output
        assert "so that every client lists again" in output
        again = instances.require(state)
        assert (again.subnet, again.api_port, again.state) == (cluster.subnet, cluster.api_port, state)
        assert again.id == instances.instance_id(state)
        assert (again.pki / "ca.key").stat().st_mode & 0o777 == 0o600
        assert again.pki.stat().st_mode & 0o777 == 0o700
        again.kubeconfig.write_bytes(old_kubeconfig)
        async with served(again) as client:
            found = await client.get(CONFIG_MAPS, "kept", "default")
            assert found["data"] == {"k": "v"}
            with pytest.raises(errors.StatusError, match="not found"):
                await client.get(CONFIG_MAPS, "lost", "default")
            with pytest.raises(errors.StatusError, match="too old resource version") as caught:
                async for _ in client.watch(CONFIG_MAPS, "default", resource_version=seen):
                    break
            assert caught.value.code == 410


async def test_other_keys_are_kept_aside_and_the_backups_addresses_return(tmp_path: Path) -> None:
    first, file = made(tmp_path / "first", 7001), tmp_path / "backup"
    server = ApiServer(settings_of(parser().parse_args([f"--storage={first.state}/apiserver.db"])), [])
    server.store.open()
    await server.store.close()
    backups.take(first, file)
    second = made(tmp_path / "second", 7002, "127.78.0.0/16")
    theirs = (second.pki / "ca.key").read_bytes()
    outcome = backups.restore(second.state, file)
    assert outcome.keys_replaced
    assert (second.pki / "ca.key").read_bytes() == (first.pki / "ca.key").read_bytes()
    (aside,) = second.state.glob("pki.replaced-*")
    assert (aside / "ca.key").read_bytes() == theirs
    again = instances.require(second.state)
    assert (again.subnet, again.api_port, again.id) == (first.subnet, 7001, second.id)
    assert not backups.restore(second.state, file).keys_replaced


def test_a_restore_is_refused_while_the_cluster_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = made(tmp_path / "state", 7001)
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: 1)
    with pytest.raises(SetupError, match="runs") as caught:
        backups.restore(cluster.state, tmp_path / "backup")
    assert caught.value.remedy == f"kindling down --state {cluster.state}"
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: 0)
    monkeypatch.setattr(supervisor, "find_children", lambda *_: {"apiserver": 1})
    with pytest.raises(SetupError, match="runs"):
        backups.restore(cluster.state, tmp_path / "backup")


def test_without_a_cluster_or_a_backup_nothing_is_made(tmp_path: Path) -> None:
    code, output = invoke("backup", "--state", str(tmp_path / "none"), str(tmp_path / "backup"))
    assert code == ExitCode.FAILED
    code, output = invoke("restore", "--state", str(tmp_path / "none"), str(tmp_path / "backup"))
    assert code == 1
    assert "there is no backup" in output
    assert list(tmp_path.iterdir()) == []


def test_the_reason_why_the_server_refuses_to_start_reaches_the_user(tmp_path: Path) -> None:
    log = tmp_path / "apiserver.log"
    assert readiness.refusal(log, 0) == ""
    record = orjson.dumps({"msg": "Storage cannot be used", "err": "it is corrupt"}) + b"\n"
    log.write_bytes(record)
    assert readiness.refusal(log, 0) == "it is corrupt"
    assert readiness.refusal(log, len(record)) == ""  # of an earlier attempt
    log.write_bytes(record + orjson.dumps({"msg": "Serving"}) + b"\n")
    assert readiness.refusal(log, 0) == ""


def test_the_status_tells_why_the_server_refuses_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = made(tmp_path / "state", 7001)
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: 1)
    cluster.logs.mkdir()
    record = {"msg": "Storage cannot be used", "err": "it is corrupt"}
    (cluster.logs / "apiserver.log").write_bytes(orjson.dumps(record) + b"\n")
    code, output = invoke("status", "--state", str(cluster.state))
    assert code == ExitCode.FAILED
    assert output.endswith(
        "not ready: waiting for the API server\nthe API server does not start: it is corrupt\n"
    )


def test_a_port_that_was_taken_meanwhile_can_be_exchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = made(tmp_path / "state", 7001)
    monkeypatch.setattr(instances, "is_port_free", lambda port: port != 7001)
    with pytest.raises(SetupError, match="another program listens") as caught:
        bringup._load_or_create(bringup.UpOptions(cluster.state))
    assert caught.value.remedy.endswith(f"kindling up --state {cluster.state} --port NUMBER")
    settled = bringup._load_or_create(bringup.UpOptions(cluster.state, api_port=7002))
    assert (settled.api_port, settled.subnet) == (7002, cluster.subnet)
    assert bringup._load_or_create(bringup.UpOptions(cluster.state)).api_port == 7002
    monkeypatch.setattr(supervision, "supervisor_pid", lambda _: 1)
    with pytest.raises(SetupError, match="runs with port 7002"):
        bringup._load_or_create(bringup.UpOptions(cluster.state, api_port=7003))
