"""The script ``./virtplane`` on systems that lack something. Programs of the system are stand-ins."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "virtplane"
_TOOLS = ("sh", "cat", "cksum", "cut", "dirname", "readlink", "id", "grep", "env", "tail", "mktemp", "rm")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without environment, and a folder `bin` with the few programs that the script may find."""
    (tmp_path / "bin").mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tmp_path / "bin" / tool).symlink_to(found)
    root = tmp_path / "checkout"
    root.mkdir()
    shutil.copy(SCRIPT, root / "virtplane")
    for name in ("pyproject.toml", "requirements.lock", "requirements-dev.lock"):
        (root / name).touch()
    schemas = root / "src/kindling/apiserver/kinds/schemas"
    schemas.mkdir(parents=True)
    for module in ("definitions.py", "data_file.py"):
        (schemas / module).touch()
    return root


def _program(checkout: Path, name: str, text: str) -> None:
    path = checkout.parent / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _environment(checkout: Path) -> Path:
    """An installed environment whose Python only says what it was asked."""
    python = checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "python $*"\nexit 5\n')
    python.chmod(0o755)
    return python


def _run(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = str(checkout.parent / "bin")
    return subprocess.run(
        [str(checkout / "virtplane"), *arguments],
        cwd=checkout,
        env={"PATH": path, "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_on_an_unknown_system_the_missing_packages_are_listed(checkout: Path) -> None:
    done = _run(checkout, "up")
    assert done.returncode == 2
    assert "only on Debian 12, Debian 13 and Ubuntu 24.04" in done.stderr
    assert "qemu-system-x86" in done.stderr and "containerd" in done.stderr
    assert all(line.startswith("virtplane: ") for line in done.stderr.splitlines())


def test_packages_are_installed_by_root_alone(checkout: Path) -> None:
    if "ID=debian" not in Path("/etc/os-release").read_text():
        pytest.skip("the script reads this system's /etc/os-release")
    _program(checkout, "dpkg-query", "exit 1")
    _program(checkout, "id", "echo 1000")
    done = _run(checkout, "up")
    assert done.returncode == 3
    assert "as root, or through sudo" in done.stderr


def test_what_apt_said_is_shown_when_it_fails(checkout: Path) -> None:
    if "ID=debian" not in Path("/etc/os-release").read_text():
        pytest.skip("the script reads this system's /etc/os-release")
    _program(checkout, "dpkg-query", "exit 1")
    _program(checkout, "id", "echo 0")
    _program(checkout, "apt-get", "echo no route to the mirror; exit 100")
    done = _run(checkout, "up")
    assert done.returncode == 2
    assert "no route to the mirror" in done.stderr
    assert "apt-get could not install:" in done.stderr


def _installed(checkout: Path) -> None:
    """The stamp of an environment that is up to date."""
    fingerprint = subprocess.run(
        "cat virtplane pyproject.toml requirements.lock requirements-dev.lock"
        " src/kindling/apiserver/kinds/schemas/definitions.py"
        " src/kindling/apiserver/kinds/schemas/data_file.py"
        " | cksum | cut -d ' ' -f 1",
        shell=True,
        cwd=checkout,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (checkout / f".venv/.installed-run-{fingerprint}").touch()


def test_an_installed_environment_is_used_as_it_is(checkout: Path) -> None:
    _environment(checkout)
    _installed(checkout)
    (checkout / "src/kindling/apiserver/kinds/schemas/definitions.bin").touch()
    done = _run(checkout, "status", "--state", "/x")
    assert (done.returncode, done.stdout) == (5, "python -m virtplane.cli.main status --state /x\n")


def test_missing_definitions_are_made_although_the_environment_is_installed(checkout: Path) -> None:
    _environment(checkout).write_text(
        "#!/bin/sh\n"
        "case $2 in *.definitions) : >src/kindling/apiserver/kinds/schemas/definitions.bin ;; esac\n"
        'echo "python $*" >>calls\n'
    )
    _installed(checkout)
    for _ in range(2):
        done = _run(checkout, "status")
        assert done.returncode == 0, done.stderr
    assert (checkout / "calls").read_text().splitlines() == [
        "python -m kindling.apiserver.kinds.schemas.definitions",
        "python -m virtplane.cli.main status",
        "python -m virtplane.cli.main status",
    ]


def test_the_sources_of_an_updated_checkout_are_compiled_before_pods_start_from_them(checkout: Path) -> None:
    _environment(checkout).write_text('#!/bin/sh\necho "python $*" >>calls\n')
    _installed(checkout)
    (checkout / "src/kindling/apiserver/kinds/schemas/definitions.bin").touch()
    for command in ("up", "status"):
        assert _run(checkout, command).returncode == 0
    assert (checkout / "calls").read_text().splitlines() == [
        f"python -m compileall -q {checkout}/src",
        "python -m virtplane.cli.main up",
        "python -m virtplane.cli.main status",
    ]


@pytest.mark.parametrize(
    "arguments",
    [(), ("--help",), ("--version",), ("test", "--help"), ("up", "-h"), ("install", "--help")],
    ids=" ".join,
)
def test_help_installs_nothing_and_needs_nothing(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """With the real sources, an interpreter without libraries, and programs that would tell on the script."""
    root = tmp_path / "checkout"
    root.mkdir()
    shutil.copy(SCRIPT, root / "virtplane")
    (root / "src").symlink_to(SCRIPT.parent / "src")
    (tmp_path / "bin").mkdir()
    for tool in ("sh", "dirname", "readlink", "env"):
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    for tool in ("apt-get", "dpkg-query", "pip"):
        program = tmp_path / "bin" / tool
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/touched\nexit 1\n")
        program.chmod(0o755)
    done = subprocess.run(
        [str(root / "virtplane"), *arguments],
        env={"PATH": str(tmp_path / "bin"), "HOME": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "virtplane" in done.stdout and "Traceback" not in done.stdout + done.stderr
    assert not (root / ".venv").exists() and not (tmp_path / "touched").exists()


def test_the_script_works_through_a_link(checkout: Path) -> None:
    link = checkout.parent / "virtplane"
    link.symlink_to("checkout/virtplane")
    done = subprocess.run(
        [str(link), "up"],
        env={"PATH": str(checkout.parent / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "only on Debian 12" in done.stderr


def test_every_program_of_the_project_is_in_the_environment() -> None:
    """A launcher whose image lacks one refuses its guest."""
    wanted = tomllib.loads((SCRIPT.parent / "pyproject.toml").read_text())["project"]["scripts"]
    installed = {path.name for path in Path(sysconfig.get_path("scripts")).iterdir()}
    assert set(wanted) - installed == set()
