"""Virtual machines: how long they take and what they cost, beside bare QEMU of the same machine.

    python -m bench.vm --archive GUEST.tar [--state DIR] [--machines 20] [--together]

Brings an instance of its own up (and removes it), unless `--keep` says to leave it.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench import bare, memory
from bench.figures import heading, machine, percentile, row, say
from bench.timeline import BOOTED, STEPS, Recorder, Timeline
from kubecore.client import Client, load_kubeconfig
from kubecore.json import JsonObject
from virtplane.api.resources import VIRTUAL_MACHINES
from virtplane.compute.handler.node import kvm

_ROOT = Path(__file__).resolve().parents[1]
_NAMESPACE = "default"
_GUEST_MIB = 128
_SETTLE_SECONDS = 10.0
_LIMIT_SECONDS = 180.0
"""For one machine to run, to boot, to be gone; a machine that needs longer is counted as failed."""

_COMMAND_SECONDS = 300.0
_NEIGHBOURS = 4
"""Machines beside the one that is weighed: each pays its share only of what all of them map."""

_TOGETHER_CPU = "20m"
"""What each of the machines that are created at once requests. With the usual request only 34 fit on a node
with two processors, and the others would wait for room, not for a start."""

_PARTS = ("virtualmachines", "virtualmachineinstances", "pods")


@dataclass(frozen=True, slots=True)
class Instance:
    """One embedded cluster."""

    state: Path

    def up(self) -> float:
        """Seconds until everything is ready."""
        begun = time.monotonic()
        self._run(str(_ROOT / "virtplane"), "up", "--state", str(self.state))
        return time.monotonic() - begun

    def kindling(self, command: str, *arguments: str) -> str:
        """Output of kindling's command line."""
        return self._run(str(_ROOT / ".venv/bin/kindling"), command, "--state", str(self.state), *arguments)

    def processes(self) -> list[memory.Process]:
        """All processes of the instance, its pods' included."""
        words = next(line.split() for line in self.kindling("status").splitlines() if line.startswith("sup"))
        return memory.descendants(int(words[1]))

    def _run(self, *command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


class Machines:
    """Creates and deletes copies of the demo machine and notes when."""

    def __init__(self, client: Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder
        self._manifest: JsonObject = yaml.safe_load((_ROOT / "examples/demo-vm.yaml").read_text())

    async def create(self, name: str, *, cpu: str = "") -> Timeline:
        """Create, and wait until the instance runs. `cpu` is its request; empty: as the cluster says."""
        manifest = copy.deepcopy(self._manifest)
        manifest["metadata"]["name"] = name
        # The guest's own shutdown is not what is measured.
        manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
        if cpu:
            manifest["spec"]["template"]["spec"]["domain"]["resources"] = {"requests": {"cpu": cpu}}
        line = self._recorder.machines[name] = Timeline(time.monotonic())
        await self._client.create(VIRTUAL_MACHINES, manifest, _NAMESPACE)
        await self._recorder.wait(lambda: "VMI Running" in line.moments, _LIMIT_SECONDS)
        return line

    async def boot(self, name: str) -> None:
        """Create, and wait until the guest's agent answers."""
        line = await self.create(name)
        await self._recorder.wait(lambda: BOOTED in line.moments, _LIMIT_SECONDS)

    async def delete(self, name: str) -> float:
        """Delete, and give the seconds until machine, instance and pod are gone."""
        line = self._recorder.machines[name]
        begun = time.monotonic()
        await self._client.delete(VIRTUAL_MACHINES, name, _NAMESPACE)
        await self._recorder.wait(lambda: all(part in line.deleted for part in _PARTS), _LIMIT_SECONDS)
        return max(line.deleted.values()) - begun


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.vm", description=__doc__)
    parser.add_argument("--archive", type=Path, required=True, help="the demo guest's image archive")
    parser.add_argument(
        "--state", type=Path, help="an instance to use; default: a new one, removed at the end"
    )
    parser.add_argument("--machines", type=int, default=20)
    parser.add_argument("--together", action="store_true", help="create them all at once, too")
    parser.add_argument("--keep", action="store_true", help="leave the instance running")
    return parser.parse_args()


def main() -> int:
    """Command line."""
    options = _arguments()
    say(machine())
    with tempfile.TemporaryDirectory(prefix="bench-vm-") as folder:
        instance = Instance(options.state or Path(folder) / "state")
        try:
            asyncio.run(_measure(instance, options, Path(folder)))
        finally:
            if not options.keep:
                instance.kindling("reset")
    say()
    say(machine())
    return 0


async def _measure(instance: Instance, options: argparse.Namespace, folder: Path) -> None:
    accelerator = "kvm" if (await kvm.probe()).usable else "tcg"
    say(f"accelerator: {accelerator}")
    heading("start", "this", "", "target")
    first = instance.up()
    row("up to ready, first", f"{first:.1f} s", target="20 s", met=first <= 20)
    instance.kindling("down")
    again = instance.up()
    row("up to ready, again", f"{again:.1f} s", target="20 s", met=again <= 20)
    instance.kindling("load", str(options.archive))
    await asyncio.sleep(_SETTLE_SECONDS)
    _report_idle(instance)
    disk = bare.disk_of(options.archive, folder)
    runs = [await bare.run(disk, accelerator, _GUEST_MIB, until_prompt=index < 3) for index in range(5)]
    async with Client(load_kubeconfig(instance.state / "kubeconfig")) as client:
        recorder = Recorder(client, _NAMESPACE)
        ready = asyncio.Event()
        watching = asyncio.create_task(recorder.run(ready))
        try:
            await asyncio.wait_for(ready.wait(), _LIMIT_SECONDS)
            await _report_machines(Machines(client, recorder), recorder, options, runs)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _report_idle(instance: Instance) -> None:
    heading("idle memory (PSS)", "this", "RSS", "target")
    processes = instance.processes()
    for process in sorted(processes, key=lambda each: -each.pss):
        if process.pss > 1024:
            row(
                f"  {process.label}"[:44],
                f"{process.pss / 1024:.0f} MiB",
                beside=f"{process.rss / 1024:.0f} MiB",
            )
    total = sum(process.pss for process in processes) / 1024
    row("whole stack", f"{total:.0f} MiB", target="600 MiB", met=total <= 600)


async def _report_machines(
    machines: Machines, recorder: Recorder, options: argparse.Namespace, runs: list[bare.BareRun]
) -> None:
    names = [f"bench-{index}" for index in range(options.machines)]
    await machines.create("warm")
    await machines.delete("warm")
    created: list[Timeline] = []
    gone: list[float] = []
    for name in names:
        created.append(await machines.create(name))
        gone.append(await machines.delete(name))
    _report_latency(f"{len(names)} machines, one after another", created, gone, runs, target=2.5)
    await _weigh(machines, recorder, runs)
    if options.together:
        await _together(machines, [f"together-{index}" for index in range(options.machines)], runs)


async def _weigh(machines: Machines, recorder: Recorder, runs: list[bare.BareRun]) -> None:
    await machines.boot("weighed")
    await asyncio.sleep(_SETTLE_SECONDS)
    _report_weight("alone", recorder.machines["weighed"].pod_uid, runs)
    neighbours = [f"neighbour-{index}" for index in range(_NEIGHBOURS)]
    for name in neighbours:
        await machines.boot(name)
    await asyncio.sleep(_SETTLE_SECONDS)
    _report_weight(f"one of {_NEIGHBOURS + 1}", recorder.machines["weighed"].pod_uid, runs)
    for name in ("weighed", *neighbours):
        await machines.delete(name)


async def _together(machines: Machines, names: list[str], runs: list[bare.BareRun]) -> None:
    """All at once. Every wait has a limit, and what it fails is counted, so that this ends in any case."""
    starts = (machines.create(name, cpu=_TOGETHER_CPU) for name in names)
    created = await asyncio.gather(*starts, return_exceptions=True)
    ended = await asyncio.gather(*(machines.delete(name) for name in names), return_exceptions=True)
    running = [each for each in created if isinstance(each, Timeline)]
    gone = [each for each in ended if isinstance(each, float)]
    if running and gone:
        _report_latency(f"{len(running)} machines, all at once", running, gone, runs, target=None)
    for what, results in (("run", created), ("end", ended)):
        failures = [each for each in results if isinstance(each, BaseException)]
        kinds = ", ".join(sorted({type(each).__name__ for each in failures}))
        row(f"did not {what} within {_LIMIT_SECONDS:.0f} s", f"{len(failures)} of {len(names)}", beside=kinds)


def _report_latency(
    title: str, created: list[Timeline], gone: list[float], runs: list[bare.BareRun], target: float | None
) -> None:
    heading(title, "this", "bare QEMU", "target")
    running = [line.moments["VMI Running"] for line in created]
    beside = [run.running for run in runs]
    half = percentile(running, 0.5)
    row(
        "create to Running, P50",
        f"{half:.2f} s",
        beside=f"{percentile(beside, 0.5):.2f} s",
        target=f"{target} s" if target else "",
        met=half <= target if target else None,
    )
    row("create to Running, P95", f"{percentile(running, 0.95):.2f} s", beside=f"{max(beside):.2f} s")
    ended = [run.gone for run in runs]
    row("delete to gone, P50", f"{percentile(gone, 0.5):.2f} s", beside=f"{percentile(ended, 0.5):.2f} s")
    row("delete to gone, P95", f"{percentile(gone, 0.95):.2f} s", beside=f"{max(ended):.2f} s")
    say("  median moments since the request, and what each step took:")
    before = 0.0
    for step in STEPS:
        moments = [line.moments[step] for line in created if step in line.moments]
        if moments:
            middle = statistics.median(moments)
            row(f"    {step}", f"{middle:.3f} s", beside=f"+{middle - before:.3f} s")
            before = middle


def _report_weight(title: str, uid: str, runs: list[bare.BareRun]) -> None:
    """Everything that the machine's pod holds but the guest's RAM: translated code counts."""
    heading(f"memory of a machine, {title}, without guest RAM", "this", "bare QEMU", "target")
    total = code = 0.0
    for process in memory.pod_processes(uid):
        size = process.pss
        if "qemu-system" in process.command.split()[0]:
            guest, translated = memory.guest_and_translations(process.pid, _GUEST_MIB * 1024 * 1024)
            size -= guest + translated
            middle = statistics.median(run.overhead for run in runs[:3])
            row("  qemu", f"{size / 1024:.1f} MiB", beside=f"{middle / 1024:.1f} MiB")
            middle = statistics.median(run.translated for run in runs[:3])
            code += translated / 1024
            row("  translated code", f"{code:.1f} MiB", beside=f"{middle / 1024:.1f} MiB")
        else:
            row(f"  {process.label}"[:44], f"{size / 1024:.1f} MiB")
        total += size / 1024
    total += code
    row(f"a machine, {title}", f"{total:.1f} MiB", target="40 MiB", met=total <= 40)
    if code:
        row("  what is not emulation's", f"{total - code:.1f} MiB", target="40 MiB", met=total - code <= 40)


if __name__ == "__main__":
    sys.exit(main())
