"""``create vm``: the manifest of a VirtualMachine from flags; nothing is sent anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from kubecore.json import JsonObject
from virtplane.cli.virtctl.creating.access import Access
from virtplane.cli.virtctl.creating.volumes import Volumes
from virtplane.cli.virtctl.documents import as_yaml
from virtplane.cli.virtctl.globalflags import global_flags
from virtplane.cli.virtctl.params import (
    FlagError,
    given_flags,
    one_of,
    prefixed,
    quantity,
    random_ending,
    refuse_together,
)
from virtplane.cli.virtctl.usage import INTEGER

_Command = TypeVar("_Command", bound=Callable[..., Any])
_STRATEGIES = ("Always", "Manual", "Halted", "Once", "RerunOnFailure")
_VOLUME_FLAGS = {
    "volume-containerdisk": "An image with a disk: name:string,src:string,bootorder:uint.",
    "volume-pvc": "A claim: name:string,src:string,bootorder:uint.",
    "volume-import": "A disk to be filled: type:string, and what that type needs.",
    "volume-datasource": "A DataSource to clone (deprecated).",
    "volume-clone-pvc": "A claim to clone (deprecated).",
    "volume-blank": "An empty disk (deprecated).",
}
_DEPRECATED = ("volume-datasource", "volume-clone-pvc", "volume-blank")
_GROUPS = (
    ("memory", "instancetype", "infer-instancetype", "infer-instancetype-from"),
    ("preference", "infer-preference", "infer-preference-from"),
    ("cloud-init-user-data", "user"),
    ("cloud-init-user-data", "password-file"),
    ("cloud-init-user-data", "ssh-key"),
    ("cloud-init-user-data", "ga-manage-ssh"),
)


def _switch(flag: str, text: str) -> Callable[[_Command], _Command]:
    """A boolean flag that is true unless it is given as ``=false``."""
    return click.option(flag, type=bool, is_flag=False, flag_value=True, default=True, help=text)


def _volume_options(command: _Command) -> _Command:
    for flag, text in reversed(_VOLUME_FLAGS.items()):
        command = click.option(f"--{flag}", multiple=True, help=f"{text} May be repeated.")(command)
    return command


@click.command()
@click.option("--name", default="", help="The name.")
@click.option("--run-strategy", default="Always", help="When the machine runs.")
@click.option(
    "--termination-grace-period", type=INTEGER, default=180, help="Seconds for the guest to shut down."
)
@click.option("--memory", default="512Mi", help="Memory of the guest.")
@click.option("--instancetype", default="", help="The instance type: [kind/]name.")
@_switch("--infer-instancetype", "Infer the instance type from the first boot disk.")
@click.option("--infer-instancetype-from", default="", help="The volume to infer the instance type from.")
@click.option("--preference", default="", help="The preference: [kind/]name.")
@_switch("--infer-preference", "Infer the preference from the first boot disk.")
@click.option("--infer-preference-from", default="", help="The volume to infer the preference from.")
@_volume_options
@click.option(
    "--volume-sysprep", default="", help="A ConfigMap or Secret for sysprep: src:string,type:string."
)
@click.option("--user", default="", help="The user that cloud-init makes.")
@click.option("--password-file", default="", help="A file with the user's password.")
@click.option("--ssh-key", multiple=True, help="The user's SSH keys.")
@click.option("--ga-manage-ssh", is_flag=True, help="Let the guest's agent manage SSH keys.")
@click.option("--access-cred", multiple=True, help="type:string,src:string,method:string,user:string.")
@click.option("--cloud-init", default="", help="nocloud (unless told otherwise), configdrive or none.")
@click.option("--cloud-init-user-data", default="", help="User data in base64.")
@click.option("--cloud-init-network-data", default="", help="Network data in base64.")
@partial(global_flags, besides=("user",))
def vm(**given: Any) -> None:
    """A VirtualMachine with its disks and users.

    Volumes without a boot order of their own come in the order of their kinds: container disks, claims,
    DataSources, clones of claims, empty disks, imports.
    """
    flags = given_flags()
    for flag in _DEPRECATED:
        if flag in flags:
            text = f"Flag --{flag} has been deprecated, use flag --volume-import instead"
            click.echo(text, err=True)
    for group in _GROUPS:
        refuse_together(group, flags)
    click.echo(as_yaml(manifest(given, flags)), nl=False)


def manifest(given: dict[str, Any], flags: Sequence[str]) -> JsonObject:
    """The VirtualMachine for the command line's `flags`. Raises FlagError and other click.ClickExceptions."""
    name = given["name"] or f"vm-{random_ending()}"
    strategy = one_of("run-strategy", "run strategy", given["run_strategy"], _STRATEGIES)
    memory = _memory(given["memory"])
    matchers = {kind: named(kind, given[kind]) for kind in ("instancetype", "preference")}
    volumes = Volumes(name)
    volumes.add_all({flag: given[flag.replace("-", "_")] for flag in _VOLUME_FLAGS})
    if given["volume_sysprep"]:
        volumes.add_sysprep(given["volume_sysprep"])
    access = _access(given)
    domain: JsonObject = {"devices": {"disks": volumes.disks} if volumes.disks else {}, "resources": {}}
    spec: JsonObject = {"runStrategy": strategy}
    for kind, matcher in matchers.items():
        found = matcher or _inferred(kind, given, flags, volumes)
        if found:
            spec[kind] = found
    explicit = {"instancetype", "infer-instancetype", "infer-instancetype-from"} & set(flags)
    if "instancetype" not in spec or not explicit:
        domain["memory"] = {"guest": memory}
    template: JsonObject = {
        "domain": domain,
        "terminationGracePeriodSeconds": given["termination_grace_period"],
    }
    seed = access.volume()
    all_volumes = [*volumes.volumes, *([seed] if seed else [])]
    if all_volumes:
        template["volumes"] = all_volumes
    if access.credentials:
        template["accessCredentials"] = access.credentials
    if volumes.templates:
        spec["dataVolumeTemplates"] = volumes.templates
    spec["template"] = {"metadata": {}, "spec": template}
    metadata = {"name": name, **({"namespace": given["namespace"]} if given["namespace"] else {})}
    head: JsonObject = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata}
    return {**head, "spec": spec, "status": {}}


