"""Bodies made to stall the server, to fill its memory, or to end it."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from tests.support.hostile import Reply, Target, bystander_unharmed

from kubecore.json import JsonObject

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MAPS = "/api/v1/namespaces/attacked/configmaps"
_LIMIT = 3 * 1024 * 1024
_FULL = _LIMIT - 200
_YAML, _PROTOBUF = "application/yaml", "application/vnd.kubernetes.protobuf"
_JSON_PATCH, _MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_MANY = 100_000


def _assert(reply: Reply, status: int, reason: str, words: str) -> None:
    assert (reply.status, reply.reason) == (status, reason), reply.body[:300]
    assert words in reply.message, reply.message[:300]


def _map(name: str, text: bytes) -> bytes:
    return b'{"metadata":{"name":"%s"},%s}' % (name.encode(), text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a":' * 300 + b"1" + b"}" * 300, "invalid character '{' exceeded max depth"),
        (b"[" * 300 + b"]" * 300, "invalid character '[' exceeded max depth"),
        (b"[" * 10_001 + b"]" * 10_001, "invalid character '[' exceeded max depth"),
        (b"[" * _FULL, "invalid character '[' exceeded max depth"),
        (b'{"a":' * (_FULL // 5), "invalid character '{' exceeded max depth"),
        (b'"' + b"x" * (_FULL - 100), "unexpected end of JSON input"),
        (b'"' + b"\\n" * (_FULL // 2 - 100), "unexpected end of JSON input"),
        (b'"\xff\xfe"', "cannot unmarshal string into Go struct field"),
        (b'"\\ud800"', "cannot unmarshal string into Go struct field"),
        (b"1e999999", "number is infinity"),
        (b"9" * _MANY, "number is infinity"),
        (b"-", "invalid character '}' in numeric literal"),
        (b"NaN", "invalid character 'N' looking for beginning of value"),
        (b"[" + b"[]," * (_FULL // 3 - 50) + b"[]]", "cannot unmarshal array into Go struct field"),
        (b"12345678901234567890123", "cannot unmarshal number into Go struct field"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else "",
)
async def test_texts_that_are_no_objects_are_refused(target: Target, text: bytes, words: str) -> None:
    _assert(await target.request("POST", _MAPS, _map("x", b'"data":' + text)), 400, "BadRequest", words)


async def test_others_notice_nothing_of_big_and_deep_texts(target: Target) -> None:
    async with bystander_unharmed(target, growth_mib=200):
        for text in (b"[" * _FULL, b'{"a":' * (_FULL // 5), b'"' + b"\\n" * (_FULL // 2 - 100)):
            reply = await target.request("POST", _MAPS, _map("x", b'"data":' + text))
            assert reply.status == 400
            assert reply.seconds < 10
        lists = b'"data":[' + b"[]," * (_FULL // 3 - 50) + b"[]]"
        assert (await target.request("POST", _MAPS, _map("x", lists))).status == 400


async def test_bodies_beyond_three_mebibytes_are_refused_however_they_come(target: Target) -> None:
    words = "Request entity too large: limit is 3145728"
    text = _map("x", b'"data":{"a":"' + b"x" * _LIMIT + b'"}')
    async with bystander_unharmed(target, growth_mib=100):
        _assert(await target.request("POST", _MAPS, text), 413, "RequestEntityTooLarge", words)
        chunked = f"POST {_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hostile-admin\r\n"
        chunked += f"Transfer-Encoding: chunked\r\n\r\n{len(text):x}\r\n"
        _assert(await target.raw(chunked.encode() + text), 413, "RequestEntityTooLarge", words)
        squeezed = gzip.compress(_map("x", b'"data":{"a":"' + b"x" * 100_000_000 + b'"}'), 1)
        reply = await target.request("POST", _MAPS, squeezed, headers="Content-Encoding: gzip\r\n")
        _assert(reply, 400, "BadRequest", r"invalid character '\x1f' looking for beginning of value")


def _many(prefix: str = "k", value: str = "v") -> JsonObject:
    return {f"{prefix}{number}": value for number in range(_MANY)}


async def test_a_hundred_thousand_keys_hold_up_nobody(target: Target) -> None:
    async with bystander_unharmed(target, growth_mib=400):
        made = await target.request("POST", _MAPS, {"metadata": {"name": "keys"}, "data": _many()})
        assert made.status == 201, made.body[:300]
        unknown = await target.request("POST", _MAPS, {"metadata": {"name": "unknown"}, **_many()})
        assert unknown.status == 201, unknown.body[:300]
        strict = await target.request(
            "POST", f"{_MAPS}?fieldValidation=Strict", {"metadata": {"name": "strict"}, **_many()}
        )
        _assert(strict, 400, "BadRequest", 'strict decoding error: unknown field "k0"')
        labels = await target.request(
            "POST", _MAPS, {"metadata": {"name": "labels", "labels": _many("-", "v!")}, "data": {}}
        )
        _assert(labels, 422, "Invalid", "and 199000 more]")
        notes = await target.request("POST", _MAPS, {"metadata": {"name": "n", "annotations": _many()}})
        _assert(notes, 422, "Invalid", "metadata.annotations: Too long: may not be more than 262144 bytes")
        long = await target.request("POST", _MAPS, {"metadata": {"name": "a" * 1_000_000}})
        _assert(long, 422, "Invalid", "must be no more than 253 characters")


async def test_warnings_fit_into_the_head_of_an_answer(target: Target) -> None:
    reply = await target.request("POST", _MAPS, {"metadata": {"name": "warned"}, **_many()})
    assert reply.status == 201
    assert "unknown field" in reply.headers["warning"]


async def test_many_big_bodies_at_once_wait_for_each_other_and_not_others_for_them(target: Target) -> None:
    text = json.dumps(
        {"metadata": {"generateName": "crowd"}, "data": {f"k{i}": "v" for i in range(30_000)}}
    ).encode()
    async with bystander_unharmed(target, growth_mib=400):
        replies = await asyncio.gather(*(target.request("POST", _MAPS, text) for _ in range(12)))
    assert {reply.status for reply in replies} <= {201, 429}
    assert any(reply.status == 201 for reply in replies)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[" * _FULL, "exceeded max depth of 250"),
        (b"- " * (_FULL // 2), "exceeded max depth of 250"),
        (b"{" * _FULL, "invalid map key"),
        (b"? " * (_FULL // 2), "invalid map key"),
        (b"a: &a [*a]", "anchor 'a' value contains itself"),
        (b"!!python/object/apply:os.system [id]", "could not determine a constructor for the tag"),
        (b"a: .inf", "unsupported value"),
        (b"\xff\xfe\x00", "unacceptable character"),
        (b"a: *nobody", "unknown anchor"),
    ],
    ids=lambda value: value[:12] if isinstance(value, bytes) else "",
)
async def test_yaml_made_to_overflow_the_stack_or_to_run_code_is_refused(
    target: Target, text: bytes, words: str
) -> None:
    reply = await target.request("POST", _MAPS, text, _YAML)
    _assert(reply, 400, "BadRequest", words)
    assert reply.seconds < 5


async def test_aliases_that_stand_for_gigabytes_are_counted_and_not_written_out(target: Target) -> None:
    laughs = [b'a: &a ["lol","lol","lol","lol","lol","lol","lol","lol","lol"]']
    laughs += [b"%c: &%c [%s]" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(9)]
    long = b'a: &a "' + b"x" * 2_000_000 + b'"\nb: [' + b"*a," * 90 + b"]"
    async with bystander_unharmed(target, growth_mib=100):
        for text in (b"\n".join(laughs), long):
            reply = await target.request("POST", _MAPS, text, _YAML)
            _assert(reply, 400, "BadRequest", "yaml: document contains excessive aliasing")


@pytest.mark.parametrize(
    "text",
    [
        b"k8s\x00\x0a\xff\xff\xff\xff\x0f",
        b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12" + b"\xff" * 8 + b"\x7f",
        b"k8s\x00" + b"\x0a" * (_FULL - 10),
        b"k8s\x00" + b"\xff" * (_FULL - 10),
        b"nope",
    ],
    ids=lambda value: repr(value[:8]),
)
async def test_protobuf_that_lies_about_lengths_is_refused(target: Target, text: bytes) -> None:
    reply = await target.request("POST", _MAPS, text, _PROTOBUF)
    is_other = not text.startswith(b"k8s\x00")
    words = "does not appear to be a protobuf message" if is_other else "the protobuf body cannot be read"
    _assert(reply, 400, "BadRequest", words)


async def test_patches_are_limited_in_number_size_and_depth(target: Target) -> None:
    await target.request("POST", _MAPS, {"metadata": {"name": "patched"}, "data": {"a": "b"}})
    path = f"{_MAPS}/patched"
    adding = [{"op": "add", "path": f"/data/k{i}", "value": "x"} for i in range(10_001)]
    notes = {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1000}}
    copy = {"op": "copy", "from": "/metadata/annotations", "path": "/metadata/annotations/x"}
    doubling = [notes, *({**copy, "path": f"{copy['path']}{i}"} for i in range(40))]
    deepening = [{"op": "copy", "from": "/data", "path": "/data/x"} for _ in range(2000)]
    refused = "the server rejected our request due to an error in our request"
    async with bystander_unharmed(target, growth_mib=150):
        reply = await target.request("PATCH", path, adding, _JSON_PATCH)
        words = "The allowed maximum operations in a JSON patch is 10000, got 10001"
        _assert(reply, 413, "RequestEntityTooLarge", words)
        for operations in (doubling, deepening):
            reply = await target.request("PATCH", path, operations, _JSON_PATCH)
            _assert(reply, 422, "Invalid", refused)
        deep = b'{"data":' * 1000 + b"1" + b"}" * 1000
        _assert(await target.request("PATCH", path, deep, _MERGE_PATCH), 400, "BadRequest", "max depth")
        many = {"data": {"$patch": "replace", **_many()}}
        assert (await target.request("PATCH", path, many, _STRATEGIC)).status == 200


async def test_applying_a_hundred_thousand_fields_holds_up_nobody(target: Target) -> None:
    identity = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}
    path = f"{_MAPS}/applied?fieldManager="
    async with bystander_unharmed(target, growth_mib=450):
        made = await target.request("PATCH", f"{path}one", {**identity, "data": _many()}, _APPLY)
        assert made.status == 201, made.body[:300]
        other = await target.request("PATCH", f"{path}two", {**identity, "data": _many("k", "w")}, _APPLY)
        _assert(other, 409, "Conflict", f"Apply failed with {_MANY} conflicts")
    tampered = {**made.document["metadata"], "managedFields": [{"manager": "x", "operation": "Steal"}]}
    reply = await target.request("PUT", f"{_MAPS}/applied", {**identity, "metadata": tampered})
    assert reply.status < 500
    assert b"Steal" not in reply.body
    too_long = await target.request("PATCH", f"{path}{'m' * 129}", identity, _APPLY)
    _assert(too_long, 422, "Invalid", "fieldManager: Too long: may not be more than 128 bytes")


@pytest.mark.parametrize(
    "amount", ["1e999999999", "9" * _MANY, "1." + "9" * _MANY, "0x10", "1" * 4200 + "Ki"], ids=range(5)
)
async def test_absurd_amounts_cost_nothing(target: Target, amount: str) -> None:
    resources = {"requests": {"memory": amount}}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }
    reply = await target.request("POST", "/api/v1/namespaces/attacked/pods", pod)
    assert 400 <= reply.status < 500, reply.body[:300]
    assert reply.seconds < 5
