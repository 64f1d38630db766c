"""The flags that every command has, and the client's configuration that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from kubecore.client import ClientConfig, ConfigError, Impersonation, in_cluster, load_kubeconfig
from kubecore.client.config import is_in_cluster
from kubecore.objects import durations
from virtplane.cli.virtctl.usage import INTEGER

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Option = Callable[[_Command], _Command]

_OPTIONS: dict[str, _Option[Any]] = {
    "as_user": click.option("--as", "as_user", default="", help="Act as this user."),
    "as_group": click.option("--as-group", multiple=True, help="Act as a member of this group; repeatable."),
    "as_uid": click.option("--as-uid", default="", help="Act as the user with this UID."),
    "certificate_authority": click.option(
        "--certificate-authority", default="", help="File with the authority of the server's certificate."
    ),
    "client_certificate": click.option("--client-certificate", default="", help="File with a certificate."),
    "client_key": click.option("--client-key", default="", help="File with the certificate's key."),
    "cluster": click.option("--cluster", default="", help="Entry of the kubeconfig that names the server."),
    "context": click.option("--context", default="", help="Context of the kubeconfig."),
    "disable_compression": click.option(
        "--disable-compression", is_flag=True, help="Have the server send its answers uncompressed."
    ),
    "insecure_skip_tls_verify": click.option(
        "--insecure-skip-tls-verify", is_flag=True, help="Take any certificate for the server's."
    ),
    "kubeconfig": click.option("--kubeconfig", default="", help="The kubeconfig file."),
    "namespace": click.option("-n", "--namespace", default="", help="Namespace of the command's objects."),
    "password": click.option("--password", default="", help="Password of --username."),
    "proxy_url": click.option("--proxy-url", default="", help="URL of a proxy before the server."),
    "request_timeout": click.option(
        "--request-timeout",
        default="0",
        help="Limit of a request: seconds, or 1m, 2h; 0: the usual one.",
    ),
    "server": click.option("-s", "--server", default="", help="URL of the API server."),
    "tls_server_name": click.option(
        "--tls-server-name", default="", help="Name that the server's certificate must have."
    ),
    "token": click.option("--token", default="", help="Bearer token of the user."),
    "user": click.option("--user", default="", help="Entry of the kubeconfig that names the user."),
    "username": click.option("--username", default="", help="User of the basic authentication."),
    "verbosity": click.option("-v", "--v", "verbosity", type=INTEGER, default=2, help="How much is logged."),
}

_FLAGS = {"as_user": "as", "verbosity": "v"}
"""Names of flags that are not those of their parameters."""

_PROXIES = ("http", "https", "socks5")

_HERE_ONLY = ("namespace", "verbosity")
"""What no started program needs: its target says its namespace."""


def global_flags(command: _Command, *, besides: tuple[str, ...] = ()) -> _Command:
    """Add the global flags to a command, without those whose names the command uses itself (`besides`)."""
    for name, option in reversed(_OPTIONS.items()):
        if name not in besides:
            command = option(command)
    return command


def taken_from(parameters: dict[str, Any], besides: tuple[str, ...] = ()) -> dict[str, Any]:
    """Take the values of global flags out of a command's parameters."""
    return {name: parameters.pop(name) for name in _OPTIONS if name not in besides}


def client_config(given: Mapping[str, Any]) -> ClientConfig:
    """How the server is reached, by the global flags. Raises ConfigError."""
    changes: dict[str, Any] = {"user_agent": "virtctl", "request_seconds": _seconds(given["request_timeout"])}
    config = _configured(given)
    for key in ("token", "tls_server_name", "proxy_url", "namespace", "username", "password"):
        if given.get(key):
            changes[key] = given[key]
    if given["insecure_skip_tls_verify"]:
        changes["insecure"] = True
    if given["disable_compression"]:
        changes["compression"] = False
    if "token" in changes or "username" in changes:
        # Who is named here needs no program that would tell another identity.
        changes["exec_plugin"] = None
    problems: list[str] = []
    changes |= _files(given, config, problems)
    changed = replace(config, **changes)
    if changed.token and changed.username:
        problems.append(
            "more than one authentication method found for ; found [token basicAuth], only one is allowed"
        )
    changed = replace(changed, impersonate=_impersonation(config.impersonate, given, problems))
    scheme = urlsplit(changed.proxy_url).scheme
    if changed.proxy_url and scheme not in _PROXIES:
        text = f'unsupported scheme "{scheme}", must be http, https, or socks5'
        problems.append(f'invalid \'proxy-url\' "{changed.proxy_url}" for cluster "": {text}')
    if problems:
        what = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        raise ConfigError(f"invalid configuration: {what}")
    return changed


def repeated(given: Mapping[str, Any]) -> list[str]:
    """The global flags as given, for a command that starts this program again."""
    flags = []
    for name, value in given.items():
        flag = f"--{_FLAGS.get(name, name).replace('_', '-')}"
        if name in _HERE_ONLY or (name == "request_timeout" and value == "0"):
            continue
        if value is True:
            flags.append(flag)
        elif isinstance(value, tuple):
            flags += [f"{flag}={item}" for item in value]
        elif value:
            flags.append(f"{flag}={value}")
    return flags


def _configured(given: Mapping[str, Any]) -> ClientConfig:
    """What the kubeconfig says, or the pod's service account."""
    path, *names = (
        given.get(name) or None for name in ("kubeconfig", "context", "cluster", "user", "server")
    )
    context, cluster, user, server = names
    try:
        return load_kubeconfig(path, context, cluster=cluster, user=user, server=server)
    except ConfigError:
        if path or context or cluster or user or not is_in_cluster():
            raise
        return in_cluster()


def _files(given: Mapping[str, Any], config: ClientConfig, problems: list[str]) -> dict[str, bytes]:
    """The certificates and the key that flags name."""
    if given["client_certificate"] and not (given["client_key"] or config.client_key):
        what = "client-key-data or client-key must be specified for "
        problems.append(f"{what} to use the clientCert authentication method.")
    found = {}
    for flag, field, what in (
        ("client_certificate", "client_cert", "client-cert"),
        ("client_key", "client_key", "client-key"),
        ("certificate_authority", "ca_data", "certificate-authority"),
    ):
        path = given[flag]
        try:
            if path:
                found[field] = Path(path).read_bytes()
        except OSError as error:
            reason = f"open {path}: {(error.strerror or str(error)).lower()}"
            problems.append(f"unable to read {what} {path} for  due to {reason}")
    return found


def _impersonation(
    configured: Impersonation | None, given: Mapping[str, Any], problems: list[str]
) -> Impersonation | None:
    present = configured or Impersonation("")
    user = given["as_user"] or present.user
    groups, uid = given["as_group"] or present.groups, given["as_uid"] or present.uid
    if user:
        return Impersonation(user, tuple(groups), uid, present.extra)
    if groups or uid:
        problems.append("requesting uid, groups or user-extra for  without impersonating a user")
    return None


def _seconds(text: str) -> float:
    """Raises ConfigError."""
    if text.isdecimal():
        return float(text)
    try:
        return durations.seconds_of(text)
    except ValueError as error:
        raise ConfigError(
            "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a"
            " corresponding time unit (e.g. 1s | 2m | 3h)"
        ) from error
