"""One guest in QEMU alone: no cluster, no libvirt, no network but QEMU's own."""

from __future__ import annotations

import base64
import itertools
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.commands import run
from tests.e2e.support import wait_for

from virtplane.compute.handler.storage.cloudinit import write_iso

OVMF = Path("/usr/share/OVMF")
SECURE_BOOT = ("OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.ms.fd")
"""Firmware that checks signatures, and its variables with the keys of Microsoft, which sign shims."""

_NUMBERS = itertools.count(1)


class Agent:
    """The guest agent behind its virtio channel."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def ask(self, command: str, **arguments: Any) -> Any:
        """What the agent returns. Raises OSError while it does not answer."""
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(10)
            channel.connect(str(self._path))
            with channel.makefile("rw") as stream:
                number = next(_NUMBERS)
                # What an earlier caller was not there to read comes before the answer to this.
                self._send(stream, "guest-sync", id=number)
                while self._receive(stream) != number:
                    pass
                self._send(stream, command, **arguments)
                return self._receive(stream)

    def run(self, script: str, seconds: float = 60) -> str:
        """What a shell script in the guest prints; insists on its success."""
        pid = self.ask("guest-exec", path="/bin/sh", arg=["-c", script], **{"capture-output": True})["pid"]

        def ended() -> Any:
            status = self.ask("guest-exec-status", pid=pid)
            return status if status["exited"] else None

        status = wait_for(f"the guest has run {script!r}", ended, seconds)
        out, err = (base64.b64decode(status.get(key, "")).decode() for key in ("out-data", "err-data"))
        assert status["exitcode"] == 0, f"{script}\n{out}\n{err}"
        return out

    @staticmethod
    def _send(stream: Any, command: str, **arguments: Any) -> None:
        stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        stream.flush()

    @staticmethod
    def _receive(stream: Any) -> Any:
        line = stream.readline()
        if not line:
            raise ConnectionError("the agent's channel was closed")
        answer = json.loads(line)
        assert "return" in answer, answer
        return answer["return"]


class Guest:
    """A running guest."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.agent = Agent(folder / "agent")
        self._serial = folder / "serial"

    def console(self) -> str:
        """What the guest has written to its first serial port."""
        return self._serial.read_text(errors="replace")


def no_cloud(path: Path, host_name: str, user_data: str) -> None:
    """Write a NoCloud seed."""
    meta_data = f"instance-id: {host_name}\nlocal-hostname: {host_name}\n"
    with path.open("w+b") as stream:
        write_iso(stream, "cidata", {"meta-data": meta_data.encode(), "user-data": user_data.encode()})


@contextmanager
def booted(folder: Path, disk: Path, seed: Path, *, secure_boot: bool = False) -> Iterator[Guest]:
    """A guest that starts from the qcow2 image `disk`, by BIOS or by UEFI with Secure Boot."""
    machine = ["-machine", "q35"]
    if secure_boot:
        code, variables = SECURE_BOOT
        run("cp", OVMF / variables, folder / "variables")
        machine = ["-machine", "q35,smm=on", "-global", "driver=cfi.pflash01,property=secure,value=on"]
        machine += ["-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={OVMF / code}"]
        machine += ["-drive", f"if=pflash,unit=1,format=raw,file={folder / 'variables'}"]
    devices = ["-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe"]
    devices += ["-drive", f"file={seed},if=virtio,format=raw,readonly=on"]
    devices += ["-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net"]
    devices += ["-device", "virtio-serial", "-device", "virtio-rng-pci"]
    devices += ["-chardev", f"socket,id=agent,path={folder / 'agent'},server=on,wait=off"]
    devices += ["-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0"]
    command = ["qemu-system-x86_64", *machine, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]
    command += ["-m", "1024", "-nodefaults", "-vga", "std", "-display", "none"]
    command += ["-serial", f"file:{folder / 'serial'}", *devices]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:
        try:
            yield Guest(folder, process)
        finally:
            process.kill()
