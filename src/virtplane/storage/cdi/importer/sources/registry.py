"""Container disks in registries: skopeo brings the image into the scratch volume, the disk is read out of
its layers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from virtplane.storage.cdi import skopeo
from virtplane.storage.cdi.importer.archives import TarEntries, find
from virtplane.storage.cdi.importer.http import STALL_SECONDS
from virtplane.storage.cdi.importer.outcome import ImportFailed, Outcome, ScratchNeeded, TooLarge
from virtplane.storage.cdi.importer.pipeline import FileReader, Job, from_stream
from virtplane.storage.cdi.importer.streams import peel

_FOLDER = "disk"
_REFERENCE = re.compile(r"docker://(?P<host>[^/\s]+)/(?P<name>[^\s]+)$")
_DOCUMENT_BYTES = 4 << 20
_LABEL_MARK = "KUBEVIRT_IO_"
_BOOTC = ("containers.bootc", "ostree.bootable")
_PULL_FAILED = "failed to pull image: "
_NO_INSTANCE = re.compile(r"no image found in (image index|manifest list) for architecture [\\\"]*([\w.-]+)")
_COMPLAINT_BYTES = 4096
_LOOK_SECONDS = 5.0
"""How often to look how far skopeo is: it tells nobody."""
_BOOTC_TEXT = (
    "bootc image detected: this image contains an ostree-based bootable OS (containers.bootc=1 or "
    "ostree.bootable=1) "
    "and cannot be imported as a regular container disk; bootc-to-disk conversion is not yet implemented"
)


class _Blob(msgspec.Struct, frozen=True):
    digest: str


class _Manifest(msgspec.Struct, frozen=True):
    config: _Blob
    layers: tuple[_Blob, ...]


class _Defaults(msgspec.Struct, frozen=True):
    environment: tuple[str, ...] | None = msgspec.field(default=None, name="Env")
    labels: dict[str, str] | None = msgspec.field(default=None, name="Labels")


class _Configuration(msgspec.Struct, frozen=True):
    architecture: str = ""
    config: _Defaults | None = None


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image's manifest and configuration say: layers in order, and the labels that its environment
    makes.
    """

    layers: tuple[str, ...]
    architecture: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    bootable_os: bool = False


