"""What access a request to virt-api needs."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.resources import SUBRESOURCES_GROUP, SUBRESOURCES_VERSIONS
from virtplane.api.vnc_access import TOKEN_GROUP, TOKEN_VERSIONS
from virtplane.serving.rights import VERBS

_OPEN_PATHS = frozenset({"/", "/apis", "/healthz", "/metrics", "/openapi/v2", "/openapi/v3"})
"""Who may read the metrics, their page asks itself: readers come with tokens, not through the API server."""
_GROUPS = (SUBRESOURCES_GROUP, TOKEN_GROUP)
_OPEN_ENDS = ("", "/version", "/guestfs", "/healthz")
_OF_THE_INSTALLATION = frozenset({"start-cluster-profiler", "stop-cluster-profiler", "dump-cluster-profiler"})
"""Resources without a namespace. The API server asks for the right to them, as it does for upstream, whose
virt-api asks nobody: any pod that reaches it could profile the installation.
"""


def is_open(path: str) -> bool:
    """Whether every user may read the path."""
    if path in _OPEN_PATHS or path.startswith("/openapi/v3/"):
        return True
    bases = [f"/apis/{SUBRESOURCES_GROUP}/{version}" for version in SUBRESOURCES_VERSIONS]
    tokens = [f"/apis/{TOKEN_GROUP}/{version}" for version in TOKEN_VERSIONS]
    return path in tokens or any(path == base + end for base in bases for end in _OPEN_ENDS)


def attributes(method: str, path: str) -> JsonObject | None:
    """What access is needed for a request, None for paths that mean nothing."""
    parts = path.strip("/").split("/")
    verb = VERBS.get(method)
    if verb is None or len(parts) < 4 or parts[0] != "apis" or parts[1] not in _GROUPS:
        return None
    found: JsonObject = {"group": parts[1], "version": parts[2], "verb": verb}
    if len(parts) == 4 and parts[1] == SUBRESOURCES_GROUP and parts[3] in _OF_THE_INSTALLATION:
        return found | {"resource": parts[3]}
    if len(parts) < 6 or parts[3] != "namespaces":
        return None
    found |= {"namespace": parts[4], "resource": parts[5]}
    if len(parts) > 6:
        found["name"] = parts[6]
    if len(parts) > 7:
        found["subresource"] = "portforward" if parts[7] == "portforward" else "/".join(parts[7:])
    return found
