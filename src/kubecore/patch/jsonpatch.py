"""JSON patch (RFC 6902) as the API server applies it.

Beyond the RFC the server counts negative list indices from the end, adds an absent member on
``replace``, and takes an absent member for null in ``test`` and ``copy``. A document is never changed in
place: the containers on the way to a change are copied, all else is shared with the original.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from kubecore import errors
from kubecore.json import JsonObject, TooDeep, encode
from kubecore.objects.goformat import json_type

MAX_OPERATIONS: Final = 10_000
MAX_COPIED_BYTES: Final = 3 * 1024 * 1024
MAX_SHIFTED_ITEMS: Final = 20_000_000
"""Items that come to another place because one before them is added or removed: a tenth of a second. Ten
thousand operations on one list in a request would otherwise keep a processor busy for minutes.
"""
_INDEX: Final = re.compile(r"[+-]?[0-9]+")


class JsonPatchError(ValueError):
    """An operation cannot be carried out. Clients of PATCH only learn `rejected`; webhooks see the text."""

    def rejected(self) -> errors.StatusError:
        """The answer to a PATCH request."""
        return errors.generic_invalid()


def decode_json_patch(value: Any) -> list[JsonObject]:
    """The operations in a request body; null has none.

    Raises `StatusError` when it is no list of objects or too long.
    """
    prefix = "error decoding patch: json: cannot unmarshal"
    if value is None:
        return []
    if not isinstance(value, list):
        raise errors.bad_request(f"{prefix} {json_type(value)} into Go value of type []handlers.jsonPatchOp")
    if len(value) > MAX_OPERATIONS:
        raise errors.too_large(
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(value)}"
        )
    for operation in value:
        if not isinstance(operation, dict):
            kind = json_type(operation)
            raise errors.bad_request(f"{prefix} {kind} into Go value of type handlers.jsonPatchOp")
    return value


def apply_json_patch(document: Any, operations: Sequence[JsonObject]) -> Any:
    """The document after all `operations`, in order. Raises `JsonPatchError`; nothing is changed then."""
    patched = _Patched(document)
    for operation in operations:
        patched.apply(operation)
    return patched.root


def _pointer(operation: JsonObject, member: str) -> str:
    pointer = operation.get(member)
    if not isinstance(pointer, str):
        kind = operation.get("op")
        raise JsonPatchError(f"{kind} operation failed to decode {member}: missing value")
    return pointer


def _segments(pointer: str) -> list[str]:
    """The parts of a JSON pointer, unescaped."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


