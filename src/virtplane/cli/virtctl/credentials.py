"""``credentials``: SSH keys and passwords of machines, kept in the secrets that their instances read."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from kubecore import resources
from kubecore.client import Client
from kubecore.errors import StatusError, is_not_found
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.structs import decode
from kubecore.patch.diff import expecting, pointer
from kubecore.resources import ResourceType
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.resources import VIRTUAL_MACHINE_INSTANCES, VIRTUAL_MACHINES
from virtplane.cli.virtctl.connection import Connection, connected_besides
from virtplane.cli.virtctl.params import given_flags, random_ending, refuse_together
from virtplane.cli.virtctl.usage import Commands

_Command = TypeVar("_Command", bound=Callable[..., Any])
_CREDENTIALS = ("spec", "template", "spec", "accessCredentials")
_CONFLICT = 409
_TRIES = 5


def _options(command: _Command) -> _Command:
    for option in (
        click.option(
            "--force", is_flag=True, help="Change a secret even where it does not belong to the VM alone."
        ),
        click.option("--secret", default="", help="The secret to change, where there are several."),
        click.option("-u", "--user", required=True, help="Whose credentials they are."),
        click.argument("name", metavar="(VM)"),
    ):
        command = option(command)
    return command


def _key_options(command: _Command) -> _Command:
    command = click.option("--value", default="", help="The public key itself.")(command)
    return click.option("-f", "--file", "path", default="", help="A file with public keys.")(command)


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def credentials(context: click.Context) -> None:
    """SSH keys and passwords of a VM's guest."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@click.command(name="add-ssh-key")
@_options
@_key_options
@click.option(
    "--create-secret",
    is_flag=True,
    help="Put the key into a secret of its own, which a running guest only sees after a restart; with --force"
    " also while it runs.",
)
@click.option(
    "--update-secret",
    is_flag=True,
    help="Put the key into a secret that the VM has; with --force also into one that others may use.",
)
@connected_besides("user")
async def add_ssh_key(
    client: Client,
    connection: Connection,
    name: str,
    create_secret: bool,
    update_secret: bool,
    **given: Any,
) -> None:
    """Give a guest's user an SSH key."""
    refuse_together(("create-secret", "update-secret"), given_flags())
    keys = _keys(given["path"], given["value"])
    machine = await _machine(client, connection, name)
    found = ssh_secrets(machine, given["user"])
    if create_secret or not (found or update_secret):
        await _create_secret(client, machine, keys, given["user"], force=given["force"])
        return
    if not found:
        raise click.ClickException(f"no secrets specified for user: {given['user']}")
    secret = await _secret(client, machine, one_secret(given["secret"], found))
    own = get_str(secret, "metadata", "name")
    if holds(secret, keys):
        click.echo(f'Secret "{own}" already contains this SSH key.')
        return
    _check_owner(secret, machine, force=given["force"])
    await _add_entry(client, secret, f"ssh-key-{random_ending(6)}", "\n".join(keys))
    click.echo(f'Successfully added the key to secret "{own}"')


@click.command(name="remove-ssh-key")
@_options
@_key_options
@connected_besides("user")
async def remove_ssh_key(client: Client, connection: Connection, name: str, **given: Any) -> None:
    """Take an SSH key from a guest's user."""
    keys = _keys(given["path"], given["value"])
    machine = await _machine(client, connection, name)
    found = ssh_secrets(machine, given["user"])
    if not found:
        click.echo(f"No secrets associated with user {given['user']}")
        return
    chosen = given["secret"]
    if chosen and chosen not in found:
        raise click.ClickException(f"secret {chosen} is not associated with user {given['user']}")
    for secret in [chosen] if chosen else found:
        await _remove_keys(client, machine, secret, keys, force=given["force"])


@click.command(name="set-password")
@_options
@click.option("-p", "--password", required=True, help="The new password.")
@connected_besides("user", "password")
async def set_password(
    client: Client, connection: Connection, name: str, user: str, secret: str, force: bool, password: str
) -> None:
    """Change the password of a guest's user."""
    machine = await _machine(client, connection, name)
    found = password_secrets(machine)
    if not found:
        raise click.ClickException("no secrets assigned to UserPassword AccessCredentials")
    document = await _secret(client, machine, one_secret(secret, found))
    _check_owner(document, machine, force=force)
    await _add_entry(client, document, user, password)
    click.echo(f'Successfully set password in secret "{get_str(document, "metadata", "name")}"')


