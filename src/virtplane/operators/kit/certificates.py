"""A product's own certificate authorities and the certificates that they issue.

Everything here is pure apart from the random numbers in keys: given the secrets there are, the moment and
the lifetimes wanted, `plan` says which secrets there should be. Renewal keeps the old authority in the
published bundle until its certificates have run out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubecore.json import JsonObject, get_object, get_str
from virtplane.operators.kit.product import Product

BUNDLE_KEY = "ca-bundle"
"""Under this key ConfigMaps hold the authorities to trust."""
CERTIFICATE_KEY = "tls.crt"
PRIVATE_KEY = "tls.key"

_SERVICE_SUFFIXES = ("svc", "svc.cluster.local", "pod.cluster.local")
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

    def of(self, spec: CertificateSpec) -> Lifetime:
        """The lifetime of one certificate."""
        return self.client if spec.client and self.client is not None else self.server


@dataclass(frozen=True, slots=True)
class CertificateSpec:
    """A certificate to issue. `service` is the name of its service, if any."""

    secret: str
    common_name: str
    authority: str
    """The authority's secret."""
    service: str = ""
    client: bool = False


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """All authorities and certificates of a product.

    The ConfigMap that publishes an authority's bundle, under `bundle_key`, has the name of the authority's
    secret and `bundle_suffix`. The first authority is the one that the cluster verifies webhooks and
    aggregated services by.
    """

    product: Product
    authorities: Sequence[str]
    certificates: Sequence[CertificateSpec]
    bundle_suffix: str = ""
    bundle_key: str = BUNDLE_KEY


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate. Raises ValueError if it is invalid."""
        return x509.load_pem_x509_certificate(self.certificate)


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


def issue(
    spec: CertificateSpec, authority: KeyPair, namespace: str, lifetime: timedelta, now: datetime
) -> KeyPair:
    """A certificate of `authority` for one component."""
    issuer = authority.parsed
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] if spec.client else [ExtendedKeyUsageOID.SERVER_AUTH]
    if not spec.client:
        usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, spec.common_name)]))
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
    if spec.service:
        names = [f"{spec.service}.{namespace}.{suffix}" for suffix in _SERVICE_SUFFIXES]
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False
        )
    return _key_pair(builder.sign(issuer_key, hashes.SHA256()), key)


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


def secret_of(name: str, namespace: str, pair: KeyPair, labels: Mapping[str, str]) -> JsonObject:
    """The TLS secret for a pair."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "type": "kubernetes.io/tls",
        "data": {
            CERTIFICATE_KEY: base64.b64encode(pair.certificate).decode(),
            PRIVATE_KEY: base64.b64encode(pair.key).decode(),
        },
    }


@dataclass(frozen=True, slots=True)
class CertificatePlan:
    """The wanted secrets and bundles, and when to check again."""

    secrets: tuple[JsonObject, ...]
    bundles: tuple[JsonObject, ...]
    ca_bundle: str
    """The bundle of the first authority, PEM."""
    next_renewal: datetime


def plan(
    wanted: CertificateSet,
    existing: Mapping[str, JsonObject],
    published: Mapping[str, str],
    namespace: str,
    lifetimes: Lifetimes,
    now: datetime,
) -> CertificatePlan:
    """What the certificates of a product should be.

    `existing` are the secrets by name and `published` the bundles by their ConfigMaps' names. What is still
    good is kept as it is.
    """
    labels = wanted.product.labels()
    pairs: dict[str, KeyPair] = {}
    secrets: list[JsonObject] = []
    bundles: list[JsonObject] = []
    texts: dict[str, str] = {}
    for name in wanted.authorities:
        pair = pair_of(existing.get(name))
        if (
            pair is None
            or needs_renewal(pair, lifetimes.authority.renew_before, now)
            or outlives(pair, lifetimes.authority, now)
        ):
            pair = new_authority(name, lifetimes.authority.duration, now)
        pairs[name] = pair
        secrets.append(secret_of(name, namespace, pair, labels))
        where = f"{name}{wanted.bundle_suffix}"
        texts[name] = bundle(pair.certificate, published.get(where, ""), now)
        bundles.append(_bundle_object(where, namespace, {wanted.bundle_key: texts[name]}, labels))
    for spec in wanted.certificates:
        pair = pair_of(existing.get(spec.secret))
        authority = pairs[spec.authority]
        if (
            pair is None
            or needs_renewal(pair, lifetimes.of(spec).renew_before, now)
            or outlives(pair, lifetimes.of(spec), now)
            or not is_issued_by(pair, authority)
        ):
            pair = issue(spec, authority, namespace, lifetimes.of(spec).duration, now)
        pairs[spec.secret] = pair
        secrets.append(secret_of(spec.secret, namespace, pair, labels))
    return CertificatePlan(
        tuple(secrets), tuple(bundles), texts[wanted.authorities[0]], _next_renewal(wanted, pairs, lifetimes)
    )


def _next_renewal(wanted: CertificateSet, pairs: Mapping[str, KeyPair], lifetimes: Lifetimes) -> datetime:
    renewed = dict.fromkeys(wanted.authorities, lifetimes.authority)
    renewed |= {spec.secret: lifetimes.of(spec) for spec in wanted.certificates}
    return min(pair.parsed.not_valid_after_utc - renewed[name].renew_before for name, pair in pairs.items())


def _bundle_object(
    name: str, namespace: str, data: Mapping[str, str], labels: Mapping[str, str]
) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
        "data": dict(data),
    }


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