async def from_registry(job: Job) -> Outcome:
    """Import the first disk below ``disk/`` in the image. Raises ImportFailed, ScratchNeeded, OSError."""
    if not job.settings.has_scratch:
        raise ScratchNeeded
    folder = job.settings.paths.scratch / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    try:
        await _pull(job, folder)
        facts = read_image(folder)
        if facts.bootable_os:
            raise ImportFailed(f"Unable to process data: {_BOOTC_TEXT}")
        wanted = job.settings.architecture
        if wanted and facts.architecture != wanted:
            raise ImportFailed(
                f"Unable to process data: Error validating architecture: manifest image architecture: "
                f'"{facts.architecture}" doesn\'t match requested architecture: "{wanted}"'
            )
        outcome = await _from_layers(job, folder, facts)
        return Outcome(
            message=outcome.message, preallocation_applied=outcome.preallocation_applied, labels=facts.labels
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_image(folder: Path) -> ImageFacts:
    """The facts of an image that skopeo has stored in `folder`. Raises ImportFailed for what is none."""
    try:
        manifest = msgspec.json.decode(_head(folder / "manifest.json"), type=_Manifest)
        config = msgspec.json.decode(_head(folder / _file(manifest.config.digest)), type=_Configuration)
        layers = tuple(_file(layer.digest) for layer in manifest.layers)
    except (OSError, ValueError, RecursionError) as error:
        raise ImportFailed(
            f"Unable to process data: {_PULL_FAILED}the image's manifest is damaged: {error}"
        ) from error
    inner = config.config or _Defaults()
    labels = inner.labels or {}
    bootable = any(labels.get(name) == "1" for name in _BOOTC)
    return ImageFacts(layers, config.architecture, labels_of(inner.environment or ()), bootable)


def labels_of(environment: tuple[str, ...]) -> dict[str, str]:
    """The labels that an image asks for: ``INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=fedora`` and its
    like.
    """
    labels = {}
    for entry in environment:
        name, _, value = entry.partition("=")
        before, mark, rest = name.partition(_LABEL_MARK)
        if mark:
            prefix = before.replace("_", ".")
            labels[f"{prefix}kubevirt.io/{rest.replace('_', '-')}".lower()] = value
    return labels


async def _pull(job: Job, folder: Path) -> None:
    settings = job.settings
    found = _REFERENCE.match(settings.endpoint)
    if not found:
        raise ImportFailed(
            f"Unable to process data: {_PULL_FAILED}{settings.endpoint!r} is no docker:// reference"
        )
    command = ["skopeo", "--insecure-policy", "--override-os", "linux"]
    if settings.architecture:
        command += ["--override-arch", settings.architecture]
    command += ["copy", "--quiet", "--retry-times", "2"]
    if settings.insecure_tls:
        command.append("--src-tls-verify=false")
    with contextlib.ExitStack() as files:
        if settings.access_key:
            keys = skopeo.credentials(found["host"], settings.access_key, settings.secret_key)
            command += ["--src-authfile", str(files.enter_context(keys))]
        if certificates := files.enter_context(skopeo.certificates(settings.cert_folders)):
            command += ["--src-cert-dir", str(certificates)]
        await _copied([*command, settings.endpoint, f"dir:{folder}"], folder, job.target.largest_file())


async def _copied(command: Sequence[str], folder: Path, most: int) -> None:
    """Run skopeo, for as long as the files in `folder` grow, up to `most` bytes. Raises ImportFailed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    complaint = asyncio.create_task(_complaint(process.stderr))
    watching = asyncio.create_task(_watch(folder, most))
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait((ended, watching), return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            await watching
        if await ended != 0:
            raise failure(await complaint)
        if _size(folder) > most:
            raise _too_large(most)
    finally:
        watching.cancel()
        if process.returncode is None:
            process.kill()
        await asyncio.gather(ended, complaint, watching, return_exceptions=True)


def failure(complaint: str) -> ImportFailed:
    """What skopeo's complaint means: an image that has nothing for an architecture was reached all the same.

    The words are those that clients know from CDI.
    """
    absent = _NO_INSTANCE.search(complaint)
    if absent is None:
        return ImportFailed(f"Unable to process data: {_PULL_FAILED}{complaint}")
    return ImportFailed(
        "Unable to process data: Unable to transfer source data to scratch space: "
        "Failed to read registry image: Error retrieving image: choosing image instance: "
        f"no image found in {absent[1]} for architecture "
        f'"{absent[2]}", variant "", OS "linux"'
    )


async def _watch(folder: Path, most: int) -> None:
    """Raise ImportFailed once the files in `folder` are too large, or have not grown for a while."""
    known, quiet = -1, 0.0
    while quiet < STALL_SECONDS:
        await asyncio.sleep(_LOOK_SECONDS)
        size = await asyncio.to_thread(_size, folder)
        if size > most:
            raise _too_large(most)
        quiet = 0.0 if size != known else quiet + _LOOK_SECONDS
        known = size
    raise ImportFailed(f"Unable to process data: {_PULL_FAILED}no progress for 10 minutes")


def _size(folder: Path) -> int:
    """How many bytes the files in `folder` have."""
    try:
        with os.scandir(folder) as entries:
            return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    except FileNotFoundError:  # skopeo makes the folder, and renames files in it.
        return 0


def _too_large(most: int) -> TooLarge:
    return TooLarge(
        f"Unable to process data: {_PULL_FAILED}the image is larger than the reported available storage "
        f"{most}. A larger PVC is required"
    )


async def _complaint(stream: asyncio.StreamReader) -> str:
    kept = await stream.read(_COMPLAINT_BYTES)
    while await stream.read(_COMPLAINT_BYTES):
        pass
    return kept.decode(errors="replace").strip()


async def _from_layers(job: Job, folder: Path, facts: ImageFacts) -> Outcome:
    """Import the first disk that a layer has. Raises as `from_registry`."""
    for layer in facts.layers:
        stream, _, _ = await peel(FileReader(folder / layer))
        entries = TarEntries(stream)
        try:
            if await find(entries, is_disk) is None:
                continue
            disk, kind, _ = await peel(entries)
            return await from_stream(job, disk, job.disk_kind(kind))
        finally:
            await entries.close()
    raise ImportFailed("Unable to process data: Failed to find VM disk image file in the container image")


def is_disk(name: str) -> bool:
    """Whether a file of a layer is the image's disk: one below ``disk/`` that is no mark of a removed
    file.
    """
    return name.startswith("disk/") and not name.rpartition("/")[2].startswith(".wh.")


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_DOCUMENT_BYTES)


def _file(digest: object) -> str:
    """The name under which skopeo stores what has `digest`. Raises ValueError."""
    algorithm, _, name = str(digest).partition(":")
    if not algorithm or not re.fullmatch(r"[0-9a-f]{32,128}", name):
        raise ValueError(f"{digest!r} is no digest")
    return name
