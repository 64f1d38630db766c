"""Adding a cluster to its administrator's kubeconfig, and taking it out again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from kindling.cluster import certificates, kubeconfig_merge, kubeconfigs
from kindling.cluster.errors import SetupError
from kindling.cluster.instance import Instance

_OTHER = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "clusters": [{"name": "work", "cluster": {"server": "https://work.example"}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
    "current-context": "work",
}


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    made = Instance(tmp_path / "state", "0a0b0c0d", "10.70.0.0/16", 6443, ("node01",))
    made.state.mkdir()
    certificates.ensure(made)
    kubeconfigs.ensure(made)
    return made


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home/.kube/config"
    monkeypatch.setenv("KUBECONFIG", f"{path}{os.pathsep}/nowhere/else")
    monkeypatch.delenv("SUDO_UID", raising=False)
    return path


def _names(path: Path) -> dict[str, list[str]]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return {part: [item["name"] for item in document[part]] for part in ("clusters", "users", "contexts")}


def test_a_kubeconfig_keeps_its_entries_and_the_cluster_becomes_the_current_one(
    instance: Instance, own: Path
) -> None:
    own.parent.mkdir(parents=True)
    own.write_text(yaml.safe_dump(_OTHER))
    for _ in range(2):
        assert kubeconfig_merge.merge(instance) == own
    assert _names(own) == {
        "clusters": ["work", "kindling-0a0b0c0d"],
        "users": ["me", "kindling-0a0b0c0d-admin"],
        "contexts": ["work", "kindling-0a0b0c0d"],
    }
    document = yaml.safe_load(own.read_text())
    assert document["current-context"] == "kindling-0a0b0c0d"
    assert document["preferences"] == {"colors": True}
    assert own.stat().st_mode & 0o777 == 0o600


def test_what_was_merged_can_be_taken_out_again(instance: Instance, own: Path) -> None:
    own.parent.mkdir(parents=True)
    own.write_text(yaml.safe_dump(_OTHER))
    kubeconfig_merge.merge(instance)
    assert kubeconfig_merge.unmerge(instance) == []
    assert yaml.safe_load(own.read_text()) == {**_OTHER, "current-context": ""}


def test_renewed_certificates_reach_the_kubeconfig_and_nothing_else_changes(
    instance: Instance, own: Path
) -> None:
    kubeconfig_merge.merge(instance)
    document = yaml.safe_load(own.read_text())
    document["current-context"] = "another"
    own.write_text(yaml.safe_dump(document))
    (instance.pki / "admin.crt").unlink()
    assert certificates.ensure(instance) == ["admin"]
    kubeconfigs.ensure(instance)
    kubeconfig_merge.refresh(instance)
    fresh = yaml.safe_load(own.read_text())
    assert fresh["users"] != document["users"]
    assert {**fresh, "users": None} == {**document, "users": None}


@pytest.mark.parametrize("content", ["a: [", "[]", "clusters: {a: 1}"])
def test_a_file_that_is_no_kubeconfig_stays_as_it_is(instance: Instance, own: Path, content: str) -> None:
    own.parent.mkdir(parents=True)
    own.write_text(content)
    with pytest.raises(SetupError, match="kubeconfig"):
        kubeconfig_merge.merge(instance)
    assert own.read_text() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_under_sudo_only_what_the_user_may_read_and_write_is_touched(
    instance: Instance, own: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(yaml.safe_dump(_OTHER))
    secret.chmod(0o600)
    own.parent.mkdir(parents=True)
    own.symlink_to(secret)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and str(folder) != "/" and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    os.chown(own.parent, 65534, 65534)
    monkeypatch.setenv("SUDO_UID", "65534")
    with pytest.raises(PermissionError):
        kubeconfig_merge.merge(instance)
    assert yaml.safe_load(secret.read_text()) == _OTHER
    own.unlink()
    kubeconfig_merge.merge(instance)
    assert own.stat().st_uid == 65534
    assert os.geteuid() == 0
