"""The digest of an image in a registry, by skopeo."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from virtplane.storage.cdi import skopeo

_REFERENCE = re.compile(r"docker://(?P<host>[^/\s]+)/(?P<name>[^\s]+)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_COMPLAINT_BYTES = 4096
_PASSED_ON = ("HOME", "PATH", "TMPDIR", "SSL_CERT_DIR", "SSL_CERT_FILE")
"""Variables that programs are started with: never those with the password."""
_TIMEOUT_SECONDS = 300.0


class NoDigest(Exception):
    """The registry does not tell the digest; the text says why."""


@dataclass(frozen=True, slots=True)
class Registry:
    """How a registry is spoken with."""

    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    cert_folders: tuple[Path, ...] = ()
    insecure_tls: bool = False
    proxies: tuple[tuple[str, str], ...] = ()
    """Variables of the environment that name proxies."""


async def image_digest(url: str, registry: Registry) -> str:
    """The digest that ``docker://...`` has now: of the list of images where there is one. Raises NoDigest."""
    found = _REFERENCE.fullmatch(url)
    if found is None:
        raise NoDigest(f"{url!r} is no docker:// reference")
    with contextlib.ExitStack() as files:
        command = ["skopeo", "--command-timeout", f"{_TIMEOUT_SECONDS:.0f}s", "inspect"]
        command += ["--raw", "--no-tags", "--retry-times", "2"]
        if registry.insecure_tls:
            command.append("--tls-verify=false")
        if registry.access_key:
            keys = skopeo.credentials(found["host"], registry.access_key, registry.secret_key)
            command += ["--authfile", str(files.enter_context(keys))]
        if folder := files.enter_context(skopeo.certificates(registry.cert_folders)):
            command += ["--cert-dir", str(folder)]
        document = await _run([*command, url], dict(registry.proxies))
    return await _digest_of(document)


async def _run(command: list[str], proxies: Mapping[str, str]) -> bytes:
    """What a program prints. Raises NoDigest where it fails."""
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**environment, **proxies},
    )
    output, complaint = await process.communicate()
    if process.returncode != 0:
        raise NoDigest(complaint[:_COMPLAINT_BYTES].decode(errors="replace").strip())
    return output


async def _digest_of(manifest: bytes) -> str:
    """The digest of a manifest, as skopeo computes it: older manifests are signed."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(manifest)
        file.flush()
        text = (await _run(["skopeo", "manifest-digest", file.name], {})).decode(errors="replace").strip()
    if not _DIGEST.fullmatch(text):
        raise NoDigest(f"skopeo tells no digest, but {text[:200]!r}")
    return text
