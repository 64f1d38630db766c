"""What request lines mean, in every form in which they can be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

import pytest
from multidict import MultiDict

from kindling.apiserver.http.request_info import RequestInfo, parse

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "OPTIONS": "",
    "PROPFIND": "",
}
"""What an item's verb is by method; methods without meaning have none."""
_COLLECTION_VERBS = {**_VERBS, "GET": "list", "HEAD": "list", "DELETE": "deletecollection"}
_METHODS = tuple(_VERBS)


class Target(NamedTuple):
    """What authorization is to be asked about."""

    verb: str
    group: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""


def info_of(method: str, target: str) -> RequestInfo:
    """The meaning of a request line's method and target."""
    path, _, query = target.partition("?")
    return parse(method, path, MultiDict(parse_qsl(query, keep_blank_values=True)))


def seen(info: RequestInfo) -> Target:
    """What authorization is asked about."""
    return Target(info.verb, info.group, info.namespace, info.resource, info.name, info.subresource)


class Form(NamedTuple):
    """A way to write a path, and what it means with its verb left out."""

    path: str
    group: str
    namespace: str
    resource: str
    name: str
    subresource: str


def _forms() -> Iterator[Form]:
    for base, group in (("/api/v1", ""), ("/apis/example.com/v1", "example.com")):
        for inside, namespace in (("", ""), ("/namespaces/n", "n")):
            for end, name, subresource in (
                ("", "", ""),
                ("/x", "x", ""),
                ("/x/status", "x", "status"),
                ("/x/proxy/a/b", "x", "proxy"),
            ):
                yield Form(f"{base}{inside}/things{end}", group, namespace, "things", name, subresource)
        for end, name, subresource in (
            ("", "", ""),
            ("/n", "n", ""),
            ("/n/finalize", "n", "finalize"),
            ("/n/status", "n", "status"),
        ):
            yield Form(f"{base}/namespaces{end}", group, name, "namespaces", name, subresource)


_WRITINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda path: path,
    "trailing slash": lambda path: f"{path}/",
    "encoded slashes": lambda path: "/" + path[1:].replace("/", "%2F"),
    "encoded slashes in lower case": lambda path: "/" + path[1:].replace("/", "%2f"),
    "last slash encoded": lambda path: "%2F".join(path.rsplit("/", 1)),
    "encoded letters": lambda path: path.replace("things", "%74hing%73").replace(
        "namespaces", "n%61mespaces"
    ),
}
_MATRIX = [
    pytest.param(method, form, writing, id=f"{method} {form.path}, {writing}")
    for method in _METHODS
    for form in _forms()
    for writing in _WRITINGS
]


@pytest.mark.parametrize(("method", "form", "writing"), _MATRIX)
def test_however_a_path_is_written_the_same_is_authorized(method: str, form: Form, writing: str) -> None:
    verb = (_VERBS if form.name else _COLLECTION_VERBS)[method]
    info = info_of(method, _WRITINGS[writing](form.path))
    assert info.is_resource
    assert not info.is_malformed
    assert seen(info) == Target(verb, *form[1:])


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize("form", list(_forms()), ids=lambda form: form.path)
@pytest.mark.parametrize("prefix", ["watch", "proxy"])
def test_the_old_prefixes_are_the_verb_whatever_the_method(method: str, form: Form, prefix: str) -> None:
    start = "/apis/example.com/v1" if form.group else "/api/v1"
    info = info_of(method, f"{start}/{prefix}{form.path.removeprefix(start)}")
    subresource = form.subresource if prefix == "watch" else ""
    assert seen(info) == Target(prefix, form.group, form.namespace, form.resource, form.name, subresource)
    assert info.prefix == prefix


