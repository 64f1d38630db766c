"""Back-off for VMs whose guests fail before they run."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from kubecore.objects import times
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.kubevirt_v1.vm_status import VirtualMachineStartFailure
from virtplane.api.kubevirt_v1.vmi import VirtualMachineInstance
from virtplane.compute.controller.vm.strategy import BACKOFF_STRATEGIES, is_final

_INTERVAL_SECONDS = 10
_MAX_SECONDS = 300


def has_run(vmi: VirtualMachineInstance) -> bool:
    """Whether the guest ever reached phase Running."""
    return any(item.phase == "Running" for item in vmi.status.phase_transition_timestamps)


def delay_seconds(failures: int, jitter: float) -> int:
    """The seconds to wait after `failures` consecutive failures; `jitter` from 0 to 1 adds up to half."""
    base = _INTERVAL_SECONDS * failures * failures
    return min(int(base + jitter * base / 2), _MAX_SECONDS)


def next_failure(
    vm: VirtualMachine,
    vmi: VirtualMachineInstance | None,
    strategy: str,
    now: datetime,
    jitter: float | None = None,
) -> VirtualMachineStartFailure | None:
    """The new ``status.startFailure``; None if nothing failed."""
    if strategy not in BACKOFF_STRATEGIES or (vmi is not None and has_run(vmi)):
        return None
    current = vm.observed.start_failure
    last = current or VirtualMachineStartFailure()
    if vmi is None or not is_final(vmi) or (last.last_failed_vmiuid or "") == vmi.metadata.uid:
        return current
    count = (last.consecutive_fail_count or 0) + 1
    wait = delay_seconds(count, random.random() if jitter is None else jitter)
    return VirtualMachineStartFailure(
        consecutive_fail_count=count,
        last_failed_vmiuid=vmi.metadata.uid,
        retry_after_timestamp=times.format_time(now + timedelta(seconds=wait)),
    )


def remaining_seconds(vm: VirtualMachine, now: datetime) -> float:
    """The seconds until the VM may be started again."""
    failure = vm.observed.start_failure
    if failure is None or not failure.retry_after_timestamp:
        return 0
    return max(0.0, (times.parse_time(failure.retry_after_timestamp) - now).total_seconds())
