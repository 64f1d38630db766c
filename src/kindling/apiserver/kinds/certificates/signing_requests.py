"""What a certificate signing request (PKCS #10) says.

The library that reads them is loaded with the first one: it takes 10 MiB that a server without them need not
have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509


def load(pem: bytes) -> x509.CertificateSigningRequest:
    """The request in `pem`. Raises ValueError when it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - see above

    return x509.load_pem_x509_csr(pem)


def organizations(pem: bytes) -> list[str]:
    """The organizations of the subject, which Kubernetes takes for groups. Raises ValueError."""
    subject = load(pem).subject
    return [str(attribute.value) for attribute in subject if attribute.rfc4514_attribute_name == "O"]
