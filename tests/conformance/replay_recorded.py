"""Replay recorded requests against clusters brought up for them, and hold the results against the floor.

    python -m tests.conformance.replay_recorded DIR [--set NAME] [--only GLOB] [--keep]

DIR holds ``replay.py`` and the sets of cases: ``cases`` (Kubernetes, played to a bare cluster),
``cases-kubevirt`` (played to a cluster with virtplane) and ``cases-cdi`` (to one whose CDI is set up as the
recorded one). A case that fails is played once more without the
others, and the output names those that needed it: the timing of a case is part of its recording. Those of
``known_failures.json`` fail each time, some of them after minutes, and are played once. The
pauses between its steps and the delays of its webhooks are replayed as they were, whatever
``--timeout-scale`` says, so a busy machine makes some cases late and a test here cannot wait for the event
instead. No other test of the repository is tried twice. The floor (``floor.json``) says how many cases of
each set must pass; it only rises. docs/conformance.md lists what fails and why. Exit status 1 when a set is
below its floor.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.conformance.clusters import Deadline, Kind, RunFailure, access, running_cluster

FLOOR = Path(__file__).with_name("floor.json")
KNOWN_FAILURES = Path(__file__).with_name("known_failures.json")
"""The cases whose reasons to fail are in docs/conformance.md."""
IMAGE = "kindling.local/busybox:1"
"""An image that every node has, with the commands that the cases run."""

JOBS = 3
TIMEOUT_SCALE = 2
WHOLE_RUN_SECONDS = 840.0
"""All sets together, so that the run with its clearing up takes less than fifteen minutes."""

RETRY_SECONDS = 240.0
RETRY_JOBS = 2


@dataclass(frozen=True)
class CaseSet:
    """One directory of cases."""

    folder: str
    name: str
    cluster: Kind


SETS = (
    CaseSet("cases", "kubernetes", "bare"),
    CaseSet("cases-kubevirt", "kubevirt", "virtplane"),
    CaseSet("cases-cdi", "cdi", "cdi"),
)


@dataclass
class Outcome:
    """What became of the cases of a set."""

    passed: int = 0
    skipped: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    """Case name -> first difference."""
    late: list[str] = field(default_factory=list)
    """Cases that passed only on their own; counted as passed."""

    @property
    def summary(self) -> str:
        """The totals, in the recorded runner's words."""
        return f"{self.passed} passed, {len(self.failures)} failed, {self.skipped} skipped"


def main() -> int:
    """Bring clusters up, replay every set, remove the clusters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--set", choices=sorted(each.folder for each in SETS), help="one set of cases only")
    parser.add_argument("--only", action="append", default=[], metavar="GLOB")
    parser.add_argument("--keep", action="store_true", help="leave the clusters running")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    floor: dict[str, int] = json.loads(FLOOR.read_text())
    deadline = Deadline(WHOLE_RUN_SECONDS)
    good = True
    for cases in SETS:
        if options.set not in (None, cases.folder):
            continue
        try:
            outcome = _run_set(cases, options, deadline)
        except (RunFailure, subprocess.SubprocessError, OSError) as error:
            print(f"{cases.name}: {error}", file=sys.stderr)
            good = False
            continue
        report(cases.name, outcome)
        good &= judge(cases.name, outcome, floor.get(cases.name, 0), partial=bool(options.only))
    return 0 if good else 1


def _run_set(cases: CaseSet, options: argparse.Namespace, deadline: Deadline) -> Outcome:
    """A cluster of its own for each set: the cases count objects and nodes. Raises RunFailure."""
    with running_cluster(cases.cluster, deadline, keep=options.keep) as state:
        outcome = _replay(cases, options.directory, state, options.only, JOBS, deadline.left())
        repeated = worth_repeating(outcome, json.loads(KNOWN_FAILURES.read_text()))
        if repeated:
            _retry(cases, options.directory, state, outcome, repeated, deadline)
        return outcome


def worth_repeating(outcome: Outcome, known_failures: Collection[str]) -> list[str]:
    """The cases that failed and may pass on their own."""
    return sorted(set(outcome.failures) - set(known_failures))


def _replay(
    cases: CaseSet, directory: Path, state: Path, only: Sequence[str], jobs: int, seconds: float
) -> Outcome:
    """Play the cases (all, or those that `only` names). Raises RunFailure when there is no result."""
    results = state / "results.json"
    results.unlink(missing_ok=True)
    server, token = access(state)
    command = [sys.executable, str(directory / "replay.py"), "--cases", str(directory / cases.folder)]
    command += ["--server", server, f"--token={token}", "--insecure", "--image", IMAGE]
    command += ["--jobs", str(jobs), "--timeout-scale", str(TIMEOUT_SCALE), "--no-wait"]
    command += ["--json", str(results)]
    for glob in only:
        command += ["--only", glob]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise RunFailure(f"the replay took more than {seconds:.0f} seconds") from error
    if not results.exists():
        raise RunFailure(f"the replay failed:\n{(done.stdout + done.stderr)[-4000:]}")
    return count(json.loads(results.read_text()), done.stdout)


def count(results: Sequence[dict[str, Any]], output: str) -> Outcome:
    """The outcome of one replay: from its results, and the skipped cases from its last line."""
    outcome = Outcome()
    for result in results:
        failures = result.get("failures")
        if failures:
            first = failures[0]
            outcome.failures[result["name"]] = (
                f"{first['step']}: {first['path']}: expected {first['expected']!r}, got {first['got']!r}"
            )
        elif failures is not None:
            outcome.passed += 1
    for line in output.splitlines():
        words = line.replace(",", "").split()
        if " passed, " in line and words[-1] == "skipped":
            outcome.skipped = int(words[-2])
    return outcome


def _retry(
    cases: CaseSet,
    directory: Path,
    state: Path,
    outcome: Outcome,
    repeated: Sequence[str],
    deadline: Deadline,
) -> None:
    """Play cases that failed once more, by themselves; without time for it the failures stand."""
    try:
        seconds = deadline.left(RETRY_SECONDS)
        again = _replay(cases, directory, state, repeated, RETRY_JOBS, seconds)
    except RunFailure as problem:
        print(f"{cases.name}: no second attempt: {problem}", file=sys.stderr)
        return
    for name in sorted(set(repeated) - set(again.failures)):
        del outcome.failures[name]
        outcome.passed += 1
        outcome.late.append(name)


def report(name: str, outcome: Outcome) -> None:
    """Print what failed and what was late."""
    for case, difference in sorted(outcome.failures.items()):
        print(f"FAIL {case}: {difference[:400]}")
    for case in outcome.late:
        print(f"passed on the second attempt: {case}")
    print(f"{name}: {outcome.summary}", flush=True)


def judge(name: str, outcome: Outcome, floor: int, *, partial: bool) -> bool:
    """Whether a set is at its floor; a run of some of the cases always is."""
    if partial:
        return True
    if outcome.passed < floor:
        print(f"{name}: {outcome.passed} passed, but {floor} must")
    return outcome.passed >= floor


if __name__ == "__main__":
    sys.exit(main())
