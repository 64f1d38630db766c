"""Namespaces: their phase, their finalizer, and the finalize subresource."""

from __future__ import annotations

from collections.abc import Iterator

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import BuiltinStatusStrategy, BuiltinStrategy, builtin
from kindling.apiserver.kinds.machinery.rules import Rules, unjudged
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, Subresource
from kubecore import errors
from kubecore.json import JsonObject, get_list, get_str
from kubecore.objects.fields import FieldError, FieldPath, invalid
from kubecore.objects.meta_validation import kubernetes_finalizer
from kubecore.objects.names import is_dns1123_label
from kubecore.objects.times import now_rfc3339
from kubecore.resources import NAMESPACES

KUBERNETES = "kubernetes"
"""The finalizer that the namespace controller removes when a namespace is empty."""
NAME_LABEL = "kubernetes.io/metadata.name"


def validate_finalizers(obj: JsonObject) -> Iterator[FieldError]:
    """spec.finalizers: Kubernetes' own, or qualified names."""
    for position, finalizer in enumerate(get_list(obj, "spec", "finalizers")):
        yield from kubernetes_finalizer(finalizer, FieldPath("spec", "finalizers").index(position))


def _phase(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """The phase is Terminating when the namespace is being deleted, and Active otherwise."""
    wanted, is_empty = "Active", "empty"
    if new["metadata"].get("deletionTimestamp"):
        wanted, is_empty = "Terminating", "not empty"
    phase = get_str(new, "status", "phase")
    if phase != wanted:
        text = f"may only be '{wanted}' if `deletionTimestamp` is {is_empty}"
        yield invalid(FieldPath("status", "Phase"), phase, text)


class NamespaceStrategy(BuiltinStrategy):
    """Namespaces are Active until deleted, then Terminating until spec.finalizers is empty."""

    tracks_generation = False
    returns_deleted_object = True
    metadata_checks = (1, 1)
    rules = Rules(validate_finalizers, update=unjudged, status=_phase)

    def complete(self, obj: JsonObject) -> None:
        """The name as a label, and the phase."""
        name = get_str(obj, "metadata", "name")
        if name:
            obj["metadata"]["labels"] = {**(obj["metadata"].get("labels") or {}), NAME_LABEL: name}
        obj["status"].setdefault("phase", "Active")

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Set phase Active and add the finalizer ``kubernetes``."""
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].setdefault("finalizers", [])
        if KUBERNETES not in finalizers:
            finalizers.append(KUBERNETES)

    def canonicalize(self, obj: JsonObject) -> None:
        """The label also of a generated name."""
        obj["metadata"]["labels"] = {
            **(obj["metadata"].get("labels") or {}),
            NAME_LABEL: get_str(obj, "metadata", "name"),
        }

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Spec finalizers change through ``/finalize`` only."""
        super().prepare_for_update(ctx, new, old)
        new["spec"] = {**new.get("spec", {}), "finalizers": get_list(old, "spec", "finalizers")}
        if not new["spec"]["finalizers"]:
            del new["spec"]["finalizers"]

    def validate_name(self, name: str, *, prefix: bool) -> list[str]:
        """A DNS label."""
        return is_dns1123_label(name.rstrip("-") if prefix else name)

    def before_delete(self, ctx: RequestContext, obj: JsonObject) -> JsonObject | None:
        """Set phase Terminating; the namespace is removed when spec.finalizers is empty."""
        name = get_str(obj, "metadata", "name")
        if name in ("default", "kube-system", "kube-public"):
            raise errors.forbidden(NAMESPACES, name, "this namespace may not be deleted")
        if not get_list(obj, "spec", "finalizers"):
            return None
        metadata = obj["metadata"]
        if not metadata.get("deletionTimestamp"):
            metadata["deletionTimestamp"] = now_rfc3339()
            metadata["deletionGracePeriodSeconds"] = 0
        metadata.pop("deletionGracePeriodSeconds", None)
        obj["status"] = {**obj.get("status", {}), "phase": "Terminating"}
        return obj


class FinalizeStrategy(BuiltinStatusStrategy):
    """``/finalize``: spec.finalizers alone."""

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep the status."""
        new["status"] = old.get("status", {})

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """Finalizers are qualified names."""
        return list(validate_finalizers(new))


def definitions() -> list[ResourceDefinition]:
    """Namespaces."""
    strategy = NamespaceStrategy()
    finalize = Subresource("finalize", "Namespace", ("update",), strategy=FinalizeStrategy(strategy))
    return [
        builtin(
            NAMESPACES,
            strategy,
            short=("ns",),
            table=p.Table(
                p.NAME, p.plain("Status", "status.phase", description="The namespace's phase."), p.AGE
            ),
            subresources=(finalize,),
            fields=("status.phase",),
            # Namespaces cannot be deleted as a collection, because each must be emptied before it is removed.
            verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        )
    ]
