"""``virtplane boot``: starts the embedded cluster when the machine boots, by a systemd unit."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
from pathlib import Path

from virtplane.cli.state import DEFAULT_STATE, add_state_option
from virtplane.cli.terminal import EXIT_FAILED, EXIT_UNUSABLE, CommandError, require_root, say
from virtplane.programs import own_program

_UNITS = Path("/etc/systemd/system")
_RUNNING = Path("/run/systemd/system")
"""There while systemd is the system's init (see sd_booted(3))."""

_TEMPLATE = """\
[Unit]
Description=virtplane: virtual machines through the Kubernetes API ({description})
Wants=network-online.target
After=network-online.target
RequiresMountsFor={mounts}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} up --state {state}
ExecStop={program} down --state {state}
TimeoutStartSec=10min
TimeoutStopSec=3min

[Install]
WantedBy=multi-user.target
"""


def parser() -> argparse.ArgumentParser:
    """The options of ``boot``."""
    made = argparse.ArgumentParser(
        prog="virtplane boot",
        description="Start the embedded cluster now and whenever the machine boots, or no longer at boot."
        " When the machine is shut down, guests are shut down first. Needs systemd.",
    )
    add_state_option(made)
    made.add_argument("action", choices=("enable", "disable"))
    return made


def main(arguments: list[str]) -> int:
    """Command line. Raises CommandError."""
    options = parser().parse_args(arguments)
    require_root(f"boot {options.action}")
    state = options.state.resolve()
    if options.action == "enable":
        enable(state)
    elif not disable(state):
        say(f"{unit_path(state)} does not exist; nothing to do.")
    return 0


def enable(state: Path) -> None:
    """Write and start the unit. Raises CommandError if systemd is not running or refuses it."""
    if not _RUNNING.is_dir():
        raise CommandError(
            "Nothing can be started at boot here.",
            "systemd is not the init of this system (there is no /run/systemd/system).",
            f"Have your init run, as root: {_program()} up --state {state}",
            code=EXIT_UNUSABLE,
        )
    path = unit_path(state)
    path.write_text(unit(_program(), state))
    _systemctl("daemon-reload")
    _systemctl("enable", "--now", path.name)
    say(f"{path.name} starts the cluster in {state} at boot. Its output: journalctl -u {path.name}")


def disable(state: Path) -> bool:
    """Remove the unit without stopping anything; returns False if there is none. Raises CommandError."""
    path = unit_path(state)
    if not path.exists():
        return False
    if _RUNNING.is_dir():
        _systemctl("disable", path.name)
    path.unlink()
    if _RUNNING.is_dir():
        _systemctl("daemon-reload")
    say(f"{path.name} is removed: nothing starts the cluster in {state} at boot.")
    return True


def unit_path(state: Path) -> Path:
    """The path of the unit for a state directory; for the default directory it has no suffix."""
    if state == DEFAULT_STATE:
        return _UNITS / "virtplane.service"
    return _UNITS / f"virtplane-{hashlib.sha256(str(state).encode()).hexdigest()[:8]}.service"


def unit(program: Path, state: Path) -> str:
    """The text of the unit that runs `program` for the cluster in `state`."""
    plain = str(state).replace("%", "%%")
    # systemd expands variables in command lines only.
    mounts = _quoted(state).replace("$$", "$")
    return _TEMPLATE.format(description=plain, mounts=mounts, program=_quoted(program), state=_quoted(state))


def _quoted(path: Path) -> str:
    """A path as one word of a unit file: quotes, specifiers and variables are escaped."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{text}"'


def _program() -> Path:
    script = Path(__file__).resolve().parents[3] / "virtplane"
    return script if script.is_file() else Path(own_program("virtplane"))


def _systemctl(*arguments: str) -> None:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CommandError(
            f"systemctl {' '.join(arguments)} failed.", (done.stderr or done.stdout).strip(), code=EXIT_FAILED
        )