@pytest.mark.parametrize("method", _METHODS)
@pytest.mark.parametrize(
    ("query", "watches"),
    [
        ("watch=true", True),
        ("watch=1", True),
        ("watch=", True),
        ("watch", True),
        ("watch=anything", True),
        ("watch=false", False),
        ("watch=FALSE", False),
        ("watch=0", False),
        ("watch=false&watch=true", False),
        ("", False),
    ],
)
def test_only_reading_a_collection_becomes_a_watch(method: str, query: str, watches: bool) -> None:
    expected = "watch" if watches and method in ("GET", "HEAD") else _COLLECTION_VERBS[method]
    assert info_of(method, f"/api/v1/namespaces/n/things?{query}").verb == expected
    assert info_of(method, f"/api/v1/namespaces/n/things/x?{query}").verb == _VERBS[method]


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("GET", "things?fieldSelector=metadata.name%3Done", "one"),
        ("GET", "things?watch=true&fieldSelector=metadata.name%3Done", "one"),
        ("GET", "things?fieldSelector=metadata.name%3D..", ""),
        ("GET", "things?fieldSelector=metadata.name%3Da%2Fb", ""),
        ("GET", "things?fieldSelector=metadata.name%3Da%2525b", ""),
        ("GET", "things?fieldSelector=metadata.name!%3Done", ""),
        ("GET", "things?fieldSelector=nonsense", ""),
        ("GET", "things/x?fieldSelector=metadata.name%3Done", "x"),
        ("DELETE", "things?fieldSelector=metadata.name%3Done", ""),
        ("POST", "things?fieldSelector=metadata.name%3Done", ""),
        ("GET", "watch/things?fieldSelector=metadata.name%3Done", ""),
    ],
)
def test_a_selector_names_what_is_listed_and_nothing_else(method: str, target: str, name: str) -> None:
    assert info_of(method, f"/api/v1/{target}").name == name


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/apis/apps", "/healthz", "/version", "/apis/apps/v1"]
)
@pytest.mark.parametrize("method", _METHODS)
def test_other_paths_are_no_resources_and_keep_the_method_as_verb(method: str, path: str) -> None:
    info = info_of(method, path)
    assert not info.is_resource
    assert (info.verb, info.path) == (method.lower(), path)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1//pods",
        "/api/v1/namespaces//pods",
        "/api/v1/namespaces//pods/p",
        "/api/v1/namespaces/n//p",
        "/api/v1/pods//log",
        "/api/v1/pods/%2Flog",
        "/api/v1/watch",
        "/apis//v1/things",
        "/apis/example.com//things",
        "//api/v1/pods",
    ],
)
def test_paths_with_an_empty_segment_are_malformed(path: str) -> None:
    assert info_of("GET", path).is_malformed


@pytest.mark.parametrize(
    ("path", "place", "subpath"),
    [
        ("/api/v1/nodes/n/proxy", "/api/v1/nodes/n/proxy", ""),
        ("/api/v1/nodes/n/proxy/", "/api/v1/nodes/n/proxy", "/"),
        ("/api/v1/nodes/n/proxy//a/", "/api/v1/nodes/n/proxy", "//a/"),
        ("/api/v1/nodes/n/proxy/a%2Fb%20c", "/api/v1/nodes/n/proxy", "/a%2Fb%20c"),
        ("/api/v1/nodes/n/proxy%2f@host:1/x", "/api/v1/nodes/n/proxy", "/@host:1/x"),
        ("/api/v1/nodes/%6E/proxy/n/proxy/x", "/api/v1/nodes/%6E/proxy", "/n/proxy/x"),
        ("/api/v1%2Fnodes%2Fn%2Fproxy%2Fa", "/api/v1%2Fnodes%2Fn%2Fproxy", "/a"),
    ],
)
def test_what_follows_a_subresource_is_kept_as_it_was_written(path: str, place: str, subpath: str) -> None:
    info = info_of("GET", path)
    assert (info.subresource, info.at_subresource()) == ("proxy", (place, subpath))


@pytest.mark.parametrize("text", ["/a b", "/a?b", "/a#b", "/a%b", "/\u00e9", "/a\r\nb", "/..//."])
def test_the_canonical_path_is_read_the_same_by_everybody(text: str) -> None:
    info = info_of("GET", "/apis/g/v1/things" + "".join(f"%{byte:02X}" for byte in text.encode()))
    assert info.path == f"/apis/g/v1/things{text}"
    assert info_of("GET", info.canonical_path).path == info.path
    split_first = [unquote(part) for part in info.canonical_path.split("/")]
    assert split_first == info.path.split("/")


def test_a_request_info_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        info_of("GET", "/api/v1/pods").verb = "list"  # type: ignore[misc] # which is what is tested