def _keys(path: str, value: str) -> list[str]:
    """The SSH keys of the command line, one a line. Raises click.ClickException."""
    refuse_together(("file", "value"), given_flags())
    failure = "error getting ssh key: "
    if not path and not value:
        raise click.ClickException(f"{failure}one of --file, or --value must be specified")
    try:
        text = value or Path(path).read_text()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise click.ClickException(f"{failure}open {path}: {reason}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{failure}{path} is not a text file") from error
    keys = [line.strip() for line in text.splitlines() if line.strip()]
    if not keys:
        raise click.ClickException(f"{failure}{path or '--value'} holds no key")
    return keys


async def _machine(client: Client, connection: Connection, name: str) -> JsonObject:
    try:
        return await client.get(VIRTUAL_MACHINES, name, connection.namespace)
    except StatusError as error:
        raise click.ClickException(f"error getting virtual machine: {error.message}") from error


def ssh_secrets(machine: JsonObject, user: str) -> list[str]:
    """The secrets whose keys the guest agent gives to the user."""
    keys = (
        found.ssh_public_key for found in decode(VirtualMachine, machine).spec.instance.access_credentials
    )
    return [
        key.source.secret.secret_name
        for key in keys
        if key is not None
        and key.source.secret is not None
        and key.propagation_method.qemu_guest_agent is not None
        and user in key.propagation_method.qemu_guest_agent.users
    ]


def password_secrets(machine: JsonObject) -> list[str]:
    """The secrets whose passwords the guest agent sets."""
    found = (item.user_password for item in decode(VirtualMachine, machine).spec.instance.access_credentials)
    return [
        item.source.secret.secret_name
        for item in found
        if item is not None
        and item.source.secret is not None
        and item.propagation_method.qemu_guest_agent is not None
    ]


def one_secret(wanted: str, found: Sequence[str]) -> str:
    """The secret to change. Raises click.ClickException."""
    if not wanted and len(found) > 1:
        text = "multiple secrets specified, use option --secret to specify which secret to modify"
        raise click.ClickException(text)
    if wanted and wanted not in found:
        raise click.ClickException(f"secret {wanted} was not assigned")
    return wanted or found[0]


async def _secret(client: Client, machine: JsonObject, name: str) -> JsonObject:
    try:
        return await client.get(resources.SECRETS, name, get_str(machine, "metadata", "namespace"))
    except StatusError as error:
        raise click.ClickException(f'error getting secret "{name}": {error.message}') from error


def _check_owner(secret: JsonObject, machine: JsonObject, *, force: bool) -> None:
    """Raises click.ClickException for a secret that other machines may use."""
    own = (VIRTUAL_MACHINES.kind, get_str(machine, "metadata", "name"), get_str(machine, "metadata", "uid"))
    owners = get_list(secret, "metadata", "ownerReferences")
    if not force and own not in [
        (owner.get("kind"), owner.get("name"), owner.get("uid")) for owner in owners
    ]:
        name = get_str(secret, "metadata", "name")
        text = f"secret {name} does not have an owner reference pointing to VM {own[1]}"
        raise click.ClickException(text)


def _lines(secret: JsonObject, entry: str) -> list[str]:
    value = base64.b64decode(get_str(secret, "data", entry))
    return value.decode(errors="surrogateescape").split("\n")


def _is_one_of(line: str, keys: Sequence[str]) -> bool:
    """Whether a line has one of the keys, perhaps with a comment behind it."""
    return any(line.strip() == key or line.strip().startswith(f"{key} ") for key in keys)


def holds(secret: JsonObject, keys: Sequence[str]) -> bool:
    """Whether every key is in the secret."""
    lines = [line for entry in get_object(secret, "data") for line in _lines(secret, entry)]
    return all(any(_is_one_of(line, [key]) for line in lines) for key in keys)


def without(secret: JsonObject, keys: Sequence[str]) -> dict[str, str | None]:
    """The entries that change when the keys go, encoded; None for those that end."""
    changed: dict[str, str | None] = {}
    for entry in get_object(secret, "data"):
        lines = _lines(secret, entry)
        rest = [line for line in lines if line.strip() and not _is_one_of(line, keys)]
        if any(_is_one_of(line, keys) for line in lines):
            changed[entry] = _encoded("\n".join(rest)) if rest else None
    return changed


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode(errors="surrogateescape")).decode()


