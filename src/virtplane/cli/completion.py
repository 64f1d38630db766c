"""``virtplane completion SHELL``: scripts that complete commands, options and components."""

from __future__ import annotations

import argparse
import importlib
import re
import sys

from virtplane.cli import logs, nodes
from virtplane.cli.main import COMMANDS

_PROGRAMS = ("virtplane", "./virtplane")
_CLUSTER_COMPONENTS = ("apiserver", "controllers", "supervisor", "node-node01", "containerd-node01")
_SHELLS = ("bash", "zsh", "fish")
_USE = {
    "bash": "source <(./virtplane completion bash)",
    "zsh": "source <(./virtplane completion zsh)",
    "fish": "./virtplane completion fish | source",
}


def parser() -> argparse.ArgumentParser:
    """The options of ``completion``."""
    made = argparse.ArgumentParser(
        prog="virtplane completion",
        description="Print a script that has a shell complete virtplane's commands.",
        epilog="Use it: " + "; ".join(_USE.values()),
    )
    made.add_argument("shell", choices=_SHELLS)
    return made


def main(arguments: list[str]) -> int:
    """Command line."""
    words = {name: [*_options(name), *_values(name)] for name in COMMANDS}
    shell = parser().parse_args(arguments).shell
    sys.stdout.write(_fish(words) if shell == "fish" else _bash(words, zsh=shell == "zsh"))
    return 0


def _options(name: str) -> list[str]:
    """The long options of a command as its help shows them."""
    module = importlib.import_module(COMMANDS[name].module)
    found = getattr(module, "parser", None)
    if found is None:
        return ["--help"]
    shared = sum(other.module == COMMANDS[name].module for other in COMMANDS.values()) > 1
    made: argparse.ArgumentParser = found(name) if shared else found()
    return sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", made.format_usage())) | {"--help"})


def _values(name: str) -> list[str]:
    if name == "logs":
        return [*logs.COMPONENTS, *_CLUSTER_COMPONENTS]
    fixed = {"completion": list(_SHELLS), "boot": ["enable", "disable"], "node": list(nodes.ACTIONS)}
    fixed["image"] = ["build"]
    return fixed.get(name, [])


def _bash(words: dict[str, list[str]], *, zsh: bool) -> str:
    cases = "\n".join(f"        {name}) words='{' '.join(found)}' ;;" for name, found in words.items())
    script = f"""\
_virtplane() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        words='{" ".join(words)} --help --version'
    else
        case ${{COMP_WORDS[1]}} in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _virtplane {" ".join(_PROGRAMS)}
"""
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def _fish(words: dict[str, list[str]]) -> str:
    lines = []
    for program in _PROGRAMS:
        first = f"complete -c {program} -n __fish_use_subcommand -f"
        lines += [f"{first} -a {name} -d '{COMMANDS[name].summary.replace(chr(39), '')}'" for name in words]
        for name, found in words.items():
            condition = f"complete -c {program} -n '__fish_seen_subcommand_from {name}'"
            lines += [
                f"{condition} -l {word.removeprefix('--')}"
                if word.startswith("--")
                else f"{condition} -a {word}"
                for word in found
            ]
    return "\n".join(lines) + "\n"
