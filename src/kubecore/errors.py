"""API failures: the `Status` document as an exception, and the refusals of the Kubernetes API in its words.

A server raises the errors made by the constructors below and sends `StatusError.to_status`; a
client raises `StatusError.from_status` for what it received. Both sides test errors with the ``is_…``
predicates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kubecore.json import JsonObject
from kubecore.objects.fields import FieldError
from kubecore.resources import ResourceType

NOT_FOUND: Final = "NotFound"
ALREADY_EXISTS: Final = "AlreadyExists"
CONFLICT: Final = "Conflict"
INVALID: Final = "Invalid"
BAD_REQUEST: Final = "BadRequest"
FORBIDDEN: Final = "Forbidden"
UNAUTHORIZED: Final = "Unauthorized"
METHOD_NOT_ALLOWED: Final = "MethodNotAllowed"
GONE: Final = "Gone"
EXPIRED: Final = "Expired"
TOO_LARGE: Final = "RequestEntityTooLarge"
TOO_MANY_REQUESTS: Final = "TooManyRequests"
UNSUPPORTED_MEDIA_TYPE: Final = "UnsupportedMediaType"
NOT_ACCEPTABLE: Final = "NotAcceptable"
TIMEOUT: Final = "Timeout"
INTERNAL_ERROR: Final = "InternalError"
SERVICE_UNAVAILABLE: Final = "ServiceUnavailable"

_REASON_OF_CODE: Final = {
    400: BAD_REQUEST,
    401: UNAUTHORIZED,
    403: FORBIDDEN,
    404: NOT_FOUND,
    405: METHOD_NOT_ALLOWED,
    406: NOT_ACCEPTABLE,
    409: CONFLICT,
    410: GONE,
    413: TOO_LARGE,
    415: UNSUPPORTED_MEDIA_TYPE,
    422: INVALID,
    429: TOO_MANY_REQUESTS,
    500: INTERNAL_ERROR,
    503: SERVICE_UNAVAILABLE,
    504: TIMEOUT,
}

_MAX_SHOWN_ERRORS: Final = 1000
_MAX_SHOWN_CHARACTERS: Final = 1 << 20

OBJECT_MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)
"""The message of a conflict when the resourceVersion sent is not the current one."""


class StatusError(Exception):
    """An error response of the API. `details` is None where the Status has none (it may also be empty)."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: JsonObject | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers: dict[str, str] = dict(headers or {})

    def __str__(self) -> str:
        return self.message or f"{self.code} {self.reason}"

    def to_status(self) -> JsonObject:
        """The ``Status`` document of this failure. Empty parts are left out, as on the wire."""
        status: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        if self.message:
            status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @classmethod
    def from_status(cls, document: Mapping[str, Any], code: int = 500) -> StatusError:
        """The error for a ``Status`` document; `code` is used if the document has none."""
        number = document.get("code")
        code = number if isinstance(number, int) and number else code
        details = document.get("details")
        return cls(
            code,
            str(document.get("reason") or _REASON_OF_CODE.get(code, "")),
            str(document.get("message") or ""),
            details if isinstance(details, dict) else None,
        )

    @property
    def causes(self) -> list[JsonObject]:
        """``details.causes``, or an empty list."""
        found = (self.details or {}).get("causes")
        return found if isinstance(found, list) else []

    @property
    def retry_after_seconds(self) -> int:
        """How long the server asks to wait before trying again; 0 when it does not say."""
        seconds = (self.details or {}).get("retryAfterSeconds")
        return seconds if isinstance(seconds, int) else 0


GroupResource = ResourceType | str
"""A resource as messages name it: a `ResourceType`, or ``plural.group`` (``plural`` for the core group)."""


def _text(resource: GroupResource) -> str:
    return resource if isinstance(resource, str) else resource.group_resource


def _details(resource: GroupResource, name: str, causes: Sequence[JsonObject] = ()) -> JsonObject:
    """Details in the order of the wire format, empty parts left out."""
    plural, _, group = _text(resource).partition(".")
    details: JsonObject = {"name": name, "group": group, "kind": plural, "causes": list(causes)}
    return {key: value for key, value in details.items() if value}


