"""Queries, options and headers of requests, from the arguments of the client's methods."""

from __future__ import annotations

from urllib.parse import quote

from kubecore.client.config import ClientConfig
from kubecore.json import JsonObject


def selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    """The query of label and field selectors."""
    chosen = (("labelSelector", label_selector), ("fieldSelector", field_selector))
    return {key: value for key, value in chosen if value}


def of_write(config: ClientConfig, dry_run: bool, field_manager: str | None) -> dict[str, str]:
    """The query of a write; `field_manager` counts more than that of the configuration."""
    query: dict[str, str] = {}
    if dry_run:
        query["dryRun"] = "All"
    manager = field_manager or config.field_manager
    if manager:
        query["fieldManager"] = manager
    return query


def delete_options(
    grace_period_seconds: int | None, propagation_policy: str | None, dry_run: bool
) -> JsonObject:
    """The body of a delete."""
    options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if propagation_policy is not None:
        options["propagationPolicy"] = propagation_policy
    if dry_run:
        options["dryRun"] = ["All"]
    return options


def preconditions(uid: str | None, resource_version: str | None) -> JsonObject:
    """The part of a delete's body that says which object is meant; empty for whichever is there."""
    wanted = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value}
    return {"preconditions": wanted} if wanted else {}


def impersonation_headers(config: ClientConfig) -> list[tuple[str, str]]:
    """The ``Impersonate-*`` headers, if the configuration has a user to impersonate."""
    who = config.impersonate
    if who is None:
        return []
    headers = [("Impersonate-User", who.user)]
    headers += [("Impersonate-Group", group) for group in who.groups]
    if who.uid:
        headers.append(("Impersonate-Uid", who.uid))
    for key, values in who.extra.items():
        # Header names hold few characters: the rest of the key travels percent-encoded.
        headers += [(f"Impersonate-Extra-{quote(key, safe='')}", value) for value in values]
    return headers
