"""Reading kubeconfig files: merging the files of ``$KUBECONFIG`` and resolving one context.

The rules are kubectl's: the first file that sets a value or names an entry wins, and paths are
relative to the file that holds them.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kubecore.client.config import ClientConfig, ConfigError, ExecPlugin, Impersonation
from kubecore.json import JsonObject, get_list, get_object, get_str

_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PATH_KEYS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


@dataclass(slots=True)
class Kubeconfig:
    """The merged view of all files. Entries keep their raw form, with absolute paths."""

    current_context: str = ""
    clusters: dict[str, JsonObject] = field(default_factory=dict)
    users: dict[str, JsonObject] = field(default_factory=dict)
    contexts: dict[str, JsonObject] = field(default_factory=dict)

    def context(self, name: str | None = None) -> JsonObject:
        """The context `name`, or the current one. Raises ConfigError if it does not exist."""
        wanted = name or self.current_context
        if not wanted:
            raise ConfigError(
                "invalid configuration: no context is selected; use --context or set current-context"
            )
        if wanted not in self.contexts:
            raise ConfigError(f'context "{wanted}" does not exist')
        return self.contexts[wanted]


def default_paths() -> list[Path]:
    """The files of ``$KUBECONFIG``, or ``~/.kube/config``."""
    listed = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return listed or [Path.home() / ".kube" / "config"]


def load_files(paths: Sequence[Path]) -> Kubeconfig:
    """Merge `paths`; absent files count as empty. Raises ConfigError for unreadable ones."""
    merged = Kubeconfig()
    for path in paths:
        document = _read(path)
        merged.current_context = merged.current_context or get_str(document, "current-context")
        for section, key in _SECTIONS.items():
            entries: dict[str, JsonObject] = getattr(merged, section)
            for entry in get_list(document, section):
                name = get_str(entry, "name")
                if name and name not in entries:
                    entries[name] = _with_absolute_paths(get_object(entry, key), path.parent)
    return merged


def load_kubeconfig(
    path: str | os.PathLike[str] | None = None,
    context: str | None = None,
    *,
    cluster: str | None = None,
    user: str | None = None,
    server: str | None = None,
) -> ClientConfig:
    """The configuration of `context` (default: the current one) in the file `path` (default: kubectl's).

    `cluster` and `user` name other entries than those of the context; `server` is another server, which
    needs no entry. Raises ConfigError for absent files, unknown contexts and broken data.
    """
    paths = default_paths() if path is None else [Path(path)]
    if not any(candidate.exists() for candidate in paths):
        if path is not None:
            raise ConfigError(f"stat {path}: no such file or directory")
        if not (context or cluster or user or server):
            names = ", ".join(map(str, paths))
            raise ConfigError(f"no configuration has been provided: {names} does not exist")
    return resolve(load_files(paths), context, cluster=cluster, user=user, server=server)


def resolve(
    kubeconfig: Kubeconfig,
    context: str | None = None,
    *,
    cluster: str | None = None,
    user: str | None = None,
    server: str | None = None,
) -> ClientConfig:
    """The client configuration with the cluster and user of one context, or with those named besides."""
    needs_context = context or kubeconfig.current_context or not (cluster or user or server)
    chosen = kubeconfig.context(context) if needs_context else {}
    cluster_name, user_name = cluster or get_str(chosen, "cluster"), user or get_str(chosen, "user")
    if cluster_name and cluster_name not in kubeconfig.clusters:
        raise ConfigError(f'cluster "{cluster_name}" does not exist')
    if user_name and user_name not in kubeconfig.users:
        raise ConfigError(f'auth info "{user_name}" does not exist')
    own_cluster = kubeconfig.clusters.get(cluster_name, {})
    own_user = kubeconfig.users.get(user_name, {})
    server = (server or get_str(own_cluster, "server")).rstrip("/")
    if not server:
        raise ConfigError(f'no server found for cluster "{cluster_name}"')
    return ClientConfig(
        server=server if "://" in server else f"http://{server}",
        ca_data=_data(own_cluster, "certificate-authority"),
        client_cert=_data(own_user, "client-certificate"),
        client_key=_data(own_user, "client-key"),
        token=get_str(own_user, "token"),
        token_file=get_str(own_user, "tokenFile"),
        username=get_str(own_user, "username"),
        password=get_str(own_user, "password"),
        exec_plugin=_exec_plugin(get_object(own_user, "exec")),
        insecure=bool(own_cluster.get("insecure-skip-tls-verify")),
        tls_server_name=get_str(own_cluster, "tls-server-name"),
        proxy_url=get_str(own_cluster, "proxy-url"),
        impersonate=_impersonation(own_user),
        namespace=get_str(chosen, "namespace") or "default",
    )


def _read(path: Path) -> JsonObject:
    if not path.exists():
        return {}
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"error loading config file {path}: {error}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"error loading config file {path}: it is not a mapping")
    return document


def _with_absolute_paths(entry: JsonObject, directory: Path) -> JsonObject:
    resolved = dict(entry)
    for key in _PATH_KEYS:
        if get_str(entry, key):
            resolved[key] = str((directory / entry[key]).absolute())
    plugin = get_object(entry, "exec")
    command = get_str(plugin, "command")
    if os.sep in command:
        # A relative path with a separator is relative to the file; a bare name is looked up in PATH.
        resolved["exec"] = {**plugin, "command": str((directory / command).absolute())}
    return resolved


def _data(entry: JsonObject, key: str) -> bytes | None:
    """Inline data wins over the file, as in kubectl."""
    inline = get_str(entry, f"{key}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=False)
        except binascii.Error as error:
            raise ConfigError(f"{key}-data is not base64: {error}") from error
    path = get_str(entry, key)
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"unable to read {key} {path}: {error.strerror}") from error


def _exec_plugin(raw: JsonObject) -> ExecPlugin | None:
    command = get_str(raw, "command")
    if not command:
        return None
    env = {get_str(item, "name"): get_str(item, "value") for item in get_list(raw, "env")}
    return ExecPlugin(
        command=command,
        args=tuple(str(argument) for argument in get_list(raw, "args")),
        env=env,
        api_version=get_str(raw, "apiVersion", default="client.authentication.k8s.io/v1"),
        provide_cluster_info=raw.get("provideClusterInfo") is True,
        install_hint=get_str(raw, "installHint"),
    )


def _impersonation(user: JsonObject) -> Impersonation | None:
    name = get_str(user, "as")
    if not name:
        return None
    extra = {key: tuple(values) for key, values in get_object(user, "as-user-extra").items()}
    return Impersonation(name, tuple(get_list(user, "as-groups")), get_str(user, "as-uid"), extra)
