"""Strategic merge patch: a merge patch that merges lists as the kind's schema says.

Lists with the patch strategy ``merge`` merge by their merge key, or as sets where their elements are
scalars. Directives inside the patch refine that: ``$patch`` (``replace``, ``delete``), ``$retainKeys``,
``$setElementOrder/<list>`` and ``$deleteFromPrimitiveList/<list>``. Neither document nor patch is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import orjson

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.objects.goformat import go_print, json_type
from kubecore.schema.model import Schema

_PATCH: Final = "$patch"
_RETAIN_KEYS: Final = "$retainKeys"
_ELEMENT_ORDER: Final = "$setElementOrder"
_DELETE_FROM_LIST: Final = "$deleteFromPrimitiveList"
_ABSENT: Final = object()


def decode_strategic_patch(value: Any) -> JsonObject:
    """The patch in a request body, which must be an object. Raises `StatusError`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        kind = json_type(value)
        raise errors.bad_request(
            f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )
    return value


def invalid_patch(patch: Any, detail: str) -> errors.StatusError:
    """The error when the patched document cannot be decoded as its kind."""
    return errors.invalid("", "", "", [fields.invalid("patch", go_print(patch), detail)])


def strategic_merge(document: JsonObject, patch: JsonObject, schema: Schema | None) -> JsonObject:
    """The document after the patch. Raises `StatusError` for a patch that contradicts itself or schema."""
    return _merge_map(document, patch, schema)


def _merge_map(original: JsonObject, patch: JsonObject, schema: Schema | None) -> JsonObject:
    directive = patch.get(_PATCH, _ABSENT)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    if directive == "delete":
        return {}
    if directive is not _ABSENT:
        raise _unknown_directive(directive, patch)
    merged = _retained(original, patch)
    orders = {key: value for key, value in patch.items() if key.startswith(_ELEMENT_ORDER)}
    ordered = set()
    for key, order in orders.items():
        name = _list_name(key, _ELEMENT_ORDER)
        ordered.add(name)
        _merge_ordered(merged, name, patch.get(name, _ABSENT), order, _child(schema, name))
    for key, value in patch.items():
        if key in orders or key in ordered or key == _RETAIN_KEYS:
            continue
        if key.startswith(_DELETE_FROM_LIST):
            name = _list_name(key, _DELETE_FROM_LIST)
            current = merged.get(name)
            if isinstance(current, list) and isinstance(value, list):
                gone = {_comparable(item) for item in value}
                merged[name] = [item for item in current if _comparable(item) not in gone]
        else:
            _merge_field(merged, key, value, _child(schema, key))
    return merged


def _merge_field(merged: JsonObject, key: str, value: Any, schema: Schema | None) -> None:
    if value is None:
        merged.pop(key, None)
        return
    current = merged.get(key, _ABSENT)
    strategy = schema.patch_strategy if schema is not None else ()
    if isinstance(current, dict) and isinstance(value, dict):
        merged[key] = value if "replace" in strategy else _merge_map(current, value, schema)
    elif isinstance(current, list) and isinstance(value, list):
        merged[key] = _merge_list(current, value, schema) if "merge" in strategy else value
    else:
        kept = _without_directives(value)
        if kept is _ABSENT:
            merged.pop(key, None)
        else:
            merged[key] = kept


def _child(schema: Schema | None, name: str) -> Schema | None:
    return schema.child(name) if schema is not None else None


def _unknown_directive(directive: Any, patch: JsonObject) -> errors.StatusError:
    return errors.plain_internal(f"unknown patch type: {go_print(directive)} in map: {go_print(patch)}")


def _without_merge_key(item: JsonObject, key: str) -> errors.StatusError:
    return errors.plain_internal(f"map: {go_print(item)} does not contain declared merge key: {key}")


def _list_name(key: str, prefix: str) -> str:
    head, slash, name = key.partition("/")
    if not slash or head != prefix:
        what = "primitive list" if prefix == _DELETE_FROM_LIST else "setElementOrder list"
        raise errors.bad_request(f"invalid patch format of {what}")
    return name


def _retained(original: JsonObject, patch: JsonObject) -> JsonObject:
    """A copy of `original` with only the fields that ``$retainKeys`` names, where it is given."""
    if _RETAIN_KEYS not in patch:
        return dict(original)
    retained = patch[_RETAIN_KEYS]
    wrong = errors.bad_request("invalid patch format of retainKeys")
    if not isinstance(retained, list):
        raise wrong
    names = {name for name in retained if isinstance(name, str)}
    for key, value in patch.items():
        if value is None or key == _RETAIN_KEYS or key.startswith((_DELETE_FROM_LIST, _ELEMENT_ORDER)):
            continue
        if key not in names:
            raise wrong
    return {key: value for key, value in original.items() if key in names}


def _is_directive(key: str) -> bool:
    return key == _RETAIN_KEYS or key.startswith((_ELEMENT_ORDER + "/", _DELETE_FROM_LIST + "/"))


def _without_directives(value: Any) -> Any:
    """A patch value without counterpart in the document: nulls and directives are dropped."""
    if isinstance(value, dict):
        if _PATCH in value:
            return _ABSENT
        plain = {key: child for key, child in value.items() if child is not None and not _is_directive(key)}
        kept = {key: _without_directives(child) for key, child in plain.items()}
        return {key: child for key, child in kept.items() if child is not _ABSENT}
    if isinstance(value, list):
        items = [_without_directives(item) for item in value]
        return [item for item in items if item is not _ABSENT]
    return value


