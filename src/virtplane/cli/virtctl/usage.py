"""Parsing of command lines and usage errors, as in kubectl instead of click."""

from __future__ import annotations

import re
from typing import Any

import click

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_BAD_TRUTH = re.compile(r"'(?P<value>.*?)' is not a valid boolean", re.DOTALL)
_BAD_NUMBER = re.compile(r"'?(?P<value>.*?)'? is not (?:a valid integer|in the range)", re.DOTALL)

_OCTAL = re.compile(r"[+-]?0[0-7_]+")
"""Numbers that begin with a zero, which Python does not read."""


def flags_behind_command(options: click.Command, args: list[str]) -> list[str]:
    """Move the global flags (those of `options`) from before the command's name to after it."""
    with_value = {name for option in _options_of(options) if not option.is_flag for name in option.opts}
    position = 0
    while position < len(args) and args[position].startswith("-"):
        # The value of a flag follows it, unless it is given after an equals sign or the letter (-nNAME).
        position += 2 if args[position] in with_value else 1
    return [*args[position : position + 1], *args[:position], *args[position + 1 :]]


def plain_switches(command: click.Command, args: list[str]) -> list[str]:
    """Read ``--switch=true`` as ``--switch``, and leave ``--switch=false`` out.

    A flag that may stand without a value takes one only behind an equals sign: the next word is not its.

    Raises click.UsageError for other values.
    """
    switches = {name for option in _options_of(command) if option.is_flag for name in option.opts}
    bare = {name: value for option in _options_of(command) for name, value in _bare(option).items()}
    result: list[str] = []
    for index, text in enumerate(args):
        if text == "--":
            return result + args[index:]
        name, equals, value = text.partition("=")
        if text in bare:
            result.append(f"{text}={bare[text]}")
        elif not equals or name not in switches or value in _TRUE:
            result.append(name if name in switches else text)
        elif value not in _FALSE:
            reason = f'strconv.ParseBool: parsing "{value}": invalid syntax'
            raise click.UsageError(f'invalid argument "{value}" for "{name}" flag: {reason}')
    return result


def check_count(command: click.Command, path: str, args: list[str]) -> None:
    """Raises click.UsageError unless there are as many arguments as the command called `path` takes."""
    if isinstance(command, click.Group):
        return
    wanted = [parameter for parameter in command.params if isinstance(parameter, click.Argument)]
    if any(parameter.nargs < 0 for parameter in wanted):
        return
    given = _positional(command, args)
    if given is None or len(given) == len(wanted):
        return
    if not wanted and command.name not in ("expand", "permitted-devices"):
        raise click.UsageError(f'unknown command "{given[0]}" for "{path}"')
    raise click.UsageError(f"accepts {len(wanted)} arg(s), received {len(given)}")


def _positional(command: click.Command, args: list[str]) -> list[str] | None:
    """Arguments that are neither flags nor values of flags; None if help is requested."""
    flags = args[: args.index("--")] if "--" in args else args
    if "-h" in flags or "--help" in flags:
        return None
    options: list[click.Parameter] = [*_options_of(command)]
    bare = click.Command(command.name, params=options)
    _, rest, _ = bare.make_parser(click.Context(bare)).parse_args(list(args))
    return rest


def explain(error: click.ClickException) -> str:
    """The message of an error, in kubectl's words."""
    if isinstance(error, click.NoSuchOption):
        if error.option_name.startswith("--"):
            return f"unknown flag: {error.option_name}"
        return f"unknown shorthand flag: '{error.option_name[1]}' in {error.option_name}"
    if isinstance(error, click.BadOptionUsage) and "requires an argument" in error.message:
        name = error.option_name
        return f"flag needs an argument: {name if name.startswith('--') else repr(name[1]) + ' in ' + name}"
    if isinstance(error, click.BadParameter) and isinstance(error.param, click.Option):
        if isinstance(error, click.MissingParameter):
            return f"required flag(s) {', '.join(_missing(error))} not set"
        truth = _BAD_TRUTH.search(error.message)
        if truth is not None:
            value = truth["value"]
            reason = f'strconv.ParseBool: parsing "{value}": invalid syntax'
            return f'invalid argument "{value}" for "{", ".join(error.param.opts)}" flag: {reason}'
        number = _BAD_NUMBER.search(error.message)
        if number is not None:
            kind = error.param.type
            value, unsigned = number["value"], isinstance(kind, Integer) and kind.lowest == 0
            is_large = value.isdigit() and "in the range" in error.message
            syntax = "value out of range" if is_large else "invalid syntax"
            reason = f'strconv.Parse{"Uint" if unsigned else "Int"}: parsing "{value}": {syntax}'
            return f'invalid argument "{value}" for "{", ".join(error.param.opts)}" flag: {reason}'
    return error.format_message()