class _Patched:
    """A document under change. Containers which this patch has already copied are changed directly."""

    def __init__(self, document: Any) -> None:
        self.root = document
        # by id; holding the value keeps the container alive and its id unique
        self._owned: dict[int, Any] = {}
        self._copied_bytes = 0
        self._shifted_items = 0

    def apply(self, operation: JsonObject) -> None:
        kind = operation.get("op")
        if kind not in {"add", "remove", "replace", "move", "copy", "test"}:
            raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        path = _pointer(operation, "path")
        if kind == "add":
            self._add(path, operation.get("value"))
        elif kind == "remove":
            self._remove(path)
        elif kind == "replace":
            self._replace(path, operation.get("value"))
        elif kind == "test":
            self._test(path, operation.get("value"))
        elif kind == "move":
            self._move(_pointer(operation, "from"), path)
        else:
            self._copy(_pointer(operation, "from"), path)

    def _add(self, path: str, value: Any) -> None:
        parent, key = self._parent(path, f'add operation does not apply: doc is missing path: "{path}"')
        self._insert(parent, key, value, f"error in add for path: '{path}'")

    def _insert(self, parent: Any, key: str, value: Any, context: str) -> None:
        if isinstance(parent, dict):
            parent[key] = value
        elif key == "-":
            parent.append(value)
        else:
            index = _index(key, len(parent) + 1, context)
            self._shift(len(parent) - index)
            parent.insert(index, value)

    def _shift(self, items: int) -> None:
        """Count the items of a list behind one that comes or goes. Raises JsonPatchError for too many."""
        self._shifted_items += items
        if self._shifted_items > MAX_SHIFTED_ITEMS:
            raise JsonPatchError(
                "Unable to complete the patch, its operations move more than "
                f"{MAX_SHIFTED_ITEMS} items of lists: replace the lists as a whole"
            )

    def _take(self, container: Any, key: str, context: str) -> Any:
        """Remove the value at `key` and return it."""
        if isinstance(container, list):
            index = _index(key, len(container), context)
            self._shift(len(container) - index)
            return container.pop(index)
        if key not in container:
            raise JsonPatchError(f"{context}: Unable to remove nonexistent key: {key}: missing value")
        return container.pop(key)

    def _remove(self, path: str) -> None:
        parent, key = self._parent(path, f'remove operation does not apply: doc is missing path: "{path}"')
        self._take(parent, key, f"error in remove for path: '{path}'")

    def _replace(self, path: str, value: Any) -> None:
        """Replace a value. An absent member of an object is added, which the RFC would refuse."""
        if path == "":
            if not isinstance(value, dict | list):
                raise JsonPatchError("replace operation value must be object or array")
            self.root = value
            return
        parent, key = self._parent(path, f"replace operation does not apply: doc is missing path: {path}")
        if isinstance(parent, dict):
            parent[key] = value
            return
        if not _INDEX.fullmatch(key) or not -len(parent) <= int(key) < len(parent):
            raise JsonPatchError(
                f"replace operation does not apply: doc is missing key: {path}: missing value"
            )
        parent[int(key)] = value

    def _move(self, source: str, path: str) -> None:
        parent, key = self._parent(
            source, f"move operation does not apply: doc is missing from path: {source}"
        )
        value = self._take(parent, key, f"error in move for path: '{key}'")
        context = f"move operation does not apply: doc is missing destination path: {path}"
        parent, key = self._parent(path, context)
        self._insert(parent, key, value, f"error in move for path: '{path}'")

    def _copy(self, source: str, path: str) -> None:
        context = f"copy operation does not apply: doc is missing from path: {source}"
        container, key = self._locate(source, context)
        value = _get(container, key, f"error in copy for from: '{source}'")
        try:
            self._copied_bytes += len(encode(value))
        except TooDeep as error:
            raise JsonPatchError(f"Unable to complete the copy: {error}") from error
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise JsonPatchError(
                "Unable to complete the copy, the accumulated size increase of copy is "
                f"{self._copied_bytes}, exceeding the limit {MAX_COPIED_BYTES}"
            )
        self._disown(value)
        context = f"copy operation does not apply: doc is missing destination path: {path}"
        parent, key = self._parent(path, context)
        self._insert(parent, key, value, "error while adding value during copy")

    def _test(self, path: str, expected: Any) -> None:
        """Compare a value. Null equals an absent member."""
        if path == "":
            found = self.root
        else:
            container, key = self._locate(path, f"test operation does not apply: is missing path: {path}")
            found = _get(container, key, f"error in test for path: '{path}'")
        if not is_equal(found, expected):
            raise JsonPatchError(f"testing value {path} failed: test failed")

    def _locate(self, path: str, context: str) -> tuple[Any, str]:
        """The container that holds `path`, for reading, and the last segment."""
        segments = _segments(path)
        if not segments:
            raise JsonPatchError(f"{context}: missing value")
        container = self.root
        for segment in segments[:-1]:
            container = _step(container, segment, context)
        if not isinstance(container, dict | list):
            raise JsonPatchError(f"{context}: missing value")
        return container, segments[-1]

    def _parent(self, path: str, context: str) -> tuple[Any, str]:
        """The container that holds `path`, safe to change, and the last segment."""
        segments = _segments(path)
        if not segments:
            raise JsonPatchError(f"{context}: missing value")
        container = self.root = self._own(self.root, context)
        for segment in segments[:-1]:
            child = self._own(_step(container, segment, context), context)
            container[segment if isinstance(container, dict) else int(segment)] = child
            container = child
        return container, segments[-1]

    def _own(self, container: Any, context: str) -> Any:
        if id(container) in self._owned:
            return container
        if not isinstance(container, dict | list):
            raise JsonPatchError(f"{context}: missing value")
        copied = container.copy()
        self._owned[id(copied)] = copied
        return copied

    def _disown(self, value: Any) -> None:
        """Forget that containers below `value` are ours: from now on they occur in two places."""
        self._owned.pop(id(value), None)
        for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            self._disown(child)


def _step(container: Any, segment: str, context: str) -> Any:
    """The child of a container on the way to a value."""
    if isinstance(container, dict) and segment in container:
        return container[segment]
    if isinstance(container, list) and _INDEX.fullmatch(segment):
        index = int(segment)
        if -len(container) <= index < len(container):
            return container[index]
    raise JsonPatchError(f"{context}: missing value")


def _get(container: Any, key: str, context: str) -> Any:
    """The value at `key`; None for an absent member of an object."""
    if isinstance(container, dict):
        return container.get(key)
    return container[_index(key, len(container), context)]


def _index(key: str, size: int, context: str) -> int:
    """The list index that `key` means, below `size`; negative ones count from the end."""
    if not _INDEX.fullmatch(key):
        raise JsonPatchError(f"{context}: value was not a proper array index: '{key}'")
    index = int(key)
    if not -size <= index < size:
        raise JsonPatchError(f"{context}: Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


def is_equal(left: Any, right: Any) -> bool:
    """Equality of JSON values; unlike in Python, ``true`` is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(is_equal(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(is_equal(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)
