"""Rules for names, label keys and values, and other short strings, in the words of the Kubernetes API.

Every function returns a list of messages; an empty list means that the value is fine.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
_LONGEST_QUALIFIED: Final = SUBDOMAIN_MAX + 1 + LABEL_MAX

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_DNS1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"
_C_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_HTTP_HEADER: Final = "[-A-Za-z0-9]+"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_WILDCARD_RE: Final = re.compile(rf"\*\.{_SUBDOMAIN}")
_DNS1035_RE: Final = re.compile(_DNS1035)
_QUALIFIED_RE: Final = re.compile(_QUALIFIED)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)
_CONFIG_KEY_RE: Final = re.compile(_CONFIG_KEY)
_C_IDENTIFIER_RE: Final = re.compile(_C_IDENTIFIER)
_HTTP_HEADER_RE: Final = re.compile(_HTTP_HEADER)
_PORT_NAME_RE: Final = re.compile("[-a-z0-9]+")

NameCheck = Callable[[str], list[str]]
"""A rule for names: the messages of what is wrong."""


def max_characters(limit: int) -> str:
    """The message for a name longer than `limit` characters."""
    return f"must be no more than {limit} characters"


def max_bytes(limit: int) -> str:
    """The message for a label key or value longer than `limit` bytes."""
    return f"must be no more than {limit} bytes"


def regex_message(what: str, pattern: str, *examples: str) -> str:
    """The message for a value that does not match: the rule, examples and the pattern."""
    if not examples:
        return f"{what} (regex used for validation is '{pattern}')"
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_TEXT: Final = regex_message(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_TEXT: Final = regex_message(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character",
    _SUBDOMAIN,
    "example.com",
)
_WILDCARD_TEXT: Final = regex_message(
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, "
    "which must consist of lower case alphanumeric characters, '-' or '.' "
    "and end with an alphanumeric character",
    rf"\*\.{_SUBDOMAIN}",
    "*.example.com",
)
_DNS1035_TEXT: Final = regex_message(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character",
    _DNS1035,
    "my-name",
    "abc-123",
)
_QUALIFIED_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_QUALIFIED_TEXT: Final = regex_message(_QUALIFIED_WORDS, _QUALIFIED, "MyName", "my.name", "123-abc")
_LABEL_VALUE_TEXT: Final = regex_message(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def is_dns1123_label(value: str) -> list[str]:
    """A single lower-case name without dots, up to 63 characters (RFC 1123)."""
    errors = [max_characters(LABEL_MAX)] if len(value.encode()) > LABEL_MAX else []
    if not _LABEL_RE.fullmatch(value):
        # A name that is invalid only because of its dots gets the shorter message.
        errors.append("must not contain dots" if _SUBDOMAIN_RE.fullmatch(value) else _LABEL_TEXT)
    return errors


def is_dns1123_subdomain(value: str) -> list[str]:
    """Dot-separated lower-case labels, up to 253 characters (RFC 1123)."""
    errors = [max_characters(SUBDOMAIN_MAX)] if len(value.encode()) > SUBDOMAIN_MAX else []
    if not _SUBDOMAIN_RE.fullmatch(value):
        errors.append(_SUBDOMAIN_TEXT)
    return errors


def is_wildcard_dns1123_subdomain(value: str) -> list[str]:
    """``*.`` followed by a subdomain."""
    errors = [max_characters(SUBDOMAIN_MAX)] if len(value.encode()) > SUBDOMAIN_MAX else []
    if not _WILDCARD_RE.fullmatch(value):
        errors.append(_WILDCARD_TEXT)
    return errors


def is_dns1035_label(value: str) -> list[str]:
    """A lower-case name that starts with a letter, up to 63 characters (RFC 1035)."""
    errors = [max_characters(LABEL_MAX)] if len(value.encode()) > LABEL_MAX else []
    if not _DNS1035_RE.fullmatch(value):
        errors.append(_DNS1035_TEXT)
    return errors


def is_qualified_name(value: str) -> list[str]:
    """``name`` or ``prefix/name``: the form of label and annotation keys, finalizers and resource names."""
    # What is refused may be as long as a request, and is not worth to be remembered.
    known = _known_problems if len(value) <= _LONGEST_QUALIFIED else _qualified_name_problems
    return list(known(value))


def _qualified_name_problems(value: str) -> tuple[str, ...]:
    parts = value.split("/")
    if len(parts) > 2:
        text = regex_message(
            f"a valid label key {_QUALIFIED_WORDS}", _QUALIFIED, "MyName", "my.name", "123-abc"
        )
        return (f"{text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",)
    errors: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {message}" for message in is_dns1123_subdomain(parts[0])]
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > LABEL_MAX:
        errors.append(f"name part {max_bytes(LABEL_MAX)}")
    if not _QUALIFIED_RE.fullmatch(name):
        errors.append(f"name part {_QUALIFIED_TEXT}")
    return tuple(errors)


_known_problems = lru_cache(maxsize=4096)(_qualified_name_problems)
"""A few keys make up nearly all labels of a cluster."""


def is_label_value(value: str) -> list[str]:
    """Up to 63 bytes of letters, digits, ``-``, ``_`` and ``.``; may be empty."""
    if len(value) <= LABEL_MAX and _LABEL_VALUE_RE.fullmatch(value):
        return []
    errors = [max_bytes(LABEL_MAX)] if len(value.encode()) > LABEL_MAX else []
    if not _LABEL_VALUE_RE.fullmatch(value):
        errors.append(_LABEL_VALUE_TEXT)
    return errors


def is_path_segment_name(value: str) -> list[str]:
    """A name whose only rule is that it can be part of a URL path (RBAC names)."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in value]


