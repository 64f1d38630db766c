"""Platform features and Hyper-V enlightenments."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ALWAYS_WRITTEN, ZERO_IS_UNSET, ApiStruct, UInt32Count, describe


class FeatureState(ApiStruct, kw_only=True):
    """A feature that is on or off; on when the member is present without a value."""

    enabled: Annotated[bool | None, describe("Whether it is on; true when absent.")] = None

    @property
    def is_on(self) -> bool:
        """Whether the feature is on."""
        return self.enabled is not False


class FeatureAPIC(FeatureState, kw_only=True):
    """The local interrupt controllers (APIC)."""

    end_of_interrupt: Annotated[
        bool | None, describe("The guest ends interrupts without an exit to the hypervisor."), ZERO_IS_UNSET
    ] = None


class FeatureSpinlocks(FeatureState, kw_only=True):
    """The guest tells of spin locks that it waits for."""

    spinlocks: Annotated[
        UInt32Count | None,
        describe("Attempts to take a lock before the guest tells of it; 4096 when absent."),
    ] = None


class SyNICTimer(FeatureState, kw_only=True):
    """Synthetic timers; switch synic on."""

    direct: Annotated[
        FeatureState | None, describe("Timers interrupt the guest directly, without a message.")
    ] = None


class TLBFlush(FeatureState, kw_only=True):
    """Flushes of the TLBs of other virtual CPUs by hypercall; switch vpindex on."""

    direct: Annotated[
        FeatureState | None,
        describe("Flushes by a nested hypervisor. No effect yet: libvirt 9 has no such switch."),
    ] = None
    extended: Annotated[
        FeatureState | None, describe("Flushes of single pages. No effect yet: libvirt 9 has no such switch.")
    ] = None


class FeatureVendorID(FeatureState, kw_only=True):
    """The hypervisor vendor that the guest sees."""

    vendorid: Annotated[str | None, describe("Its name, up to 12 characters.")] = None


class FeatureHyperv(ApiStruct, kw_only=True):
    """Hyper-V enlightenments for Windows guests; under KVM only."""

    evmcs: Annotated[
        FeatureState | None,
        describe("Faster nested virtualization on Intel; switches vapic and the CPU feature vmx on."),
    ] = None
    frequencies: Annotated[
        FeatureState | None,
        describe("The guest reads the frequencies of TSC and APIC instead of measuring them."),
    ] = None
    ipi: Annotated[
        FeatureState | None, describe("Interrupts between virtual CPUs by hypercall; switches vpindex on.")
    ] = None
    reenlightenment: Annotated[
        FeatureState | None, describe("The guest is told when the frequency of its TSC changes.")
    ] = None
    relaxed: Annotated[
        FeatureState | None, describe("The guest does not take late timer ticks for a hang.")
    ] = None
    reset: Annotated[FeatureState | None, describe("The guest can reset itself through the hypervisor.")] = (
        None
    )
    runtime: Annotated[
        FeatureState | None, describe("The guest can read for how long each virtual CPU ran.")
    ] = None
    spinlocks: FeatureSpinlocks | None = None
    synic: Annotated[
        FeatureState | None, describe("The synthetic interrupt controller; switches vpindex on.")
    ] = None
    synictimer: SyNICTimer | None = None
    tlbflush: TLBFlush | None = None
    vapic: Annotated[
        FeatureState | None, describe("Faster access to registers of the interrupt controllers.")
    ] = None
    vendorid: FeatureVendorID | None = None
    vpindex: Annotated[
        FeatureState | None, describe("The guest can read the numbers of its virtual CPUs.")
    ] = None


class HyperVPassthrough(FeatureState, kw_only=True):
    """Every Hyper-V enlightenment that the node has; not beside hyperv, under KVM only."""


class FeatureKVM(ApiStruct, kw_only=True):
    """Whether KVM shows itself to the guest."""

    hidden: Annotated[
        bool | None, describe("The guest cannot see that it runs on KVM; false when absent."), ZERO_IS_UNSET
    ] = None


class Features(ApiStruct, kw_only=True):
    """CPU and platform features offered to the guest."""

    acpi: Annotated[
        FeatureState | None,
        describe("ACPI tables, by which guests find devices and switch off; on when absent."),
        ALWAYS_WRITTEN,
    ] = None
    apic: FeatureAPIC | None = None
    hyperv: FeatureHyperv | None = None
    hyperv_passthrough: HyperVPassthrough | None = None
    kvm: FeatureKVM | None = None
    pvspinlock: Annotated[FeatureState | None, describe("Paravirtual spin locks.")] = None
    smm: Annotated[
        FeatureState | None, describe("System management mode, which EFI with secureBoot needs.")
    ] = None


def is_on(feature: FeatureState | None) -> bool:
    """Whether a feature is there and not switched off."""
    return feature is not None and feature.is_on
