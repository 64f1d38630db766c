"""Names are refused with the words of the Kubernetes API."""

from __future__ import annotations

import tracemalloc

import pytest

from kubecore.objects import names

_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character "
    "(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize("value", ["Upper", "under_score", "-dash", "dot.", "sp ace", "a/b", "..", ".", ""])
def test_names_that_are_no_subdomains_are_refused(value: str) -> None:
    assert names.is_dns1123_subdomain(value) == [_SUBDOMAIN]


@pytest.mark.parametrize("value", ["a", "a.b", "a-b.c0", "0"])
def test_subdomains_are_fine(value: str) -> None:
    assert names.is_dns1123_subdomain(value) == []


def test_too_long_names_are_refused() -> None:
    assert names.is_dns1123_subdomain("a" * 254) == ["must be no more than 253 characters"]
    assert names.is_dns1123_label("a" * 64) == ["must be no more than 63 characters"]
    assert names.is_dns1035_label("a" * 64) == ["must be no more than 63 characters"]


def test_labels_have_no_dots() -> None:
    assert names.is_dns1123_label("a.b") == ["must not contain dots"]
    assert names.is_dns1123_label("UPPER") == [_LABEL]
    assert names.is_dns1123_label("ok-1") == []


def test_dns_1035_labels_start_with_a_letter() -> None:
    assert names.is_dns1035_label("a1") == []
    assert names.is_dns1035_label("1a")[0].startswith("a DNS-1035 label must consist of")


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("ok", []),
        ("example.com/My_name.x", []),
        ("bad key", [_NAME_PART]),
        ("", ["name part must be non-empty", _NAME_PART]),
        ("/x", ["prefix part must be non-empty"]),
        ("UP.example.com/x", [f"prefix part {_SUBDOMAIN}"]),
        ("k" * 64, ["name part must be no more than 63 bytes"]),
    ],
)
def test_label_keys_are_qualified_names(value: str, messages: list[str]) -> None:
    assert names.is_qualified_name(value) == messages


def test_a_label_key_has_one_slash_at_most() -> None:
    (message,) = names.is_qualified_name("a/b/c")
    assert message.startswith("a valid label key must consist of alphanumeric characters")
    assert message.endswith("with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')")


def test_label_values_are_short_words_or_empty() -> None:
    assert names.is_label_value("") == []
    assert names.is_label_value("My_value.1") == []
    assert names.is_label_value("v" * 64) == ["must be no more than 63 bytes"]
    assert names.is_label_value("-x")[0].startswith("a valid label must be an empty string or consist of")


def test_path_segments_may_not_escape_the_path() -> None:
    assert names.is_path_segment_name("a/b%") == ["may not contain '/'", "may not contain '%'"]
    assert names.is_path_segment_name("..") == ["may not be '..'"]
    assert names.is_path_segment_name("system:node") == []


def test_config_keys_can_be_file_names() -> None:
    assert names.is_config_map_key("a.b_C-1") == []
    assert names.is_config_map_key("..") == ["must not be '..'"]
    assert names.is_config_map_key("..a") == ["must not start with '..'"]
    assert names.is_config_map_key("a/b")[0].startswith("a valid config key must consist of")


def test_environment_names_are_printable() -> None:
    assert names.is_relaxed_env_var_name("1 A!") == []
    assert names.is_relaxed_env_var_name("a=b") != []
    assert names.is_relaxed_env_var_name("") == ["environment variable name must be non-empty"]


def test_port_names_follow_iana() -> None:
    assert names.is_port_name("http-2") == []
    assert names.is_port_name("0123456789abcdef") == ["must be no more than 15 characters"]
    assert names.is_port_name("--") == [
        "must contain at least one letter (a-z)",
        "must not contain consecutive hyphens",
        "must not begin or end with a hyphen",
    ]
    assert names.is_port_name("A") != []


def test_other_names_have_their_rules() -> None:
    assert names.is_port_number(0) == ["must be between 1 and 65535, inclusive"]
    assert names.is_port_number(65535) == []
    assert names.is_c_identifier("_a1") == [] and names.is_c_identifier("1a") != []
    assert names.is_http_header_name("X-A") == [] and names.is_http_header_name("X A") != []
    assert names.is_wildcard_dns1123_subdomain("*.a.b") == []
    assert names.is_wildcard_dns1123_subdomain("a.b") != []


def test_prefixes_may_end_with_a_dash() -> None:
    check = names.as_prefix(names.is_dns1123_subdomain)
    assert check("web-") == []
    assert check("Bad_") == [_SUBDOMAIN]


def test_keys_of_any_length_are_not_remembered() -> None:
    tracemalloc.start()
    for number in range(50):
        assert names.is_qualified_name(f"{number}" + "x" * 1_000_000)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 8 << 20