def _missing(error: click.MissingParameter) -> list[str]:
    """All missing required flags; click reports only the first."""
    context = error.ctx
    if context is None:
        return []
    return [
        f'"{option.opts[-1].lstrip("-")}"'
        for option in sorted(_options_of(context.command), key=lambda option: option.opts[-1])
        if option.required and context.params.get(option.name or "") is None
    ]


class Integer(click.ParamType[int]):
    """Integers as Go's programs read them: with bases (``0x10``, ``010``), and within limits."""

    name = "integer"

    def __init__(self, lowest: int = -(2**63), highest: int = 2**63 - 1) -> None:
        self.lowest, self.highest = lowest, highest

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As in click. Raises click.BadParameter."""
        if isinstance(value, int):
            return value
        number = _integer(value)
        if number is None:
            self.fail(f"{value!r} is not a valid integer", param, ctx)
        if not self.lowest <= number <= self.highest:
            self.fail(f"{value} is not in the range", param, ctx)
        return number


INTEGER = Integer()


def _integer(text: str) -> int | None:
    if text != text.strip():
        return None
    try:
        return int(text, 8 if _OCTAL.fullmatch(text) else 0)
    except ValueError:
        return None


class BareOption(click.Option):
    """A flag that stands for `bare` where no value is given behind an equals sign."""

    def __init__(self, name: str, *, bare: int, **settings: Any) -> None:
        super().__init__([name], **settings)
        self.bare = bare


def _bare(option: click.Option) -> dict[str, str]:
    """What the names of a flag stand for without a value; empty where a value must follow."""
    if isinstance(option, BareOption):
        return dict.fromkeys(option.opts, str(option.bare))
    if not option.is_flag and isinstance(option.flag_value, bool):
        return dict.fromkeys(option.opts, str(option.flag_value))
    return {}


def _options_of(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def _short_help(command: click.Command) -> str:
    return (command.help or "").partition("\n")[0]


class Commands(click.Group):
    """A group whose commands accept the global flags before and after their name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """As in click, with flags before the command's name moved after it."""
        if args and args[0].startswith("-") and args[0] not in self.get_help_option_names(ctx):
            options = self.global_flags(ctx)
            args = flags_behind_command(options, args)
            if args[0].startswith("-"):
                # No command follows: the flags are checked, and help is shown as without them.
                options.make_parser(click.Context(options)).parse_args(plain_switches(options, args))
                args = []
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands and what each does."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Available Commands"):
            formatter.write_dl(
                [(name, _short_help(command)) for name, command in found if command is not None]
            )

    def global_flags(self, ctx: click.Context) -> click.Command:
        """The command that shows the global flags."""
        root = ctx.find_root().command
        found = root.get_command(ctx, "options") if isinstance(root, click.Group) else None
        assert found is not None
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, with arguments counted and switches made plain. Raises click.UsageError."""
        if len(args) > 1 and self.get_command(ctx, f"{args[0]} {args[1]}") is not None:
            args = [f"{args[0]} {args[1]}", *args[2:]]
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            raise click.UsageError(f'unknown command "{args[0]}" for "{ctx.command_path}"')
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        rest = plain_switches(command, rest)
        check_count(command, f"{ctx.command_path} {name}", rest)
        return name, command, rest
