"""Names of images, read as container runtimes and kubelets read them."""

from __future__ import annotations

import re

_DOMAIN_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_TAG = r"[\w][\w.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(
    rf"((?:{_DOMAIN})/{_PATH_PART}(?:/{_PATH_PART})*)(?::{_TAG})?(?:@{_DIGEST})?", re.ASCII
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_MAX_NAME = 255


def problem(reference: str) -> str:
    """Why `reference` is not an image reference, in a kubelet's words; empty for a valid one."""
    if _IDENTIFIER.fullmatch(reference):
        return f"invalid repository name ({reference}), cannot specify 64-byte hexadecimal strings"
    domain, remainder = _split_domain(reference)
    name = remainder.partition(":")[0]
    if name.lower() != name:
        return f"invalid reference format: repository name ({name}) must be lowercase"
    match = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if match is None:
        return "invalid reference format"
    if len(match.group(1)) > _MAX_NAME:
        return f"repository name must not be more than {_MAX_NAME} characters"
    return ""


def normalize(reference: str) -> str:
    """A reference with registry and tag spelled out, as the runtime stores it."""
    name, at, digest = reference.partition("@")
    domain, remainder = _split_domain(name)
    if not at and ":" not in remainder.rsplit("/", 1)[-1]:
        remainder += ":latest"
    return f"{domain}/{remainder}{at}{digest}"


def _split_domain(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost" or first.lower() != first):
        return first, rest
    return "docker.io", name if slash else f"library/{name}"
