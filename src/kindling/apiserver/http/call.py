"""An authenticated and authorized request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web
from multidict import MultiMapping

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields, meta_validation

from ..registry.admission import AuthorizationQuery
from ..registry.context import UserInfo
from . import media
from .media import Media
from .request_info import RequestInfo, is_true

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_HUMANS = ("curl", "Wget", "Mozilla/5.0")
_MAX_MANAGER_BYTES = 128
_INTEGER = re.compile(r"[+-]?[0-9]+")
_MAX_DIGITS = 64


@dataclass(slots=True)
class Call:
    """The request as handlers see it."""

    request: web.BaseRequest
    info: RequestInfo
    user: UserInfo
    query: MultiMapping[str]
    media: Media
    warnings: list[str] = field(default_factory=list)
    audit_id: str = ""

    def authorization(self, verb: str) -> AuthorizationQuery:
        """The authorization attributes of this request; `verb` is `info.verb` or derived from it."""
        return self.info.authorization(self.user, verb, self.query.get("fieldSelector", ""))

    def flag(self, name: str) -> bool:
        """A boolean query parameter, as Kubernetes reads them: anything but false and 0 is true."""
        return is_true(self.query.get(name))

    def optional_flag(self, name: str) -> bool | None:
        """A boolean query parameter, None when absent."""
        return self.flag(name) if name in self.query else None

    def integer(self, name: str) -> int | None:
        """An integer query parameter. Raises StatusError (400)."""
        value = self.query.get(name)
        if value is None:
            return None
        problem = "" if _INTEGER.fullmatch(value) else "invalid syntax"
        if not problem and (len(value) > _MAX_DIGITS or not -(2**63) <= int(value) < 2**63):
            problem = "value out of range"
        if problem:
            raise errors.bad_request(f"strconv.ParseInt: parsing {fields.go_quote(value)}: {problem}")
        return int(value)

    @property
    def user_agent_manager(self) -> str:
        """The field manager of a client that names none: its product."""
        product = self.request.headers.get("User-Agent", "unknown").partition("/")[0]
        printable = "".join(char for char in product if char.isprintable())
        return printable.encode()[:_MAX_MANAGER_BYTES].decode(errors="ignore")


@dataclass(slots=True)
class WriteOptions:
    """The query options of a write."""

    dry_run: bool
    field_manager: str
    """As sent; empty when the client named none."""
    field_validation: str
    force: bool | None

    def document(self) -> JsonObject:
        """The options as admission reviews carry them."""
        document: JsonObject = {}
        if self.field_validation:
            document["fieldValidation"] = self.field_validation
        if self.force is not None:
            document["force"] = self.force
        return document


def write_options(call: Call, kind: str, *, is_apply: bool = False) -> WriteOptions:
    """Parse and check the options of a write; `kind` is CreateOptions, UpdateOptions or PatchOptions."""
    values = list(call.query.getall("dryRun", []))
    manager = call.query.get("fieldManager", "")
    validation = call.query.get("fieldValidation", "")
    force = call.optional_flag("force")
    problems: list[fields.FieldError] = []
    if is_apply and not manager:
        problems.append(fields.required("fieldManager", "is required for apply patch"))
    elif kind == "PatchOptions" and not is_apply and "force" in call.query:
        problems.append(fields.forbidden("force", "may not be specified for non-apply patch"))
    if problems or values or manager or validation:
        problems += meta_validation.validate_dry_run(values)
        problems += meta_validation.validate_field_manager(manager, "fieldManager") if manager else []
        problems += meta_validation.validate_field_validation(validation)
        if problems:
            raise errors.invalid(kind, "meta.k8s.io", "", problems)
    return WriteOptions(bool(values), manager, validation, force)


def wants_pretty(request: web.BaseRequest) -> bool:
    """Whether to indent JSON: as the query says; by default for browsers and command line tools."""
    wish = request.query.get("pretty")
    return wish in _TRUE if wish else request.headers.get("User-Agent", "").startswith(_HUMANS)


def check_route(accepted: list[media.Accepted], offered: Sequence[str]) -> None:
    """Refuse a client that accepts none of a fixed route's media types (406)."""
    if not media.matches_any(accepted, offered):
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
        raise errors.StatusError(406, errors.NOT_ACCEPTABLE, message, {})


def negotiate(
    request: web.BaseRequest, *, transforms: bool, routed: bool = True, offered: Sequence[str] = media.OFFERED
) -> Media:
    """The media type of the response. Raises StatusError (406).

    `routed`: the path belongs to a fixed route (not to a custom resource or a group), whose media types
    (`offered`) are compared first, with another error message.
    """
    header, pretty = request.headers.get("Accept"), wants_pretty(request)
    if media.is_plain_json(header):
        return Media(pretty=pretty)
    accepted = media.parse_accept(header or "")
    if routed:
        check_route(accepted, offered)
    chosen = media.choose(accepted, transforms=transforms)
    if chosen is None:
        raise errors.not_acceptable(media.OFFERED)
    return Media(chosen.type, chosen.as_kind, chosen.as_version, pretty)
