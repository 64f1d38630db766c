"""ServiceAccounts; their token subresource is in ``auth``."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStrategy, builtin
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition
from kubecore.json import JsonObject, get_object
from kubecore.resources import SERVICE_ACCOUNTS

MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(BuiltinStrategy):
    """Accounts of workloads."""

    metadata_checks = (1, 1)
    has_status = False
    returns_deleted_object = True
    tracks_generation = False

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Keep only the names of the references to secrets."""
        super().prepare_for_create(ctx, obj)
        _keep_names(obj)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep only the names of the references to secrets."""
        super().prepare_for_update(ctx, new, old)
        _keep_names(new)

    def warnings(self, ctx: RequestContext, obj: JsonObject, old: JsonObject | None) -> list[str]:
        """The deprecated annotation."""
        now = get_object(obj, "metadata", "annotations")
        before = get_object(old, "metadata", "annotations") if old else {}
        if MOUNTABLE in now and MOUNTABLE not in before:
            return [
                f"metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; "
                "prefer separate namespaces to isolate access to mounted secrets"
            ]
        return []


def _keep_names(obj: JsonObject) -> None:
    if obj.get("secrets"):
        obj["secrets"] = [{"name": item["name"]} if item.get("name") else {} for item in obj["secrets"]]


def definitions() -> list[ResourceDefinition]:
    """Service accounts."""
    return [
        builtin(
            SERVICE_ACCOUNTS,
            ServiceAccountStrategy(),
            short=("sa",),
            table=p.Table(p.NAME, p.AGE),
        )
    ]
