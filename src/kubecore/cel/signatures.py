"""What can be called with which types: the language, its extensions, and Kubernetes' functions.

The table is what a Kubernetes 1.36 server compiles rules with. ``receiver:name(parameters) -> result``;
single capital letters are type parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from .types import Type, parse_type

_LINE = re.compile(r"(?:(?P<receiver>[^_\s]\S*):)?(?P<name>[^(]+)\((?P<parameters>.*)\) -> (?P<result>.+)")
_EACH = re.compile(r"\{([^{}]+)\}")


@dataclass(frozen=True, slots=True)
class Signature:
    """One overload; `parameters` of a method start with its receiver."""

    is_member: bool
    parameters: tuple[Type, ...]
    result: Type


@cache
def signatures() -> Mapping[str, tuple[Signature, ...]]:
    """The overloads of each function, in the order in which they are tried."""
    found: dict[str, list[Signature]] = {}
    for line in _lines():
        text = line.replace("auth.", "kubernetes.authorization.")
        if (parts := _LINE.match(text)) is None:
            raise ValueError(f"no signature: {text}")
        receiver = parts["receiver"]
        names = ([receiver] if receiver else []) + _split(parts["parameters"])
        types = tuple(parse_type(name) for name in names)
        signature = Signature(receiver is not None, types, parse_type(parts["result"]))
        found.setdefault(parts["name"], []).append(signature)
    return {name: tuple(overloads) for name, overloads in found.items()}


def _lines() -> Iterator[str]:
    """The lines of the table; ``{a|b}`` stands for each of its words, ``{}`` for the same word again."""
    for line in _TABLE.strip().splitlines():
        choice = _EACH.search(line)
        for word in choice[1].split("|") if choice else [""]:
            yield _EACH.sub(word, line).replace("{}", word)


def _split(text: str) -> list[str]:
    """The parts of a list of types; commas in parentheses do not count."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


