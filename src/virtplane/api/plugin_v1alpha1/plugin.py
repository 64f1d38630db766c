"""Plugin."""

from __future__ import annotations

from typing import Annotated

from virtplane.api.markers import ATOMIC, ApiStruct, Duration, describe, mark
from virtplane.api.meta_v1 import ObjectMeta


class CELMutation(ApiStruct, kw_only=True):
    """A CEL expression that gives the changed domain."""

    expression: Annotated[
        str,
        describe("Gives a Domain, of which what it names is written into the guest's domain."),
        mark(minLength=1),
    ]


class SidecarMutation(ApiStruct, kw_only=True):
    """A sidecar that is handed the domain and gives it back changed."""

    socket_path: Annotated[
        str, mark(minLength=1), describe("Its socket, below /var/run/kubevirt-plugin/ and the plugin's name.")
    ]


class DomainHook(ApiStruct, kw_only=True):
    """Changes the domain before the guest starts; either by CEL or by a sidecar."""

    cel: CELMutation | None = None
    condition: Annotated[
        str | None, describe("A CEL expression over `vmi` and `domainSpec`; the hook runs when it is true.")
    ] = None
    failure_strategy: Annotated[str | None, describe("Fail or Ignore; the plugin's when absent.")] = None
    sidecar: SidecarMutation | None = None
    timeout: Annotated[
        Duration | None, describe("How long a sidecar may take: 30s when absent, 5m at most.")
    ] = None


class NodeHook(ApiStruct, kw_only=True):
    """A service on the node that is called at points of a guest's life."""

    condition: Annotated[
        str | None, describe("A CEL expression over `vmi`; the hook runs when it is true.")
    ] = None
    failure_strategy: Annotated[str | None, describe("Fail or Ignore; the plugin's when absent.")] = None
    permitted_hooks: Annotated[
        tuple[str, ...],
        ATOMIC,
        mark(minItems=1),
        describe(
            "When it is called: PreVMStart, PostVMStart, PreVMStop, PostVMStop. Others have no effect yet."
        ),
    ]
    socket: Annotated[
        str, mark(minLength=1), describe("The service's socket on the node, below /var/run/kubevirt.")
    ]
    timeout: Annotated[
        Duration | None, describe("How long a call may take: 30s when absent, 5m at most.")
    ] = None


class AdmissionReference(ApiStruct, kw_only=True):
    """An admission policy or webhook that belongs to the plugin."""

    name: Annotated[str, describe("Its name."), mark(minLength=1)]


class PluginSpec(ApiStruct, kw_only=True):
    """Which guests the plugin concerns, and what it does to them."""

    condition: Annotated[
        str | None, describe("A CEL expression over `vmi`; absent concerns every guest.")
    ] = None
    domain_hooks: Annotated[
        tuple[DomainHook, ...],
        describe("What changes the domain before the guest starts, in this order."),
        ATOMIC,
    ] = ()
    failure_strategy: Annotated[str | None, describe("Fail (when absent) or Ignore.")] = None
    mutating_admission_policies: Annotated[
        tuple[AdmissionReference, ...],
        describe("A note of what belongs to the plugin. No effect: policies act by themselves."),
        ATOMIC,
    ] = ()
    mutating_admission_webhooks: Annotated[
        tuple[AdmissionReference, ...],
        describe("A note of what belongs to the plugin. No effect: webhooks act by themselves."),
        ATOMIC,
    ] = ()
    node_hooks: Annotated[
        tuple[NodeHook, ...], describe("Services on nodes that hear of guests."), ATOMIC
    ] = ()
    validating_admission_policies: Annotated[
        tuple[AdmissionReference, ...],
        describe("A note of what belongs to the plugin. No effect: policies act by themselves."),
        ATOMIC,
    ] = ()
    validating_admission_webhooks: Annotated[
        tuple[AdmissionReference, ...],
        describe("A note of what belongs to the plugin. No effect: webhooks act by themselves."),
        ATOMIC,
    ] = ()


class Plugin(ApiStruct, kw_only=True):
    """Hooks into the life of guests, provided by somebody else. Needs the gate Plugins."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PluginSpec
