"""Machines of a pool that do not start, and are replaced: pure decisions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kubecore.objects import times
from kubecore.objects.durations import seconds_of
from virtplane.api.kubevirt_v1.vm import VirtualMachine
from virtplane.api.pool_v1beta1.pool import VirtualMachinePool
from virtplane.compute.controller.vm.failures import delay_seconds

_THRESHOLD = 3
_MINIMUM_SECONDS = 300.0


def failing(pool: VirtualMachinePool, vms: Sequence[VirtualMachine], now: datetime) -> list[VirtualMachine]:
    """The machines that have failed to start so often, and for so long, that the pool replaces them."""
    strategy = pool.spec.autohealing
    if strategy is None:
        return []
    threshold = strategy.start_up_failure_threshold or _THRESHOLD
    return [vm for vm in vms if _count(vm) >= threshold and failing_seconds(vm, now) >= minimum_seconds(pool)]


def minimum_seconds(pool: VirtualMachinePool) -> float:
    """For how long a machine must fail to start."""
    strategy = pool.spec.autohealing
    written = strategy.min_failing_to_start_duration if strategy is not None else None
    return seconds_of(written) if written else _MINIMUM_SECONDS


def failing_seconds(vm: VirtualMachine, now: datetime) -> float:
    """For how many seconds the machine has failed to start, at least.

    Its status keeps the number of failures and the time of the next start; the waits in between are known.
    """
    failure, count = vm.observed.start_failure, _count(vm)
    if failure is None or not failure.retry_after_timestamp:
        return 0.0
    waited = sum(delay_seconds(number, 0) for number in range(1, count))
    retry = times.parse_time(failure.retry_after_timestamp)
    since = (now - retry).total_seconds() + delay_seconds(count, 0)
    return waited + max(0.0, since)


def _count(vm: VirtualMachine) -> int:
    failure = vm.observed.start_failure
    return (failure.consecutive_fail_count or 0) if failure is not None else 0


def remaining_seconds(pool: VirtualMachinePool, vms: Sequence[VirtualMachine], now: datetime) -> float:
    """The seconds until the next machine may be due; 0 where none fails often enough."""
    strategy = pool.spec.autohealing
    if strategy is None:
        return 0.0
    threshold = strategy.start_up_failure_threshold or _THRESHOLD
    waits = [minimum_seconds(pool) - failing_seconds(vm, now) for vm in vms if _count(vm) >= threshold]
    return min((each for each in waits if each > 0), default=0.0) + (0.1 if waits else 0.0)
