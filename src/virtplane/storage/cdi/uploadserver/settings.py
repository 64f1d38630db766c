"""The upload server's environment, as the controller writes it (CDI's names)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from virtplane.serving.tls import TLSSettings
from virtplane.storage.cdi.importer.settings import Paths, Settings, read_settings


@dataclass(frozen=True, slots=True)
class UploadSettings:
    """One upload: whose it is, until when its certificates live, and how the volume is filled."""

    certificate: Path
    key: Path
    client_authority: Path
    client_name: str
    volume: Settings
    deadline: datetime | None
    tls: TLSSettings = field(default_factory=TLSSettings)
    address: str | None = None
    """None for every address of both families."""
    port: int = 8443


def read_upload_settings(environment: Mapping[str, str], paths: Paths | None = None) -> UploadSettings:
    """The settings in `environment`. Raises ImportFailed, KeyError for a missing certificate, ValueError."""
    deadline = environment.get("DEADLINE", "")
    volume = read_settings(
        {
            **environment,
            "IMPORTER_SOURCE": "upload",
            "IMPORTER_IMAGE_SIZE": environment.get("UPLOAD_IMAGE_SIZE", ""),
        },
        paths,
    )
    return UploadSettings(
        certificate=Path(environment["TLS_CERT_FILE"]),
        key=Path(environment["TLS_KEY_FILE"]),
        client_authority=Path(environment["CLIENT_CERT_FILE"]),
        client_name=environment["CLIENT_NAME"],
        volume=volume,
        deadline=datetime.fromisoformat(deadline) if deadline else None,
        tls=TLSSettings(_names(environment.get("TLS_CIPHERS", "")), environment.get("TLS_MIN_VERSION", "")),
        address=environment.get("LISTEN_ADDRESS") or None,
        port=int(environment.get("LISTEN_PORT") or 8443),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)