def is_config_map_key(value: str) -> list[str]:
    """A key of a ConfigMap or Secret: it can be a file name."""
    errors = [max_characters(SUBDOMAIN_MAX)] if len(value.encode()) > SUBDOMAIN_MAX else []
    if not _CONFIG_KEY_RE.fullmatch(value):
        what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        errors.append(regex_message(what, _CONFIG_KEY, "key.name", "KEY_NAME", "key-name"))
    return errors + _has_dots_only(value)


def _has_dots_only(value: str) -> list[str]:
    if value in {".", ".."}:
        return [f"must not be '{value}'"]
    return ["must not start with '..'"] if value.startswith("..") else []


def is_relaxed_env_var_name(value: str) -> list[str]:
    """The name of an environment variable: any printable ASCII but ``=``."""
    if not value:
        return ["environment variable name must be non-empty"]
    if all(" " <= char <= "~" and char != "=" for char in value):
        return []
    return [
        "a valid environment variable name must consist only of printable ASCII characters other than '='"
    ]


def is_c_identifier(value: str) -> list[str]:
    """A name as the C language has them."""
    if _C_IDENTIFIER_RE.fullmatch(value):
        return []
    what = (
        "a valid C identifier must start with alphabetic character or '_', "
        "followed by a string of alphanumeric characters or '_'"
    )
    return [regex_message(what, _C_IDENTIFIER, "my_name", "MY_NAME", "MyName")]


def is_http_header_name(value: str) -> list[str]:
    """The name of an HTTP header."""
    if _HTTP_HEADER_RE.fullmatch(value):
        return []
    what = "a valid HTTP header must consist of alphanumeric characters or '-'"
    return [regex_message(what, _HTTP_HEADER, "X-Header-Name")]


def is_port_name(value: str) -> list[str]:
    """The name of a port (IANA service name): up to 15 characters with at least one letter."""
    errors = ["must be no more than 15 characters"] if len(value) > 15 else []
    if not _PORT_NAME_RE.fullmatch(value):
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= char <= "z" for char in value):
        errors.append("must contain at least one letter (a-z)")
    if "--" in value:
        errors.append("must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        errors.append("must not begin or end with a hyphen")
    return errors


def is_port_number(value: int) -> list[str]:
    """A TCP or UDP port."""
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def as_prefix(check: NameCheck) -> NameCheck:
    """The check of a ``generateName``: like `check`, but the value may end with a dash, and more than it.

    Kubernetes has a letter stand for the dash and for what precedes it, which may then be anything.
    """

    def check_prefix(value: str) -> list[str]:
        masked = len(value) > 1 and value.endswith("-")
        return check(value[:-2] + "a" if masked else value)

    return check_prefix
