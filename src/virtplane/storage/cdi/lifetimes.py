"""How long CDI's certificates live: the operator and cdi-deployment issue them alike."""

from __future__ import annotations

from datetime import timedelta

from kubecore.certificates import Lifetime, Lifetimes
from virtplane.api.cdi_v1beta1.cdi import CDICertConfig
from virtplane.api.durations import parse_duration
from virtplane.api.kubevirt_v1.kubevirt import CertConfig


class BadLifetime(Exception):
    """A duration in the object cannot be read."""


def lifetimes(config: CDICertConfig) -> Lifetimes:
    """How long certificates live: authorities two days, others one; renewed in the middle of that.

    Raises BadLifetime.
    """
    return Lifetimes(
        _lifetime(config.ca, "48h"), _lifetime(config.server, "24h"), _lifetime(config.client, "24h")
    )


def _lifetime(config: CertConfig, default: str) -> Lifetime:
    try:
        length = parse_duration(config.duration or default)
        before = parse_duration(config.renew_before) if config.renew_before else length * 0.5
    except ValueError as error:
        raise BadLifetime(f"spec.certConfig: {error}") from error
    return Lifetime(length, min(before, max(length - timedelta(seconds=1), timedelta())))
