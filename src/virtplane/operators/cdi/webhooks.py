"""What the API server must know of cdi-apiserver: its webhooks, and the group that it serves."""

from __future__ import annotations

from dataclasses import replace

from kubecore import resources as core
from kubecore.json import JsonObject
from kubecore.resources import ResourceType
from virtplane.api import cdi_labels, cdi_names, resources
from virtplane.operators.kit.webhooks import CREATE, DELETE, UPDATE, Endpoint, Webhook
from virtplane.storage.cdi.apiserver.reviews import FIELDS_PATH

_TIMEOUT_SECONDS = 30
_CLAIMS_TIMEOUT_SECONDS = 10


def _webhook(name: str, operations: tuple[str, ...], *reviewed: ResourceType) -> Webhook:
    return Webhook(
        f"{name}.cdi.kubevirt.io",
        f"/{name}",
        operations,
        reviewed[0].group,
        (reviewed[0].version,),
        tuple(resource.plural for resource in reviewed),
        review_versions=("v1", "v1beta1"),
        timeout_seconds=_TIMEOUT_SECONDS,
        match_policy="Exact",
    )


_CHANGES = (CREATE, UPDATE)
_DATA_VOLUMES = _webhook("datavolume-mutate", _CHANGES, resources.DATA_VOLUMES)
_CLAIMS = replace(
    _webhook("pvc-mutate", (CREATE,), core.PERSISTENT_VOLUME_CLAIMS),
    timeout_seconds=_CLAIMS_TIMEOUT_SECONDS,
    object_labels=((cdi_labels.APPLY_STORAGE_PROFILE, "true"),),
)
_COMPLETION = "cdi-api-pvc-mutate"
_MUTATING = {"cdi-api-datavolume-mutate": (_DATA_VOLUMES,), _COMPLETION: (_CLAIMS,)}
_VALIDATING = {
    "cdi-api-dataimportcron-validate": (
        _webhook("dataimportcron-validate", _CHANGES, resources.DATA_IMPORT_CRONS),
    ),
    "cdi-api-datavolume-validate": (_webhook("datavolume-validate", _CHANGES, resources.DATA_VOLUMES),),
    "cdi-api-populator-validate": (
        _webhook(
            "populator-validate", _CHANGES, resources.VOLUME_IMPORT_SOURCES, resources.VOLUME_UPLOAD_SOURCES
        ),
    ),
    "objecttransfer-api-validate": (
        _webhook("objecttransfer-validate", _CHANGES, resources.OBJECT_TRANSFERS),
    ),
}
_INSTALLATION = "cdi-api-validate"
_FIELDS = "cdi-api-fields-warn"
"""Which CDI does not have. Objects pass without its warnings where it does not answer."""
MUTATING = tuple(_MUTATING)
VALIDATING = (*_VALIDATING, _INSTALLATION, _FIELDS)
"""The names of the configurations."""


def configurations(
    endpoint: Endpoint, *, must_guard_deletion: bool, completes_claims: bool = True
) -> list[JsonObject]:
    """The webhook configurations.

    `must_guard_deletion`: the CDI object cannot be deleted while cdi-apiserver does not answer.
    `completes_claims`: claims with the label get what is missing of the profile of their storage class.
    """
    cdi = _webhook("cdi-validate", (DELETE,), resources.CDIS)
    cdi = replace(cdi, failure_policy="Fail" if must_guard_deletion else "Ignore")
    found = [endpoint.mutating(name, webhooks) for name, webhooks in _MUTATING.items()]
    if not completes_claims:
        found = [document for document in found if document["metadata"]["name"] != _COMPLETION]
    found += [endpoint.validating(name, webhooks) for name, webhooks in _VALIDATING.items()]
    found += [endpoint.validating(_INSTALLATION, [cdi]), endpoint.validating(_FIELDS, _warning())]
    return [_of_api(document) for document in found]


def _warning() -> list[Webhook]:
    settings = _webhook("fields-warn", _CHANGES, resources.CDIS, resources.CDI_CONFIGS)
    populators = _webhook(
        "fields-warn-forklift",
        _CHANGES,
        resources.OPENSTACK_VOLUME_POPULATORS,
        resources.OVIRT_VOLUME_POPULATORS,
    )
    return [replace(each, path=FIELDS_PATH, failure_policy="Ignore") for each in (settings, populators)]


def api_service(endpoint: Endpoint) -> JsonObject:
    """The APIService of upload tokens."""
    group, version = resources.UPLOAD_TOKEN_REQUESTS.group, resources.UPLOAD_TOKEN_REQUESTS.version
    return _of_api(endpoint.aggregated(cdi_names.API_SERVICE, group, version))


def _of_api(document: JsonObject) -> JsonObject:
    document["metadata"]["labels"] = {cdi_labels.COMPONENT: cdi_names.API_SERVICE}
    return document
