"""Quantities: grammar, canonical form, arithmetic."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubecore.objects.quantity import FORMAT_MESSAGE, SUFFIX_MESSAGE, Quantity


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("1", "1"),
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("12e6", "12e6"),
        ("12000e3", "12e6"),
        ("100M", "100M"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("-0", "0"),
        ("1.0", "1"),
        ("1.10", "1100m"),
        ("0.1Ki", "102400m"),
        ("1Ei", "1Ei"),
        (".5", "500m"),
        ("Gi", "0"),
        (".", "0"),
        ("-1.5", "-1500m"),
        ("0.0000000001", "1n"),
        (3, "3"),
        (1.5, "1500m"),
    ],
)
def test_quantities_print_in_canonical_form(written: str | float, printed: str) -> None:
    assert str(Quantity.parse(written)) == printed


@pytest.mark.parametrize("written", ["+1", "00010", "1E3", "1e3", "5.", "1023Ki", "999999999999"])
def test_some_spellings_are_kept_as_written(written: str) -> None:
    assert str(Quantity.parse(written)) == written


def test_the_canonical_form_is_available_for_kept_spellings() -> None:
    assert Quantity.parse("1E3").canonical() == "1e3"
    assert Quantity.parse("+1").canonical() == "1"


@pytest.mark.parametrize("written", ["", "x", "1.5.5", "1KB", "1 Gi", "0x10", "1-"])
def test_what_is_no_number_with_a_suffix_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"quantities must match|suffix") as caught:
        Quantity.parse(written)
    assert str(caught.value) in {FORMAT_MESSAGE, SUFFIX_MESSAGE}


@pytest.mark.parametrize("written", ["1e", "--1", "1m5", "1iK", "1K"])
def test_unknown_suffixes_are_refused(written: str) -> None:
    with pytest.raises(ValueError, match=SUFFIX_MESSAGE):
        Quantity.parse(written)


def test_truth_values_are_no_quantities() -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        Quantity.parse(True)


def test_values_round_up() -> None:
    quantity = Quantity.parse("1500u")
    assert quantity.milli_value == 2
    assert quantity.value == 1
    assert str(quantity.rounded_up(-3)) == "2m"
    assert Quantity.parse("-1.5").value == -1
    assert str(Quantity.parse("1n").rounded_up(-3)) == "1m"


def test_rounding_keeps_the_spelling_of_exact_values() -> None:
    assert str(Quantity.parse("+1").rounded_up(-3)) == "+1"
    assert str(Quantity.parse("5.5e-3").rounded_up(-3)) == "6e-3"


def test_comparison_is_by_value() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1024Mi")
    assert Quantity.parse("1G") < Quantity.parse("1Gi")
    assert len({Quantity.parse("1"), Quantity.parse("1000m")}) == 1


def test_sums_keep_the_notation_of_the_first_summand_that_is_not_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1Mi")) == "1025Mi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("1") - Quantity.parse("250m")) == "750m"
    assert str(Quantity.parse("250m") * 4) == "1"
    assert str(-Quantity.parse("1")) == "-1"


def test_absurd_exponents_do_no_harm() -> None:
    assert Quantity.parse("1e-99999").nano == 1
    assert Quantity.parse("0e99999").is_zero


def test_binary_quantities_are_capped() -> None:
    assert Quantity.parse("99999Ei").value == 2**63 - 1


@given(st.integers(0, 10**15), st.sampled_from(["", "m", "k", "M", "Ki", "Mi", "e3", "u", "n"]))
def test_printing_loses_nothing(number: int, suffix: str) -> None:
    quantity = Quantity.parse(f"{number}{suffix}")
    again = Quantity.parse(quantity.canonical())
    assert again == quantity
    assert again.canonical() == quantity.canonical()


@given(st.integers(-(10**12), 10**12), st.integers(-(10**12), 10**12))
def test_arithmetic_is_exact(left: int, right: int) -> None:
    total = Quantity.of_milli(left) + Quantity.of_milli(right)
    assert total.fraction == Fraction(left + right, 1000)
