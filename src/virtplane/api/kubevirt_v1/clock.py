"""Clock and timers."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import EMPTY_IS_SET, ApiStruct, Int


class HPETTimer(ApiStruct, kw_only=True):
    """High precision event timer."""

    present: bool | None = None
    tick_policy: str | None = None


class HypervTimer(ApiStruct, kw_only=True):
    """Hyper-V reference time counter."""

    present: bool | None = None


class KVMTimer(ApiStruct, kw_only=True):
    """KVM paravirtual clock."""

    present: bool | None = None


class PITTimer(ApiStruct, kw_only=True):
    """Programmable interval timer."""

    present: bool | None = None
    tick_policy: str | None = None


class RTCTimer(ApiStruct, kw_only=True):
    """Real time clock."""

    present: bool | None = None
    tick_policy: str | None = None
    track: str | None = None


class Timer(ApiStruct, kw_only=True):
    """Timers that the guest may use."""

    hpet: HPETTimer | None = None
    hyperv: HypervTimer | None = None
    kvm: KVMTimer | None = None
    pit: PITTimer | None = None
    rtc: RTCTimer | None = None


class ClockOffsetUTC(ApiStruct, kw_only=True):
    """The hardware clock shows UTC, moved by a number of seconds."""

    offset_seconds: Int | None = None


class Clock(ApiStruct, kw_only=True):
    """The guest's clock and its timers."""

    timer: Timer = Timer()
    timezone: Annotated[str | None, EMPTY_IS_SET] = None
    utc: ClockOffsetUTC | None = None


class ClockOffset(ApiStruct, kw_only=True):
    """What the guest's hardware clock shows: UTC or a time zone."""

    timezone: str | None = None
    utc: ClockOffsetUTC | None = None
