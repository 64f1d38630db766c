"""Validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta, names
from kubecore.objects.fields import (
    FieldError,
    FieldPath,
    duplicate,
    invalid,
    not_supported,
    required,
)
from kubecore.schema.structural import check_structural

from .conversion_rules import conversion_rules, label
from .internal_form import beyond_status, schema_form
from .rule_checks import check_rules
from .versions import all_versions, each_setting, internal_form, schema_of

API_APPROVED = "api-approved.kubernetes.io"
_SPEC = FieldPath("spec")
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MAX_SELECTABLE_FIELDS = 8


def validate(crd: JsonObject) -> list[FieldError]:
    """The errors of a new definition (except those of its metadata)."""
    return [*_name(crd), *_spec(crd), *_status(crd), *_approval(crd), *_preserving(crd)]


def validate_update(new: JsonObject, old: JsonObject) -> list[FieldError]:
    """The errors of an updated definition, including changes of immutable fields."""
    errors = list(_spec(new))
    immutable = [("scope",), ("names", "kind")] if meta.is_condition_true(old, "Established") else []
    for path in (*immutable, ("group",), ("names", "plural")):
        value = get_str(new, "spec", *path)
        if value != get_str(old, "spec", *path):
            errors.append(invalid(_SPEC.child(*path), value, "field is immutable"))
    errors += _status(new)
    if API_APPROVED in meta.annotations(old) or not list(_approval(old)):
        errors += _approval(new)
    if not get_object(old, "spec").get("preserveUnknownFields"):
        errors += _preserving(new)
    return errors


def validate_status(crd: JsonObject) -> Iterator[FieldError]:
    """The errors of a written status: the names that were accepted are names."""
    yield from _well_named(get_object(crd, "status", "acceptedNames"), FieldPath("status", "acceptedNames"))


def _status(crd: JsonObject) -> Iterator[FieldError]:
    yield from validate_status(crd)
    yield from _stored_versions(crd)


def _name(crd: JsonObject) -> Iterator[FieldError]:
    wanted = f"{get_str(crd, 'spec', 'names', 'plural')}.{get_str(crd, 'spec', 'group')}"
    for field in ("name", "generateName"):
        value = meta.metadata(crd).get(field)
        if value and value != wanted:
            yield invalid(FieldPath("metadata", field), value, 'must be spec.names.plural+"."+spec.group')


def _approval(crd: JsonObject) -> Iterator[FieldError]:
    """Groups of the Kubernetes community need its approval."""
    group = get_str(crd, "spec", "group")
    if group not in ("k8s.io", "kubernetes.io") and not group.endswith((".k8s.io", ".kubernetes.io")):
        return
    path = FieldPath("metadata", "annotations").key(API_APPROVED)
    value = meta.annotations(crd).get(API_APPROVED)
    if not value:
        yield required(
            path,
            f'protected groups must have approval annotation "{API_APPROVED}", '
            "see https://github.com/kubernetes/enhancements/pull/1111",
        )
    elif not (value.startswith("unapproved") or "://" in value):
        yield invalid(
            path,
            value,
            f'protected groups must have approval annotation "{API_APPROVED}" with either a URL or a reason '
            'starting with "unapproved", see https://github.com/kubernetes/enhancements/pull/1111',
        )


def _spec(crd: JsonObject) -> Iterator[FieldError]:
    spec = get_object(crd, "spec")
    yield from _group(str(spec.get("group") or ""))
    scope = str(spec.get("scope") or "")
    if not scope:
        yield required(_SPEC.child("scope"))
    elif scope not in ("Cluster", "Namespaced"):
        yield not_supported(_SPEC.child("scope"), scope, ("Cluster", "Namespaced"))
    if spec.get("preserveUnknownFields") and any(map(_has_defaults, map(schema_of, all_versions(crd)))):
        text = "must be false in order to use defaults in the schema"
        yield invalid(_SPEC.child("preserveUnknownFields"), True, text)
    yield from _missing_schemas(crd)
    yield from _versions(crd)
    yield from _names(get_object(crd, "spec", "names"))
    yield from _settings(crd, None)
    strategy = get_str(crd, "spec", "conversion", "strategy")
    if spec.get("preserveUnknownFields") and strategy not in ("", "None"):
        text = "must be None if spec.preserveUnknownFields is true"
        yield invalid(_SPEC.child("conversion", "strategy"), strategy, text)
    yield from conversion_rules(get_object(crd, "spec", "conversion"))


def _preserving(crd: JsonObject) -> Iterator[FieldError]:
    """Unknown fields are kept where a schema says so, not everywhere."""
    if get_object(crd, "spec").get("preserveUnknownFields"):
        yield invalid(
            _SPEC.child("preserveUnknownFields"),
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
            "instead",
        )


def _has_defaults(schema: Any) -> bool:
    """Whether a schema has a default anywhere."""
    if isinstance(schema, list):
        return any(map(_has_defaults, schema))
    if not isinstance(schema, dict):
        return False
    named = [part for field in _NAMED_SCHEMAS for part in get_object(schema, field).values()]
    own = [part for field, part in schema.items() if field in _NESTED_SCHEMAS]
    return schema.get("default") is not None or any(map(_has_defaults, (*named, *own)))


_NAMED_SCHEMAS = ("properties",)
_NESTED_SCHEMAS = ("items", "additionalProperties", "allOf", "anyOf", "oneOf", "not")


def _settings(crd: JsonObject, version: int | None) -> Iterator[FieldError]:
    """What is wrong with the settings of one version; None: with those that all versions share."""
    yield from _schemas(crd, version)
    for subresources, path in each_setting(crd, "subresources", version):
        yield from _subresources(subresources, path)
    for columns, path in each_setting(crd, "additionalPrinterColumns", version):
        yield from _columns(columns, path)
    yield from _selectable_fields(crd, version)


def _group(group: str) -> Iterator[FieldError]:
    path = _SPEC.child("group")
    if not group:
        yield required(path)
    elif messages := names.is_dns1123_subdomain(group):
        yield invalid(path, group, ",".join(messages))
    elif "." not in group:
        yield invalid(path, group, "should be a domain with at least one dot")


def _versions(crd: JsonObject) -> Iterator[FieldError]:
    path, versions = _SPEC.child("versions"), all_versions(crd)
    found = [str(version.get("name") or "") for version in versions]
    for index, (name, version) in enumerate(zip(found, versions, strict=True)):
        yield from label(path.index(index).child("name"), name)
        yield from _deprecation(version, path.index(index))
        yield from _settings(crd, index)
    if len(set(found)) != len(found):
        yield invalid(path, internal_form(crd), "must contain unique version names")
    if sum(1 for version in versions if version.get("storage")) != 1:
        yield invalid(path, internal_form(crd), "must have exactly one version marked as storage version")
    if found:
        yield from label(_SPEC.child("version"), found[0])


def _deprecation(version: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    path = path.child("deprecationWarning")
    if not version.get("deprecated"):
        yield invalid(path, warning, "can only be set for deprecated versions")
    elif not warning:
        yield invalid(path, warning, "must not be empty")
    elif len(str(warning)) > 256:
        yield invalid(path, warning, "must be <= 256 characters long")
    elif not str(warning).isprintable():
        yield invalid(
            path, warning, "must only contain printable UTF-8 characters; non-printable character found"
        )


def _names(spec_names: JsonObject) -> Iterator[FieldError]:
    path = _SPEC.child("names")
    for field in _NAMES:
        if not spec_names.get(field):
            yield required(path.child(field))
    yield from _well_named(spec_names, path)


_NAMES = ("plural", "singular", "kind", "listKind")


def _well_named(given: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    """The names that there are follow the rules of names."""
    for field in _NAMES:
        value = str(given.get(field) or "")
        is_kind = field in ("kind", "listKind")
        if value and (messages := names.is_dns1035_label(value.lower() if is_kind else value)):
            prefix = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield invalid(path.child(field), value, prefix + ",".join(messages))
    yield from _labels(given, path, "shortNames")
    kind, list_kind = given.get("kind"), given.get("listKind")
    if kind and kind == list_kind:
        yield invalid(path.child("listKind"), list_kind, "kind and listKind may not be the same")
    yield from _labels(given, path, "categories")


def _labels(given: JsonObject, path: FieldPath, field: str) -> Iterator[FieldError]:
    for index, value in enumerate(given.get(field) or ()):
        yield from label(path.child(field).index(index), str(value))


def _missing_schemas(crd: JsonObject) -> Iterator[FieldError]:
    for index, version in enumerate(all_versions(crd)):
        if not get_object(version, "schema").get("openAPIV3Schema"):
            path = _SPEC.child("versions").index(index).child("schema", "openAPIV3Schema")
            yield required(path)


def _schemas(crd: JsonObject, at: int | None) -> Iterator[FieldError]:
    for schema, path in each_setting(crd, "schema", at):
        raw = schema.get("openAPIV3Schema")
        if not isinstance(raw, dict):
            continue
        here, errors = path.child("openAPIV3Schema"), []
        if _has_status(crd, schema):
            if raw.get("type") and raw["type"] != "object":
                message = 'only "object" is allowed as the type at the root of the schema if the status '
                errors.append(invalid(here.child("type"), raw["type"], f"{message}subresource is enabled"))
            elif problem := beyond_status(raw):
                errors.append(invalid(here, schema_form(raw), problem))
        errors += check_structural(raw, here)
        yield from errors
        yield from check_rules(raw, here, is_well=not errors)


def _has_status(crd: JsonObject, schema: JsonObject) -> bool:
    """Whether a version with this schema has the status subresource."""
    found = (version for version in all_versions(crd) if version.get("schema") == schema)
    return any("status" in get_object(version, "subresources") for version in found)


def _columns(columns: list[JsonObject], path: FieldPath) -> Iterator[FieldError]:
    for index, column in enumerate(columns):
        here = path.index(index)
        if not column.get("name"):
            yield required(here.child("name"))
        kind, format_name = column.get("type"), column.get("format")
        if not kind:
            yield required(here.child("type"), f"must be one of {','.join(_COLUMN_TYPES)}")
        elif kind not in _COLUMN_TYPES:
            yield invalid(here.child("type"), kind, f"must be one of {','.join(_COLUMN_TYPES)}")
        if format_name and format_name not in _COLUMN_FORMATS:
            yield invalid(here.child("format"), format_name, f"must be one of {','.join(_COLUMN_FORMATS)}")
        yield from _simple_path(column.get("jsonPath"), here.child("JSONPath"))


def _simple_path(value: Any, path: FieldPath) -> Iterator[FieldError]:
    if not value:
        yield required(path)
    elif not str(value).startswith("."):
        yield invalid(path, value, "must be a simple json path starting with .")


def _subresources(subresources: JsonObject, path: FieldPath) -> Iterator[FieldError]:
    scale = subresources.get("scale")
    if not isinstance(scale, dict):
        return
    path = path.child("scale")
    for field, roots in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".status", ".spec")),
    ):
        value = scale.get(field)
        if not value and field == "labelSelectorPath":
            continue
        wrong = list(_simple_path(value, path.child(field)))
        if not wrong and not any(str(value).startswith(f"{root}.") for root in roots):
            where = " or ".join(roots)
            message = f"should be a json path under {'either ' if len(roots) > 1 else ''}{where}"
            wrong = [invalid(path.child(field), value, message)]
        yield from wrong


def _selectable_fields(crd: JsonObject, at: int | None) -> Iterator[FieldError]:
    for selectable, path in each_setting(crd, "selectableFields", at):
        version = next(each for each in all_versions(crd) if each.get("selectableFields") == selectable)
        schema = get_object(version, "schema", "openAPIV3Schema")
        if not schema:
            shared = "validations.schema is included"
            own = "`version.schema.openAPIV3Schema` is not included"
            yield invalid(path, "", f"may only be set when {shared if str(path).count('.') == 1 else own}")
            continue
        seen: set[str] = set()
        for index, field in enumerate(selectable):
            here, text = path.index(index).child("jsonPath"), str(field.get("jsonPath") or "")
            if not text:
                yield required(here)
            elif text in seen:
                yield duplicate(here, text)
            elif message := _selectable_complaint(schema, text):
                yield invalid(here, text, message)
            seen.add(text)
        if len(selectable) > _MAX_SELECTABLE_FIELDS:
            yield invalid(path, len(selectable), f"must have at most {_MAX_SELECTABLE_FIELDS} items")


def _selectable_complaint(schema: JsonObject, text: str) -> str:
    if not text.startswith((".", "[")):
        return f"is an invalid path: expected [ or . but got: {text}"
    node: Any = schema
    parts = text[1:].split(".")
    for part in parts:
        node = (node.get("properties") or {}).get(part) if isinstance(node, dict) else None
    if not isinstance(node, dict) or parts[0] in ("metadata", "apiVersion", "kind"):
        return "is an invalid path: does not refer to a valid field"
    if node.get("type") not in ("string", "boolean", "integer"):
        return (
            "must point to a field of type string, boolean or integer. "
            "Enum string fields and strings with formats are allowed."
        )
    return ""


def _stored_versions(crd: JsonObject) -> Iterator[FieldError]:
    path, stored = FieldPath("status", "storedVersions"), get_list(crd, "status", "storedVersions")
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    known = {str(version.get("name")) for version in all_versions(crd)}
    for index, version in enumerate(stored):
        if version not in known:
            yield invalid(
                path.index(index),
                version,
                f"missing from spec.versions; {version} was previously a storage version, and must remain in "
                f"spec.versions until a storage migration ensures no data remains persisted in {version} and "
                f"removes {version} from status.storedVersions",
            )
    for version in all_versions(crd):
        name = str(version.get("name"))
        if version.get("storage") and name not in stored:
            yield invalid(path, stored, f"must have the storage version {name}")
