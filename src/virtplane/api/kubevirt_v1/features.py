"""Platform features and Hyper-V enlightenments."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ALWAYS_WRITTEN, ZERO_IS_UNSET, ApiStruct, UInt32Count


class FeatureState(ApiStruct, kw_only=True):
    """A feature that is on or off; on when the member is present without a value."""

    enabled: bool | None = None

    @property
    def is_on(self) -> bool:
        """Whether the feature is on."""
        return self.enabled is not False


class FeatureAPIC(FeatureState, kw_only=True):
    """The local interrupt controller."""

    end_of_interrupt: Annotated[bool | None, ZERO_IS_UNSET] = None


class FeatureSpinlocks(FeatureState, kw_only=True):
    """Hyper-V spin lock notification."""

    spinlocks: UInt32Count | None = None


class SyNICTimer(FeatureState, kw_only=True):
    """Hyper-V synthetic timers."""

    direct: FeatureState | None = None


class TLBFlush(FeatureState, kw_only=True):
    """Hyper-V paravirtual TLB flush."""

    direct: FeatureState | None = None
    extended: FeatureState | None = None


class FeatureVendorID(FeatureState, kw_only=True):
    """The hypervisor vendor that the guest sees."""

    vendorid: str | None = None


class FeatureHyperv(ApiStruct, kw_only=True):
    """Hyper-V enlightenments for Windows guests."""

    evmcs: FeatureState | None = None
    frequencies: FeatureState | None = None
    ipi: FeatureState | None = None
    reenlightenment: FeatureState | None = None
    relaxed: FeatureState | None = None
    reset: FeatureState | None = None
    runtime: FeatureState | None = None
    spinlocks: FeatureSpinlocks | None = None
    synic: FeatureState | None = None
    synictimer: SyNICTimer | None = None
    tlbflush: TLBFlush | None = None
    vapic: FeatureState | None = None
    vendorid: FeatureVendorID | None = None
    vpindex: FeatureState | None = None


class HyperVPassthrough(FeatureState, kw_only=True):
    """Offer every Hyper-V enlightenment that the host supports."""


class FeatureKVM(ApiStruct, kw_only=True):
    """Whether KVM shows itself to the guest."""

    hidden: Annotated[bool | None, ZERO_IS_UNSET] = None


class Features(ApiStruct, kw_only=True):
    """CPU and platform features offered to the guest."""

    acpi: Annotated[FeatureState | None, ALWAYS_WRITTEN] = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: FeatureState | None = None
    smm: FeatureState | None = None


def is_on(feature: FeatureState | None) -> bool:
    """Whether a feature is there and not switched off."""
    return feature is not None and feature.is_on
