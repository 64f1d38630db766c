"""The installation's certificates over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from kubecore.json import JsonObject
from virtplane.operators.kit import certificates
from virtplane.operators.kit.certificates import Lifetime, Lifetimes, pair_of, plan
from virtplane.operators.kubevirt.controller import lifetimes

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEEK, DAY = timedelta(days=7), timedelta(days=1)
USUAL = Lifetimes(Lifetime(WEEK, WEEK * 0.2), Lifetime(DAY, DAY * 0.2))


def planned(existing: dict[str, JsonObject], published: dict[str, str], now: datetime):  # type: ignore[no-untyped-def]
    return plan(existing, published, "kubevirt", USUAL, now)


def by_name(documents: tuple[JsonObject, ...]) -> dict[str, JsonObject]:
    return {document["metadata"]["name"]: document for document in documents}


def test_every_certificate_is_issued_by_the_published_authority() -> None:
    first = planned({}, {}, NOW)
    secrets = by_name(first.secrets)
    authority = pair_of(secrets[certificates.CA_SECRET])
    assert authority is not None
    for spec in certificates.CERTIFICATES:
        pair = pair_of(secrets[spec.secret])
        assert pair is not None and certificates.is_issued_by(pair, authority)
    assert authority.certificate.decode() in first.ca_bundle


def test_services_are_named_in_their_certificates() -> None:
    secrets = by_name(planned({}, {}, NOW).secrets)
    pair = pair_of(secrets[certificates.API_SECRET])
    assert pair is not None
    names = pair.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "virt-api.kubevirt.svc" in names.get_values_for_type(x509.DNSName)


def test_what_is_still_good_is_kept() -> None:
    first = planned({}, {}, NOW)
    again = planned(by_name(first.secrets), {"kubevirt-ca": first.ca_bundle}, NOW + timedelta(hours=1))
    assert again.secrets == first.secrets
    assert again.ca_bundle == first.ca_bundle


def test_certificates_are_renewed_before_their_end_and_the_authority_stays() -> None:
    first = by_name(planned({}, {}, NOW).secrets)
    later = by_name(planned(first, {}, NOW + timedelta(hours=20)).secrets)
    assert later[certificates.CA_SECRET] == first[certificates.CA_SECRET]
    assert later[certificates.API_SECRET] != first[certificates.API_SECRET]


def test_a_new_authority_reissues_everything_and_the_old_one_stays_trusted() -> None:
    first = planned({}, {}, NOW)
    later = planned(by_name(first.secrets), {"kubevirt-ca": first.ca_bundle}, NOW + timedelta(days=6))
    assert len(x509.load_pem_x509_certificates(later.ca_bundle.encode())) == 2
    authority = pair_of(by_name(later.secrets)[certificates.CA_SECRET])
    pair = pair_of(by_name(later.secrets)[certificates.API_SECRET])
    assert authority is not None and pair is not None
    assert certificates.is_issued_by(pair, authority)


def test_run_out_authorities_leave_the_bundle() -> None:
    first = planned({}, {}, NOW)
    later = planned(by_name(first.secrets), {"kubevirt-ca": first.ca_bundle}, NOW + timedelta(days=8))
    assert len(x509.load_pem_x509_certificates(later.ca_bundle.encode())) == 1


def test_the_next_renewal_is_that_of_the_shortest_lived_certificate() -> None:
    assert planned({}, {}, NOW).next_renewal == NOW + DAY * 0.8


@pytest.mark.parametrize(
    ("rotation", "server_hours", "renewal_hours"),
    [
        ({}, 24, 4.8),
        ({"server": {"duration": "10h", "renewBefore": "1h"}}, 10, 1),
        ({"certRotateInterval": "48h"}, 48, 9.6),
    ],
)
def test_lifetimes_follow_the_installation(
    rotation: JsonObject, server_hours: float, renewal_hours: float
) -> None:
    found = lifetimes({"certificateRotateStrategy": {"selfSigned": rotation}})
    assert found.server == Lifetime(timedelta(hours=server_hours), timedelta(hours=renewal_hours))
