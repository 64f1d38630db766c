"""What holds for every file of the repository."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("kubecore", "kindling", "virtplane")
_LONGEST_MODULE = 800
_LONGEST_INIT = 80
_FOREIGN = re.compile(
    "|".join(
        (
            r"(?<![\w.])/(?:work|farm)/",  # paths of one machine
            r"--(?:extra-)?index-url",
            r"https?://[a-z.-]*(?:debian|ubuntu|pypi|pythonhosted|npmjs)\.[a-z]",
            r"proxy\.golang",
        )
    )
)
"""Names that hold on one machine or for one mirror only; the expression does not match itself."""

_BINARY = {".png", ".ico", ".gz", ".tar", ".img"}


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the repository; without git, those of the folders that matter."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
        found = [ROOT / name for name in listed.split("\0") if name]
    else:
        folders = ("src", "tests", "docs", "examples", "bench", ".ci")
        found = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    return tuple(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def modules(folder: str = "") -> Iterator[Path]:
    """Python files below a folder."""
    return (path for path in tracked() if path.suffix == ".py" and path.is_relative_to(ROOT / folder))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_file_names_a_machine_or_a_mirror() -> None:
    found = [
        f"{_name(path)}:{number}: {line.strip()[:80]}"
        for path in tracked()
        if path.suffix not in _BINARY
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if _FOREIGN.search(line)
    ]
    assert found == []


def test_the_rule_about_machines_and_mirrors_finds_them() -> None:
    # Put together here, because this file must pass as well.
    for parts in (("see /wo", "rk/main"), ("pip --index", "-url x"), ("https://deb.deb", "ian.org/x")):
        assert _FOREIGN.search("".join(parts)), parts
    for text in ("a framework/main", "the network/rules.py", "https://kubernetes.io/docs"):
        assert not _FOREIGN.search(text), text


def test_every_module_says_what_it_is_for() -> None:
    begins = re.compile(r'(?:#[^\n]*\n|\s)*r?"""\s*\S')
    assert [_name(path) for path in modules() if not begins.match(path.read_text())] == []


def test_no_module_is_too_long() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > _LONGEST_MODULE} == {}


def test_packages_are_prose_and_names_from_inside() -> None:
    """An __init__ explains its package; beside that it re-exports, and at most puts its modules together."""
    for path in modules("src"):
        if path.name != "__init__.py":
            continue
        text = path.read_text()
        nodes = ast.parse(text).body
        assert ast.get_docstring(ast.parse(text)), _name(path)
        assert not any(isinstance(node, ast.ClassDef) for node in nodes), _name(path)
        assert sum(isinstance(node, ast.FunctionDef) for node in nodes) <= 1, _name(path)
        assert len(text.splitlines()) <= _LONGEST_INIT, _name(path)


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in modules("src")}
    assert [_name(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    empty = {"utils.py", "util.py", "common.py", "misc.py", "helpers.py", "helper.py"}
    assert [_name(path) for path in modules() if path.name in empty] == []


def test_nothing_is_put_off_or_swallowed() -> None:
    marks = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b|^\s*except:\s*$", re.MULTILINE)
    assert [_name(path) for path in modules("src") if marks.search(path.read_text())] == []


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_complete_objects(path: Path) -> None:
    documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    assert documents
    for document in documents:
        content = {"ConfigMap": "data", "Secret": "stringData"}.get(document["kind"], "spec")
        assert {"apiVersion", "kind", "metadata", content} <= set(document)
        assert document["metadata"]["name"]


def test_there_are_examples() -> None:
    assert list((ROOT / "examples").glob("*.yaml"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"])
def test_documents_are_there(name: str) -> None:
    assert (ROOT / name).read_text().strip()


def test_the_changelog_has_a_section_for_what_is_not_released() -> None:
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()


def test_links_of_documents_lead_somewhere() -> None:
    broken = [
        f"{_name(path)}: {target}"
        for path in tracked()
        if path.suffix == ".md"
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert broken == []


def test_decisions_are_numbered_without_gaps() -> None:
    folder = ROOT / "docs/decisions"
    decisions = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:3]) for name in decisions] == list(range(1, len(decisions) + 1))


def test_every_decision_has_one_line_in_their_index() -> None:
    folder = ROOT / "docs/decisions"
    listed = re.findall(
        r"^\| \[(\d{3})\]\((\S+\.md)\) \| .+ \| .+\. \|$", (folder / "README.md").read_text(), re.M
    )
    there = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert listed == [(name[:3], name) for name in there]


_SCRIPTS = [ROOT / "virtplane", ROOT / ".ci/run"]


@pytest.mark.parametrize("path", _SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_executable_and_parse(path: Path) -> None:
    assert path.stat().st_mode & 0o111
    first = path.read_text().splitlines()[0]
    shell = "bash" if "bash" in first else "sh"
    done = subprocess.run([shell, "-n", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("path", _SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_finds_nothing_in_scripts(path: Path) -> None:
    done = subprocess.run(["shellcheck", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