def not_found(resource: GroupResource, name: str) -> StatusError:
    """The object `name` does not exist."""
    return StatusError(404, NOT_FOUND, f'{_text(resource)} "{name}" not found', _details(resource, name))


def page_not_found() -> StatusError:
    """No resource is served under the requested path."""
    return StatusError(404, NOT_FOUND, "the server could not find the requested resource", {})


def already_exists(resource: GroupResource, name: str, *, being_deleted: bool = False) -> StatusError:
    """An object of that name exists, possibly one which waits for its finalizers (`being_deleted`)."""
    message = f'{_text(resource)} "{name}" already exists'
    if being_deleted:
        message = f"object is being deleted: {message}"
    return StatusError(409, ALREADY_EXISTS, message, _details(resource, name))


def generate_name_conflict(resource: GroupResource, name: str, retry_after_seconds: int = 1) -> StatusError:
    """No free name was found for a ``generateName``."""
    details = {**_details(resource, name), "retryAfterSeconds": retry_after_seconds}
    message = f'{_text(resource)} "{name}" already exists, '
    message += "the server was not able to generate a unique name for the object"
    return StatusError(409, ALREADY_EXISTS, message, details)


def conflict(
    resource: GroupResource, name: str, message: str = OBJECT_MODIFIED, causes: Sequence[JsonObject] = ()
) -> StatusError:
    """The object is not in the state which the request expects."""
    text = f'Operation cannot be fulfilled on {_text(resource)} "{name}": {message}'
    return StatusError(409, CONFLICT, text, _details(resource, name, causes))


def apply_conflict(message: str, causes: Sequence[JsonObject]) -> StatusError:
    """Server-side apply would change fields that other managers own."""
    return StatusError(409, CONFLICT, message, {"causes": list(causes)})


def invalid(kind: str, group: str, name: str, errors: Sequence[FieldError]) -> StatusError:
    """The object breaks rules. Equal messages are reported once; several are listed in brackets.

    The number of listed errors is limited, and so is their length together, so that a response is never much
    longer than its request.
    """
    shown: list[JsonObject] = []
    left = _MAX_SHOWN_CHARACTERS
    for error in errors[:_MAX_SHOWN_ERRORS]:
        shown.append(error.cause())
        # Each may quote all of a request.
        left -= len(shown[-1]["message"])
        if left < 0:
            break
    messages = list(dict.fromkeys(f"{cause['field']}: {cause['message']}" for cause in shown))
    if len(errors) > len(shown):
        messages.append(f"and {len(errors) - len(shown)} more")
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: JsonObject = {"name": name, "group": group, "kind": kind}
    details["causes"] = shown
    details = {key: value for key, value in details.items() if value}
    message = f'{qualified} "{name}" is invalid'
    return StatusError(422, INVALID, f"{message}: {text}" if messages else message, details)


def generic_invalid() -> StatusError:
    """422 without details (a JSON patch that does not apply)."""
    return StatusError(422, INVALID, "the server rejected our request due to an error in our request", {})


def bad_request(message: str) -> StatusError:
    """The request cannot be understood."""
    return StatusError(400, BAD_REQUEST, message)


def forbidden(
    resource: GroupResource, name: str, message: str, causes: Sequence[JsonObject] = ()
) -> StatusError:
    """Authorization or admission refuses. Without a name, the error is about the whole collection."""
    text = _text(resource)
    if not text:
        full = f"forbidden: {message}"
    elif name:
        full = f'{text} "{name}" is forbidden: {message}'
    else:
        full = f"{text} is forbidden: {message}"
    return StatusError(403, FORBIDDEN, full, _details(resource, name, causes))


def unauthorized(message: str = "Unauthorized") -> StatusError:
    """The credentials identify no user."""
    return StatusError(401, UNAUTHORIZED, message)


def method_not_allowed(resource: GroupResource | None = None, verb: str = "") -> StatusError:
    """The resource does not support the method; without a resource, no resource at the path does."""
    if resource is None:
        message = "the server does not allow this method on the requested resource"
        return StatusError(405, METHOD_NOT_ALLOWED, message, {})
    message = f'{verb} is not supported on resources of kind "{_text(resource)}"'
    return StatusError(405, METHOD_NOT_ALLOWED, message, _details(resource, ""))


def gone(message: str) -> StatusError:
    """The requested resource no longer exists."""
    return StatusError(410, GONE, message)


