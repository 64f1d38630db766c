"""CDI: the installation of the Containerized Data Importer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import field

from virtplane.api.cdi_v1beta1.cdi_config import CDIConfigSpec
from virtplane.api.conditions import HeartbeatCondition
from virtplane.api.core_v1 import NodePlacement
from virtplane.api.kubevirt_v1.kubevirt import CertConfig, CustomizeComponentsPatch
from virtplane.api.markers import ATOMIC, REQUIRED, ApiStruct, Int32, one_of
from virtplane.api.meta_v1 import ObjectMeta


class CDICertConfig(ApiStruct, kw_only=True):
    """Lifetimes of authorities, and of the certificates of servers and clients."""

    ca: CertConfig = CertConfig()
    client: CertConfig = CertConfig()
    server: CertConfig = CertConfig()


class Flags(ApiStruct, kw_only=True):
    """Command line flags given to components."""

    api: Mapping[str, str] = field(default_factory=dict)
    controller: Mapping[str, str] = field(default_factory=dict)
    upload_proxy: Mapping[str, str] = field(default_factory=dict)


class CustomizeComponents(ApiStruct, kw_only=True):
    """Changes applied to the installed objects."""

    flags: Flags | None = None
    patches: Annotated[tuple[CustomizeComponentsPatch, ...], ATOMIC] = ()


class ComponentPlacement(NodePlacement, kw_only=True):
    """Where the components run and how many of each."""

    api_server_replicas: Int32 | None = None
    deployment_replicas: Int32 | None = None
    upload_proxy_replicas: Int32 | None = None


class CDISpec(ApiStruct, kw_only=True):
    """How CDI is installed, and how it works."""

    cert_config: CDICertConfig = CDICertConfig()
    clone_strategy_override: Annotated[str | None, one_of("copy", "snapshot", "csi-clone")] = None
    config: CDIConfigSpec | None = None
    customize_components: CustomizeComponents = CustomizeComponents()
    image_pull_policy: Annotated[str | None, one_of("Always", "IfNotPresent", "Never")] = None
    infra: ComponentPlacement = ComponentPlacement()
    priority_class: str | None = None
    uninstall_strategy: Annotated[str | None, one_of("RemoveWorkloads", "BlockUninstallIfWorkloadsExist")] = (
        None
    )
    workload: NodePlacement = NodePlacement()


class CDIStatus(ApiStruct, kw_only=True):
    """What is installed, and whether it works."""

    conditions: tuple[HeartbeatCondition, ...] = ()
    observed_version: str | None = None
    operator_version: str | None = None
    phase: str | None = None
    target_version: str | None = None


class CDI(ApiStruct, kw_only=True):
    """The installation of the Containerized Data Importer; there is one in a cluster."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: Annotated[CDISpec, REQUIRED] = CDISpec()
    status: CDIStatus = CDIStatus()
