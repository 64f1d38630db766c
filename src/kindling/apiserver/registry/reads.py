"""Reading collections: selectors, pages, and lists at a revision."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from kubecore import errors
from kubecore.json import JsonObject
from kubecore.objects import fields
from kubecore.objects.field_selectors import FieldSelector, parse_field_selector
from kubecore.objects.selectors import (
    LabelSelector,
    SelectorError,
    parse_label_selector,
)

from ..storage.store import Compacted, Item, Page, Store
from .definition import ResourceDefinition
from .go_json import syntax_error
from .registry import Registry

_CONTINUE_VERSION = "meta.k8s.io/v1"
_EXPIRED_EXACT = "The resourceVersion for the provided list is too old."
_EXPIRED_INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


class Matcher:
    """Whether stored objects of one kind match a label and a field selector."""

    def __init__(
        self, definition: ResourceDefinition, labels: LabelSelector, field_selector: FieldSelector
    ) -> None:
        self._definition = definition
        self._labels = None if labels.is_everything else labels
        self._fields = None if field_selector.is_everything else field_selector
        self._names_only = all(
            requirement.field in ("metadata.name", "metadata.namespace")
            for requirement in field_selector.requirements
        )
        self.exact_name = field_selector.exact("metadata.name")
        self.everything = self._labels is None and self._fields is None
        self.is_converting = (
            self._fields is not None
            and not self._names_only
            and definition.custom
            and (definition.converter is not None or definition.refresh is not None)
        )
        """Whether `prepare` must come before `matches`: fields are those of the version that is asked for,
        objects may be stored in another one."""

    async def prepare(self, registry: Registry, items: Sequence[Item]) -> None:
        """Take what `matches` looks at from the converted objects. Nothing else may run in between.

        Raises StatusError when objects cannot be converted.
        """
        if not self.is_converting:
            return
        known = [item.fields for item in items]
        others = [
            item
            for item, values in zip(items, known, strict=True)
            if values is None or values[0] is not self._definition
        ]
        converted = iter(await registry.documents(self._definition, others))
        for item, values in zip(items, known, strict=True):
            if values is not None and values[0] is self._definition:
                item.fields = values
            else:
                item.fields = (self._definition, self._of_document(item, next(converted)))

    def matches(self, item: Item) -> bool:
        """Whether the item is selected."""
        if self._labels is not None and not self._labels.matches(item.labels):
            return False
        return self._fields is None or self._fields.matches(self._values(item))

    def _values(self, item: Item) -> Mapping[str, str]:
        namespace, _, name = item.path.rpartition("/")
        if self._names_only:
            return {"metadata.name": name, "metadata.namespace": namespace}
        if item.fields is None or item.fields[0] is not self._definition:
            item.fields = (self._definition, self._of_document(item, item.document()))
        return item.fields[1]

    def _of_document(self, item: Item, document: JsonObject) -> dict[str, str]:
        namespace, _, name = item.path.rpartition("/")
        return {
            **self._definition.strategy.selectable_fields(document),
            "metadata.name": name,
            "metadata.namespace": namespace,
        }


def matcher(definition: ResourceDefinition, label_selector: str, field_selector: str) -> Matcher:
    """Parse the selectors of a request. Raises StatusError (400)."""
    try:
        labels = parse_label_selector(label_selector)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    try:
        selected = parse_field_selector(field_selector)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    known = {"metadata.name", *definition.field_labels}
    if definition.resource.namespaced or not (definition.custom or definition.field_labels):
        # Outside namespaces, only built-in kinds without labels of their own know it.
        known.add("metadata.namespace")
    for requirement in selected.requirements:
        if requirement.field not in known:
            raise errors.bad_request(_unknown_label(definition, requirement.field))
    return Matcher(definition, labels, selected)


def _unknown_label(definition: ResourceDefinition, label: str) -> str:
    if definition.field_label_error:
        return definition.field_label_error.format(label=label)
    if definition.custom:
        return f"field label not supported: {label}"
    if not definition.field_labels:
        known = '"metadata.name", "metadata.namespace"'
        return f"{fields.go_quote(label)} is not a known field selector: only {known}"
    return f"field label not supported: {label}"


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The part of ListOptions that selects the objects of a list."""

    limit: int = 0
    continue_token: str = ""
    resource_version: str = ""
    match: str = ""


@dataclass(slots=True)
class Listing:
    """Selected items and the list's metadata."""

    items: list[Item]
    metadata: JsonObject