def expired(message: str) -> StatusError:
    """The resourceVersion or continue token is older than the server remembers."""
    return StatusError(410, EXPIRED, message)


def too_large_resource_version(requested: int, current: int, retry_after_seconds: int = 1) -> StatusError:
    """The requested resourceVersion is newer than the server's."""
    details: JsonObject = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": retry_after_seconds,
    }
    message = f"Too large resource version: {requested}, current: {current}"
    return StatusError(504, TIMEOUT, f"Timeout: {message}", details)


def too_large(message: str) -> StatusError:
    """The request is larger than the server takes."""
    return StatusError(413, TOO_LARGE, f"Request entity too large: {message}")


def internal(message: str) -> StatusError:
    """Something failed inside the server or a component it depends on."""
    details: JsonObject = {"causes": [{"message": message}]}
    return StatusError(500, INTERNAL_ERROR, f"Internal error occurred: {message}", details)


def plain_internal(message: str) -> StatusError:
    """A failure which the API reports with its text alone, without a reason."""
    return StatusError(500, "", message)


def timeout(message: str, retry_after_seconds: int = 0) -> StatusError:
    """The request did not finish in time."""
    details: JsonObject = {"retryAfterSeconds": retry_after_seconds} if retry_after_seconds else {}
    return StatusError(504, TIMEOUT, f"Timeout: {message}", details)


def too_many_requests(
    message: str, retry_after_seconds: int = 0, causes: Sequence[JsonObject] = ()
) -> StatusError:
    """The client must wait. `retry_after_seconds` 0 sends no ``Retry-After``."""
    details: JsonObject = {"causes": list(causes)} if causes else {}
    headers: dict[str, str] = {}
    if retry_after_seconds:
        details["retryAfterSeconds"] = retry_after_seconds
        headers["Retry-After"] = str(retry_after_seconds)
    return StatusError(429, TOO_MANY_REQUESTS, message, details, headers=headers)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """The body is in a format that the server does not read."""
    message = "the body of the request was in an unknown format - accepted media types include: "
    return StatusError(415, UNSUPPORTED_MEDIA_TYPE, message + ", ".join(accepted))


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    """The client accepts none of the formats that the server writes."""
    message = "only the following media types are accepted: "
    return StatusError(406, NOT_ACCEPTABLE, message + ", ".join(accepted))


def service_unavailable(message: str) -> StatusError:
    """A component that the request needs is unavailable."""
    return StatusError(503, SERVICE_UNAVAILABLE, message)


@contextmanager
def ignoring(*codes: int) -> Iterator[None]:
    """Ignore status errors with these codes: the object is gone (404), another client wrote it (409)."""
    try:
        yield
    except StatusError as error:
        if error.code not in codes:
            raise


def has_reason(error: BaseException, reason: str) -> bool:
    """Whether `error` is a `StatusError` with this reason."""
    return isinstance(error, StatusError) and error.reason == reason


def is_not_found(error: BaseException) -> bool:
    """The object does not exist."""
    return has_reason(error, NOT_FOUND)


def is_already_exists(error: BaseException) -> bool:
    """The object exists already."""
    return has_reason(error, ALREADY_EXISTS)


def is_lost_race(error: BaseException) -> bool:
    """The object changed since the writer read it: its version, its uid or a test of a JSON patch failed."""
    if not isinstance(error, StatusError):
        return False
    return is_conflict(error) or (error.code == 422 and error.message == generic_invalid().message)


def is_conflict(error: BaseException) -> bool:
    """The object was changed by another request, or another manager owns the fields."""
    return has_reason(error, CONFLICT)


def is_forbidden(error: BaseException) -> bool:
    """Authorization or admission refused."""
    return has_reason(error, FORBIDDEN)


def is_expired(error: BaseException) -> bool:
    """The requested resourceVersion is too old (``Expired`` or ``Gone``)."""
    return has_reason(error, EXPIRED) or has_reason(error, GONE)


def is_namespace_terminating(error: BaseException) -> bool:
    """A creation was refused because its namespace is being deleted."""
    return (
        isinstance(error, StatusError)
        and error.reason == FORBIDDEN
        and any(cause.get("reason") == "NamespaceTerminating" for cause in error.causes)
    )
