"""``vmexport``: makes exports, deletes them and downloads what they hold."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click

from kubecore.client import Client
from kubecore.objects import durations
from virtplane.cli.virtctl.connection import Connection, connected
from virtplane.cli.virtctl.exporting import exports
from virtplane.cli.virtctl.exporting.download import Wish, download
from virtplane.cli.virtctl.exporting.exports import Export, Say
from virtplane.cli.virtctl.params import given_flags, refuse_together
from virtplane.cli.virtctl.usage import INTEGER

_OF_DOWNLOADS = (
    *("output", "volume", "insecure", "keep-vme", "delete-vme", "format", "port-forward", "local-port"),
    *("retry", "include-secret", "manifest", "manifest-output-format", "service-url"),
)
"""Flags that make no sense with other functions."""

_OF_NEW_EXPORTS = ("labels", "annotations")
_BINARY = (
    "warning: Binary output can mess up your terminal. Use '--output -' to output into stdout anyway or"
    " consider '--output <FILE>' to save to a file"
)
_HIGHEST_PORT = 65535


@click.command()
@click.argument("function", metavar="create/delete/download")
@click.argument("name", metavar="NAME")
@click.option("--vm", default="", help="Export this VM's volumes.")
@click.option("--snapshot", default="", help="Export the volumes of this VirtualMachineSnapshot.")
@click.option("--pvc", default="", help="Export this claim.")
@click.option("--vmtemplate", default="", help="Export the volumes of this VirtualMachineTemplate.")
@click.option("--output", default="", help="The file that is written; - is standard output.")
@click.option("--volume", default="", help="Which volume, where there are several.")
@click.option("--format", "format_", default="", help="gzip (default), raw, or oci for whole machines.")
@click.option("--insecure", is_flag=True, help="Take any certificate for the export server's.")
@click.option("--keep-vme", is_flag=True, help="Keep an export that was made for the download.")
@click.option("--delete-vme", is_flag=True, help="Delete the export after the download in any case.")
@click.option("--ttl", default="", help="How long a new export lives, like 1h30m (default: 2h).")
@click.option("--manifest", is_flag=True, help="Download the manifests of the machine, not a volume.")
@click.option("--manifest-output-format", "manifest_format", default="", help="yaml (default) or json.")
@click.option("--include-secret", is_flag=True, help="With --manifest: the secret with the token, too.")
@click.option("--service-url", default="", help="HOST:PORT that is asked instead of that of the links.")
@click.option("--port-forward", is_flag=True, help="Reach the export server through the API server.")
@click.option("--local-port", default="0", help="Local port of --port-forward; 0 chooses one.")
@click.option("--retry", type=INTEGER, default=0, help="How many more attempts a download has.")
@click.option("--labels", multiple=True, help="key=value of a new export and its pod; repeatable.")
@click.option("--annotations", multiple=True, help="key=value of a new export and its pod; repeatable.")
@click.option("--readiness-timeout", default="", help="How long a download waits for the export: 2m.")
@connected
async def vmexport(client: Client, connection: Connection, function: str, name: str, **given: Any) -> None:
    """Make exports of volumes, delete and download them."""
    flags = given_flags()
    refuse_together(("vm", "snapshot", "pvc", "vmtemplate"), flags)
    refuse_together(("keep-vme", "delete-vme"), flags)
    function = function.lower()
    check_flags(function, given, flags)
    sources = [(flag, given[flag]) for flag in exports.SOURCES if given[flag]]
    export = Export(
        connection.namespace,
        name,
        sources[0] if sources else None,
        _ttl(given["ttl"]),
        _pairs(given["labels"]),
        _pairs(given["annotations"]),
    )
    if function == "create":
        if not await exports.create(client, export, _aside):
            raise click.ClickException(f"{export.shown} already exists")
    elif function == "delete":
        await exports.delete(client, export, _aside)
    else:
        await fetch(client, export, _wish(given), given["output"], keep=_keeps(given))


def check_flags(function: str, given: Mapping[str, Any], flags: Sequence[str]) -> None:
    """Raises click.ClickException for flags that do not fit the function."""
    if function not in ("create", "delete", "download"):
        raise click.ClickException(f"invalid function '{function}'")
    has_source = any(given[source] for source in exports.SOURCES)
    if function == "create" and not has_source:
        text = "need to specify export kind when attempting to create a VirtualMachineExport"
        raise click.ClickException(f"{text} [--pvc|--vm|--snapshot|--vmtemplate]")
    if function == "delete" and has_source:
        raise click.ClickException("should not specify export kind")
    unfit = {"create": _OF_DOWNLOADS, "delete": (*_OF_DOWNLOADS, *_OF_NEW_EXPORTS), "download": ()}
    for flag in unfit[function]:
        if flag in flags:
            raise click.ClickException(f"the '--{flag}' flag is incompatible with '{function}'")
    if function == "download":
        _check_download(given)


def _check_download(given: Mapping[str, Any]) -> None:
    for flag, value, known in (
        ("format", given["format_"], ("gzip", "raw", "oci")),
        ("manifest-output-format", given["manifest_format"], ("json", "yaml")),
    ):
        if value and value.lower() not in known:
            raise _unfit(flag, "/".join(known))
    if given["retry"] < 0:
        raise _unfit("retry", "positive integers")
    port = given["local_port"]
    if not port.isdecimal() or int(port) > _HIGHEST_PORT:
        raise _unfit("local-port", "valid port numbers")
    if given["manifest"] and given["volume"]:
        raise click.ClickException("the '--volume' flag is incompatible with '--manifest'")
    if not given["manifest"] and not given["output"]:
        raise click.ClickException(_BINARY)
    if given["port_forward"]:
        text = "--port-forward is not there yet: forward a port to the export's service yourself, and name it"
        raise click.ClickException(f"{text} by --service-url and --insecure")


async def fetch(client: Client, export: Export, wish: Wish, path: str, *, keep: bool | None) -> None:
    """Download into the file `path`, from an export that is made for it if a source is named.

    The export goes afterwards: if it was made here, unless `keep` says otherwise. Raises
    click.ClickException, StatusError.
    """
    is_for_output = path in ("", "-")
    say: Say = _aside if is_for_output else click.echo
    with _opened(path) as output:
        made = export.source is not None and await exports.create(client, export, say)
        try:
            await download(client, export, wish, output, say)
        finally:
            if not (not made if keep is None else keep):
                await exports.delete(client, export, say)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """The file, made empty; standard output for ``-`` or nothing. Raises click.ClickException."""
    if path in ("", "-"):
        sys.stdout.flush()
        yield sys.stdout.buffer
        return
    try:
        file = Path(path).open("wb")  # noqa: SIM115 - the error of opening differs from those of writing
    except OSError as error:
        text = f"open {path}: {(error.strerror or str(error)).lower()}"
        raise click.ClickException(text) from error
    with file:
        yield file


def _aside(text: str) -> None:
    """Tell something while standard output is for the download."""
    click.echo(text, err=True)


def _wish(given: Mapping[str, Any]) -> Wish:
    return Wish(
        volume=given["volume"],
        format=given["format_"].lower(),
        manifest=given["manifest"],
        manifest_format=given["manifest_format"].lower(),
        include_secret=given["include_secret"],
        insecure=given["insecure"],
        retries=given["retry"],
        service_url=given["service_url"],
        readiness_seconds=_seconds(given["readiness_timeout"] or "2m"),
    )


def _keeps(given: Mapping[str, Any]) -> bool | None:
    """Whether the export stays after the download; None where it depends on who made it."""
    if given["keep_vme"]:
        return True
    return False if given["delete_vme"] else None


def _unfit(flag: str, known: str) -> click.ClickException:
    return click.ClickException(f"--{flag} is not a valid value, acceptable values are {known}")


def _seconds(text: str) -> float:
    try:
        return durations.seconds_of(text)
    except ValueError as error:
        raise click.ClickException(str(error)) from error


def _ttl(text: str) -> str:
    """The duration as Go writes it. Raises click.ClickException."""
    if not text:
        return ""
    seconds = _seconds(text)
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours}h{minutes}m{rest:g}s"
    return f"{minutes}m{rest:g}s" if minutes else f"{rest:g}s"


def _pairs(given: Sequence[str]) -> dict[str, str]:
    """The pairs of ``key=value``; other words are passed over, as by KubeVirt."""
    words = (word.partition("=") for text in given for word in text.split(","))
    return {key: value for key, equals, value in words if equals}


COMMANDS = {"vmexport": vmexport}