def _memory(text: str) -> str:
    try:
        return quantity(text)
    except ValueError as error:
        raise FlagError("memory", str(error)) from error


def named(kind: str, text: str) -> JsonObject | None:
    """The matcher of an instance type or preference (`kind`), given as ``[kind/]name``. Raises FlagError."""
    if not text:
        return None
    prefix, name = prefixed(kind, text)
    if not prefix:
        return {"name": name}
    kinds = (f"virtualmachine{kind}", f"virtualmachinecluster{kind}")
    return {"name": name, "kind": one_of(kind, f"{kind} kind", prefix, kinds)}


def _inferred(kind: str, given: dict[str, Any], flags: Sequence[str], volumes: Volumes) -> JsonObject | None:
    """Requested inference must succeed; by default it is tried, and left out if it fails."""
    source = given[f"infer_{kind}_from"]
    if source:
        return {"inferFromVolume": volumes.inferable(source)}
    if not given[f"infer_{kind}"] or (kind == "instancetype" and "memory" in flags):
        return None
    if f"infer-{kind}" in flags:
        return {"inferFromVolume": volumes.inferable()}
    try:
        return {"inferFromVolume": volumes.inferable(), "inferFromVolumeFailurePolicy": "Ignore"}
    except click.ClickException:
        return None


def _access(given: dict[str, Any]) -> Access:
    access = Access(
        user=given["user"],
        password_file=given["password_file"],
        keys=[key for text in given["ssh_key"] for key in text.split(",")],
        by_agent=given["ga_manage_ssh"],
        user_data=given["cloud_init_user_data"],
        network_data=given["cloud_init_network_data"],
        data_source=given["cloud_init"],
    )
    for text in given["access_cred"]:
        access.add_credential(text)
    return access


MANIFESTS = {"vm": vm}
