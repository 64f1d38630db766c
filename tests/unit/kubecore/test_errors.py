"""Status errors carry the words, reasons and details of the Kubernetes API."""

from __future__ import annotations

import pytest

from kubecore import errors
from kubecore.objects import fields
from kubecore.resources import DEPLOYMENTS, PODS


def test_a_missing_object_is_named_with_its_resource() -> None:
    status = errors.not_found(PODS, "a").to_status()
    assert status == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "a" not found',
        "reason": "NotFound",
        "details": {"name": "a", "kind": "pods"},
        "code": 404,
    }


def test_resources_of_groups_show_their_group() -> None:
    error = errors.already_exists(DEPLOYMENTS, "d")
    assert error.message == 'deployments.apps "d" already exists'
    assert error.details == {"name": "d", "group": "apps", "kind": "deployments"}


def test_an_object_waiting_for_finalizers_is_said_to_be_deleted() -> None:
    error = errors.already_exists("configmaps", "a", being_deleted=True)
    assert error.message == 'object is being deleted: configmaps "a" already exists'


def test_one_field_error_stands_alone_and_several_in_brackets() -> None:
    first = fields.required("metadata.name", "name or generateName is required")
    second = fields.invalid("spec.x", 5, "must be less")
    alone = errors.invalid("ConfigMap", "", "", [first])
    both = errors.invalid("Deployment", "apps", "d", [first, second])
    assert (
        alone.message
        == 'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert alone.details is not None and "name" not in alone.details
    assert both.message == (
        'Deployment.apps "d" is invalid: [metadata.name: Required value: name or generateName is required, '
        "spec.x: Invalid value: 5: must be less]"
    )
    assert both.causes[1] == {
        "reason": "FieldValueInvalid",
        "message": "Invalid value: 5: must be less",
        "field": "spec.x",
    }


def test_equal_messages_are_listed_once() -> None:
    error = errors.invalid("K", "", "n", [fields.required("a"), fields.required("a")])
    assert error.message == 'K "n" is invalid: a: Required value'


@pytest.mark.parametrize(
    ("error", "code", "reason", "message"),
    [
        (errors.forbidden("pods", "p", "no"), 403, "Forbidden", 'pods "p" is forbidden: no'),
        (errors.forbidden("pods", "", "no"), 403, "Forbidden", "pods is forbidden: no"),
        (errors.forbidden("", "", "no"), 403, "Forbidden", "forbidden: no"),
        (errors.unauthorized(), 401, "Unauthorized", "Unauthorized"),
        (
            errors.method_not_allowed(),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        (errors.too_large("x"), 413, "RequestEntityTooLarge", "Request entity too large: x"),
        (errors.internal("x"), 500, "InternalError", "Internal error occurred: x"),
        (errors.plain_internal("x"), 500, "", "x"),
        (
            errors.not_acceptable(["a/b", "c/d"]),
            406,
            "NotAcceptable",
            "only the following media types are accepted: a/b, c/d",
        ),
        (
            errors.unsupported_media_type(["a/b"]),
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: a/b",
        ),
        (
            errors.conflict("configmaps", "a"),
            409,
            "Conflict",
            'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
            "please apply your changes to the latest version and try again",
        ),
    ],
)
def test_refusals_have_code_reason_and_message(
    error: errors.StatusError, code: int, reason: str, message: str
) -> None:
    assert (error.code, error.reason, error.message) == (code, reason, message)


def test_a_status_read_back_is_the_same_error() -> None:
    original = errors.too_many_requests("wait", 3)
    read = errors.StatusError.from_status(original.to_status())
    assert read.to_status() == original.to_status()
    assert read.retry_after_seconds == 3
    assert read.reason == errors.TOO_MANY_REQUESTS
    assert original.headers == {"Retry-After": "3"}


def test_a_status_without_reason_gets_the_one_of_its_code() -> None:
    assert errors.StatusError.from_status({"message": "x"}, 404).reason == "NotFound"


def test_predicates_tell_errors_apart() -> None:
    assert errors.is_not_found(errors.not_found("pods", "a"))
    assert not errors.is_not_found(ValueError())
    assert errors.is_expired(errors.expired("old")) and errors.is_expired(errors.gone("old"))
    terminating = errors.forbidden(
        "pods", "a", "x", [{"reason": "NamespaceTerminating", "message": "m", "field": "metadata.namespace"}]
    )
    assert errors.is_namespace_terminating(terminating)
    assert not errors.is_namespace_terminating(errors.forbidden("pods", "a", "x"))


def test_errors_that_pass_say_when_to_try_again() -> None:
    future = errors.too_large_resource_version(9, 5, 2)
    assert future.to_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: Too large resource version: 9, current: 5",
        "reason": "Timeout",
        "details": {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 2,
        },
        "code": 504,
    }
    taken = errors.generate_name_conflict("pods", "p-abcde")
    assert taken.message == (
        'pods "p-abcde" already exists, the server was not able to generate a unique name for the object'
    )
    assert taken.retry_after_seconds == 1 and errors.is_already_exists(taken)


def test_an_error_without_a_message_shows_its_code_and_reason() -> None:
    assert str(errors.StatusError(422, "Invalid", "")) == "422 Invalid"
    assert errors.StatusError(422, "Invalid", "").causes == []


def test_a_patch_that_does_not_apply_gets_no_reason() -> None:
    assert errors.generic_invalid().details == {}
    assert errors.is_forbidden(errors.forbidden("pods", "a", "x"))
    assert errors.is_conflict(errors.apply_conflict("x", []))
    assert errors.service_unavailable("x").code == 503
    assert errors.page_not_found().message == "the server could not find the requested resource"
    assert errors.method_not_allowed("pods", "delete").message == (
        'delete is not supported on resources of kind "pods"'
    )


def test_errors_that_quote_all_of_a_request_are_not_all_told() -> None:
    value = "x" * 1_000_000
    found = [fields.invalid(f"spec[{number}]", value, "is wrong") for number in range(1000)]
    error = errors.invalid("Thing", "", "t", found)
    assert len(error.message) < 4_000_000
    assert error.message.endswith("and 998 more]")
    assert len(error.causes) == 2
