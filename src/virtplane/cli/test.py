"""``virtplane test``: the checks and tests of a checkout.

Style, types, import contracts, then all tests; at the end, how many features of the inventory they proved.
``--conformance DIR`` instead replays recorded requests against a cluster that it brings up, with ``--atlas``
those that were generated.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from virtplane.cli.terminal import CommandError, report, say, step

_ROOT = Path(__file__).resolve().parents[3]
_CHECKS = (
    ("style", ("ruff", "check", "src", "tests", "bench")),
    ("types", ("mypy",)),
    ("import contracts", ("lint-imports",)),
)


def parser() -> argparse.ArgumentParser:
    """The options of ``test``."""
    made = argparse.ArgumentParser(
        prog="virtplane test", description="Run the checks and tests of a checkout."
    )
    made.add_argument("--quick", action="store_true", help="only what needs neither root nor guests")
    made.add_argument(
        "--conformance",
        type=Path,
        metavar="DIR",
        help="replay the recorded cases of DIR and compare with the floor",
    )
    made.add_argument("--atlas", action="store_true", help="with --conformance: check the generated requests")
    made.add_argument("rest", nargs="*", metavar="PYTEST-ARGUMENT", help="passed on to pytest")
    return made


def main(arguments: list[str]) -> int:
    """Command line."""
    options = parser().parse_args(arguments)
    if not (_ROOT / "tests").is_dir():
        return report(CommandError("There are no tests here.", "This is not a checkout.", code=2))
    if options.conformance:
        module = f"tests.conformance.{'atlas' if options.atlas else 'replay_recorded'}"
        return _run([sys.executable, "-m", module, str(options.conformance.resolve()), *options.rest])
    try:
        for name, command in _CHECKS:
            _check(name, command)
    except CommandError as error:
        return report(error)
    return _test(options)


def _check(name: str, command: tuple[str, ...]) -> None:
    program = Path(sys.executable).with_name(command[0])
    with step(f"Checking {name}"):
        done = subprocess.run([program, *command[1:]], cwd=_ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CommandError(f"The check of {name} failed.", (done.stdout + done.stderr).strip()[-4000:])


def _test(options: argparse.Namespace) -> int:
    """Run pytest once, without retries: a flaky test is a defect. Returns pytest's exit code."""
    selection = ["-m", "not host and not guest"] if options.quick else []
    # A short path: sockets are made below it, whose paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="vt-", ignore_cleanup_errors=True) as folder:
        junit = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={junit}", f"--basetemp={folder}/t"]
        command += [*_workers(), *selection, *options.rest]
        code = _run(command)
        proved = proved_features(junit) if junit.exists() else set()
        say(f"Features proved: {len(proved)}")
    return code


def _workers() -> list[str]:
    """One process for each processor, up to four; modules are handed out in the order of the collection.

    Guests and clusters wait much of their time, so two modules side by side take little more than one.
    """
    count = min(os.cpu_count() or 1, 4)
    return ["-n", str(count), "--no-loadscope-reorder"] if count > 1 else []


def proved_features(junit: Path) -> set[str]:
    """The feature IDs that at least one passed test has and no failed one."""
    passed: set[str] = set()
    failed: set[str] = set()
    for case in ElementTree.parse(junit).iter("testcase"):
        entries = (entry for entry in case.iter("property") if entry.get("name") == "feature")
        features = {entry.get("value", "") for entry in entries}
        if case.find("failure") is not None or case.find("error") is not None:
            failed |= features
        elif case.find("skipped") is None:
            passed |= features
    return passed - failed


def _run(command: list[str]) -> int:
    return subprocess.run(command, cwd=_ROOT, check=False).returncode
