"""What a machine has for its tokens: a service account, a role, and what binds them. Pure."""

from __future__ import annotations

from enum import Enum, auto

from kubecore import resources
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects import meta
from kubecore.resources import ResourceType
from virtplane.api.resources import SUBRESOURCES_GROUP, VIRTUAL_MACHINES
from virtplane.api.vnc_access import ISSUER, access_name

MANAGED_BY = "app.kubernetes.io/managed-by"
_LABELS = dict.fromkeys(
    ("app.kubernetes.io/name", "app.kubernetes.io/part-of", MANAGED_BY, "app.kubernetes.io/component"), ISSUER
)
_RBAC = "rbac.authorization.k8s.io"
_CONTENT = ("rules", "subjects", "roleRef")

Wanted = tuple[ResourceType, JsonObject]


class Step(Enum):
    """What is to be done about one object."""

    KEEP = auto()
    CREATE = auto()
    REPLACE = auto()
    """It is the issuer's, but of another machine that had the name, or somebody changed it."""
    REFUSE = auto()
    """Somebody else made it: its rights are not those of a display."""


def wanted(vm: JsonObject) -> list[Wanted]:
    """The objects of a machine, the account first."""
    name = access_name(meta.name(vm))
    rule = {
        "apiGroups": [SUBRESOURCES_GROUP],
        "resources": ["virtualmachineinstances/vnc"],
        "resourceNames": [meta.name(vm)],
        "verbs": ["get"],
    }
    subject = {"kind": "ServiceAccount", "name": name, "namespace": meta.namespace(vm)}
    return [
        _made(vm, resources.SERVICE_ACCOUNTS),
        _made(vm, resources.ROLES, rules=[rule]),
        _made(
            vm,
            resources.ROLE_BINDINGS,
            subjects=[subject],
            roleRef={"apiGroup": _RBAC, "kind": "Role", "name": name},
        ),
    ]


def step(live: JsonObject | None, desired: JsonObject) -> Step:
    """What has to be done so that `live` is what is desired.

    Nothing is corrected in place: what another machine's tokens were issued for must not serve this one.
    """
    if live is None:
        return Step.CREATE
    if not is_issued(live):
        return Step.REFUSE
    same = _owners(live) == _owners(desired) and all(live.get(key) == desired.get(key) for key in _CONTENT)
    return Step.KEEP if same else Step.REPLACE


def is_issued(document: JsonObject) -> bool:
    """Whether the issuer has made an object."""
    return meta.labels(document).get(MANAGED_BY) == ISSUER


def belongs_to(account: JsonObject, vmi: JsonObject) -> bool:
    """Whether an account was made for the machine of an instance, not for another of the same name."""
    owner = meta.controller_of(vmi)
    if owner is None or owner.get("kind") != VIRTUAL_MACHINES.kind:
        return False
    uid = owner.get("uid")
    return any(
        each.get("uid") == uid and each.get("kind") == VIRTUAL_MACHINES.kind for each in _owners(account)
    )


def _owners(document: JsonObject) -> list[JsonObject]:
    return get_list(document, "metadata", "ownerReferences")


def _made(vm: JsonObject, resource: ResourceType, **content: object) -> Wanted:
    owner = {
        "apiVersion": VIRTUAL_MACHINES.api_version,
        "kind": VIRTUAL_MACHINES.kind,
        "name": meta.name(vm),
        "uid": meta.uid(vm),
    }
    document: JsonObject = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": access_name(meta.name(vm)),
            "namespace": meta.namespace(vm),
            "labels": dict(_LABELS),
            "ownerReferences": [owner],
        },
        **content,
    }
    return resource, document


def token_of(answer: JsonObject) -> JsonObject:
    """What users get of the answer to a TokenRequest."""
    status = get_object(answer, "status")
    return {"token": status.get("token"), "expirationTimestamp": status.get("expirationTimestamp")}
