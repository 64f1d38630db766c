"""Operations of a resource as OpenAPI describes them (pure): one builder for versions 2 and 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kubecore.json import JsonObject

from ..registry.definition import ResourceDefinition, Subresource

_JSON_TYPES = ("application/json", "application/yaml")
_PATCH_TYPES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
_STRING, _INTEGER, _BOOLEAN = "string", "integer", "boolean"
_PARAMETERS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": (_BOOLEAN, "allowWatchBookmarks requests watch events with type BOOKMARK."),
    "continue": (_STRING, "The continue option should be set when retrieving more results from the server."),
    "dryRun": (_STRING, "When present, indicates that modifications should not be persisted."),
    "fieldManager": (_STRING, "The name of the actor or entity that is making these changes."),
    "fieldSelector": (_STRING, "A selector to restrict the list of returned objects by their fields."),
    "fieldValidation": (_STRING, "How to handle objects containing unknown or duplicate fields."),
    "force": (_BOOLEAN, "Force is going to force Apply requests."),
    "gracePeriodSeconds": (_INTEGER, "The duration in seconds before the object should be deleted."),
    "labelSelector": (_STRING, "A selector to restrict the list of returned objects by their labels."),
    "limit": (_INTEGER, "The maximum number of responses to return for a list call."),
    "orphanDependents": (_BOOLEAN, "Deprecated: use propagationPolicy."),
    "pretty": (_STRING, "If true, then the output is pretty printed."),
    "propagationPolicy": (_STRING, "Whether and how garbage collection will be performed."),
    "resourceVersion": (_STRING, "A constraint on what resource versions a request may be served from."),
    "resourceVersionMatch": (_STRING, "How resourceVersion is applied to list calls."),
    "sendInitialEvents": (_BOOLEAN, "Whether a watch begins with what exists."),
    "timeoutSeconds": (_INTEGER, "Timeout for the list/watch call."),
    "watch": (_BOOLEAN, "Watch for changes to the described resources."),
}
_LIST = (
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
)  # fmt: skip
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."


@dataclass(frozen=True, slots=True)
class Style:
    """How a version of OpenAPI writes things."""

    version: int

    def reference(self, name: str) -> JsonObject:
        """A reference to a schema."""
        prefix = "#/definitions/" if self.version == 2 else "#/components/schemas/"
        return {"$ref": prefix + name}

    def parameter(self, name: str, where: str, kind: str, description: str) -> JsonObject:
        """A query or path parameter."""
        parameter: JsonObject = {"name": name, "in": where, "description": description}
        if where == "path":
            parameter["required"] = True
        else:
            parameter["uniqueItems"] = True
        if self.version == 2:
            return {**parameter, "type": kind}
        return {**parameter, "schema": {"type": kind, "uniqueItems": True}}

    def response(self, description: str, schema: str) -> JsonObject:
        """A response with a body."""
        if self.version == 2:
            return {"description": description, "schema": self.reference(schema)}
        content = {media: {"schema": self.reference(schema)} for media in _JSON_TYPES}
        return {"description": description, "content": content}

    def with_body(
        self, operation: JsonObject, schema: str, types: tuple[str, ...], *, required: bool = True
    ) -> None:
        """Add a request body."""
        must = {"required": True} if required else {}
        if self.version == 2:
            body = {"name": "body", "in": "body", **must, "schema": self.reference(schema)}
            operation["parameters"] = [body, *operation.get("parameters", [])]
            operation["consumes"] = list(types)
        else:
            content = {media: {"schema": self.reference(schema)} for media in types}
            operation["requestBody"] = {"content": content, **must}


def paths_of(definition: ResourceDefinition, style: Style) -> Iterator[tuple[str, JsonObject]]:
    """(path, path item) of a resource and its subresources."""
    if not definition.openapi_name:
        return
    resource = definition.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    collection = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
    shared = [_path_parameter(style, "namespace")] if resource.namespaced else []
    builder = _Builder(definition, style)
    yield f"{collection}/{resource.plural}", {**builder.collection(), **_parameters(shared)}
    if resource.namespaced and "list" in definition.verbs:
        item = {"get": builder.operation("list", "get", definition.openapi_name + "List", _LIST)}
        yield f"{root}/{resource.plural}", item
    named = [_path_parameter(style, "name"), *shared]
    if definition.virtual is None:
        yield f"{collection}/{resource.plural}/{{name}}", {**builder.single(), **_parameters(named)}
    for sub in definition.subresources.values():
        if not sub.connect:
            path = f"{collection}/{resource.plural}/{{name}}/{sub.name}"
            yield path, {**builder.subresource(sub), **_parameters(named)}


def _path_parameter(style: Style, name: str) -> JsonObject:
    text = (
        "name of the object"
        if name == "name"
        else "object name and auth scope, such as for teams and projects"
    )
    return style.parameter(name, "path", _STRING, text)


def _parameters(parameters: list[JsonObject]) -> JsonObject:
    return {"parameters": parameters} if parameters else {}


class _Builder:
    """Builds the operations of one resource."""

    def __init__(self, definition: ResourceDefinition, style: Style) -> None:
        self._definition = definition
        self._style = style

    def operation(
        self,
        action: str,
        method: str,
        response: str,
        query: tuple[str, ...],
        *,
        suffix: str = "",
        kind: str = "",
    ) -> JsonObject:
        """One operation without a body."""
        resource, style = self._definition.resource, self._style
        group = "".join(part.title() for part in (resource.group.split(".")[0] or "core").split("-"))
        scope = "Namespaced" if resource.namespaced and action != "list" else ""
        identifier = f"{action}{group}{resource.version.title()}{scope}{resource.kind}{suffix}"
        parameters = [style.parameter(name, "query", *_PARAMETERS[name]) for name in ("pretty", *query)]
        operation: JsonObject = {
            "description": f"{action} {resource.kind} objects"
            if action == "list"
            else f"{action} {resource.kind}",
            "operationId": identifier,
            "tags": [f"{group.lower()}_{resource.version}"],
            "parameters": parameters,
            "responses": {"200": style.response("OK", response), "401": {"description": "Unauthorized"}},
            "x-kubernetes-action": action if action != "create" else "post",
            "x-kubernetes-group-version-kind": {
                "group": resource.group,
                "version": resource.version,
                "kind": kind or resource.kind,
            },
        }
        if style.version == 2:
            operation["produces"] = list(_JSON_TYPES)
            operation["schemes"] = ["https"]
            operation.setdefault("consumes", ["*/*"])
        return operation

    def _write(
        self, action: str, method: str, schema: str, *, suffix: str = "", types: tuple[str, ...] = _JSON_TYPES
    ) -> JsonObject:
        query = (*_WRITE, "force") if method == "patch" else _WRITE
        operation = self.operation(action, method, schema, query, suffix=suffix)
        body = _META + "Patch" if method == "patch" else schema
        self._style.with_body(operation, body, types)
        operation["responses"]["201"] = self._style.response("Created", schema)
        if method == "post":
            operation["responses"]["202"] = self._style.response("Accepted", schema)
        return operation

    def collection(self) -> JsonObject:
        """GET, POST and DELETE of the collection."""
        definition, name = self._definition, self._definition.openapi_name
        item: JsonObject = {}
        if "list" in definition.verbs:
            item["get"] = self.operation("list", "get", name + "List", _LIST)
            if definition.resource.namespaced:
                item["get"]["operationId"] += "InNamespace"
        if "create" in definition.verbs:
            item["post"] = self._write("create", "post", name)
        if "deletecollection" in definition.verbs:
            query = (*_LIST, *_DELETE)
            item["delete"] = self._with_options(
                self.operation("deletecollection", "delete", _META + "Status", query)
            )
        return item

    def single(self) -> JsonObject:
        """GET, PUT, PATCH and DELETE of an object."""
        definition, name = self._definition, self._definition.openapi_name
        item: JsonObject = {}
        if "get" in definition.verbs:
            item["get"] = self.operation("get", "get", name, ())
        if "update" in definition.verbs:
            item["put"] = self._write("put", "put", name)
        if "patch" in definition.verbs:
            item["patch"] = self._write("patch", "patch", name, types=self._patch_types())
        if "delete" in definition.verbs:
            response = name if definition.strategy.returns_deleted_object else _META + "Status"
            item["delete"] = self._with_options(self.operation("delete", "delete", response, _DELETE))
            item["delete"]["responses"]["202"] = self._style.response("Accepted", response)
        return item

    def _with_options(self, operation: JsonObject) -> JsonObject:
        """A delete takes its options in the body or in the query."""
        self._style.with_body(operation, _META + "DeleteOptions", ("*/*",), required=False)
        return operation

    def _patch_types(self) -> tuple[str, ...]:
        return _PATCH_TYPES[:3] if self._definition.custom else _PATCH_TYPES

    def subresource(self, sub: Subresource) -> JsonObject:
        """The operations of a subresource."""
        name = self._definition.openapi_name
        if sub.scale is not None:
            name = "io.k8s.api.autoscaling.v1.Scale"
        elif sub.action is not None:
            name = sub.schema.definition or name if sub.schema is not None else name
        suffix = sub.name.title()
        item: JsonObject = {}
        if "get" in sub.verbs:
            item["get"] = self.operation("get", "get", name, (), suffix=suffix, kind=sub.kind)
        if "update" in sub.verbs:
            item["put"] = self._write("put", "put", name, suffix=suffix)
        if "patch" in sub.verbs:
            item["patch"] = self._write("patch", "patch", name, suffix=suffix, types=self._patch_types())
        if "create" in sub.verbs:
            item["post"] = self._write("create", "post", name, suffix=suffix)
        return item
