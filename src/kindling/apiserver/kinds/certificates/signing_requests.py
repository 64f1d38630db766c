"""What a certificate signing request (PKCS #10) says.

The library that reads them is loaded with the first one: it takes 10 MiB that a server without them need not
have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

_BEGIN = b"-----BEGIN "


def load(pem: bytes) -> x509.CertificateSigningRequest:
    """The request in `pem`. Raises ValueError when it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - see above

    return x509.load_pem_x509_csr(pem)


def problem_of_certificates(pem: bytes) -> str:
    """Why `pem` is no chain of certificates; empty if it is one."""
    count = 0
    for part in pem.split(_BEGIN)[1:]:
        kind, _, rest = part.partition(b"-----")
        content, end, _ = rest.partition(b"-----END " + kind + b"-----")
        if not end:
            continue
        count += 1
        if kind != b"CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind.decode(errors="replace")}"'
        if b":" in content:
            return "no PEM block headers are permitted"
        if not content.strip():
            return "found CERTIFICATE PEM block containing 0 certificates"
        if not _is_certificate(_BEGIN + kind + b"-----" + content + end + b"\n"):
            return "x509: malformed certificate"
    return "" if count else "must contain at least one CERTIFICATE PEM block"


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
