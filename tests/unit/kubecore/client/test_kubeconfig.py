"""Reading kubeconfig files."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from kubecore.client import ConfigError, Impersonation, in_cluster, load_kubeconfig
from kubecore.client.kubeconfig import default_paths, load_files, resolve


def write(path: Path, **content: object) -> Path:
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **content}))
    return path


def simple(path: Path, user: dict[str, object], cluster: dict[str, object] | None = None) -> Path:
    return write(
        path,
        **{
            "current-context": "main",
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u", "namespace": "lab"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/", **(cluster or {})}}],
            "users": [{"name": "u", "user": user}],
        },
    )


def test_a_context_gives_server_namespace_and_inline_certificates(tmp_path: Path) -> None:
    encoded = base64.b64encode(b"pem").decode()
    path = simple(
        tmp_path / "config",
        {"client-certificate-data": encoded, "client-key-data": encoded},
        {"certificate-authority-data": encoded, "tls-server-name": "kubernetes", "proxy-url": "http://p:1"},
    )
    config = load_kubeconfig(path)
    assert config.server == "https://api:6443"
    assert config.namespace == "lab"
    assert (config.ca_data, config.client_cert, config.client_key) == (b"pem", b"pem", b"pem")
    assert (config.tls_server_name, config.proxy_url) == ("kubernetes", "http://p:1")


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"authority")
    path = simple(tmp_path / "config", {"tokenFile": "token"}, {"certificate-authority": "ca.crt"})
    config = load_kubeconfig(path)
    assert config.ca_data == b"authority"
    assert config.token_file == str(tmp_path / "token")


def test_the_first_file_wins_and_later_files_add(tmp_path: Path) -> None:
    first = simple(tmp_path / "first", {"token": "one"})
    second = write(
        tmp_path / "second",
        **{
            "current-context": "other",
            "contexts": [{"name": "other", "context": {"cluster": "c", "user": "v"}}],
            "users": [{"name": "u", "user": {"token": "two"}}, {"name": "v", "user": {"token": "three"}}],
        },
    )
    merged = load_files([first, tmp_path / "absent", second])
    assert merged.current_context == "main"
    assert resolve(merged).token == "one"
    assert resolve(merged, "other").token == "three"
    assert resolve(merged, "other").namespace == "default"


def test_the_environment_lists_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert default_paths() == [tmp_path / "a", tmp_path / "b"]
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_paths() == [tmp_path / ".kube" / "config"]


def test_users_may_impersonate_and_use_plugins(tmp_path: Path) -> None:
    path = simple(
        tmp_path / "config",
        {
            "as": "jane",
            "as-groups": ["dev", "ops"],
            "as-user-extra": {"scopes": ["a", "b"]},
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": "bin/login",
                "args": ["--x"],
                "env": [{"name": "A", "value": "b"}],
                "provideClusterInfo": True,
            },
        },
    )
    config = load_kubeconfig(path)
    assert config.impersonate == Impersonation("jane", ("dev", "ops"), "", {"scopes": ("a", "b")})
    assert config.exec_plugin is not None
    assert config.exec_plugin.command == str(tmp_path / "bin/login")
    assert (config.exec_plugin.args, config.exec_plugin.env) == (("--x",), {"A": "b"})


@pytest.mark.parametrize(
    ("context", "message"),
    [("absent", 'context "absent" does not exist'), ("broken", 'cluster "nowhere" does not exist')],
)
def test_what_does_not_exist_is_named(tmp_path: Path, context: str, message: str) -> None:
    path = write(
        tmp_path / "config", contexts=[{"name": "broken", "context": {"cluster": "nowhere", "user": "u"}}]
    )
    with pytest.raises(ConfigError, match=message):
        load_kubeconfig(path, context)


def test_an_absent_or_broken_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or directory"):
        load_kubeconfig(tmp_path / "absent")
    (tmp_path / "broken").write_text("a: [")
    with pytest.raises(ConfigError, match="error loading config file"):
        load_kubeconfig(tmp_path / "broken")
    (tmp_path / "list").write_text("- a")
    with pytest.raises(ConfigError, match="not a mapping"):
        load_kubeconfig(tmp_path / "list")


def test_a_pod_finds_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("ca")
    (tmp_path / "namespace").write_text("lab\n")
    config = in_cluster(tmp_path)
    assert (config.server, config.namespace) == ("https://10.0.0.1:443", "lab")
    assert (config.token_file, config.ca_data) == (str(tmp_path / "token"), b"ca")


def test_outside_a_pod_there_is_no_service_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConfigError, match="must be defined"):
        in_cluster(tmp_path)


def test_entries_that_are_named_replace_those_of_the_context(tmp_path: Path) -> None:
    path = simple(tmp_path / "config", {"token": "t"})
    other = write(
        tmp_path / "other",
        clusters=[{"name": "d", "cluster": {"server": "https://d:1"}}],
        users=[{"name": "v", "user": {"token": "s"}}],
    )
    files = load_files([path, other])
    config = resolve(files, cluster="d", user="v")
    assert (config.server, config.token, config.namespace) == ("https://d:1", "s", "lab")
    with pytest.raises(ConfigError, match='auth info "w" does not exist'):
        resolve(files, user="w")
    with pytest.raises(ConfigError, match='cluster "e" does not exist'):
        resolve(files, cluster="e")


def test_a_named_server_needs_neither_file_nor_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    assert load_kubeconfig(server="api:1").server == "http://api:1"
    config = load_kubeconfig(simple(tmp_path / "config", {"token": "t"}), server="https://b:2/")
    assert (config.server, config.token) == ("https://b:2", "t")
