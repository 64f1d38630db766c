"""References of images."""

from __future__ import annotations

SIDECAR_IMAGE = "SIDECAR_SHIM_IMAGE"
"""KubeVirt's environment variable with the image of hook sidecars that name none."""


def renamed(image: str, registry: str, tag: str) -> str:
    """The image of the same name in another registry, with another tag; empty ones stay as they are.

    A new tag takes the place of a digest too.
    """
    repository, at, digest = image.partition("@")
    path, _, last = repository.rpartition("/")
    name, colon, old_tag = last.partition(":")
    found = "/".join(part for part in (registry.rstrip("/") or path, name) if part)
    return f"{found}:{tag}" if tag else f"{found}{colon}{old_tag}{at}{digest}"
