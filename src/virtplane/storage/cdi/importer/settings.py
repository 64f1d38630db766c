"""The importer's environment, as the controller writes it (CDI's names)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from kubecore.objects.quantity import Quantity
from virtplane.storage.cdi.importer.outcome import ImportFailed

SECRETS = ("IMPORTER_ACCESS_KEY_ID", "IMPORTER_SECRET_KEY")
"""Variables with credentials."""
_VERBOSITY = re.compile(r"--?v(?:=(\d{1,4}))?")
_VERBOSE = 3
"""From here on debugging messages are logged, as in CDI's other programs."""
_EXTRA_HEADER = "IMPORTER_EXTRA_HEADER_"
_HEADER_FILE_BYTES = 1 << 20


class Content(Enum):
    """What is imported: one disk, or an archive's files."""

    KUBEVIRT = "kubevirt"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class Paths:
    """Where the pod's volumes are mounted."""

    data: Path = Path("/data")
    device: Path = Path("/dev/cdi-block-volume")
    scratch: Path = Path("/scratch")
    extra_headers: Path = Path("/extraheaders")
    google: Path = Path("/google/credentials.json")
    vddk: Path = Path("/opt")
    """Where the container with VDDK puts it."""
    vddk_arguments: Path = Path("/vddk-args")
    termination: Path = Path("/dev/termination-log")


@dataclass(frozen=True, slots=True)
class Settings:
    """One import."""

    source: str
    endpoint: str
    content: Content
    size_bytes: int
    overhead: float
    owner_uid: str = ""
    insecure_tls: bool = False
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    cert_folders: tuple[Path, ...] = ()
    has_authorities: bool = False
    """Whether the user names authorities for the source's server; those of a proxy do not count."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    checksum: str = ""
    preallocate: bool = False
    direct_io: bool = False
    architecture: str = ""
    pull_method: str = ""
    ready_file: str = ""
    done_file: str = ""
    disk_id: str = ""
    uuid: str = ""
    backing_file: str = ""
    thumbprint: str = ""
    current_checkpoint: str = ""
    previous_checkpoint: str = ""
    final_checkpoint: bool = False
    paths: Paths = Paths()

    @property
    def has_scratch(self) -> bool:
        """Whether the controller has given a scratch claim."""
        return self.paths.scratch.is_dir()


def read_settings(environment: Mapping[str, str], paths: Paths | None = None) -> Settings:
    """The settings in `environment`. Raises ImportFailed for values that have no meaning."""
    paths = paths or Paths()

    def text(name: str) -> str:
        return environment.get(name, "")

    content = text("IMPORTER_CONTENTTYPE") or Content.KUBEVIRT.value
    return Settings(
        source=text("IMPORTER_SOURCE"),
        endpoint=text("IMPORTER_ENDPOINT"),
        content=Content.ARCHIVE if content == Content.ARCHIVE.value else Content.KUBEVIRT,
        size_bytes=_number("IMPORTER_IMAGE_SIZE", text("IMPORTER_IMAGE_SIZE")),
        overhead=_share("FILESYSTEM_OVERHEAD", text("FILESYSTEM_OVERHEAD")),
        owner_uid=text("OWNER_UID"),
        insecure_tls=_truth(text("INSECURE_TLS")),
        access_key=text("IMPORTER_ACCESS_KEY_ID"),
        secret_key=text("IMPORTER_SECRET_KEY"),
        cert_folders=tuple(
            Path(folder)
            for name in ("IMPORTER_PROXY_CERT_DIR", "IMPORTER_CERT_DIR")
            if (folder := text(name))
        ),
        has_authorities=bool(text("IMPORTER_CERT_DIR")),
        headers=_headers(environment, paths.extra_headers),
        checksum=text("IMPORTER_CHECKSUM"),
        preallocate=_truth(text("PREALLOCATION")),
        direct_io=text("CACHE_MODE") == "TRYNONE",
        architecture=text("IMPORTER_REGISTRY_IMAGE_ARCHITECTURE"),
        pull_method=text("IMPORTER_PULL_METHOD"),
        ready_file=text("IMPORTER_READY_FILE"),
        done_file=text("IMPORTER_DONE_FILE"),
        disk_id=text("IMPORTER_DISK_ID"),
        uuid=text("IMPORTER_UUID"),
        backing_file=text("IMPORTER_BACKING_FILE"),
        thumbprint=text("IMPORTER_THUMBPRINT"),
        current_checkpoint=text("IMPORTER_CURRENT_CHECKPOINT"),
        previous_checkpoint=text("IMPORTER_PREVIOUS_CHECKPOINT"),
        final_checkpoint=_truth(text("IMPORTER_FINAL_CHECKPOINT")),
        paths=paths,
    )


def log_level(arguments: Sequence[str]) -> int:
    """The level of messages that ``-v=N`` (or ``-v N``) asks for."""
    for place, argument in enumerate(arguments):
        found = _VERBOSITY.fullmatch(argument)
        if found is not None:
            text = found[1] or "".join(arguments[place + 1 : place + 2])
            return logging.DEBUG if text.isdecimal() and int(text) >= _VERBOSE else logging.INFO
    return logging.INFO


def _number(name: str, text: str) -> int:
    """A number of bytes: claims made by hand are sized in words such as ``1Gi``."""
    if not text:
        return 0
    try:
        number = Quantity.parse(text).value
    except ValueError as error:
        raise ImportFailed(f"{name} is no number of bytes: {text!r}") from error
    if number < 0:
        raise ImportFailed(f"{name} is negative: {text!r}")
    return number


def _share(name: str, text: str) -> float:
    try:
        share = float(text or 0)
    except ValueError as error:
        raise ImportFailed(f"{name} is no number: {text!r}") from error
    if not 0 <= share <= 1:
        raise ImportFailed(f"{name} is not between 0 and 1: {text!r}")
    return share


def _truth(text: str) -> bool:
    return text.lower() in ("true", "1", "t")


def _headers(environment: Mapping[str, str], folder: Path) -> tuple[tuple[str, str], ...]:
    """Headers of the environment, then those of mounted secrets: every file of every secret is one."""
    lines = [environment[name] for name in sorted(environment) if name.startswith(_EXTRA_HEADER)]
    if folder.is_dir():
        for file in sorted(folder.glob("*/*")):
            if file.is_file() and not file.name.startswith(".."):
                with file.open("rb") as content:
                    lines.append(content.read(_HEADER_FILE_BYTES).decode(errors="replace"))
    return tuple(_header(line.strip()) for line in lines if line.strip())


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name.strip() or any(character in line for character in "\r\n\0"):
        raise ImportFailed(
            "Unable to connect to http data source: an extra header is not of the form Name: Value"
        )
    return name.strip(), value.strip()
