"""Which servers an import trusts."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path

from virtplane.storage.cdi.importer.outcome import ImportFailed


def tls_context(*, insecure: bool, folders: Sequence[Path]) -> ssl.SSLContext:
    """TLS that trusts the system's authorities and those in `folders`.

    Raises ImportFailed for unreadable ones.
    """
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    context = ssl.create_default_context()
    for folder in folders:
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir()):
            if not file.is_file() or file.name.startswith(".."):
                continue
            try:
                context.load_verify_locations(cafile=file)
            except (ssl.SSLError, OSError) as error:
                raise ImportFailed(
                    f"the certificate authority {file.name} cannot be used: {error}"
                ) from error
    return context
