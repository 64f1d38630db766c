"""What policies read of NetworkPolicies, pods and namespaces, as structs (decision 020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

Selector = Mapping[str, Any]
"""A ``LabelSelector`` as it is written; ``kubecore.objects.selectors`` reads it."""


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that a cache needs."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}
    deletion_timestamp: str | None = None

    @property
    def is_being_deleted(self) -> bool:
        """Whether deletion was asked for."""
        return self.deletion_timestamp is not None


class Namespace(msgspec.Struct, frozen=True, rename="camel"):
    """A namespace: its labels."""

    metadata: Metadata = Metadata()


class ContainerPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port that a container names."""

    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """A container: its ports."""

    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod runs, and its ports."""

    node_name: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()


class PodAddress(msgspec.Struct, frozen=True, rename="camel"):
    """One of ``podIPs``."""

    ip: str = ""


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's phase and addresses."""

    phase: str = ""
    first: str = msgspec.field(default="", name="podIP")
    addresses: tuple[PodAddress, ...] = msgspec.field(default=(), name="podIPs")


class Pod(msgspec.Struct, frozen=True, rename="camel"):
    """A pod, as far as policies see it."""

    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PolicyPort(msgspec.Struct, frozen=True, rename="camel"):
    """A port of a rule: a number, a range up to `end_port`, a name, or all of the protocol."""

    protocol: str = "TCP"
    port: int | str | None = None
    end_port: int | None = None


class IpBlock(msgspec.Struct, frozen=True, rename="camel"):
    """A network without parts of it."""

    cidr: str
    excluded: tuple[str, ...] = msgspec.field(default=(), name="except")


class Peer(msgspec.Struct, frozen=True, rename="camel"):
    """Whom a rule allows: pods by selectors, or a block of addresses."""

    pod_selector: Selector | None = None
    namespace_selector: Selector | None = None
    ip_block: IpBlock | None = None


class IngressRule(msgspec.Struct, frozen=True, rename="camel"):
    """What may come in; no peers are all, no ports are all."""

    ports: tuple[PolicyPort, ...] = ()
    peers: tuple[Peer, ...] = msgspec.field(default=(), name="from")


class EgressRule(msgspec.Struct, frozen=True, rename="camel"):
    """What may go out; no peers are all, no ports are all."""

    ports: tuple[PolicyPort, ...] = ()
    peers: tuple[Peer, ...] = msgspec.field(default=(), name="to")


class NetworkPolicySpec(msgspec.Struct, frozen=True, rename="camel"):
    """Whom a policy concerns, and what it allows."""

    pod_selector: Selector = {}
    ingress: tuple[IngressRule, ...] = ()
    egress: tuple[EgressRule, ...] = ()
    policy_types: tuple[str, ...] = ()


class NetworkPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """A policy."""

    metadata: Metadata = Metadata()
    spec: NetworkPolicySpec = NetworkPolicySpec()
