"""What a certificate signing request (PKCS #10) says.

The library that reads them is loaded with the first one: it takes 10 MiB that a server without them need not
have.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509


def load(pem: bytes) -> x509.CertificateSigningRequest:
    """The request in `pem`. Raises ValueError when it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - see above

    return x509.load_pem_x509_csr(pem)


_BLOCK = re.compile(rb"-----BEGIN ([^\n-]*)-----\r?\n(.*?)-----END \1-----", re.DOTALL)


def problem_of_certificates(pem: bytes) -> str:
    """Why `pem` is no chain of certificates; empty if it is one."""
    blocks = list(_BLOCK.finditer(pem))
    for block in blocks:
        kind, content = block[1].decode(errors="replace"), block[2]
        if kind != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind}"'
        if b":" in content:
            return "no PEM block headers are permitted"
        if not content.strip():
            return "found CERTIFICATE PEM block containing 0 certificates"
        if not _is_certificate(block[0] + b"\n"):
            return "x509: malformed certificate"
    return "" if blocks else "must contain at least one CERTIFICATE PEM block"


def _is_certificate(pem: bytes) -> bool:
    from cryptography import x509  # noqa: PLC0415 - see above

    try:
        x509.load_pem_x509_certificate(pem)
    except ValueError:
        return False
    return True


def organizations(pem: bytes) -> list[str]:
    """The organizations of the subject, which Kubernetes takes for groups. Raises ValueError."""
    subject = load(pem).subject
    return [str(attribute.value) for attribute in subject if attribute.rfc4514_attribute_name == "O"]
