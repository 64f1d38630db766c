"""Flags whose value is a list of parameters: ``name:value,name:value``."""

from __future__ import annotations

import random
from collections.abc import Sequence

import click

from kubecore.objects.quantity import Quantity

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""What generated names end with: no vowels and nothing that looks like something else."""

_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class FlagError(click.ClickException):
    """The value of a flag is invalid."""

    def __init__(self, flag: str, reason: str) -> None:
        super().__init__(f'failed to parse "--{flag}" flag: {reason}')


def parameters(flag: str, text: str, known: Sequence[str]) -> dict[str, str]:
    """The parameters in the value of a flag; later ones win. Raises FlagError."""
    if not text:
        raise FlagError(flag, "params may not be empty")
    found: dict[str, str] = {}
    for part in text.split(","):
        name, colon, value = part.partition(":")
        if not colon:
            raise FlagError(flag, f"params need to have at least one colon: {part}")
        found[name] = value
    strange = [f"{name}:{value}" for name, value in found.items() if name not in known]
    if strange:
        raise FlagError(flag, f"unknown param(s): {','.join(strange)}")
    return found


def quantity(text: str) -> str:
    """The amount in its usual form. Raises ValueError with the words of Kubernetes."""
    try:
        return Quantity.parse(text).canonical()
    except ValueError as error:
        raise ValueError(_QUANTITY) from error


def random_ending(length: int = 5) -> str:
    """Random characters for a unique name."""
    return "".join(random.SystemRandom().choices(_LETTERS, k=length))


def refuse_together(group: Sequence[str], given: Sequence[str]) -> None:
    """Raises click.ClickException where more than one flag of the group is given."""
    found = sorted(flag for flag in group if flag in given)
    if len(found) > 1:
        text = f"if any flags in the group [{' '.join(group)}] are set none of the others can be"
        raise click.ClickException(f"{text}; [{' '.join(found)}] were all set")


def given_flags() -> list[str]:
    """The flags, without their dashes, that the command line of the running command names."""
    context = click.get_current_context()
    source = click.core.ParameterSource.COMMANDLINE
    return [
        parameter.opts[-1].lstrip("-")
        for parameter in context.command.params
        if parameter.name is not None and context.get_parameter_source(parameter.name) == source
    ]


def prefixed(flag: str, text: str, what: str = "") -> tuple[str, str]:
    """The parts before and after the slash of ``prefix/name``. Raises FlagError for several slashes.

    `what` introduces the error's text.
    """
    if text.count("/") > 1:
        raise FlagError(flag, f"{what}invalid count {text.count('/')} of slashes in prefix/name")
    prefix, _, name = text.rpartition("/")
    return prefix, name


def one_of(flag: str, what: str, value: str, supported: Sequence[str]) -> str:
    """The supported value that equals `value` in any case. Raises FlagError."""
    for candidate in supported:
        if candidate.lower() == value.lower():
            return candidate
    raise FlagError(flag, f'invalid {what} "{value}", supported values are: {", ".join(supported)}')
