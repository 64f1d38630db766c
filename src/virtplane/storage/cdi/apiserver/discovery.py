"""What describes the aggregated API of upload tokens, and which of its paths are open."""

from __future__ import annotations

from kubecore.json import JsonObject
from virtplane.api.cdi_v1beta1.upload import UploadTokenRequest
from virtplane.api.resources import UPLOAD_TOKEN_REQUESTS
from virtplane.api.schema import object_schema
from virtplane.serving.rights import VERBS

GROUP, VERSION = UPLOAD_TOKEN_REQUESTS.group, UPLOAD_TOKEN_REQUESTS.version
GROUP_PATH = f"/apis/{GROUP}"
VERSION_PATH = f"{GROUP_PATH}/{VERSION}"
_OPEN_DEPTH = 3
"""Paths of so many parts describe, and may be read by everybody."""
_TITLE = {"title": "CDI API", "version": "1.0.0"}
_DEFINITION = f"{VERSION}.{UPLOAD_TOKEN_REQUESTS.kind}"
OBJECT_PATH = f"{VERSION_PATH}/namespaces/{{namespace}}/{UPLOAD_TOKEN_REQUESTS.plural}"
_KIND = [{"group": GROUP, "version": VERSION, "kind": UPLOAD_TOKEN_REQUESTS.kind}]


def is_open(path: str) -> bool:
    """Whether everybody may read the path."""
    parts = path.strip("/").split("/")
    if path in ("/", "/apis", "/healthz") or parts[0] == "openapi":
        return True
    return parts[0] == "apis" and len(parts) <= _OPEN_DEPTH


def attributes(method: str, path: str) -> JsonObject | None:
    """What access a request needs, None for paths that mean nothing."""
    parts = path.strip("/").split("/")
    verb = VERBS.get(method)
    if verb is None or len(parts) < 6 or parts[:2] != ["apis", GROUP] or parts[3] != "namespaces":
        return None
    found: JsonObject = {
        "group": GROUP,
        "version": parts[2],
        "namespace": parts[4],
        "resource": parts[5],
        "verb": verb,
    }
    return found | ({"name": parts[6]} if len(parts) > 6 else {})


def group() -> JsonObject:
    """The served group."""
    version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": GROUP,
        "versions": [version],
        "preferredVersion": version,
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
    }


def groups() -> JsonObject:
    """All groups that are served."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group()]}


def resource_list() -> JsonObject:
    """The resources of the version."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {
                "name": UPLOAD_TOKEN_REQUESTS.plural,
                "singularName": UPLOAD_TOKEN_REQUESTS.kind.lower(),
                "namespaced": True,
                "group": GROUP,
                "version": VERSION,
                "kind": UPLOAD_TOKEN_REQUESTS.kind,
                "verbs": ["create"],
                "shortNames": ["utr", "utrs"],
            }
        ],
    }


def root_paths() -> JsonObject:
    """The paths that are served."""
    return {"paths": ["/apis", GROUP_PATH, VERSION_PATH, "/healthz", "/openapi/v2", "/openapi/v3"]}


def openapi_v2() -> JsonObject:
    """The API for merging into the cluster's document."""
    body = {"name": "body", "in": "body", "required": True, "schema": _reference("definitions")}
    return {
        "swagger": "2.0",
        "info": _TITLE,
        "paths": {
            OBJECT_PATH: {
                "parameters": [{"name": "namespace", "in": "path", "required": True, "type": "string"}],
                "post": {
                    **_operation(),
                    "consumes": ["application/json"],
                    "produces": ["application/json"],
                    "parameters": [body],
                    "responses": {
                        "200": {"description": "OK", "schema": _reference("definitions")},
                        "401": {"description": "Unauthorized"},
                    },
                },
            }
        },
        "definitions": {_DEFINITION: _definition()},
    }


def openapi_v3() -> JsonObject:
    """A document of this group alone."""
    content = {"application/json": {"schema": _reference("components/schemas")}}
    namespace = {"name": "namespace", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        "openapi": "3.0.0",
        "info": _TITLE,
        "paths": {
            OBJECT_PATH: {
                "parameters": [namespace],
                "post": {
                    **_operation(),
                    "requestBody": {"required": True, "content": content},
                    "responses": {
                        "200": {"description": "OK", "content": content},
                        "401": {"description": "Unauthorized"},
                    },
                },
            }
        },
        "components": {"schemas": {_DEFINITION: _definition()}},
    }


def openapi_v3_index() -> JsonObject:
    """Where that document is found."""
    path = f"apis/{GROUP}/{VERSION}"
    return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash=1"}}}


def _operation() -> JsonObject:
    return {
        "operationId": f"createNamespaced{UPLOAD_TOKEN_REQUESTS.kind}-{VERSION}",
        "description": "Create an UploadTokenRequest, which is answered with a token.",
        "x-kubernetes-action": "post",
        "x-kubernetes-group-version-kind": _KIND[0],
    }


def _reference(where: str) -> JsonObject:
    return {"$ref": f"#/{where}/{_DEFINITION}"}


def _definition() -> JsonObject:
    return {**object_schema(UploadTokenRequest), "x-kubernetes-group-version-kind": _KIND}
