"""Replay recorded requests against a cluster brought up for it, and hold the result against the floor.

    python tests/conformance/replay_recorded.py DIR [--set NAME] [--only GLOB] [--keep]

DIR holds ``replay.py`` and the sets of cases. The floor (``floor.json``) says how many cases of each set must
pass; it may only rise: a run that passes more says so. Exit status 1 when a set is below its floor.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FLOOR = Path(__file__).with_name("floor.json")
SETS = {"cases": "kubernetes", "cases-kubevirt": "kubevirt"}
JOBS = 3


@dataclass(frozen=True)
class Outcome:
    """What a replay counted."""

    passed: int
    failed: int
    skipped: int


def main() -> int:
    """Bring a cluster up, replay every set, remove the cluster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--set", choices=sorted(SETS), help="one set of cases only")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    options = parser.parse_args()
    state = Path(tempfile.mkdtemp(prefix="virtplane-conformance-"))
    floor: dict[str, int] = json.loads(FLOOR.read_text())
    good = True
    try:
        for folder, name in SETS.items():
            if options.set in (None, folder):
                _bring_up(state, with_virtplane=folder != "cases")
                outcome = _replay(options.directory, folder, state, options.only)
                good &= _judge(name, outcome, floor.get(name, 0), partial=bool(options.only))
    finally:
        if not options.keep:
            subprocess.run([ROOT / "virtplane", "reset", "--state", str(state)], check=False)
            shutil.rmtree(state, ignore_errors=True)
    return 0 if good else 1


def _bring_up(state: Path, *, with_virtplane: bool) -> None:
    """The Kubernetes cases know nothing of virtual machines: they get the bare cluster."""
    program = [ROOT / "virtplane"] if with_virtplane else [ROOT / ".venv/bin/kindling"]
    subprocess.run([*program, "up", "--state", str(state)], check=True)


def _replay(directory: Path, folder: str, state: Path, only: list[str]) -> Outcome:
    report = state / f"{folder}.json"
    server, token = _access(state)
    command = [sys.executable, str(directory / "replay.py"), "--cases", str(directory / folder)]
    command += [
        "--server",
        server,
        "--token",
        token,
        "--insecure",
        "--jobs",
        str(JOBS),
        "--json",
        str(report),
    ]
    command += [argument for glob in only for argument in ("--only", glob)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    print(done.stdout[-20000:])
    if not report.exists():
        print(done.stderr[-4000:], file=sys.stderr)
        return Outcome(0, 0, 0)
    lines = [line for line in done.stdout.splitlines() if " passed, " in line]
    numbers = [int(word) for word in lines[-1].replace(",", "").split() if word.isdigit()]
    return Outcome(*numbers[:3])


def _access(state: Path) -> tuple[str, str]:
    import yaml

    kubeconfig = yaml.safe_load((state / "kubeconfig").read_text())
    return kubeconfig["clusters"][0]["cluster"]["server"], (state / "token").read_text().strip()


def _judge(name: str, outcome: Outcome, floor: int, *, partial: bool) -> bool:
    total = outcome.passed + outcome.failed
    share = 100 * outcome.passed // total if total else 0
    print(f"{name}: {outcome.passed} of {total} passed ({share} %), floor {floor}")
    if partial:
        return True
    if outcome.passed > floor:
        print(f"{name}: raise the floor in {FLOOR.name} to {outcome.passed}")
    return outcome.passed >= floor


if __name__ == "__main__":
    sys.exit(main())
