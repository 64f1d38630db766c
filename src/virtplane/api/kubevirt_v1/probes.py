"""Liveness and readiness of guests."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.core_v1 import ExecAction, HTTPGetAction, TCPSocketAction
from virtplane.api.markers import ZERO_IS_UNSET, ApiStruct, Int32, describe


class GuestAgentPing(ApiStruct, kw_only=True):
    """Healthy when the guest agent answers."""


class Probe(ApiStruct, kw_only=True):
    """A check of the guest's health by exactly one handler. Times are seconds."""

    exec: Annotated[
        ExecAction | None, describe("A command that the guest agent runs; exit status 0 means healthy.")
    ] = None
    failure_threshold: Annotated[
        Int32 | None,
        describe("Failures in a row before the guest counts as unhealthy; 3 when absent."),
        ZERO_IS_UNSET,
    ] = None
    guest_agent_ping: GuestAgentPing | None = None
    http_get: HTTPGetAction | None = None
    initial_delay_seconds: Annotated[
        Int32 | None,
        describe("Seconds from the start to the first check, 10 more for the start of QEMU; 0 when absent."),
        ZERO_IS_UNSET,
    ] = None
    period_seconds: Annotated[
        Int32 | None, describe("Seconds between checks; 10 when absent."), ZERO_IS_UNSET
    ] = None
    success_threshold: Annotated[
        Int32 | None,
        describe("Successes in a row before the guest counts as healthy; 1 when absent."),
        ZERO_IS_UNSET,
    ] = None
    tcp_socket: TCPSocketAction | None = None
    timeout_seconds: Annotated[
        Int32 | None, describe("Seconds after which a check has failed; 1 when absent."), ZERO_IS_UNSET
    ] = None
