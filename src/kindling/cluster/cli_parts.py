"""What the commands of kindling share: their options, progress, and how failures are reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import NoReturn, ParamSpec

import click

from kindling import program
from kindling.cluster import instance as instances
from kindling.cluster.errors import ExitCode, SetupError

Parameters = ParamSpec("Parameters")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Show nothing but failures.")
grace_option = click.option(
    "--grace-period",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long containers may take to end before they are killed.",
)


def state_option(function: Callable[..., None]) -> Callable[..., None]:
    """The option that names the cluster."""
    return click.option(
        "--state",
        # Not checked by click, whose message would not contain the program name that the user typed.
        type=click.Path(path_type=Path, readable=False),
        default=instances.DEFAULT_STATE,
        envvar="KINDLING_STATE",
        show_default=True,
        help="Directory of the cluster; clusters with different ones live side by side.",
    )(function)


def reporting(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Report failures as a message and an exit code, without a traceback."""

    @wraps(function)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except (SetupError, OSError) as error:
            report(error)

    return wrapped


def report(error: SetupError | OSError) -> NoReturn:
    """End the process with a message and an exit code, without a traceback."""
    if isinstance(error, SetupError):
        click.echo(f"{program.name()}: {error}", err=True)
        sys.exit(int(error.code))
    if isinstance(error, PermissionError):
        click.echo(f"{program.name()}: {error}\nWhat to do: run this as root, or with sudo", err=True)
        sys.exit(int(ExitCode.NOT_PERMITTED))
    click.echo(f"{program.name()}: {error}", err=True)
    sys.exit(int(ExitCode.FAILED))


def progress_to_user(quiet: bool) -> Callable[[str], None]:
    """Shows what is being done, unless the user wants quiet."""
    begun = time.monotonic()

    def show(text: str) -> None:
        if not quiet:
            click.echo(f"[{time.monotonic() - begun:5.1f}s] {text}", err=True)

    return show
