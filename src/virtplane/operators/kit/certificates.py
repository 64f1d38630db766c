"""A product's own certificate authorities and the certificates that they issue.

Everything here is pure apart from the random numbers in keys: given the secrets there are, the moment and
the lifetimes wanted, `plan` says which secrets there should be. Renewal keeps the old authority in the
published bundle until its certificates have run out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubecore.certificates import (
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    KeyPair,
    Leaf,
    Lifetime,
    Lifetimes,
    bundle,
    is_issued_by,
    issue,
    issued_at,
    needs_renewal,
    new_authority,
    outlives,
    pair_of,
)
from kubecore.json import JsonObject, encode
from kubecore.objects import durations, meta, times
from virtplane.operators.kit.product import Product

BUNDLE_KEY = "ca-bundle"
"""Under this key ConfigMaps hold the authorities to trust."""

_SERVICE_SUFFIXES = ("svc", "svc.cluster.local", "pod.cluster.local")


@dataclass(frozen=True, slots=True)
class CertificateSpec:
    """A certificate to issue. `service` is the name of its service, if any."""

    secret: str
    common_name: str
    authority: str
    """The authority's secret."""
    service: str = ""
    client: bool = False

    def leaf(self, namespace: str) -> Leaf:
        """Whom the certificate is for, where the product is in `namespace`."""
        names = [f"{self.service}.{namespace}.{suffix}" for suffix in _SERVICE_SUFFIXES if self.service]
        return Leaf(self.common_name, is_client=self.client, dns_names=tuple(names))


@dataclass(frozen=True, slots=True)
class NotedValidity:
    """Annotations that say how long a certificate is valid, and by which lifetime it was made.

    An administrator has a certificate renewed by ending or removing `not_after`.
    """

    not_before: str
    not_after: str
    lifetime: str

    def annotations(self, pair: KeyPair, lifetime: Lifetime) -> JsonObject:
        """The annotations of a pair's secret."""
        return {
            self.not_before: times.format_time(issued_at(pair)),
            self.not_after: times.format_time(pair.parsed.not_valid_after_utc),
            self.lifetime: _text(lifetime),
        }

    def asks_for_renewal(self, secret: JsonObject, lifetime: Lifetime, now: datetime) -> bool:
        """Whether the secret says that its certificate ends or has another lifetime, or nothing."""
        noted = meta.annotations(secret)
        if noted.get(self.lifetime) != _text(lifetime):
            return True
        try:
            end = times.parse_time(noted.get(self.not_after, ""))
        except ValueError:
            return True
        return now >= end - lifetime.renew_before


def _text(lifetime: Lifetime) -> str:
    age = lifetime.duration - lifetime.renew_before
    document = {"lifetime": durations.text_of(lifetime.duration), "refresh": durations.text_of(age)}
    return encode(document).decode()


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
    noted: NotedValidity | None = None
    """Where the secrets say how long their certificates are valid, if they do."""


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
        pair = _still_good(wanted, existing.get(name), lifetimes.authority, now)
        if pair is None:
            pair = new_authority(name, lifetimes.authority.duration, now)
        pairs[name] = pair
        secrets.append(_secret(wanted, name, namespace, pair, lifetimes.authority))
        where = f"{name}{wanted.bundle_suffix}"
        texts[name] = bundle(pair.certificate, published.get(where, ""), now)
        bundles.append(_bundle_object(where, namespace, {wanted.bundle_key: texts[name]}, labels))
    for spec in wanted.certificates:
        authority, lifetime = pairs[spec.authority], _lifetime(spec, lifetimes)
        pair = _still_good(wanted, existing.get(spec.secret), lifetime, now)
        if pair is None or not is_issued_by(pair, authority):
            pair = issue(spec.leaf(namespace), authority, lifetime.duration, now)
        pairs[spec.secret] = pair
        secrets.append(_secret(wanted, spec.secret, namespace, pair, lifetime))
    return CertificatePlan(
        tuple(secrets), tuple(bundles), texts[wanted.authorities[0]], _next_renewal(wanted, pairs, lifetimes)
    )


def _secret(
    wanted: CertificateSet, name: str, namespace: str, pair: KeyPair, lifetime: Lifetime
) -> JsonObject:
    secret = secret_of(name, namespace, pair, wanted.product.labels())
    if wanted.noted is not None:
        secret["metadata"]["annotations"] = wanted.noted.annotations(pair, lifetime)
    return secret


def _still_good(
    wanted: CertificateSet, secret: JsonObject | None, lifetime: Lifetime, now: datetime
) -> KeyPair | None:
    """The pair of a secret, unless it is time for another."""
    pair = pair_of(secret)
    if secret is None or pair is None:
        return None
    if needs_renewal(pair, lifetime.renew_before, now) or outlives(pair, lifetime, now):
        return None
    if wanted.noted is not None and wanted.noted.asks_for_renewal(secret, lifetime, now):
        return None
    return pair


def _lifetime(spec: CertificateSpec, lifetimes: Lifetimes) -> Lifetime:
    return lifetimes.of(is_client=spec.client)


def _next_renewal(wanted: CertificateSet, pairs: Mapping[str, KeyPair], lifetimes: Lifetimes) -> datetime:
    renewed = dict.fromkeys(wanted.authorities, lifetimes.authority)
    renewed |= {spec.secret: _lifetime(spec, lifetimes) for spec in wanted.certificates}
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