def encode_continue(revision: int, start: str) -> str:
    """The token of the page that starts at `start` (relative to the listed prefix)."""
    document = {"v": _CONTINUE_VERSION, "rv": revision, "start": start}
    return base64.urlsafe_b64encode(orjson.dumps(document)).rstrip(b"=").decode()


def decode_continue(token: str) -> tuple[int, str]:
    """(revision, start) of a token; revision -1 stands for now. Raises StatusError (400)."""
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except (binascii.Error, ValueError) as error:
        strange = re.search(r"[^A-Za-z0-9_-]", token)
        position = strange.start() if strange else len(token) // 4 * 4
        raise _bad_token(f"illegal base64 data at input byte {position}") from error
    problem = syntax_error(raw)
    if problem:
        raise _bad_token(problem)
    document = orjson.loads(raw)
    if not isinstance(document, dict) or document.get("v") != _CONTINUE_VERSION:
        version = document.get("v") if isinstance(document, dict) else ""
        raise _bad_token(f"server does not recognize this encoded version {version or ''}")
    revision, start = document.get("rv"), document.get("start")
    if not isinstance(revision, int) or not revision:
        raise _bad_token("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not start:
        raise _bad_token("encoded start key empty (version meta.k8s.io/v1)")
    return revision, str(start)


def _bad_token(problem: str) -> errors.StatusError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {problem}")


class ExpiredToken(errors.StatusError):
    """The continue token has expired; the answer has a token that continues with the current objects."""

    def __init__(self, start: str) -> None:
        super().__init__(410, errors.EXPIRED, _EXPIRED_INCONSISTENT)
        self._start = start

    def to_status(self) -> JsonObject:
        """See StatusError."""
        return {**super().to_status(), "metadata": {"continue": encode_continue(-1, self._start)}}


async def list_items(
    registry: Registry, definition: ResourceDefinition, prefix: str, query: ListQuery, wanted: Matcher
) -> Listing:
    """The requested page of objects under `prefix`. Raises StatusError (400, 410, 504)."""
    store, bucket = registry.store, definition.storage_prefix
    revision, after = _position(store, query)
    continued = bool(query.continue_token)
    # A client that accepts any revision gets the whole list.
    limit = 0 if query.resource_version == "0" and not continued else query.limit

    def read(start: str, limit: int) -> Page:
        return store.list(bucket, prefix, after=start, limit=limit, revision=revision)

    try:
        if wanted.everything:
            return _plain_page(read, prefix, after, limit)
        page = read(prefix + after if after else "", 0)
        await wanted.prepare(registry, page.items)
        return _selected_page(page, prefix, limit, wanted)
    except Compacted as error:
        if not continued:
            raise errors.expired(_EXPIRED_EXACT) from error
        raise ExpiredToken(decode_continue(query.continue_token)[1]) from error


def _position(store: Store, query: ListQuery) -> tuple[int | None, str]:
    """The revision to list at (None: now) and the relative path to start from."""
    if query.continue_token:
        revision, start = decode_continue(query.continue_token)
        if revision > store.revision:
            raise errors.too_large_resource_version(revision, store.revision)
        return (None if revision < 0 else revision), start
    revision = int(query.resource_version or 0)
    if not revision:
        return None, ""
    if revision > store.revision:
        raise errors.too_large_resource_version(revision, store.revision)
    exact = query.match == "Exact" or (not query.match and query.limit > 0)
    return (revision if exact else None), ""


def _plain_page(read: Callable[[str, int], Page], prefix: str, after: str, limit: int) -> Listing:
    page = read(prefix + after if after else "", limit)
    metadata: JsonObject = {"resourceVersion": str(page.revision)}
    if page.remaining:
        start = page.items[-1].path[len(prefix) :] + "\0"
        metadata["continue"] = encode_continue(page.revision, start)
        metadata["remainingItemCount"] = page.remaining
    return Listing(list(page.items), metadata)


def _selected_page(page: Page, prefix: str, limit: int, wanted: Matcher) -> Listing:
    metadata: JsonObject = {"resourceVersion": str(page.revision)}
    chosen: list[Item] = []
    for item in page.items:
        if not wanted.matches(item):
            continue
        if limit and len(chosen) == limit:
            metadata["continue"] = encode_continue(page.revision, chosen[-1].path[len(prefix) :] + "\0")
            break
        chosen.append(item)
    return Listing(chosen, metadata)
