"""Options of requests that contradict themselves."""

from __future__ import annotations

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields, meta_validation

from ..registry import preconditions, reads
from ..registry.reads import ListQuery
from .call import Call


def check_list_options(call: Call, query: ListQuery, *, watch: bool) -> None:
    """Combinations that ListOptions does not allow (422, or 400 for a bad number)."""
    problems: list[fields.FieldError] = []
    initial = call.optional_flag("sendInitialEvents")
    if watch:
        problems += _check_watch_match(query, sends_initial=initial is not None)
    elif initial is not None:
        problems.append(fields.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    elif query.match:
        problems += _check_match(query)
    if problems:
        raise errors.invalid("ListOptions", "meta.k8s.io", "", problems)
    if query.continue_token and not watch:
        reads.decode_continue(query.continue_token)
        if query.resource_version not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
    if query.resource_version:
        preconditions.parse_read_version(query.resource_version, is_list=not watch)


def _check_watch_match(query: ListQuery, *, sends_initial: bool) -> list[fields.FieldError]:
    path, match = "resourceVersionMatch", query.match
    problems: list[fields.FieldError] = []
    if sends_initial and match != "NotOlderThan":
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(fields.forbidden(path, text))
    if not match:
        return problems
    if not sends_initial:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        problems.append(fields.forbidden(path, text))
    if match != "NotOlderThan":
        problems.append(fields.not_supported(path, match, ["NotOlderThan"]))
    if query.continue_token:
        problems.append(fields.forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
    return problems


def _check_match(query: ListQuery) -> list[fields.FieldError]:
    path = "resourceVersionMatch"
    problems: list[fields.FieldError] = []
    if not query.resource_version:
        problems.append(
            fields.forbidden(path, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if query.continue_token:
        problems.append(fields.forbidden(path, "resourceVersionMatch is forbidden when continue is provided"))
    if query.match not in ("Exact", "NotOlderThan"):
        problems.append(fields.not_supported(path, query.match, ["Exact", "NotOlderThan", ""]))
    elif query.match == "Exact" and query.resource_version == "0":
        problems.append(
            fields.forbidden(path, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        )
    return problems


def check_delete_options(options: JsonObject) -> None:
    """Combinations and values that DeleteOptions does not allow (422)."""
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    problems: list[fields.FieldError] = []
    if policy is not None and orphan is not None:
        problems.append(
            fields.invalid(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy is not None and policy not in ("Foreground", "Background", "Orphan"):
        problems.append(
            fields.not_supported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        )
    problems += meta_validation.validate_dry_run(options.get("dryRun") or [])
    if problems:
        raise errors.invalid("DeleteOptions", "meta.k8s.io", "", problems)
