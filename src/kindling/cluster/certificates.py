"""The cluster's certificates and keys: one CA for servers and clients, one for front proxies, token keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kindling.cluster.instance import Instance, write_atomically
from kindling.metrics import manifests as metrics

_CA_YEARS = 10
_LEAF_DAYS = 365
_RENEW_DAYS = 30
"""Leaves with less life left are made anew by ``up``, and daily by the supervisor."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf certificate to issue: file name, subject, and for servers their DNS names and IP addresses."""

    name: str
    common_name: str
    organisations: Sequence[str] = ()
    hosts: Sequence[str] = ()
    authority: str = "ca"

    @property
    def purpose(self) -> x509.ObjectIdentifier:
        """The extended key usage: a serving certificate must not be usable as a client's credentials."""
        return ExtendedKeyUsageOID.SERVER_AUTH if self.hosts else ExtendedKeyUsageOID.CLIENT_AUTH


def leaves(instance: Instance) -> list[Leaf]:
    """All certificates of an instance.

    Only the administrator is in the group ``system:masters``. The components have their own roles, which are
    bound to their user names (``kindling.apiserver.bootstrap``).
    """
    api_hosts = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        "::1",
        instance.gateway,
        instance.kubernetes_service,
    )
    certificates = [
        Leaf("apiserver", "kube-apiserver", hosts=api_hosts),
        Leaf("apiserver-kubelet-client", "kube-apiserver-kubelet-client"),
        Leaf("admin", "kubernetes-admin", ("system:masters",)),
        Leaf("controllers", "system:kube-controller-manager"),
        Leaf("scheduler", "system:kube-scheduler"),
        Leaf("service-proxy", "system:kube-proxy"),
        Leaf("metrics", metrics.USER),
        Leaf("metrics-server", metrics.SERVICE, hosts=(metrics.SERVER_NAME,)),
        Leaf("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
    ]
    for node in instance.nodes():
        name = f"system:node:{node.name}"
        certificates.append(Leaf(f"node-{node.name}", name, ("system:nodes",)))
        hosts = (node.name, *node.addresses)
        certificates.append(Leaf(f"node-{node.name}-server", name, ("system:nodes",), hosts))
    return certificates


def ensure(instance: Instance) -> list[str]:
    """Issue certificates that are missing or about to expire, and return their names; keep the others."""
    directory = instance.pki
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for authority in ("ca", "front-proxy-ca"):
        if not (directory / f"{authority}.crt").exists():
            _make_authority(directory, authority)
    if not (directory / "sa.key").exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(directory / "sa.key", key)
    due = [leaf for leaf in leaves(instance) if not _is_good(directory / f"{leaf.name}.crt", leaf)]
    for leaf in due:
        _make_leaf(directory, leaf)
    return [leaf.name for leaf in due]


def forget_node(instance: Instance, name: str) -> None:
    """Remove the certificates and keys of a removed node."""
    for leaf in (f"node-{name}", f"node-{name}-server"):
        for ending in ("crt", "key"):
            (instance.pki / f"{leaf}.{ending}").unlink(missing_ok=True)


def _make_authority(directory: Path, name: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kindling-{name}")])
    now = datetime.now(UTC)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365 * _CA_YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(directory / f"{name}.key", key)
    write_atomically(directory / f"{name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _make_leaf(directory: Path, leaf: Leaf) -> None:
    authority = x509.load_pem_x509_certificate((directory / f"{leaf.authority}.crt").read_bytes())
    signer = serialization.load_pem_private_key((directory / f"{leaf.authority}.key").read_bytes(), None)
    if not isinstance(signer, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{leaf.authority}.key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    usage = x509.KeyUsage(True, False, True, False, False, False, False, False, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(leaf))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=_LEAF_DAYS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([leaf.purpose]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if leaf.hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in leaf.hosts])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    _write_key(directory / f"{leaf.name}.key", key)
    write_atomically(directory / f"{leaf.name}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _is_good(path: Path, leaf: Leaf) -> bool:
    if not path.exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    if certificate.not_valid_after_utc < datetime.now(UTC) + timedelta(days=_RENEW_DAYS):
        return False
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    if certificate.subject != _subject(leaf) or list(usage) != [leaf.purpose]:
        return False
    if not leaf.hosts:
        return True
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_host(host) in names for host in leaf.hosts)


def _subject(leaf: Leaf) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in leaf.organisations]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, leaf.common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    encoded = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_atomically(path, encoded, 0o600)
    path.chmod(0o600)
