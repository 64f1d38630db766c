"""``completion``: scripts by which shells complete commands and flags.

The scripts hold the words, so that completing starts no program.
"""

from __future__ import annotations

import click

from virtplane.cli.virtctl.usage import Commands

_SHELLS = {
    "bash": "A script for bash.",
    "fish": "A script for fish.",
    "powershell": "A script for PowerShell.",
    "zsh": "A script for zsh.",
}


@click.group(cls=Commands, invoke_without_command=True)
@click.pass_context
def completion(context: click.Context) -> None:
    """Scripts that have a shell complete this program's commands."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def words(context: click.Context, group: click.Group, path: str = "") -> dict[str, list[str]]:
    """What may follow each command: its commands and flags, by the command's path ("" is the program's)."""
    names = [name for name in group.list_commands(context) if " " not in name]
    found = {path: [*names, "--help"]}
    for name in names:
        command = group.get_command(context, name)
        own = f"{path} {name}".strip()
        if isinstance(command, click.Group):
            found |= words(context, command, own)
        elif command is not None:
            options = [option for option in command.params if isinstance(option, click.Option)]
            flags = [flag for option in options for flag in option.opts if flag.startswith("--")]
            found[own] = [*sorted(flags), "--help"]
    return found


def bash(program: str, found: dict[str, list[str]]) -> str:
    """The script for bash."""
    function = "_" + program.replace("-", "_")
    cases = "\n".join(f"        '{path}') words='{' '.join(follow)}' ;;" for path, follow in found.items())
    return f"""\
{function}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} line= words= word
    for word in "${{COMP_WORDS[@]:1:$((COMP_CWORD - 1))}}"; do
        case " {" ".join(f"{path.replace(' ', '/')}" for path in found if path)} " in
            *" ${{line:+$line/}}$word "*) line=${{line:+$line/}}$word ;;
        esac
    done
    case ${{line//\\// }} in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F {function} {program}
"""


def fish(program: str, found: dict[str, list[str]]) -> str:
    """The script for fish."""
    lines = []
    for path, follow in found.items():
        parts = path.split()
        seen = "; and ".join(f"__fish_seen_subcommand_from {part}" for part in parts)
        nested = [word for word in follow if not word.startswith("--")]
        if nested and parts:
            seen += f"; and not __fish_seen_subcommand_from {' '.join(nested)}"
        condition = seen or "__fish_use_subcommand"
        for word in follow:
            what = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f"complete -c {program} -n '{condition}' {what}")
    return "\n".join(lines) + "\n"


def powershell(program: str, found: dict[str, list[str]]) -> str:
    """The script for PowerShell."""
    table = "\n".join(
        f"        '{path}' = @({', '.join(repr(word) for word in follow)})" for path, follow in found.items()
    )
    return f"""\
Register-ArgumentCompleter -Native -CommandName '{program}' -ScriptBlock {{
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @{{
{table}
    }}
    $path = ''
    foreach ($element in ($commandAst.CommandElements | Select-Object -Skip 1)) {{
        $longer = "$path $element".Trim()
        if ($words.ContainsKey($longer)) {{ $path = $longer }}
    }}
    $words[$path] | Where-Object {{ $_ -like "$wordToComplete*" }} | ForEach-Object {{
        [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)
    }}
}}
"""


def _script(context: click.Context) -> str:
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    found = words(root, root.command)
    # kubectl finds the completion of a plugin in a program of its own; the plugin itself is completed here.
    program = (root.info_name or "virtctl").replace(" virt", "-virt")
    shell = context.command.name
    if shell == "fish":
        return fish(program, found)
    if shell == "powershell":
        return powershell(program, found)
    script = bash(program, found)
    if shell == "bash":
        return script
    return f"#compdef {program}\nautoload -U +X bashcompinit && bashcompinit\n{script}"


def _command(shell: str, text: str) -> click.Command:
    @click.command(name=shell, help=text)
    @click.option(
        "--no-descriptions", is_flag=True, help="Accepted for kubectl's sake; the scripts hold none."
    )
    @click.pass_context
    def command(context: click.Context, no_descriptions: bool) -> None:
        # The scripts hold none.
        del no_descriptions
        click.echo(_script(context), nl=False)

    return command


for _shell, _text in _SHELLS.items():
    completion.add_command(_command(_shell, _text))

COMMANDS = {"completion": completion}
