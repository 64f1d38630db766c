"""Clock and timers."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct, Int, describe


class HPETTimer(ApiStruct, kw_only=True):
    """High precision event timer."""

    present: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None
    tick_policy: Annotated[
        str | None, describe("What becomes of ticks that the guest missed: delay, catchup, merge or discard.")
    ] = None


class HypervTimer(ApiStruct, kw_only=True):
    """Hyper-V reference time counter; under KVM only."""

    present: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None


class KVMTimer(ApiStruct, kw_only=True):
    """KVM paravirtual clock; under KVM only."""

    present: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None


class PITTimer(ApiStruct, kw_only=True):
    """Programmable interval timer."""

    present: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None
    tick_policy: Annotated[
        str | None, describe("What becomes of ticks that the guest missed: delay, catchup or discard.")
    ] = None


class RTCTimer(ApiStruct, kw_only=True):
    """Real time clock."""

    present: Annotated[bool | None, describe("Whether the guest has it; true when absent.")] = None
    tick_policy: Annotated[
        str | None, describe("What becomes of ticks that the guest missed: delay or catchup.")
    ] = None
    track: Annotated[str | None, describe("What the clock follows: guest or wall.")] = None


class Timer(ApiStruct, kw_only=True):
    """Timers that the guest may use."""

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class ClockOffsetUTC(ApiStruct, kw_only=True):
    """The hardware clock shows UTC, or a time that differs from it."""

    offset_seconds: Annotated[
        Int | None,
        describe("Seconds ahead of UTC. With it, the guest's own changes of the clock outlast reboots."),
    ] = None


class Clock(ApiStruct, kw_only=True):
    """The guest's hardware clock (UTC when nothing is said) and its timers."""

    timer: Timer = Timer()
    timezone: Annotated[
        str | None,
        describe("The clock shows the local time of this zone, for example Europe/Berlin."),
        EMPTY_IS_SET,
    ] = None
    utc: ClockOffsetUTC | None = None


class ClockOffset(ApiStruct, kw_only=True):
    """What the guest's hardware clock shows: UTC or a time zone."""

    timezone: Annotated[
        str | None, describe("The clock shows the local time of this zone, for example Europe/Berlin.")
    ] = None
    utc: ClockOffsetUTC | None = None
