"""CDI: the installation of the Containerized Data Importer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.cdi_v1beta1.cdi_config import CDIConfigSpec
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.core_v1 import NodePlacement
from virtplane.api.kubevirt_v1.kubevirt import CertConfig, CustomizeComponentsPatch
from virtplane.api.markers import ATOMIC, REQUIRED, ApiStruct, Int32, describe, one_of
from virtplane.api.meta_v1 import ObjectMeta


class CDICertConfig(ApiStruct, kw_only=True):
    """Lifetimes of certificates; each is renewed when half of its time is left."""

    ca: Annotated[CertConfig, describe("Lifetime of authorities; 48h by default.")] = CertConfig()
    client: Annotated[CertConfig, describe("Lifetime of clients' certificates; 24h by default.")] = (
        CertConfig()
    )
    server: Annotated[CertConfig, describe("Lifetime of servers' certificates; 24h by default.")] = (
        CertConfig()
    )


class Flags(ApiStruct, kw_only=True):
    """Command line flags given to components. Only v, the verbosity of logs, has an effect."""

    api: Annotated[Mapping[str, str], describe("Flags of cdi-apiserver; only v counts.")] = field(
        default_factory=dict
    )
    controller: Annotated[Mapping[str, str], describe("Flags of cdi-deployment; only v counts.")] = field(
        default_factory=dict
    )
    upload_proxy: Annotated[Mapping[str, str], describe("Flags of cdi-uploadproxy; only v counts.")] = field(
        default_factory=dict
    )


class CustomizeComponents(ApiStruct, kw_only=True):
    """Changes applied to the installed objects."""

    flags: Flags | None = None
    patches: Annotated[
        tuple[CustomizeComponentsPatch, ...],
        ATOMIC,
        describe("Patches, applied in this order each time an object is written."),
    ] = ()


class ComponentPlacement(NodePlacement, kw_only=True):
    """Where the components run and how many of each."""

    api_server_replicas: Annotated[Int32 | None, describe("Pods of cdi-apiserver; 1 by default.")] = None
    deployment_replicas: Annotated[
        Int32 | None, describe("Pods of cdi-deployment, of which one works; 1 by default.")
    ] = None
    upload_proxy_replicas: Annotated[Int32 | None, describe("Pods of cdi-uploadproxy; 1 by default.")] = None


class CDISpec(ApiStruct, kw_only=True):
    """How CDI is installed, and how it works."""

    cert_config: CDICertConfig = CDICertConfig()
    clone_strategy_override: Annotated[
        str | None,
        one_of("copy", "snapshot", "csi-clone"),
        describe("How claims are cloned, whatever profiles say: copy, snapshot or csi-clone."),
    ] = None
    config: Annotated[
        CDIConfigSpec | None,
        describe(
            "Settings of CDIConfig; they count if this object has the annotation"
            " cdi.kubevirt.io/configAuthority."
        ),
    ] = None
    customize_components: CustomizeComponents = CustomizeComponents()
    image_pull_policy: Annotated[
        str | None,
        one_of("Always", "IfNotPresent", "Never"),
        describe("When images are pulled: IfNotPresent (default), Always or Never."),
    ] = None
    infra: ComponentPlacement = ComponentPlacement()
    priority_class: Annotated[
        str | None,
        describe("PriorityClass of the components; kubevirt-cluster-critical by default, if there is one."),
    ] = None
    uninstall_strategy: Annotated[
        str | None,
        one_of("RemoveWorkloads", "BlockUninstallIfWorkloadsExist"),
        describe(
            "RemoveWorkloads (default), or BlockUninstallIfWorkloadsExist: not deleted while there"
            " are DataVolumes."
        ),
    ] = None
    workload: Annotated[NodePlacement, describe("Where importers and other worker pods run.")] = (
        NodePlacement()
    )


class CDIStatus(ApiStruct, kw_only=True):
    """What is installed, and whether it works, written by cdi-operator."""

    conditions: Annotated[
        tuple[HeartbeatCondition, ...], describe("Available, Progressing and Degraded.")
    ] = ()
    observed_version: Annotated[str | None, describe("The installed version, once it works.")] = None
    operator_version: Annotated[str | None, describe("Version of cdi-operator.")] = None
    phase: Annotated[str | None, describe("Deploying, Deployed, Upgrading, Deleting, Deleted or Error.")] = (
        None
    )
    target_version: Annotated[str | None, describe("The version that is being installed.")] = None


class CDI(ApiStruct, kw_only=True):
    """The installation of the Containerized Data Importer; there is one in a cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CDISpec, REQUIRED] = CDISpec()
    status: CDIStatus = CDIStatus()
