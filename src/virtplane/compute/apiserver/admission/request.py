"""One admission request, decoded for webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kubecore.json import JsonObject, deep_copy, get_object, get_str
from kubecore.objects.structs import Struct, decode
from virtplane.api.config import ClusterConfig
from virtplane.compute.apiserver.admission import request_schema
from virtplane.compute.apiserver.admission.rules.metadata import is_component
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import Response

CREATE = "CREATE"
UPDATE = "UPDATE"


class Refused(Exception):
    """Ends a review with a refusal."""

    def __init__(self, response: Response) -> None:
        super().__init__(get_str(response.status, "message"))
        self.response = response


@dataclass(frozen=True, slots=True)
class Request:
    """The request with what is needed to answer it. Both are copies; `old` is empty on creation."""

    raw: JsonObject
    config: ClusterConfig
    lookups: Lookups
    new: JsonObject
    old: JsonObject

    @classmethod
    def of(cls, raw: JsonObject, config: ClusterConfig, lookups: Lookups) -> Request:
        """The request in the AdmissionReview of the API server."""
        new = get_object(raw, "object")
        return cls(raw, config, lookups, deep_copy(new), deep_copy(get_object(raw, "oldObject")))

    def read(self, struct: type[Struct]) -> Struct:
        """`new`, checked and written down as by `check`. Raises Refused, UnfitDocument."""
        self.check(struct.__name__)
        return decode(struct, self.new)

    def before(self, struct: type[Struct]) -> Struct | None:
        """`old`; None on creation. Raises UnfitDocument."""
        return decode(struct, self.old) if self.old else None

    @property
    def changes_spec(self) -> bool:
        """Whether the spec becomes another one, as it is written."""
        return get_object(self.new, "spec") != get_object(self.old, "spec")

    def check(self, kind: str) -> None:
        """Check `new` against the schema of `kind` and write both objects down as KubeVirt's types do.

        Raises Refused.
        """
        causes = request_schema.schema_causes(kind, self.new)
        if causes:
            raise Refused(Response.refuse(causes))
        try:
            request_schema.write_typed(kind, self.new)
            request_schema.write_typed(kind, self.old)
        except request_schema.Unreadable as error:
            raise Refused(Response.plain(str(error))) from error

    @property
    def operation(self) -> str:
        """CREATE, UPDATE, ..."""
        return get_str(self.raw, "operation")

    @property
    def is_creation(self) -> bool:
        """Whether the object is being made."""
        return self.operation == CREATE

    @property
    def is_dry_run(self) -> bool:
        """Whether nothing is going to be stored."""
        return bool(self.raw.get("dryRun"))

    @property
    def user(self) -> str:
        """Who asks."""
        return get_str(self.raw, "userInfo", "username")

    @property
    def user_extra(self) -> JsonObject:
        """The user's extra fields from authentication."""
        return get_object(self.raw, "userInfo", "extra")

    @property
    def is_from_component(self) -> bool:
        """Whether a component of the installation asks."""
        return is_component(self.user, self.config.namespace)

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return get_str(self.raw, "namespace") or get_str(self.new, "metadata", "namespace")

    @property
    def name(self) -> str:
        """The object's name; empty while it is still to be generated."""
        return get_str(self.raw, "name") or get_str(self.new, "metadata", "name")

    @property
    def resource(self) -> str:
        """The plural that the request addresses."""
        return get_str(self.raw, "resource", "resource")

    def expect(self, *plurals: str) -> None:
        """Raise Refused where the request is about something else."""
        if self.resource and self.resource not in plurals:
            raise Refused(Response.plain(f"expect resource to be '{plurals[0]}'"))


def replace(path: str, value: Any) -> JsonObject:
    """A JSON patch operation that adds or replaces a member."""
    return {"op": "add", "path": path, "value": value}
