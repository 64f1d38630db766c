"""Cloud-init and access credentials of ``create vm``: converts flags to parts of a VirtualMachine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from kubecore.json import JsonObject
from virtplane.cli.virtctl.params import FlagError, one_of, parameters, prefixed

_CREDENTIAL = "access-cred"
_DATA_SOURCES = {"nocloud": "cloudInitNoCloud", "configdrive": "cloudInitConfigDrive"}
_SSH_METHODS = {"ga": "qemuGuestAgent", "nocloud": "noCloud", "configdrive": "configDrive"}
_MANAGED_BY_AGENT = "runcmd:\n  - [ setsebool, -P, 'virt_qemu_ga_manage_ssh', 'on' ]"


@dataclass
class Access:
    """The users and credentials, and the cloud-init data that sets them."""

    user: str = ""
    password_file: str = ""
    keys: Sequence[str] = ()
    by_agent: bool = False
    user_data: str = ""
    network_data: str = ""
    data_source: str = ""
    """What ``--cloud-init`` says; empty where it is not given."""

    credentials: list[JsonObject] = field(default_factory=list)
    _method: str = field(default="", init=False)
    """The data source that a credential needs."""

    def add_credential(self, text: str) -> None:
        """Add one value of ``--access-cred``. Raises FlagError."""
        found = parameters(_CREDENTIAL, text, ("type", "src", "method", "user"))
        if not found.get("src"):
            raise FlagError(_CREDENTIAL, "src must be specified")
        namespace, secret = prefixed(_CREDENTIAL, found["src"])
        if namespace:
            raise FlagError(_CREDENTIAL, f'not allowed to specify namespace of secret "{secret}"')
        kinds = ("ssh", "password")
        kind = one_of(_CREDENTIAL, "access credential type", found.get("type") or "ssh", kinds)
        methods = tuple(_SSH_METHODS) if kind == "ssh" else ("ga",)
        what = f"access credentials {kind} method"
        method = one_of(_CREDENTIAL, what, found.get("method") or "ga", methods)
        propagation = self._propagation(kind, method, found.get("user", ""))
        name = "sshPublicKey" if kind == "ssh" else "userPassword"
        source = {"secret": {"secretName": secret}}
        self.credentials.append({name: {"source": source, "propagationMethod": propagation}})

    def _propagation(self, kind: str, method: str, user: str) -> JsonObject:
        if kind == "ssh" and method == "ga":
            name = user or self.user
            if not name:
                reason = "user must be specified with access credential ssh method ga"
                raise FlagError(_CREDENTIAL, f'{reason} ("--user" flag or param "user")')
            self.by_agent = True
            return {"qemuGuestAgent": {"users": [name]}}
        if user:
            reason = "user cannot be specified with selected access credential type and method"
            raise FlagError(_CREDENTIAL, reason)
        if method != "ga":
            present = self.data_source or self._method
            if present not in ("", method):
                reason = "method param and value passed to --cloud-init have to match"
                raise FlagError(_CREDENTIAL, f"{reason}: {method} vs {present}")
            self._method = method
        return {_SSH_METHODS[method]: {}}

    def volume(self) -> JsonObject | None:
        """The cloud-init volume; None if no flag needs one. Raises FlagError."""
        kinds = (*_DATA_SOURCES, "none")
        kind = self._method or "nocloud"
        if self.data_source:
            kind = one_of("cloud-init", "cloud-init data source type", self.data_source, kinds)
        if self.password_file:
            text = "The password is stored in cleartext in the VM definition!"
            click.echo(f"WARNING: --password-file: {text}", err=True)
        if kind != "none":
            data = self._data()
            return {"name": "cloudinitdisk", _DATA_SOURCES[kind]: data} if data else None
        if self.password_file or self.keys or self.by_agent or self.user_data or self.network_data:
            text = "was set to none, not creating a data source although other cloud-init options were set"
            click.echo(f"WARNING: --cloud-init: {text}", err=True, nl=False)
        return None

    def _data(self) -> JsonObject | None:
        network = {"networkDataBase64": self.network_data} if self.network_data else {}
        if self.user_data:
            return {"userDataBase64": self.user_data, **network}
        lines = self._lines()
        if not lines and not network and not self._method:
            return None
        return {"userData": "\n".join(["#cloud-config", *lines]), **network}

    def _lines(self) -> list[str]:
        lines = [f"user: {self.user}"] if self.user else []
        if self.password_file:
            lines += [f"password: {self._password()}", "chpasswd: { expire: False }"]
        if self.keys:
            lines += ["ssh_authorized_keys:", *(f"  - {key}" for key in self.keys)]
        return [*lines, _MANAGED_BY_AGENT] if self.by_agent else lines

    def _password(self) -> str:
        try:
            return Path(self.password_file).read_text().rstrip("\n")
        except OSError as error:
            reason = f"open {self.password_file}: {(error.strerror or str(error)).lower()}"
            raise FlagError("password-file", reason) from error
