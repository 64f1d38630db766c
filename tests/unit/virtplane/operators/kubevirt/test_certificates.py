"""How long the certificates of an installation live, and what they name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from kubecore.certificates import Lifetime, pair_of
from kubecore.json import JsonObject
from virtplane.operators.kit.certificates import plan
from virtplane.operators.kubevirt.certificates import API_SECRET, CERTIFICATES, lifetimes


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


def test_virt_api_is_certified_under_the_name_of_its_service() -> None:
    planned = plan(CERTIFICATES, {}, {}, "kubevirt", lifetimes({}), datetime(2026, 1, 1, tzinfo=UTC))
    secret = next(secret for secret in planned.secrets if secret["metadata"]["name"] == API_SECRET)
    pair = pair_of(secret)
    assert pair is not None
    names = pair.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "virt-api.kubevirt.svc" in names.get_values_for_type(x509.DNSName)
