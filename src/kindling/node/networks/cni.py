"""Running CNI plugins: ADD and DEL of a network, by version 1.0.0 of the specification."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from kindling.node.networks import policy
from kindling.node.networks.problems import NetworkProblem
from kindling.node.networks.records import Attachment
from kubecore import json
from kubecore.json import JsonObject, get_object, get_str

VERSION = "1.0.0"
MAX_OUTPUT = 1024 * 1024
_DYING_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A plugin that goes on when the agent was killed would finish after the next agent has undone its work."""
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


class Plugins:
    """The plugins in `directory`, each of which is killed when it takes longer than `seconds`."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self._directory = directory
        self._seconds = seconds

    async def add(self, attachment: Attachment) -> JsonObject:
        """Run ADD of every plugin, and return the last result. Raises NetworkProblem, OSError."""
        result: JsonObject = {}
        for plugin in attachment.plugins:
            result = await self._run("ADD", attachment, plugin, result or None)
        return result

    async def delete(self, attachment: Attachment) -> None:
        """Run DEL of every plugin in reverse order; it may be run again. Raises NetworkProblem, OSError.

        One that fails does not keep the others from undoing their part.
        """
        problems = []
        is_there = Path(attachment.namespace_path).exists()
        for plugin in reversed(attachment.plugins):
            if not is_there and get_str(plugin, "type") in policy.INSIDE:
                continue  # Some of these fail without the namespace, in which all of their work was.
            try:
                await self._run("DEL", attachment, plugin, attachment.result)
            except NetworkProblem as problem:
                problems.append(problem)
        if problems:
            raise NetworkProblem("; ".join(map(str, problems))) from problems[0]

    async def _run(
        self, command: str, attachment: Attachment, plugin: Mapping[str, Any], previous: Any
    ) -> JsonObject:
        kind = get_str(plugin, "type")
        program = self._directory / policy.program_of(kind)
        where = f'plugin type="{kind}" failed ({command.lower()})'
        if not program.exists():
            raise NetworkProblem(f'{where}: failed to find plugin "{kind}" in path [{self._directory}]')
        given = orjson.dumps(_configuration(attachment, plugin, previous))
        try:
            async with asyncio.timeout(self._seconds):
                code, output = await _call(program, self._environment(command, attachment), given)
        except TimeoutError as error:
            raise NetworkProblem(f"{where}: it has not ended within {self._seconds:g} s") from error
        if len(output) > MAX_OUTPUT:
            raise NetworkProblem(f"{where}: it wrote more than {MAX_OUTPUT} bytes")
        said = _decoded(output)
        if code != 0:
            text = ": ".join(filter(None, (get_str(said, "msg"), get_str(said, "details"))))
            text = text or f"netplugin failed with no error message: exit code {code}"
            raise NetworkProblem(f"{where}: {text[:2000]}")
        return said

    def _environment(self, command: str, attachment: Attachment) -> dict[str, str]:
        pod, path = attachment.pod, attachment.namespace_path
        # A namespace that is gone took its links along; plugins then free what is not in it.
        there = command == "ADD" or Path(path).exists()
        arguments = (
            ("IgnoreUnknown", "true"),
            ("K8S_POD_NAMESPACE", pod.namespace),
            ("K8S_POD_NAME", pod.name),
            ("K8S_POD_INFRA_CONTAINER_ID", attachment.sandbox),
            ("K8S_POD_UID", pod.uid),
            *attachment.arguments,
        )
        return {
            "PATH": _PATH,
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": attachment.sandbox,
            "CNI_NETNS": path if there else "",
            "CNI_IFNAME": attachment.interface,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in arguments),
            "CNI_PATH": str(self._directory),
        }


def _configuration(attachment: Attachment, plugin: Mapping[str, Any], previous: Any) -> JsonObject:
    """What a plugin reads (pure): its part, and the capabilities that it declares."""
    declared = [name for name, on in get_object(plugin, "capabilities").items() if on is True]
    given = {name: attachment.capabilities[name] for name in declared if name in attachment.capabilities}
    result: JsonObject = {**plugin, "cniVersion": VERSION, "name": attachment.name}
    result.pop("capabilities", None)
    if given:
        result["runtimeConfig"] = given
    if previous is not None:
        result["prevResult"] = previous
    return result


async def _call(program: Path, environment: Mapping[str, str], given: bytes) -> tuple[int, bytes]:
    """Exit code and the first bytes of the output. The program and what it started are killed when this task
    is cancelled, and when it writes too much.
    """
    process = await asyncio.create_subprocess_exec(
        *_DYING_WITH_US,
        program,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=environment,
        start_new_session=True,
        cwd="/",
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()
        output = b""
        while len(output) <= MAX_OUTPUT and (some := await process.stdout.read(65536)):
            output += some
        if len(output) <= MAX_OUTPUT:
            await process.wait()
        return process.returncode or 0, output
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


def _decoded(output: bytes) -> JsonObject:
    """The output as an object; empty for none, and for anything else."""
    try:
        found = json.decode(output) if output.strip() else {}
    except (orjson.JSONDecodeError, json.TooDeep):
        return {"msg": output.decode("utf-8", "replace").strip()}
    return found if isinstance(found, dict) else {}
