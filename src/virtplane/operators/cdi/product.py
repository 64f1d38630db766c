"""CDI's names, labels and settings, as its operator needs them."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject
from virtplane.api import cdi_labels, cdi_names
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.kit.product import COMPONENT, MANAGED_BY, PART_OF, VERSION, Product

_OPERATOR = f"operator.{cdi_labels.COMPONENT}"
OPERATOR_LABEL = _OPERATOR
"""On the operator's own objects."""
CREATE_VERSION = f"{_OPERATOR}/createVersion"
UPDATE_VERSION = f"{_OPERATOR}/updateVersion"
INJECT_PROXY_CERTIFICATE = f"{_OPERATOR}/injectUploadProxyCert"
"""On Routes of users: they are to trust the upload proxy."""
CLAIM = "cdi-config"
"""The ConfigMap that belongs to the CDI object that counts."""
DEFAULT_PRIORITY_CLASS = "kubevirt-cluster-critical"
WEBHOOK_RENDERING_OFF = "Disabled"

PRODUCT = Product(
    operator=cdi_names.OPERATOR,
    component="storage",
    label=cdi_labels.COMPONENT,
    digest_annotation=f"{_OPERATOR}/digest",
    customizer_annotation=cdi_labels.CUSTOMIZER_IDENTIFIER,
    certificate_annotation=f"{_OPERATOR}/certificate-secret",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of the operator's process."""

    namespace: str
    image: str
    layout: str
    version: str
    monitoring_namespace: str = "monitoring"
    runbook_url: str = "https://kubevirt.io/monitoring/runbooks/%s"
    verbosity: int = 1
    require_webhook_certificate: bool = False
    importer_image: str = ""
    """The images of worker pods; empty for the product's own."""
    cloner_image: str = ""
    upload_server_image: str = ""

    @property
    def is_compact(self) -> bool:
        """Whether CDI's components share the operator's process."""
        return self.layout == "compact"


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the wanted objects depend on. `ca_bundle` is that of cdi-apiserver's authority, PEM.

    `priority_class` is empty where the cluster has no such class.
    """

    settings: Settings
    cdi: CDI
    ca_bundle: str = ""
    priority_class: str = ""

    @property
    def namespace(self) -> str:
        """Where CDI is installed."""
        return self.settings.namespace

    def labels(self, component: str = "") -> dict[str, str]:
        """The labels of an object of `component`."""
        labels = {**own_labels(), cdi_labels.COMPONENT: component, "app": cdi_labels.APP}
        given = self.cdi.metadata.labels
        return labels | {name: given[name] for name in (PART_OF, VERSION) if given.get(name)}


def own_labels() -> dict[str, str]:
    """The labels of everything that the operator manages."""
    return {COMPONENT: PRODUCT.component, MANAGED_BY: PRODUCT.operator}


def made(
    parameters: Parameters,
    api_version: str,
    kind: str,
    name: str,
    *,
    namespaced: bool = False,
    **content: object,
) -> JsonObject:
    """An object of CDI's installation."""
    metadata: JsonObject = {"name": name, "labels": parameters.labels()}
    if namespaced:
        metadata["namespace"] = parameters.namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}
