"""One admission request, as CDI's webhooks read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects.structs import decode
from virtplane.api.markers import ApiStruct
from virtplane.serving.frontproxy import User
from virtplane.serving.lookups import Lookups
from virtplane.serving.responses import Response
from virtplane.serving.rights import Authorizer
from virtplane.storage.cdi.apiserver.answers import Refused
from virtplane.storage.cdi.apiserver.decoding import completed, misfit
from virtplane.storage.cdi.tokens import Signer

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"

_Kind = TypeVar("_Kind", bound=ApiStruct)


@dataclass(frozen=True, slots=True)
class Services:
    """What webhooks need besides the request. There is no signer until there is a key."""

    lookups: Lookups
    authorizer: Authorizer
    signer: Signer | None
    namespace: str
    """That of the installation."""


@dataclass(frozen=True, slots=True)
class Request:
    """The request of an AdmissionReview."""

    raw: JsonObject

    @property
    def operation(self) -> str:
        """CREATE, UPDATE or DELETE."""
        return get_str(self.raw, "operation")

    @property
    def namespace(self) -> str:
        """The object's namespace."""
        return get_str(self.new, "metadata", "namespace") or get_str(self.raw, "namespace")

    @property
    def name(self) -> str:
        """The object's name; empty while it is still to be generated."""
        return get_str(self.new, "metadata", "name") or get_str(self.raw, "name")

    @property
    def new(self) -> JsonObject:
        """The object as it is to be."""
        return get_object(self.raw, "object")

    @property
    def old(self) -> JsonObject:
        """The object as it is; empty on creation."""
        return get_object(self.raw, "oldObject")

    @property
    def user(self) -> User:
        """Who asks."""
        info = get_object(self.raw, "userInfo")
        extra = {
            key: tuple(str(value) for value in values)
            for key, values in get_object(info, "extra").items()
            if isinstance(values, list)
        }
        groups = tuple(str(group) for group in get_list(info, "groups"))
        return User(get_str(info, "username"), groups, extra)

    def read(self, struct: type[_Kind]) -> _Kind:
        """The object as it is to be. Raises Refused, UnfitDocument."""
        return _read(struct, self.new)

    def before(self, struct: type[_Kind]) -> _Kind | None:
        """The object as it is; None unless it is changed. Raises Refused, UnfitDocument."""
        return _read(struct, self.old) if self.operation == UPDATE else None

    def expect(self, group: str, *plurals: str) -> None:
        """Raise Refused where the request is about something else."""
        resource: Mapping[str, object] = get_object(self.raw, "resource")
        if resource.get("group", "") != group or resource.get("resource") not in plurals:
            raise Refused(Response.plain(f"unexpected resource: {resource.get('resource')}"))


def _read(struct: type[_Kind], document: JsonObject) -> _Kind:
    problem = misfit(struct, document)
    if problem:
        raise Refused(Response.plain(problem))
    return decode(struct, completed(struct, document))
