"""The subresource serviceaccounts/token."""

from __future__ import annotations

from datetime import UTC, datetime

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields, times
from kubecore.patch import managed
from kubecore.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS
from kubecore.schema.model import Schema

from ..registry.context import RequestContext
from .service_accounts import BoundObject, TokenAuthority

_API_VERSION = "authentication.k8s.io/v1"
_MIN_SECONDS = 600
_MAX_SECONDS = 2**32
_DEFAULT_SECONDS = 3600
_BOUND = {("v1", "Pod"): PODS, ("v1", "Secret"): SECRETS, ("v1", "Node"): NODES}


class TokenRequests:
    """Serves POST of a TokenRequest."""

    def __init__(self, authority: TokenAuthority, schema: Schema) -> None:
        self._authority = authority
        self._schema = schema

    async def create(self, ctx: RequestContext, request: JsonObject) -> JsonObject:
        """The request with its token. Raises StatusError."""
        metadata = request.setdefault("metadata", {})
        if metadata.get("name") not in (None, "", ctx.name):
            problem = fields.invalid(
                "metadata.name", metadata["name"], "must match the service account name if specified"
            )
            raise errors.invalid("TokenRequest", "authentication.k8s.io", ctx.name, [problem])
        account = ctx.objects.get(SERVICE_ACCOUNTS, ctx.namespace, ctx.name)
        if account is None:
            raise errors.not_found(SERVICE_ACCOUNTS, ctx.name)
        spec = request.setdefault("spec", {})
        spec.setdefault("boundObjectRef", None)
        if spec.get("expirationSeconds") is None:  # Clients send null for unset fields.
            spec["expirationSeconds"] = _DEFAULT_SECONDS
        seconds = spec["expirationSeconds"]
        self._check_seconds(seconds)
        bound = self._bound(ctx, spec.get("boundObjectRef") or {})
        metadata.update({"name": ctx.name, "namespace": ctx.namespace, "uid": account["metadata"]["uid"]})
        metadata["creationTimestamp"] = times.now_rfc3339()
        if not spec.get("audiences"):
            spec["audiences"] = list(self._authority.audiences)
        # Nothing is stored, but the response has managedFields like every object.
        write = managed.Write(ctx.field_manager, _API_VERSION, metadata["creationTimestamp"], "token")
        metadata["managedFields"] = managed.track_update(None, request, self._schema, write)
        token, expiry = self._authority.issue(account, spec["audiences"], seconds, bound)
        moment = times.format_time(datetime.fromtimestamp(expiry, UTC))
        request["status"] = {"token": token, "expirationTimestamp": moment}
        return request

    @staticmethod
    def _check_seconds(seconds: int) -> None:
        message = ""
        if seconds < _MIN_SECONDS:
            message = "may not specify a duration less than 10 minutes"
        elif seconds > _MAX_SECONDS:
            message = "may not specify a duration larger than 2^32 seconds"
        if message:
            problem = fields.invalid("spec.expirationSeconds", seconds, message)
            raise errors.invalid("TokenRequest", "authentication.k8s.io", "", [problem])

    @staticmethod
    def _bound(ctx: RequestContext, reference: JsonObject) -> BoundObject | None:
        if not reference:
            return None
        api_version, kind = str(reference.get("apiVersion") or ""), str(reference.get("kind") or "")
        resource = _BOUND.get((api_version, kind))
        if resource is None:
            group, _, version = api_version.rpartition("/")
            raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        name = str(reference.get("name") or "")
        found = ctx.objects.get(resource, ctx.namespace if resource.namespaced else None, name)
        if found is None:
            raise errors.not_found(resource, name)
        uid = str(found["metadata"]["uid"])
        if reference.get("uid") not in (None, "", uid):
            raise errors.conflict(
                resource,
                name,
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
                f"record. The object might have been deleted and then recreated",
            )
        node_name = node_uid = ""
        if kind == "Pod":
            spec = found.get("spec") or {}
            if spec.get("serviceAccountName") != ctx.name:
                raise errors.bad_request(
                    f"cannot bind token for serviceaccount {fields.go_quote(ctx.name)} to pod running with "
                    "different serviceaccount name."
                )
            node_name = str(spec.get("nodeName") or "")
            node = ctx.objects.get(NODES, None, node_name) if node_name else None
            node_uid = str(node["metadata"]["uid"]) if node is not None else ""
        return BoundObject(kind, name, uid, node_name, node_uid)