def _merge_list(original: list[Any], patch: list[Any], schema: Schema | None) -> list[Any]:
    """Merge two lists by the merge key of the schema; what the patch names keeps the order of the patch."""
    if not original and not patch:
        return original
    key = schema.patch_merge_key if schema is not None else ""
    _check_alike(original, patch)
    if not isinstance((original or patch)[0], dict):
        if any(isinstance(item, list | dict) for item in (*original, *patch)):
            raise errors.StatusError(422, "", "lists of lists are not supported", {})
        merged = list(dict.fromkeys([*original, *patch]))
        return _in_order(merged, patch, original, lambda item: item)
    if not key:
        raise errors.plain_internal("cannot merge lists without merge key for " + repr(schema))
    original, patch = _apply_list_directives(original, patch, key)
    merged = _merge_keyed(original, patch, key, schema.items if schema is not None else None)
    return _in_order(merged, patch, original, lambda item: _comparable(item.get(key)))


def _check_alike(original: list[Any], patch: list[Any]) -> None:
    """The elements of both lists must have one type, unless they are lists: those never merge."""
    first = type((original or patch)[0])
    if first in (list, type(None)):
        return
    if any(type(item) is not first for item in (*original, *patch)):
        raise errors.plain_internal(f"list element types are not identical: {go_print([original, patch])}")


def _apply_list_directives(original: list[Any], patch: list[Any], key: str) -> tuple[list[Any], list[Any]]:
    """Carry out the ``$patch`` elements of a list; returns the remaining elements of the document's list and
    the patch.
    """
    plain: list[Any] = []
    gone = set()
    replace = False
    for item in patch:
        directive = item.get(_PATCH, _ABSENT) if isinstance(item, dict) else _ABSENT
        if directive is _ABSENT:
            plain.append(item)
        elif directive == "delete":
            if key not in item:
                raise _without_merge_key(item, key)
            gone.add(_comparable(item[key]))
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise errors.plain_internal("merging lists cannot yet be specified in the patch")
        else:
            raise _unknown_directive(directive, item)
    if replace:
        return plain, []
    return [item for item in original if key not in item or _comparable(item[key]) not in gone], plain


def _merge_keyed(original: list[Any], patch: list[Any], key: str, item_schema: Schema | None) -> list[Any]:
    merged = list(original)
    position = {_comparable(item.get(key)): index for index, item in reversed(list(enumerate(merged)))}
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise _without_merge_key(item, key)
        identity = _comparable(item[key])
        index = position.get(identity)
        if index is None:
            position[identity] = len(merged)
            merged.append(_without_directives(item))
        else:
            merged[index] = _merge_map(merged[index], item, item_schema)
    return merged


def _comparable(key: Any) -> Any:
    """A merge key in comparable form; a value of the wrong type is refused later, when the object is
    decoded.
    """
    return orjson.dumps(key, option=orjson.OPT_SORT_KEYS) if isinstance(key, dict | list) else key


def _merge_ordered(merged: JsonObject, name: str, patch: Any, order: Any, schema: Schema | None) -> None:
    """Merge the list `name` and put it in the order which ``$setElementOrder`` wants."""
    current = merged.get(name, _ABSENT)
    for value in (order, current, patch):
        if value is not _ABSENT and not isinstance(value, list):
            raise errors.plain_internal(f"expected a []interface {{}}, but received a {json_type(value)}")
    key = schema.patch_merge_key if schema is not None else ""
    if patch is not _ABSENT:
        _check_order(patch, order, key)
    if current is _ABSENT and patch is _ABSENT:
        return
    if patch is _ABSENT:
        result = current
    elif current is _ABSENT:
        result = _without_directives(patch)
    else:
        strategy = schema.patch_strategy if schema is not None else ()
        result = _merge_list(current, patch, schema) if "merge" in strategy else patch
    identity = _identity(key)
    merged[name] = _in_order(result, order, [] if current is _ABSENT else current, identity)


def _identity(key: str) -> Callable[[Any], Any]:
    if not key:
        return _comparable

    def by_key(item: Any) -> Any:
        if not isinstance(item, dict):
            raise errors.plain_internal(
                "expected a map[string]interface {}, but received a " + json_type(item)
            )
        if key not in item:
            raise _without_merge_key(item, key)
        return _comparable(item[key])

    return by_key


def _check_order(patch: list[Any], order: list[Any], key: str) -> None:
    """The elements of the patch must occur in ``$setElementOrder``, in the same order."""
    if not patch or not order:
        return
    identity = _identity(key)
    wanted = [identity(item) for item in patch if not (isinstance(item, dict) and _PATCH in item)]
    position = 0
    for item in order:
        if position < len(wanted) and identity(item) == wanted[position]:
            position += 1
    if position < len(wanted):
        raise errors.plain_internal(
            f"The order in patch list:\n{go_print(patch)}\n"
            f" doesn't match {_ELEMENT_ORDER} list:\n{go_print(order)}\n"
        )


def _in_order(
    merged: list[Any], order: list[Any], live: list[Any], identity: Callable[[Any], Any]
) -> list[Any]:
    """`merged` sorted: elements named by `order` follow it, the others stay where `live` had them.

    Elements of the two kinds are interleaved by their places in `live`; a new element goes before the
    others that could stand at its place.
    """
    rank = {identity(item): index for index, item in reversed(list(enumerate(order)))}
    place = {identity(item): index for index, item in reversed(list(enumerate(live)))}
    named = sorted((item for item in merged if identity(item) in rank), key=lambda item: rank[identity(item)])
    others = [item for item in merged if identity(item) not in rank]
    others.sort(key=lambda item: place.get(identity(item), len(place)))
    result: list[Any] = []
    passed = 0
    for item in named:
        at = place.get(identity(item))
        while at is not None and passed < len(others):
            if place.get(identity(others[passed]), len(place)) >= at:
                break
            result.append(others[passed])
            passed += 1
        result.append(item)
    return result + others[passed:]
