"""Certificate authorities, the certificates that they issue, and how long these live.

Pure apart from the random numbers in keys. Keys are of the curve P-256.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubecore.json import JsonObject, get_object, get_str

CERTIFICATE_KEY = "tls.crt"
PRIVATE_KEY = "tls.key"

_BACKDATE = timedelta(minutes=5)
"""Clocks of machines differ a little."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The validity of a certificate, and how long before its end it is renewed."""

    duration: timedelta
    renew_before: timedelta


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The lifetimes of the authority and of its certificates; of clients' too unless those have their own."""

    authority: Lifetime
    server: Lifetime
    client: Lifetime | None = None

    def of(self, *, is_client: bool) -> Lifetime:
        """The lifetime of a certificate: a client's or a server's."""
        return self.client if is_client and self.client is not None else self.server


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate. Raises ValueError if it is invalid."""
        return x509.load_pem_x509_certificate(self.certificate)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Whom a certificate is for. A server is a client of others as well, a client only that."""

    common_name: str
    is_client: bool = False
    dns_names: tuple[str, ...] = ()


def new_authority(name: str, lifetime: timedelta, now: datetime) -> KeyPair:
    """A self-signed authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@{int(now.timestamp())}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _key_pair(certificate, key)


def issue(leaf: Leaf, authority: KeyPair, lifetime: timedelta, now: datetime) -> KeyPair:
    """A certificate of `authority`. It does not outlive it."""
    issuer = authority.parsed
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if leaf.is_client else [ExtendedKeyUsageOID.SERVER_AUTH]
    if not leaf.is_client:
        usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(min(now + lifetime, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if leaf.dns_names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in leaf.dns_names]), critical=False
        )
    return _key_pair(builder.sign(issuer_key, hashes.SHA256()), key)


def issued_at(pair: KeyPair) -> datetime:
    """When a certificate was made; it is valid from a little earlier. Raises ValueError if it is invalid."""
    return pair.parsed.not_valid_before_utc + _BACKDATE


def needs_renewal(pair: KeyPair | None, renew_before: timedelta, now: datetime) -> bool:
    """Whether a certificate is missing, unreadable, or close to its end."""
    if pair is None:
        return True
    try:
        return now >= pair.parsed.not_valid_after_utc - renew_before
    except ValueError:
        return True


def outlives(pair: KeyPair, lifetime: Lifetime, now: datetime) -> bool:
    """Whether a certificate is valid for longer than a new one would be: its lifetime was shortened since."""
    return pair.parsed.not_valid_after_utc > now + lifetime.duration


def is_issued_by(pair: KeyPair, authority: KeyPair) -> bool:
    """Whether `authority` signed the certificate."""
    try:
        pair.parsed.verify_directly_issued_by(authority.parsed)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def bundle(current: bytes, published: str, now: datetime) -> str:
    """The trusted authorities: `current` first, then earlier published ones that are still valid."""
    certificates = [x509.load_pem_x509_certificate(current)]
    for old in _parsed_bundle(published):
        if old.not_valid_after_utc > now and old not in certificates:
            certificates.append(old)
    return "".join(
        certificate.public_bytes(serialization.Encoding.PEM).decode() for certificate in certificates
    )


def pair_of(secret: JsonObject | None) -> KeyPair | None:
    """The certificate and key in a TLS secret; None if they are missing."""
    data = get_object(secret, "data")
    certificate, key = get_str(data, CERTIFICATE_KEY), get_str(data, PRIVATE_KEY)
    if not certificate or not key:
        return None
    return KeyPair(base64.b64decode(certificate), base64.b64decode(key))


def _parsed_bundle(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode()) if text.strip() else []
    except ValueError:
        return []


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


def utc_now() -> datetime:
    """The present moment, for callers that are not tests."""
    return datetime.now(UTC)
