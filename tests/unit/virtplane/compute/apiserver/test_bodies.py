"""Bodies of requests for subresources that are not what they should be, of whoever may start a machine."""

from __future__ import annotations

import json
import time

import pytest

from kubecore.errors import StatusError
from virtplane.api.kubevirt_v1.subresources import StartOptions
from virtplane.compute.apiserver.subresources.bodies import MOST_BYTES, YAML_BYTES, parse_options

_READ_SECONDS = 0.5
"""Of a processor: so long nobody else is served."""


@pytest.mark.parametrize(
    "body",
    [
        b"[" * YAML_BYTES,
        b"{a: " * (YAML_BYTES // 4),
        b'{"a":' * (YAML_BYTES // 5),
        b'{"a":' * (MOST_BYTES // 5),
        b"a: &a [*a]",
        b"a: &a [" + b"1, " * 100 + b"]\nb: &b [" + b"*a, " * 100 + b"]\nc: [" + b"*b, " * 100 + b"]",
        b"a: !!python/object/apply:os.getpid []",
        b"a: .inf",
        b"a: !!binary /w==",
        b"? [a]\n: b",
        b"\xff\xfe{",
        b'{"a": "\x01',
        b"{",
    ],
    ids=lambda body: body[:20].decode(errors="replace"),
)
def test_what_is_no_json_value_is_refused(body: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        parse_options(body)
    assert refused.value.code in (400, 413)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"spec": [{"a": number} for number in range(200_000)]}).encode(),
        b'{"a": 1,' * 300_000,
        b'{"a": [' + b'{"b": 1, "b": 2},' * 170_000 + b"0]}",
        b"- a\n" * (YAML_BYTES // 4),
        b"a: b\n" * (YAML_BYTES // 5),
        b"x" * MOST_BYTES,
        b"- - - - " * (MOST_BYTES // 8),
    ],
    ids=["json", "deep", "repeated", "list", "repeated yaml", "text", "lists"],
)
def test_no_body_is_read_for_long(body: bytes) -> None:
    assert len(body) <= MOST_BYTES
    begun = time.thread_time()
    try:
        parse_options(body)
    except StatusError as error:
        assert error.code in (400, 413)
    assert time.thread_time() - begun < _READ_SECONDS


def test_more_than_can_be_stored_is_not_read() -> None:
    with pytest.raises(StatusError, match="Request entity too large") as refused:
        parse_options(b'{"a": "' + b"x" * MOST_BYTES + b'"}')
    assert refused.value.code == 413


def test_so_many_values_that_they_take_long_are_not_looked_at() -> None:
    body = b'{"dryRun": [' + b'"",' * 900_000 + b'""]}'
    assert len(body) < MOST_BYTES
    with pytest.raises(StatusError, match="limit is 30000 values") as refused:
        parse_options(body, StartOptions)
    assert refused.value.code == 413


def test_yaml_has_the_values_of_kubernetes() -> None:
    assert parse_options(b"a: 2020-13-45\nb: 2020-01-01\n1: yes\n") == {
        "a": "2020-13-45",
        "b": "2020-01-01",
        "1": True,
    }