_TABLE = """
_&&_(bool, bool) -> bool
_||_(bool, bool) -> bool
!_(bool) -> bool
@not_strictly_false(bool) -> bool
_?_:_(bool, A, A) -> A
_==_(A, A) -> bool
_!=_(A, A) -> bool
@in(A, list(A)) -> bool
@in(A, map(A, B)) -> bool
_[_](list(A), int) -> A
_[_](map(A, B), A) -> B
_[_](optional_type(list(A)), int) -> optional_type(A)
_[_](optional_type(map(A, B)), A) -> optional_type(B)
_[?_](list(A), int) -> optional_type(A)
_[?_](optional_type(list(A)), int) -> optional_type(A)
_[?_](map(A, B), A) -> optional_type(B)
_[?_](optional_type(map(A, B)), A) -> optional_type(B)
-_({int|double}) -> {}
_+_({bytes|double|duration|int|string|uint}, {}) -> {}
_+_(list(A), list(A)) -> list(A)
_+_(duration, timestamp) -> timestamp
_+_(timestamp, duration) -> timestamp
_-_({double|duration|int|uint}, {}) -> {}
_-_(timestamp, duration) -> timestamp
_-_(timestamp, timestamp) -> duration
_*_({double|int|uint}, {}) -> {}
_/_({double|int|uint}, {}) -> {}
_%_({int|uint}, {}) -> {}
_<_({bool|int|uint|double|string|bytes|timestamp|duration}, {}) -> bool
_<=_({bool|int|uint|double|string|bytes|timestamp|duration}, {}) -> bool
_>_({bool|int|uint|double|string|bytes|timestamp|duration}, {}) -> bool
_>=_({bool|int|uint|double|string|bytes|timestamp|duration}, {}) -> bool
_<_(int, {uint|double}) -> bool
_<_(uint, {int|double}) -> bool
_<_(double, {int|uint}) -> bool
_<=_(int, {uint|double}) -> bool
_<=_(uint, {int|double}) -> bool
_<=_(double, {int|uint}) -> bool
_>_(int, {uint|double}) -> bool
_>_(uint, {int|double}) -> bool
_>_(double, {int|uint}) -> bool
_>=_(int, {uint|double}) -> bool
_>=_(uint, {int|double}) -> bool
_>=_(double, {int|uint}) -> bool
size({string|bytes|list(A)|map(A,B)}) -> int
{string|bytes|list(A)|map(A,B)}:size() -> int
type(A) -> type(A)
dyn(A) -> dyn
bool({bool|string}) -> bool
bytes({bytes|string}) -> bytes
double({double|int|string|uint}) -> double
duration({duration|int|string}) -> duration
int({int|double|duration|string|timestamp|uint}) -> int
string({string|bool|bytes|double|duration|int|timestamp|uint|net.IP|net.CIDR}) -> string
timestamp({timestamp|int|string}) -> timestamp
uint({uint|double|int|string}) -> uint
matches(string, string) -> bool
string:matches(string) -> bool
string:{contains|endsWith|startsWith}(string) -> bool
timestamp:{getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek}() -> int
timestamp:{getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek}(string) -> int
timestamp:{getHours|getMinutes|getSeconds|getMilliseconds}() -> int
timestamp:{getHours|getMinutes|getSeconds|getMilliseconds}(string) -> int
duration:{getHours|getMinutes|getSeconds|getMilliseconds}() -> int
optional.of(A) -> optional_type(A)
optional.ofNonZeroValue(A) -> optional_type(A)
optional.none() -> optional_type(A)
optional.unwrap(list(optional_type(A))) -> list(A)
list(optional_type(A)):unwrapOpt() -> list(A)
optional_type(A):value() -> A
optional_type(A):hasValue() -> bool
optional_type(A):or(optional_type(A)) -> optional_type(A)
optional_type(A):orValue(A) -> A
list(A):{first|last}() -> optional_type(A)
string:charAt(int) -> string
string:{indexOf|lastIndexOf}(string) -> int
string:{indexOf|lastIndexOf}(string, int) -> int
list(string):join() -> string
list(string):join(string) -> string
string:{lowerAscii|upperAscii|trim}() -> string
string:replace(string, string) -> string
string:replace(string, string, int) -> string
string:split(string) -> list(string)
string:split(string, int) -> list(string)
string:substring(int) -> string
string:substring(int, int) -> string
string:format(list(dyn)) -> string
strings.quote(string) -> string
sets.{contains|equivalent|intersects}(list(A), list(A)) -> bool
list(A):slice(int, int) -> list(A)
list(list(A)):flatten() -> list(A)
list(dyn):flatten(int) -> list(dyn)
list({int|uint|double|bool|duration|timestamp|string|bytes}):sort() -> list({})
list(A):@sortByAssociatedKeys(list({int|uint|double|bool|duration|timestamp|string|bytes})) -> list(A)
lists.range(int) -> list(int)
list(A):{reverse|distinct}() -> list(A)
cel.@mapInsert(map(A, B), map(A, B)) -> map(A, B)
cel.@mapInsert(map(A, B), A, B) -> map(A, B)
list({int|uint|double|bool|duration|timestamp|string|bytes}):isSorted() -> bool
list({int|uint|double|duration}):sum() -> {}
list({int|uint|double|bool|duration|timestamp|string|bytes}):min() -> {}
list({int|uint|double|bool|duration|timestamp|string|bytes}):max() -> {}
list(A):{indexOf|lastIndexOf}(A) -> int
string:find(string) -> string
string:findAll(string) -> list(string)
string:findAll(string, int) -> list(string)
url(string) -> kubernetes.URL
{isURL|isIP|isCIDR|isQuantity|isSemver}(string) -> bool
kubernetes.URL:{getScheme|getHost|getHostname|getPort|getEscapedPath}() -> string
kubernetes.URL:getQuery() -> map(string, list(string))
ip(string) -> net.IP
ip.isCanonical(string) -> bool
net.IP:family() -> int
net.IP:{isUnspecified|isLoopback|isLinkLocalMulticast|isLinkLocalUnicast|isGlobalUnicast}() -> bool
cidr(string) -> net.CIDR
net.CIDR:containsIP({net.IP|string}) -> bool
net.CIDR:containsCIDR({net.CIDR|string}) -> bool
net.CIDR:ip() -> net.IP
net.CIDR:masked() -> net.CIDR
net.CIDR:prefixLength() -> int
quantity(string) -> kubernetes.Quantity
sign(kubernetes.Quantity) -> int
kubernetes.Quantity:isInteger() -> bool
kubernetes.Quantity:asInteger() -> int
kubernetes.Quantity:asApproximateFloat() -> double
kubernetes.Quantity:{add|sub}(kubernetes.Quantity) -> kubernetes.Quantity
kubernetes.Quantity:{add|sub}(int) -> kubernetes.Quantity
{kubernetes.Quantity|kubernetes.Semver}:isGreaterThan({}) -> bool
{kubernetes.Quantity|kubernetes.Semver}:isLessThan({}) -> bool
{kubernetes.Quantity|kubernetes.Semver}:compareTo({}) -> int
semver(string) -> kubernetes.Semver
semver(string, bool) -> kubernetes.Semver
isSemver(string, bool) -> bool
kubernetes.Semver:{major|minor|patch}() -> int
format.{dns1123Label|dns1123Subdomain|dns1035Label|qualifiedName}() -> kubernetes.NamedFormat
format.{dns1123LabelPrefix|dns1123SubdomainPrefix|dns1035LabelPrefix}() -> kubernetes.NamedFormat
format.{labelValue|uri|uuid|byte|date|datetime}() -> kubernetes.NamedFormat
format.named(string) -> optional_type(kubernetes.NamedFormat)
kubernetes.NamedFormat:validate(string) -> optional_type(list(string))
auth.Authorizer:path(string) -> auth.PathCheck
auth.Authorizer:group(string) -> auth.GroupCheck
auth.Authorizer:serviceAccount(string, string) -> auth.Authorizer
auth.GroupCheck:resource(string) -> auth.ResourceCheck
auth.ResourceCheck:{subresource|namespace|name}(string) -> auth.ResourceCheck
auth.ResourceCheck:{fieldSelector|labelSelector}(string) -> auth.ResourceCheck
auth.{ResourceCheck|PathCheck}:check(string) -> auth.Decision
auth.Decision:{allowed|errored}() -> bool
auth.Decision:{reason|error}() -> string
"""
