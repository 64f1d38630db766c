"""A ``virsh`` that plays a guest and its agent: a real program with scripted answers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_SCRIPT = """\
#!{python} -S
import json, os, sys, time

folder = {folder!r}
words = sys.argv[4:]
with open(folder + "/asked", "a") as log:
    log.write(json.dumps(words) + "\\n")
name = words[0]
if name == "qemu-agent-command":
    name = json.loads(words[-1])["execute"]
path = folder + "/" + name
if not os.path.exists(path):
    sys.exit("error: Guest agent is not responding: " + name)
answers = open(path).read().splitlines()
if len(answers) > 1:
    with open(path, "w") as rest:
        rest.write("\\n".join(answers[1:]))
answer = json.loads(answers[0])
if answer == "hang":
    time.sleep(60)
if answer == "endless":
    while True:
        os.write(1, b"x" * 65536)
os.write(1, answer.encode())
"""

CONNECTED = "<target type='virtio' name='org.qemu.guest_agent.0' state='connected'/>"
HANG, ENDLESS = "hang", "endless"


class Virsh:
    """The program at `path`; what it has no answer for fails."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = str(folder / "virsh")
        program = folder / "virsh"
        program.write_text(_SCRIPT.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.says("domstate", "running (booted)\n")
        self.says("dumpxml", CONNECTED)

    def says(self, command: str, *answers: str) -> None:
        """Answer `command` with each of `answers` in turn, then with the last again."""
        (self._folder / command).write_text("\n".join(json.dumps(answer) for answer in answers))

    def returns(self, command: str, *values: Any) -> None:
        """The agent's answers to a command of its own."""
        self.says(command, *(json.dumps({"return": value}) for value in values))

    @property
    def asked(self) -> list[list[str]]:
        """The words of every call, without the connection."""
        path = self._folder / "asked"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def names(self) -> list[str]:
        """The commands of every call; the agent's by their own names."""
        return [
            json.loads(words[-1])["execute"] if words[0] == "qemu-agent-command" else words[0]
            for words in self.asked
        ]
