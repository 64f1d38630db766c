"""How the check of generated requests divides them, and what it holds against the floor."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.atlas import Score, is_set_aside, judge, split, total


def request(name: str, area: str = "pod") -> dict[str, Any]:
    return {"id": name, "area": area}


def test_all_changes_of_a_field_are_on_one_side() -> None:
    for field in ("image", "name", "ports", "stdin", "tty"):
        sides = {
            is_set_aside(request(f"{kind}/{path}containers[].{field}/{change}"))
            for kind, path in (("Pod", "spec."), ("Job", "spec.template.spec."))
            for change in ("removed", "empty", "null + spec.other/removed")
        }
        assert len(sides) == 1
    rows = {
        is_set_aside(request(f"cel/{what}/str7{value}", "cel"))
        for what, value in [("rule", ""), ("value", "/3")]
    }
    assert len(rows) == 1
    fields = {is_set_aside({"name": name, "field": "spec.domain.cpu"}) for name in ("vm/a", "vmi/b")}
    assert len(fields) == 1


def test_about_a_third_is_set_aside() -> None:
    aside = sum(is_set_aside(request(f"Pod/spec.field{number}/removed")) for number in range(900))
    assert 250 < aside < 350


def test_both_parts_keep_what_their_requests_need(tmp_path: Path) -> None:
    lines = [{"fixtures": []}, *(request(f"Pod/spec.field{number}/empty") for number in range(30))]
    corpus = tmp_path / "kubernetes-pod.jsonl.gz"
    corpus.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    made = split([corpus], tmp_path)
    found = []
    for (path,) in made.values():
        first, *rest = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
        assert first == {"fixtures": []}
        found += [each["id"] for each in rest]
    assert sorted(found) == sorted(each["id"] for each in lines[1:])


def test_a_part_below_its_floor_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    floor = {"atlas-kubevirt-shown": 7, "atlas-kubevirt-set-aside": 3}
    scores = {"shown": Score(7, 9), "set-aside": Score(3, 4)}
    assert judge("kubevirt", scores, floor)
    assert not judge("kubevirt", {**scores, "set-aside": Score(2, 4)}, floor)
    assert "set-aside: 2 of 4 (50.0 %), but 3 must be the same" in capsys.readouterr().out


def test_both_programs_counts_are_understood() -> None:
    assert total({"areas": {"vm": [3, 4], "vmi": [1, 1]}}) == Score(4, 5)
    assert total({"areas": {"pod": {"passed": 3, "of": 4}}}) == Score(3, 4)
