"""What the API server says and leaves, where clients of Kubernetes know it from a real one."""

from __future__ import annotations

import base64

import pytest
import yaml

from kindling.apiserver.http import media, responses
from kindling.apiserver.kinds.machinery.printing import go_selector
from kindling.apiserver.registry import decoding, object_meta, preconditions, reads
from kindling.apiserver.registry.go_json import read_leniently
from kubecore import errors


@pytest.mark.parametrize("token", ["bogus", "bo%gus"])
def test_a_continue_token_that_is_no_base64_says_where(token: str) -> None:
    with pytest.raises(errors.StatusError, match=r"illegal base64 data at input byte [24]$"):
        reads.decode_continue(token)


def test_a_continue_token_of_another_version_is_named() -> None:
    token = base64.urlsafe_b64encode(b'{"v":"x"}').decode()
    with pytest.raises(errors.StatusError, match=r"does not recognize this encoded version x$"):
        reads.decode_continue(token)


def test_a_bad_version_is_the_callers_fault_in_lists_alone() -> None:
    with pytest.raises(errors.StatusError, match="invalid resource version: resourceVersion") as caught:
        preconditions.parse_read_version("x", is_list=True)
    assert caught.value.code == 400
    with pytest.raises(errors.StatusError, match=r"^resourceVersion: Invalid value") as caught:
        preconditions.parse_read_version("x")
    assert caught.value.code == 500


def test_other_kinds_are_told_from_unknown_ones() -> None:
    assert "unknown conversion" in decoding.foreign_kind("Pod", "v1", "v1", "ConfigMap")
    assert 'no kind "Wrong" is registered' in decoding.foreign_kind("Wrong", "v1", "v1", "ConfigMap")
    assert not decoding.foreign_kind(
        "HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2", "HorizontalPodAutoscaler"
    )


def test_half_a_surrogate_pair_and_bytes_that_are_no_utf_8_are_replaced() -> None:
    found = read_leniently(b'{"a":"\\ud800x","b":"\xff","c":12345678901234567890123}')
    assert found == {"a": "\ufffdx", "b": "\ufffd", "c": 12345678901234567890123.0}


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 5000])
def test_numbers_that_no_float_holds_are_refused(number: bytes) -> None:
    # As null, which infinity becomes in JSON, they would be lost in silence.
    with pytest.raises(ValueError, match="number is infinity"):
        read_leniently(b'{"a":"\\ud800","b":%s}' % number)


def test_an_update_keeps_the_times_that_the_server_set() -> None:
    new = {"creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z"}
    object_meta.carry_over(new, {"creationTimestamp": "2021-01-01T00:00:00Z", "uid": "u"})
    assert new == {
        "creationTimestamp": "2021-01-01T00:00:00Z",
        "deletionTimestamp": "2020-01-01T00:00:00Z",  # for validation to refuse
        "uid": "u",
    }


@pytest.mark.parametrize("text", ["y", "1", "1e3", "2026-01-01T00:00:00Z", "null", "1:30", "", "<<"])
def test_text_that_looks_like_something_else_is_quoted_in_yaml(text: str) -> None:
    written = responses.to_yaml({"k": text})
    assert written == f'k: "{text}"\n'.encode()
    assert yaml.safe_load(written) == {"k": text}


def test_other_text_is_plain_and_lines_stay_lines() -> None:
    assert responses.to_yaml({"a": "app=x", "b": "1\n2\n"}) == b"a: app=x\nb: |\n  1\n  2\n"


def test_any_application_type_is_json_where_routes_do_not_decide() -> None:
    assert media.choose(media.parse_accept("application/*"), transforms=False) == media.Media()
    assert not media.matches_any(media.parse_accept("application/*"), media.OFFERED)


def test_selectors_in_tables_look_like_gos() -> None:
    selector = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}
    assert go_selector(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement"
        "{LabelSelectorRequirement{Key:k,Operator:Exists,Values:[],},},}"
    )