async def _create_secret(
    client: Client, machine: JsonObject, keys: Sequence[str], user: str, *, force: bool
) -> None:
    """A new secret with the keys, and the credential of the machine that refers to it.

    Raises click.ClickException.
    """
    name, namespace = get_str(machine, "metadata", "name"), get_str(machine, "metadata", "namespace")
    if not force:
        await _check_stopped(client, name, namespace)
    owner = {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "name": name,
        "uid": get_str(machine, "metadata", "uid"),
        "controller": True,
    }
    metadata = {"generateName": f"{name}-ssh-key-", "namespace": namespace, "ownerReferences": [owner]}
    data = {f"ssh-key-{random_ending(6)}": _encoded("\n".join(keys))}
    wish = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
    try:
        secret = get_str(await client.create(resources.SECRETS, wish), "metadata", "name")
    except StatusError as error:
        raise click.ClickException(f"error creating secret: {error.message}") from error
    source = {"secret": {"secretName": secret}}
    propagation = {"qemuGuestAgent": {"users": [user]}}
    credential = {"sshPublicKey": {"source": source, "propagationMethod": propagation}}
    operation = {"op": "add", "path": pointer(*_CREDENTIALS, "-"), "value": credential}
    try:
        await _add_below(client, VIRTUAL_MACHINES, machine, (pointer(*_CREDENTIALS), []), operation)
    except StatusError as error:
        # Nobody refers to the secret.
        await client.delete(resources.SECRETS, secret, namespace)
        raise click.ClickException(f"error patching virtual machine: {error.message}") from error


async def _check_stopped(client: Client, name: str, namespace: str) -> None:
    try:
        await client.get(VIRTUAL_MACHINE_INSTANCES, name, namespace)
    except StatusError as error:
        if is_not_found(error):
            return
        text = f"error when getting virtual machine instance: {error.message}"
        raise click.ClickException(text) from error
    advice = "Use --force flag to update a running VM, it will take effect after restart"
    raise click.ClickException(f"virtual machine {name} is running. {advice}")


async def _add_entry(client: Client, secret: JsonObject, entry: str, value: str) -> None:
    operation = {"op": "add", "path": pointer("data", entry), "value": _encoded(value)}
    try:
        await _add_below(client, resources.SECRETS, secret, ("/data", {}), operation)
    except StatusError as error:
        name = get_str(secret, "metadata", "name")
        raise click.ClickException(f'error patching secret "{name}": {error.message}') from error


async def _add_below(
    client: Client,
    kind: ResourceType,
    document: JsonObject,
    parent: tuple[str, JsonObject | list[JsonObject]],
    operation: JsonObject,
) -> None:
    """Add to a member of the document, and that member (`parent`: path, empty value) where it is missing.

    Raises StatusError.
    """
    name, namespace = get_str(document, "metadata", "name"), get_str(document, "metadata", "namespace")
    path, empty = parent
    made = [expecting(path, None), {"op": "add", "path": path, "value": empty}]
    try:
        await client.patch(kind, name, [operation], namespace, type="json")
    except StatusError:
        await client.patch(kind, name, [*made, operation], namespace, type="json")


async def _remove_keys(
    client: Client, machine: JsonObject, name: str, keys: Sequence[str], *, force: bool
) -> None:
    """Remove the keys from a secret, if it exists. Raises click.ClickException."""
    namespace = get_str(machine, "metadata", "namespace")
    for last in [*[False] * (_TRIES - 1), True]:
        try:
            secret = await client.get(resources.SECRETS, name, namespace)
            _check_owner(secret, machine, force=force)
            changed = without(secret, keys)
            version = get_str(secret, "metadata", "resourceVersion")
            body = {"metadata": {"resourceVersion": version}, "data": changed}
            if changed:
                await client.patch(resources.SECRETS, name, body, namespace, type="merge")
        except StatusError as error:
            if is_not_found(error):
                return
            if error.code != _CONFLICT or last:
                raise
        else:
            return


for _found in (add_ssh_key, remove_ssh_key, set_password):
    credentials.add_command(_found)

COMMANDS = {"credentials": credentials}
