"""Prometheus' own evaluation of rules: the distribution's promtool, unpacked and not installed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kubecore.json import JsonObject
from virtplane.image import distribution
from virtplane.image.commands import BuildError

Samples = Mapping[str, float]
"""Values by series, as Prometheus writes these: ``name{label="value"}``."""


def unpacked(folder: Path) -> Path:
    """promtool in `folder`; skips the test where packages cannot be fetched."""
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)  # apt downloads as a user of its own.
    try:
        debs = distribution.fetch(folder / "debs", ("prometheus",))
    except BuildError as error:
        pytest.skip(f"the distribution's packages cannot be fetched: {error}")
    distribution.unpack([deb for deb in debs if deb.name.startswith("prometheus_")], folder / "tree")
    return folder / "tree/usr/bin/promtool"


@dataclass(frozen=True)
class Prometheus:
    """Rules, and what becomes of them where series have certain values."""

    program: Path
    folder: Path
    rules: Sequence[JsonObject]

    def check(self, series: Mapping[str, str], wanted: Mapping[str, Samples], *, minute: int) -> None:
        """Check the results of queries at a minute; values of series come once a minute (``0+5x60``)."""
        queries = [
            {
                "expr": query,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": name, "value": value} for name, value in samples.items()],
            }
            for query, samples in wanted.items()
        ]
        test = {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": queries,
        }
        rules, tests = self.folder / "rules.json", self.folder / "tests.json"
        rules.write_text(json.dumps({"groups": [{"name": "all", "rules": list(self.rules)}]}))
        tests.write_text(
            json.dumps({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [test]})
        )
        command = [str(self.program), "test", "rules", str(tests)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
