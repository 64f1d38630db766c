"""Check generated requests against clusters brought up for them, and hold the results against the floor.

    python -m tests.conformance.atlas DIR [--set NAME] [--only AREA] [--keep]

DIR holds ``atlas.py`` and ``atlas_kubevirt.py`` and their requests in ``atlas``. A third of the requests,
chosen by the field they change, is set aside: its differences are not shown to whoever works on the rest, so
that its score says whether rules were learned or requests. The floor (``floor.json``) counts both parts and
only rises. Exit status 1 when a set is below its floor.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conformance.clusters import Deadline, Kind, RunFailure, access, running_cluster

FLOOR = Path(__file__).with_name("floor.json")
WHOLE_RUN_SECONDS = 600.0
PARTS = ("shown", "set-aside")
_FIELD_AREAS = frozenset(
    ["pod", "network", "core", "apps", "storage", "access", "admission", "extension", "device"]
)
"""Areas of Kubernetes whose requests change a field; those of the others are rows of tables."""
_SHARED_ROWS = frozenset({"cel", "crd-value"})
"""Areas in which several requests belong to one row."""
_CONTAINERS = re.compile(r"\b(initContainers|ephemeralContainers)\[\]")


@dataclass(frozen=True)
class Atlas:
    """Requests of one product, and the program that plays them."""

    name: str
    program: str
    cluster: Kind


ATLASES = (
    Atlas("kubernetes", "atlas.py", "bare"),
    Atlas("kubevirt", "atlas_kubevirt.py", "virtplane"),
)


@dataclass(frozen=True)
class Score:
    """How many answers were the same."""

    passed: int
    of: int

    def __str__(self) -> str:
        return f"{self.passed} of {self.of} ({100 * self.passed / self.of if self.of else 100:.1f} %)"


def main() -> int:
    """Bring clusters up, check both parts of each atlas, remove the clusters."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--set", choices=[each.name for each in ATLASES], help="one product only")
    parser.add_argument("--only", action="append", default=[], metavar="AREA")
    parser.add_argument("--keep", action="store_true", help="leave the clusters running")
    options = parser.parse_args()
    floor: dict[str, int] = json.loads(FLOOR.read_text())
    deadline = Deadline(WHOLE_RUN_SECONDS)
    good = True
    for atlas in ATLASES:
        if options.set not in (None, atlas.name):
            continue
        try:
            scores = _check(atlas, options, deadline)
        except (RunFailure, subprocess.SubprocessError, OSError) as error:
            print(f"atlas of {atlas.name}: {error}", file=sys.stderr)
            good = False
            continue
        good &= bool(options.only) or judge(atlas.name, scores, floor)
    return 0 if good else 1


def judge(name: str, scores: dict[str, Score], floor: dict[str, int]) -> bool:
    """Whether all parts are at their floors."""
    low = {part: score for part, score in scores.items() if score.passed < floor[f"atlas-{name}-{part}"]}
    for part, score in low.items():
        print(f"atlas of {name}, {part}: {score}, but {floor[f'atlas-{name}-{part}']} must be the same")
    return not low


def _check(atlas: Atlas, options: argparse.Namespace, deadline: Deadline) -> dict[str, Score]:
    with (
        running_cluster(atlas.cluster, deadline, keep=options.keep) as state,
        tempfile.TemporaryDirectory(prefix="virtplane-atlas-") as folder,
    ):
        corpora = split(sorted((options.directory / "atlas").glob(f"{atlas.name}-*.jsonl.gz")), Path(folder))
        if not corpora["shown"]:
            raise RunFailure(f"{options.directory / 'atlas'} has no requests")
        server, token = access(state)
        scores = {}
        for part in PARTS:
            results = Path(folder) / f"{part}.json"
            command = [sys.executable, str(options.directory / atlas.program), "check", "--server", server]
            command += [f"--token={token}", "--insecure", "--json", str(results)]
            command += ["--show", "10" if part == "shown" else "0"]
            for area in options.only:
                command += ["--only", area]
            # Its exit status says only whether everything was the same.
            subprocess.run([*command, *map(str, corpora[part])], check=False, timeout=deadline.left())
            if not results.exists():
                raise RunFailure("there is no result")
            scores[part] = total(json.loads(results.read_text()))
            print(f"atlas of {atlas.name}, {part}: {scores[part]}", flush=True)
        return scores


def total(results: dict[str, Any]) -> Score:
    """The sum over all areas; one program counts in lists, the other in objects."""
    areas = [
        each if isinstance(each, list) else [each["passed"], each["of"]] for each in results["areas"].values()
    ]
    return Score(sum(passed for passed, _ in areas), sum(of for _, of in areas))


def split(corpora: Sequence[Path], folder: Path) -> dict[str, list[Path]]:
    """Write the parts of each corpus below `folder`. The first line of a file is what its requests need."""
    made: dict[str, list[Path]] = {part: [] for part in PARTS}
    for corpus in corpora:
        with gzip.open(corpus, "rt") as stream:
            needed, *lines = stream.read().splitlines()
        parts: dict[str, list[str]] = {part: [needed] for part in PARTS}
        for line in lines:
            parts["set-aside" if is_set_aside(json.loads(line)) else "shown"].append(line)
        for part, some in parts.items():
            path = folder / part / corpus.name
            path.parent.mkdir(exist_ok=True)
            with gzip.open(path, "wt") as stream:
                stream.write("\n".join(some) + "\n")
            made[part].append(path)
    return made


def is_set_aside(request: dict[str, Any]) -> bool:
    """Whether a request belongs to the third that nobody looks at."""
    digest = hashlib.sha256(f"own:{_field(request)}".encode()).hexdigest()
    return int(digest[:8], 16) % 3 == 0


def _field(request: dict[str, Any]) -> str:
    """What a request is about: a field, wherever it occurs, or a row of a table."""
    if "id" not in request:
        return str(request.get("field") or request["name"])
    kind, _, rest = str(request["id"]).partition("/")
    if request["area"].removesuffix("-update") in _FIELD_AREAS:
        path = rest.split(" + ")[0].split("/")[0]
        parts = _CONTAINERS.sub("containers[]", path).split(".")
        return f"{kind}:{path}" if parts[0] == "metadata" else ".".join(parts[-2:])
    words = str(request["id"]).split("/")
    return f"{words[0]}/{words[min(2, len(words) - 1)]}" if words[0] in _SHARED_ROWS else str(request["id"])


if __name__ == "__main__":
    sys.exit(main())
