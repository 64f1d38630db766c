"""CEL as Kubernetes has it: compiling, evaluating, refusing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubecore.cel import (
    Budget,
    BudgetExceededError,
    CompileError,
    CostExceededError,
    Environment,
    EvaluationError,
)
from kubecore.cel.access_checks import AccessCheck
from kubecore.cel.authorization import authorizer
from kubecore.cel.documents import document
from kubecore.cel.literals import plain_maps
from kubecore.cel.program import OBJECT_LIMIT
from kubecore.cel.values import CALL_TOO_EXPENSIVE, OUT_OF_BUDGET, Optional


@pytest.fixture(scope="module")
def environment() -> Environment:
    return Environment({"object": "dyn", "authorizer": "kubernetes.authorization.Authorizer"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.spec.replicas > 1", True),
        ("has(object.spec.nothing)", False),
        ("object.spec.?nothing.orValue('x')", "x"),
        ("object.spec.names.map(n, n + '!')", ["a!", "b!"]),
        ("quantity('1Gi').isGreaterThan(quantity('1000Mi'))", True),
        ("quantity('1500m').add(quantity('500m')) == quantity('2')", True),
        ("quantity('2').asInteger()", 2),
        ("sign(quantity('-2'))", -1),
        ("string(ip('::1')) + string(5)", "::15"),
        ("isQuantity('abc')", False),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", True),
        ("semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", True),
        ("url('https://example.com:80/path?k=v').getHost()", "example.com:80"),
        ("url('https://example.com:80/path?k=v').getQuery()", {"k": ["v"]}),
        ("isURL('nothing')", False),
        ("ip('192.0.2.1').family()", 4),
        ("isIP('::1')", True),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", True),
        ("cidr('10.0.0.0/8').containsCIDR('11.0.0.0/24')", False),
        ("cidr('10.0.0.1/8').masked() == cidr('10.0.0.0/8')", True),
        ("'abc123'.find('[0-9]+')", "123"),
        ("'a1b22'.findAll('[0-9]+')", ["1", "22"]),
        ("[1, 2, 2].isSorted()", True),
        ("[1, 2, 3].sum()", 6),
        ("[3, 1, 2].min()", 1),
        ("['a', 'b'].indexOf('b')", 1),
        ("sets.contains([1, 2], [2])", True),
        ("sets.intersects([1], [2])", False),
        ("format.dns1123Label().validate('ok').hasValue()", False),
        ("format.dns1123Label().validate('Not_ok').hasValue()", True),
        ("'%s has %d'.format(['x', 2])", "x has 2"),
        ("'a,b'.split(',')", ["a", "b"]),
        ("'ab'.substring(1, 2) + 'ab'.substring(1) + 'ab'.charAt(2)", "bb"),
        ("[2, 1].sort() == [1, 2] && [1, 1].distinct() == [1] && [1].first().value() == 1", True),
        ("[0, 1].all(i, v, i == v)", True),
        ("format.named('uuid').value().validate('x').hasValue()", True),
        ("format.named('odd').hasValue()", False),
    ],
)
def test_expressions_have_the_values_of_kubernetes(
    environment: Environment, text: str, expected: Any
) -> None:
    values = {"object": {"spec": {"replicas": 2, "names": ["a", "b"]}}}
    assert environment.compile(text).evaluate(values) == expected


@pytest.mark.parametrize(
    ("text", "type_name"),
    [("'x'", "string"), ("5", "int"), ("object.x", "dyn"), ("true", "bool"), ("['a']", "list(string)")],
)
def test_a_program_knows_its_type(environment: Environment, text: str, type_name: str) -> None:
    assert environment.compile(text).return_type == type_name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.none == 1", "no such key: none"),
        ("1 / 0 == 1", "division by zero"),
        ("object.l[5] == 1", "index out of bounds: 5"),
        ("object.l + 1 == 2", "no such overload"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
        (
            "duration(object.s) == duration('1s')",
            "type conversion error from 'string' to 'google.protobuf.Duration'",
        ),
        ("uint(-1)", "unsigned integer overflow"),
        ("duration(object.l[0])", "type conversion error from 'int' to 'google.protobuf.Duration'"),
        ("int(object.l)", "type conversion error from 'list' to 'int'"),
        ("9223372036854775807 + object.l[0]", "integer overflow"),
        ("object.l[0] % 0", "modulus by zero"),
        ("object.s.startsWith(object.l)", "no such overload"),
        ("object.s && true", "no such overload"),
        ("object.l.sort().slice(2, 1)", r"cannot slice.2, 1., start index must be less than or equal .*"),
        ("'a'.substring(1, 2)", "index out of range: 2"),
        ("'a'.charAt(3)", "index out of range: 3"),
        ("ip('1.2')", 'IP Address "1.2" parse error .*: ParseAddr.*: IPv4 address too short'),
        ("ip('1..2.3')", 'IP Address "1..2.3" .* must have at least one digit .at ".2.3".'),
        ("ip('1::2::g')", 'IP Address .* multiple :: in address .at ":g".'),
        ("ip('g::1')", 'IP Address .* each colon-separated field must have at least one digit .at "g::1".'),
        ("cidr('a')", "network address parse error .*: no '/'"),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
        ("semver('1.2.3.4')", 'Invalid character.s. found in patch number "3.4"'),
        ("semver('1.02.3')", 'Minor number must not contain leading zeroes "02"'),
        ("semver('1.2.3-01')", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("'a'.find('[')", "Illegal regex: error parsing regexp: .*"),
        ("url('')", '.*: parse "": empty url'),
    ],
)
def test_what_has_no_value_is_told_in_kubernetes_words(
    environment: Environment, text: str, expected: str
) -> None:
    with pytest.raises(EvaluationError, match=f"^{expected}$"):
        environment.compile(text).evaluate({"object": {"l": [1], "s": "x"}})


def test_a_syntax_error_points_at_its_place(environment: Environment) -> None:
    with pytest.raises(CompileError) as caught:
        environment.compile("1 +")
    assert str(caught.value).startswith("ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>'")
    assert str(caught.value).endswith("\n | 1 +\n | ...^")


def test_the_root_of_an_unknown_name_is_reported(environment: Environment) -> None:
    with pytest.raises(CompileError) as caught:
        environment.compile("variables.none")
    assert str(caught.value) == (
        "ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.none\n | ^"
    )


def test_loops_without_end_cost_too_much(environment: Environment) -> None:
    ten = "[0,1,2,3,4,5,6,7,8,9]"
    text = "true"
    for name in "abcdef":
        text = f"{ten}.all({name}, {text})"
    with pytest.raises(CostExceededError, match=CALL_TOO_EXPENSIVE):
        environment.compile(text).evaluate({})


LONG = {"numbers": list(range(10_000)), "text": "a" * 1_000_000}


@pytest.mark.parametrize(
    "text",
    [
        "object.numbers.all(x, object.text + object.text != '')",
        "object.numbers.all(x, object.numbers == object.numbers)",
        "sets.contains(object.numbers, object.numbers)",
        "object.text.replace('a', object.text).size() > 0",
        "lists.range(1000000000).size() > 0",
        "object.numbers.map(x, object.numbers.map(y, x + y)).size() > 0",
        "object.numbers.all(x, object.numbers.distinct().size() > 0)",
        "object.numbers.exists(x, object.text.matches('(a|aa)*b'))",
        "[object.text].join(object.text).split('').map(c, c + c).size() > 0",
    ],
)
def test_no_expression_takes_longer_than_its_cost_allows(environment: Environment, text: str) -> None:
    program = environment.compile(text)
    began = time.process_time()

    with pytest.raises(CostExceededError, match=CALL_TOO_EXPENSIVE):
        program.evaluate({"object": LONG})

    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("true", 0),
        ("object.a.b == 1", 4),
        ("has(object.a)", 2),
        ("[1, 2].size() == 2", 12),
        ("{'a': 1}.size() == 1", 32),
        ("object.long.startsWith('0123456789')", 3),
        ("object.long == object.long", 14),
        ("object.long.matches('abcd')", 13),
        ("object.list.all(x, x > 0)", 2 + 3 * (1 + 1 + 1 + 1 + 1) + 1),
        ("object.list.map(x, x).size() == 3", 2 + 3 * (1 + 10 + 1 + 1) + 10 + 1 + 1 + 1),
        ("1 in object.list", 5),
        ("true || object.a.b == 1", 0),
    ],
)
def test_evaluations_cost_what_they_cost_in_kubernetes(
    environment: Environment, text: str, cost: int
) -> None:
    values = {"object": {"a": {"b": 1}, "long": "x" * 100, "list": [1, 2, 3]}}
    budget = Budget()

    environment.compile(text).evaluate(values, budget=budget)

    assert OBJECT_LIMIT - budget.left == cost


@pytest.mark.parametrize(
    "name", ["duration", "double", "int", "uint", "timestamp", "quantity", "semver", "ip"]
)
def test_long_texts_that_are_no_value_are_told_at_once(environment: Environment, name: str) -> None:
    digits = "1" * 60_000 + "_"
    began = time.process_time()

    for text in (f"{name}(object) == {name}(object)", f"{name}('{digits}') == {name}('1')"):
        with pytest.raises(EvaluationError):
            environment.compile(text).evaluate({"object": digits})

    assert time.process_time() - began < 2


def test_a_budget_ends_all_evaluations_that_share_it(environment: Environment) -> None:
    program, budget = environment.compile("object.all(x, x >= 0)"), Budget(300_000)
    values = {"object": list(range(50_000))}

    program.evaluate(values, budget=budget)

    with pytest.raises(BudgetExceededError, match=OUT_OF_BUDGET):
        program.evaluate(values, budget=budget)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'a': 1, 'b': 2}.transformMap(k, v, v + 1)", {"a": 2, "b": 3}),
        ("{'a': 1, 'b': 2}.transformMap(k, v, v > 1, k)", {"b": "b"}),
        ("['x', 'y'].transformMap(i, v, v + v)", {0: "xx", 1: "yy"}),
        ("[1, 2].transformList(i, v, i + v)", [1, 3]),
        ("{'a': 1}.transformList(k, v, k)", ["a"]),
        ("{'a': 'x'}.transformMapEntry(k, v, {v: k})", {"x": "a"}),
        ("{'a': 1}.exists(k, v, v == 1) && [3].all(i, v, v == 3)", True),
        ("{'a': 1, 'b': 2}.existsOne(k, v, v == 1)", True),
    ],
)
def test_loops_with_two_variables_work(environment: Environment, text: str, expected: Any) -> None:
    assert environment.compile(text).evaluate({}) == expected


def test_two_entries_of_one_key_are_refused(environment: Environment) -> None:
    with pytest.raises(EvaluationError, match="insert failed: key x already exists"):
        environment.compile("[1, 2].transformMapEntry(i, v, {'x': v})").evaluate({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-7 / 2 == -3 && -7 % 2 == -1 && 7u / 2u == 3u && 1.0 / 0.0 > 0.0", True),
        ("string(1.5) + string(1000000.0) + string(true) + string(b'x')", "1.51e+06truex"),
        ("int(timestamp('1970-01-01T00:01:00Z')) + int('-3') + int(2.9)", 59),
        ("string(duration('1h30m') + duration('500ms'))", "5400.5s"),
        ("timestamp('2024-02-29T23:30:00Z').getHours('+01:00')", 0),
        ("timestamp('2024-02-29T23:30:00Z').getDayOfYear()", 59),
        ("timestamp('2024-02-29T23:30:00Z') - duration('24h') < timestamp('2024-02-29T00:00:00Z')", True),
        ("string(timestamp('2024-02-29T23:30:00.250Z'))", "2024-02-29T23:30:00.25Z"),
        ("dyn(1) == dyn(1.0) && dyn(1) != dyn(true) && dyn('a') != dyn(1)", True),
        ("dyn(1) < dyn(1.5) && 2u in [dyn(2)]", True),
        ("type(1) == int && type('') == string && type(type(1)) == type", True),
        ("[1 / 0 == 1, true].exists(x, x)", None),
        ("[0, 1].exists(x, 1 / x == 1) && true || 1 / 0 == 1", True),
        ("'%d %s %.2f %x %e'.format([5, {'b': [1, 'c'], 'a': null}, 1.5, 255, 10.0])",
         "5 {a: null, b: [1, c]} 1.50 ff 1.000000e+01"),
        ("'a-b-c'.split('-', 2) + 'ab'.split('')", ["a", "b-c", "a", "b"]),
        ("'tacocat'.lastIndexOf('o') + 'tacocat'.indexOf('c', 3)", 7),
        ("optional.of(1).or(optional.none()).orValue(2) + optional.none().orValue(3)", 4),
        ("[?optional.none(), ?optional.of(2)] == [2] && {?'a': optional.none()}.size() == 0", True),
        ("object.?none.optMap(x, x + 1).orValue(7)", 7),
        ("[[1], [2, [3]]].flatten().size() + [3, 1, 2].sortBy(x, -x)[0]", 6),
    ],
)  # fmt: skip
def test_the_language_itself(environment: Environment, text: str, expected: Any) -> None:
    program = environment.compile(text)
    if expected is None:
        with pytest.raises(EvaluationError, match="division by zero"):
            program.evaluate({"object": {}})
    else:
        assert program.evaluate({"object": {}}) == expected


def test_the_authorizer_is_asked_for_what_the_expression_names(environment: Environment) -> None:
    asked: list[AccessCheck] = []

    def answer(question: AccessCheck) -> tuple[bool, str]:
        asked.append(question)
        return False, "no"

    text = "authorizer.group('apps').resource('deployments').namespace('n').name('x').check('get').allowed()"
    values = {"authorizer": authorizer()}
    assert environment.compile(text).evaluate(values, answer) is False
    assert asked == [AccessCheck("get", group="apps", resource="deployments", namespace="n", name="x")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Object{metadata: Object.metadata{labels: x}}", "{'metadata': {'labels': x}}"),
        ("[JSONPatch{op: 'add', value: {'b': 'c: d'}}]", "[{'op': 'add','value': {'b': 'c: d'}}]"),
        ("Object{a: [1, 2], ?b: f(x, y)}", "{'a': [1, 2],?'b': f(x, y)}"),
        ("object.Object", "object.Object"),
    ],
)
def test_typed_literals_become_maps(text: str, expected: str) -> None:
    assert plain_maps(text) == expected


def test_null_has_no_fields() -> None:
    environment = Environment({"object": "dyn", "oldObject": "dyn"})
    program = environment.compile("object.spec.replicas > oldObject.spec.replicas")

    with pytest.raises(EvaluationError, match=r"\Ano such key: spec\Z"):
        program.evaluate({"object": {"spec": {"replicas": 1}}, "oldObject": None})


def _doubled(times: int) -> list[Any]:
    """Lists that hold the same list twice: little memory, and 2 to the power of `times` elements."""
    value: list[Any] = [1]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.parametrize(
    "rule",
    ["a == b", "a in [b]", "sets.contains([a], [b])", "[a, b].distinct().size() > 0", "[a].indexOf(b) == 0"],
)
def test_lists_that_double_are_too_expensive_to_compare(rule: str) -> None:
    program = Environment({"a": "list(dyn)", "b": "list(dyn)"}).compile(rule)
    started = time.thread_time()
    with pytest.raises(CostExceededError):
        program.evaluate({"a": _doubled(28), "b": _doubled(28)})
    assert time.thread_time() - started < 5


def test_optional_values_that_double_are_too_expensive_to_compare() -> None:
    def doubled() -> Optional:
        value = Optional(([1],))
        for _ in range(28):
            value = Optional(([value, value],))
        return value

    program = Environment({"a": "dyn", "b": "dyn"}).compile("a == b")
    with pytest.raises(CostExceededError):
        program.evaluate({"a": doubled(), "b": doubled()})


@pytest.mark.parametrize("step", ["[x, x]", "{'a': x, 'b': x}"])
def test_a_value_of_2_to_the_40_parts_is_refused_as_a_document(step: str) -> None:
    program, budget, made = Environment({"x": "dyn"}).compile(step), Budget(), 1
    for _ in range(40):
        made = program.evaluate({"x": made}, budget=budget)
    started = time.thread_time()
    with pytest.raises(CostExceededError, match=CALL_TOO_EXPENSIVE):
        document(made)
    assert time.thread_time() - started < 0.1


def test_a_long_text_that_a_document_would_repeat_is_refused() -> None:
    with pytest.raises(CostExceededError):
        document({"a": ["x" * 100_000] * 40})
    assert document(["x" * 100_000] * 3) == ["x" * 100_000] * 3


def test_documents_have_times_and_bytes_as_text_and_share_nothing() -> None:
    text = (
        "[timestamp('2026-01-02T03:04:05Z'), duration('90s'), b'ab', uint(3), [[1]].map(x, {'a': x, 'b': x})]"
    )
    made = document(Environment({}).compile(text).evaluate({}))
    assert made == ["2026-01-02T03:04:05Z", "90s", "YWI=", 3, [{"a": [1], "b": [1]}]]
    made[4][0]["a"].append(2)
    assert made[4][0]["b"] == [1]


@pytest.mark.parametrize("text", ["{1: 2}", "optional.of(1)", "[type(1)]"])
def test_what_json_cannot_have_is_no_document(text: str) -> None:
    with pytest.raises(EvaluationError, match="has no form in JSON"):
        document(Environment({}).compile(text).evaluate({}))


@pytest.mark.parametrize("levels", [300, 5000])
def test_values_nested_too_deeply_are_no_document(levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    with pytest.raises(EvaluationError, match=r"nested too deeply|Recursion limit"):
        document(value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{a: 1}", "unsupported key type: list"),
        ("[?a]", "cannot initialize optional entry from non-optional value list"),
        ("m[?a]", "no such overload"),
        ("t[?a]", "no such key: list"),
        ("{e: 1}", "unsupported key type: inf"),
        ("a[e]", "unsupported index value inf"),
    ],
)
def test_keys_that_cannot_be_are_refused_at_once(text: str, problem: str) -> None:
    program = Environment(dict.fromkeys("amte", "dyn")).compile(text)
    with pytest.raises(EvaluationError, match=problem):
        program.evaluate({"a": _doubled(40), "m": {}, "t": 1, "e": float("inf")})
