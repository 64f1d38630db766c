"""All objects of CDI's installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubecore.json import JsonObject
from kubecore.objects.structs import encode
from virtplane.api import cdi_names as names
from virtplane.api.cdi_v1beta1.cdi import CDI
from virtplane.operators.cdi import webhooks
from virtplane.operators.cdi.component_rights import component_rights
from virtplane.operators.cdi.product import PRODUCT, WEBHOOK_RENDERING_OFF, Parameters
from virtplane.operators.cdi.user_roles import user_roles
from virtplane.operators.cdi.workloads import deployments, services
from virtplane.operators.kit.customize import customizer
from virtplane.operators.kit.installation import Installation
from virtplane.operators.kit.webhooks import Endpoint

_BLOCK_UNINSTALL = "BlockUninstallIfWorkloadsExist"


def installation(parameters: Parameters, definitions: Iterable[JsonObject]) -> Installation:
    """Everything to install, each object with the operator's labels.

    `definitions` are those of CDI's kinds, which take long to make.
    """
    foundation = [_labelled(document, parameters) for document in definitions]
    foundation += [*component_rights(parameters), *user_roles(parameters)]
    return Installation(
        tuple(foundation + services(parameters)), tuple(deployments(parameters)), tuple(_entry(parameters))
    )


def user_patches(cdi: CDI) -> Callable[[JsonObject], JsonObject]:
    """A function that applies ``spec.customizeComponents.patches``; it raises BadCustomization."""
    patches = [encode(patch) for patch in cdi.spec.customize_components.patches]
    return customizer(patches, PRODUCT.customizer_annotation)


def _labelled(document: JsonObject, parameters: Parameters) -> JsonObject:
    return {**document, "metadata": {**document["metadata"], "labels": parameters.labels()}}


def _entry(parameters: Parameters) -> list[JsonObject]:
    """Webhooks and the upload API."""
    endpoint = Endpoint(
        PRODUCT,
        parameters.namespace,
        names.API_SERVICE,
        names.API_SERVER_CERTIFICATE,
        parameters.ca_bundle,
    )
    spec = parameters.cdi.spec
    renders = spec.config is None or spec.config.webhook_pvc_rendering != WEBHOOK_RENDERING_OFF
    found = webhooks.configurations(
        endpoint,
        must_guard_deletion=spec.uninstall_strategy == _BLOCK_UNINSTALL,
        completes_claims=renders,
    )
    found.append(webhooks.api_service(endpoint))
    for document in found:
        document["metadata"]["labels"] = parameters.labels(names.API_SERVICE)
    return found
