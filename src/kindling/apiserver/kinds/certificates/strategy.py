"""CertificateSigningRequests: the requester is recorded, approval is a subresource of its own."""

from __future__ import annotations

from kindling.apiserver.kinds.machinery import printing as p
from kindling.apiserver.kinds.machinery.base import (
    BuiltinStatusStrategy,
    BuiltinStrategy,
    builtin,
    path_segment,
)
from kindling.apiserver.kinds.machinery.rules import Rules, unjudged
from kindling.apiserver.registry.context import RequestContext
from kindling.apiserver.registry.definition import ResourceDefinition, Subresource
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.fields import FieldError
from kubecore.objects.times import now_rfc3339
from kubecore.resources import CERTIFICATE_REQUESTS

from .validation import validate_conditions, validate_request, validate_request_status

_DECISIONS = ("Approved", "Denied")


class RequestStrategy(BuiltinStrategy):
    """The spec is fixed from the start, and its identity is that of the requester."""

    metadata_checks = (1, 1)
    tracks_generation = False
    validate_name = path_segment
    reset_fields = ("spec", "status")
    """What updates never change; nobody comes to own it."""
    rules = Rules(validate_request, update=unjudged, status=validate_request_status)

    def prepare_for_create(self, ctx: RequestContext, obj: JsonObject) -> None:
        """Who asks is not up to the client."""
        spec = obj["spec"]
        for field in ("username", "uid", "groups", "extra"):
            spec.pop(field, None)
        spec["username"] = ctx.user.name
        if ctx.user.uid:
            spec["uid"] = ctx.user.uid
        if ctx.user.groups:
            spec["groups"] = list(ctx.user.groups)
        if ctx.user.extra:
            spec["extra"] = {key: list(values) for key, values in ctx.user.extra.items()}
        obj["status"] = {}

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Keep spec and status, whatever the client sends."""
        new["spec"] = old["spec"]
        new["status"] = old.get("status", {})


class RequestStatusStrategy(BuiltinStatusStrategy):
    """``/status``: certificate and conditions but for the decisions."""

    metadata_checks = (1, 1)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Approval and denial cannot be changed here."""
        super().prepare_for_update(ctx, new, old)
        status = new.setdefault("status", {})
        kept = [item for item in get_list(old, "status", "conditions") if item.get("type") in _DECISIONS]
        given = {item.get("type") for item in status.get("conditions") or ()}
        missing = [item for item in kept if item.get("type") not in given]
        if missing:
            status["conditions"] = [*missing, *(status.get("conditions") or [])]
        _stamp(new, old)


class ApprovalStrategy(BuiltinStatusStrategy):
    """``/approval``: the conditions."""

    metadata_checks = (1, 1)

    def prepare_for_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> None:
        """Take over the conditions only."""
        conditions = get_list(new, "status", "conditions")
        new["spec"] = old["spec"]
        new["status"] = {
            key: value for key, value in (old.get("status") or {}).items() if key != "conditions"
        }
        if conditions:
            new["status"]["conditions"] = conditions
        _stamp(new, old)

    def validate_update(self, ctx: RequestContext, new: JsonObject, old: JsonObject) -> list[FieldError]:
        """A request is either approved or denied, and only once."""
        return list(validate_conditions(new, old, approval=True))


def _stamp(new: JsonObject, old: JsonObject) -> None:
    """Times of new and changed conditions."""
    before = {item.get("type"): item for item in get_list(old, "status", "conditions")}
    now = now_rfc3339()
    for condition in get_list(new, "status", "conditions"):
        known = before.get(condition.get("type"))
        if not condition.get("lastUpdateTime"):
            condition["lastUpdateTime"] = now
        if not condition.get("lastTransitionTime"):
            same = known is not None and known.get("status") == condition.get("status")
            condition["lastTransitionTime"] = (known or {}).get("lastTransitionTime") if same else now


def _state(obj: JsonObject) -> str:
    found = {item.get("type") for item in get_list(obj, "status", "conditions")}
    text = "Denied" if "Denied" in found else "Approved" if "Approved" in found else "Pending"
    if "Failed" in found:
        text += ",Failed"
    return text + ",Issued" if get_str(obj, "status", "certificate") else text


def _duration(obj: JsonObject) -> str:
    seconds = get_object(obj, "spec").get("expirationSeconds")
    return p.NONE if seconds is None else p.human_duration(seconds)


def definitions() -> list[ResourceDefinition]:
    """Signing requests."""
    strategy = RequestStrategy()
    approval = Subresource(
        "approval",
        "CertificateSigningRequest",
        ("get", "patch", "update"),
        strategy=ApprovalStrategy(strategy),
    )
    table = p.Table(
        p.NAME,
        p.AGE,
        p.plain("SignerName", "spec.signerName", empty=p.NONE),
        p.plain("Requestor", "spec.username"),
        p.plain("RequestedDuration", _duration),
        p.plain("Condition", _state),
    )
    return [
        builtin(
            CERTIFICATE_REQUESTS,
            strategy,
            short=("csr",),
            table=table,
            subresources=(approval,),
            fields=("spec.signerName",),
            status=RequestStatusStrategy(strategy),
        )
    ]
