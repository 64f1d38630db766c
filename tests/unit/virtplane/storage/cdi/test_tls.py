"""Profiles of TLS."""

from __future__ import annotations

import ssl

import pytest

from virtplane.api.cdi_v1beta1.cdi_config import CustomTLSProfile, TLSProfileChoice, TLSSecurityProfile
from virtplane.storage.cdi.tls import TLSSettings, chosen


def _context(settings: TLSSettings) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    settings.apply(context)
    return context


@pytest.mark.parametrize(
    ("profile", "oldest"),
    [
        (TLSSecurityProfile(type="Old", old=TLSProfileChoice()), ssl.TLSVersion.TLSv1),
        (TLSSecurityProfile(type="Intermediate"), ssl.TLSVersion.TLSv1_2),
        (TLSSecurityProfile(type="Modern"), ssl.TLSVersion.TLSv1_3),
    ],
)
def test_profile_sets_the_oldest_version(profile: TLSSecurityProfile, oldest: ssl.TLSVersion) -> None:
    assert _context(chosen(profile)).minimum_version == oldest


def test_custom_profile_names_its_ciphers() -> None:
    cipher = "ECDHE-RSA-AES256-GCM-SHA384"
    custom = CustomTLSProfile(ciphers=(cipher, "no-such-cipher"), min_tls_version="VersionTLS12")
    context = _context(chosen(TLSSecurityProfile(type="Custom", custom=custom)))
    older = [each["name"] for each in context.get_ciphers() if not each["name"].startswith("TLS_")]
    assert older == [cipher]


def test_without_a_profile_nothing_is_restricted() -> None:
    default = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert _context(chosen(None)).get_ciphers() == default.get_ciphers()


@pytest.mark.parametrize("settings", [TLSSettings(("none",), ""), TLSSettings((), "VersionTLS9")])
def test_settings_without_meaning_are_refused(settings: TLSSettings) -> None:
    with pytest.raises(ValueError, match=r"none|VersionTLS9"):
        _context(settings)
