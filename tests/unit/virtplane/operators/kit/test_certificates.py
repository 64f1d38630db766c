"""A product's certificates over time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from tests.support.bakery import BAKERY

from kubecore.certificates import Lifetime, Lifetimes, is_issued_by, pair_of
from kubecore.json import JsonObject, deep_copy
from virtplane.operators.kit import certificates
from virtplane.operators.kit.certificates import (
    CertificatePlan,
    CertificateSet,
    CertificateSpec,
    NotedValidity,
    plan,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEEK, DAY = timedelta(days=7), timedelta(days=1)
CERTIFICATES = CertificateSet(
    BAKERY,
    authorities=("bakery-ca", "bakery-delivery-ca"),
    certificates=(
        CertificateSpec("oven-certs", "oven", "bakery-ca", service="oven"),
        CertificateSpec("baker-certs", "bakery:client:baker", "bakery-ca", client=True),
        CertificateSpec("courier-certs", "courier", "bakery-delivery-ca", service="courier"),
    ),
)
USUAL = Lifetimes(Lifetime(WEEK, WEEK * 0.2), Lifetime(DAY, DAY * 0.2))


def planned(existing: dict[str, JsonObject], published: dict[str, str], now: datetime) -> CertificatePlan:
    return plan(CERTIFICATES, existing, published, "bread", USUAL, now)


def by_name(documents: tuple[JsonObject, ...]) -> dict[str, JsonObject]:
    return {document["metadata"]["name"]: document for document in documents}


def test_every_certificate_is_issued_by_the_published_authority() -> None:
    first = planned({}, {}, NOW)
    secrets = by_name(first.secrets)
    for spec in CERTIFICATES.certificates:
        pair, authority = pair_of(secrets[spec.secret]), pair_of(secrets[spec.authority])
        assert pair is not None and authority is not None
        assert is_issued_by(pair, authority)
        bundle = by_name(first.bundles)[spec.authority]["data"][certificates.BUNDLE_KEY]
        assert authority.certificate.decode() in bundle
    assert by_name(first.bundles)["bakery-ca"]["data"][certificates.BUNDLE_KEY] == first.ca_bundle


def test_secrets_and_bundles_carry_the_label_of_their_product() -> None:
    first = planned({}, {}, NOW)
    for document in (*first.secrets, *first.bundles):
        assert document["metadata"]["labels"] == {"bakery.example": ""}


def test_services_are_named_in_their_certificates() -> None:
    secrets = by_name(planned({}, {}, NOW).secrets)
    pair = pair_of(secrets["oven-certs"])
    assert pair is not None
    names = pair.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "oven.bread.svc" in names.get_values_for_type(x509.DNSName)


def test_what_is_still_good_is_kept() -> None:
    first = planned({}, {}, NOW)
    again = planned(by_name(first.secrets), {"bakery-ca": first.ca_bundle}, NOW + timedelta(hours=1))
    assert again.secrets == first.secrets
    assert again.ca_bundle == first.ca_bundle


def test_certificates_are_renewed_before_their_end_and_the_authority_stays() -> None:
    first = by_name(planned({}, {}, NOW).secrets)
    later = by_name(planned(first, {}, NOW + timedelta(hours=20)).secrets)
    assert later["bakery-ca"] == first["bakery-ca"]
    assert later["oven-certs"] != first["oven-certs"]


def test_a_new_authority_reissues_everything_and_the_old_one_stays_trusted() -> None:
    first = planned({}, {}, NOW)
    later = planned(by_name(first.secrets), {"bakery-ca": first.ca_bundle}, NOW + timedelta(days=6))
    assert len(x509.load_pem_x509_certificates(later.ca_bundle.encode())) == 2
    authority = pair_of(by_name(later.secrets)["bakery-ca"])
    pair = pair_of(by_name(later.secrets)["oven-certs"])
    assert authority is not None and pair is not None
    assert is_issued_by(pair, authority)


def test_run_out_authorities_leave_the_bundle() -> None:
    first = planned({}, {}, NOW)
    later = planned(by_name(first.secrets), {"bakery-ca": first.ca_bundle}, NOW + timedelta(days=8))
    assert len(x509.load_pem_x509_certificates(later.ca_bundle.encode())) == 1


def test_the_next_renewal_is_that_of_the_shortest_lived_certificate() -> None:
    assert planned({}, {}, NOW).next_renewal == NOW + DAY * 0.8


def test_a_shortened_lifetime_holds_at_once() -> None:
    first = planned({}, {}, NOW)
    short = Lifetimes(Lifetime(WEEK, WEEK * 0.2), Lifetime(DAY, DAY * 0.2), Lifetime(DAY / 2, DAY / 4))
    then = plan(CERTIFICATES, by_name(first.secrets), {}, "bread", short, NOW + timedelta(minutes=1))
    before, after = by_name(first.secrets), by_name(then.secrets)
    assert {name for name in before if before[name] != after[name]} == {"baker-certs"}
    pair = pair_of(after["baker-certs"])
    assert pair is not None
    assert pair.parsed.not_valid_after_utc == NOW + timedelta(minutes=1) + DAY / 2


def test_bundles_have_the_names_and_the_key_that_the_product_wants() -> None:
    wanted = replace(CERTIFICATES, bundle_suffix="-bundle", bundle_key="ca.crt")
    first = plan(wanted, {}, {}, "bread", USUAL, NOW)
    bundles = by_name(first.bundles)
    assert {name: list(found["data"]) for name, found in bundles.items()} == {
        "bakery-ca-bundle": ["ca.crt"],
        "bakery-delivery-ca-bundle": ["ca.crt"],
    }
    published = {name: found["data"]["ca.crt"] for name, found in bundles.items()}
    second = plan(wanted, {}, published, "bread", USUAL, NOW + DAY)
    for name, found in by_name(second.bundles).items():
        assert found["data"]["ca.crt"].endswith(published[name])


NOTED = replace(CERTIFICATES, noted=NotedValidity("test/from", "test/to", "test/life"))


def test_secrets_say_how_long_their_certificates_are_valid() -> None:
    secrets = by_name(plan(NOTED, {}, {}, "bread", USUAL, NOW).secrets)
    assert secrets["bakery-ca"]["metadata"]["annotations"] == {
        "test/from": "2026-01-01T00:00:00Z",
        "test/to": "2026-01-08T00:00:00Z",
        "test/life": '{"lifetime":"168h0m0s","refresh":"134h24m0s"}',
    }
    assert secrets["oven-certs"]["metadata"]["annotations"] == {
        "test/from": "2026-01-01T00:00:00Z",
        "test/to": "2026-01-02T00:00:00Z",
        "test/life": '{"lifetime":"24h0m0s","refresh":"19h12m0s"}',
    }


def test_a_certificate_is_renewed_when_its_lifetime_changes() -> None:
    first = plan(NOTED, {}, {}, "bread", USUAL, NOW)
    longer = Lifetimes(USUAL.authority, Lifetime(DAY * 2, DAY * 0.2))
    then = plan(NOTED, by_name(first.secrets), {}, "bread", longer, NOW + timedelta(minutes=1))
    before, after = by_name(first.secrets), by_name(then.secrets)
    renewed = {name for name in before if before[name]["data"] != after[name]["data"]}
    assert renewed == {spec.secret for spec in NOTED.certificates}


def test_what_is_noted_as_valid_is_kept() -> None:
    first = plan(NOTED, {}, {}, "bread", USUAL, NOW)
    again = plan(NOTED, by_name(first.secrets), {}, "bread", USUAL, NOW + timedelta(hours=1))
    assert again.secrets == first.secrets


@pytest.mark.parametrize("noted", ["2026-01-01T00:00:01Z", "", "soon", None])
def test_a_certificate_is_renewed_when_its_note_is_ended_or_removed(noted: str | None) -> None:
    before = by_name(plan(NOTED, {}, {}, "bread", USUAL, NOW).secrets)
    asked = {**before, "oven-certs": _with_note(before["oven-certs"], noted)}
    after = by_name(plan(NOTED, asked, {}, "bread", USUAL, NOW + timedelta(minutes=1)).secrets)
    assert {name for name in before if before[name]["data"] != after[name]["data"]} == {"oven-certs"}
    assert after["oven-certs"]["metadata"]["annotations"]["test/to"] == "2026-01-02T00:01:00Z"


def test_an_authority_that_is_renewed_by_its_note_reissues_its_certificates() -> None:
    first = plan(NOTED, {}, {}, "bread", USUAL, NOW)
    before = by_name(first.secrets)
    asked = {**before, "bakery-ca": _with_note(before["bakery-ca"], None)}
    then = plan(NOTED, asked, {"bakery-ca": first.ca_bundle}, "bread", USUAL, NOW + timedelta(minutes=1))
    after = by_name(then.secrets)
    changed = {name for name in before if before[name]["data"] != after[name]["data"]}
    assert changed == {"bakery-ca", "oven-certs", "baker-certs"}
    assert len(x509.load_pem_x509_certificates(then.ca_bundle.encode())) == 2


def _with_note(secret: JsonObject, noted: str | None) -> JsonObject:
    changed = deep_copy(secret)
    if noted is None:
        del changed["metadata"]["annotations"]["test/to"]
    else:
        changed["metadata"]["annotations"]["test/to"] = noted
    return changed
