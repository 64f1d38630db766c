"""The Python side of the image: pinned packages, the product's own, and the programs in /usr/bin."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import kubecore
import virtplane
from virtplane.image.commands import BuildError, run

FOLDER = "usr/lib/virtplane"
"""Where the Python packages are, in the image. Not among the distribution's, whose versions differ."""

_LOCK = "requirements.lock"

_PROGRAM = """\
#!/usr/bin/python3
import sys

from {module} import {function}

sys.exit({function}())
"""
_WORKERS = "virtplane.storage.cdi.starting"

# -S: no search for site packages, which the launcher (standard library only) does not need and every guest's
# start would wait for.
_LAUNCHER = f"""\
#!/usr/bin/python3 -S
import sys

sys.path.insert(0, "/{FOLDER}")

from virtplane.compute.launcher.{{module}} import main

sys.exit(main())
"""

PROGRAMS = {
    "cdi-image-size-detection": _PROGRAM.format(module=_WORKERS, function="size_detection"),
    "cdi-source-update-poller": _PROGRAM.format(module=_WORKERS, function="poller"),
    "container-disk": _LAUNCHER.format(module="containerdisk"),
    "kubectl-virt": _PROGRAM.format(module="virtplane.cli.virtctl.main", function="main"),
    "virt-cdi-cloner": _PROGRAM.format(module=_WORKERS, function="cloner"),
    "virt-cdi-importer": _PROGRAM.format(module=_WORKERS, function="importer"),
    "virt-cdi-uploadserver": _PROGRAM.format(module=_WORKERS, function="upload_server"),
    "virt-freezer": _LAUNCHER.format(module="freezer"),
    "virt-launcher": _LAUNCHER.format(module="main"),
    "virt-passt": _LAUNCHER.format(module="virtpasst"),
    "virt-probe": _LAUNCHER.format(module="probe"),
    "virtiofsd": _LAUNCHER.format(module="virtiofsd"),
    "virtctl": _PROGRAM.format(module="virtplane.cli.virtctl.main", function="main"),
    "virtplane": _PROGRAM.format(module="virtplane.cli.main", function="main"),
}


def checkout() -> Path:
    """The checkout that this program runs from. Raises BuildError where it was installed otherwise."""
    root = Path(virtplane.__file__).resolve().parents[2]
    if not (root / _LOCK).is_file():
        raise BuildError(
            "The image can be built only from a checkout.",
            f"There is no {_LOCK} in {root}.",
            "Run ./virtplane image in a clone of the repository.",
        )
    return root


def install_dependencies(lock_root: Path, tree: Path, python: str) -> None:
    """Install the pinned packages for the image's Python (such as 3.11) into `tree`. Raises BuildError."""
    target = tree / FOLDER
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(target), "--python-version", python, "--only-binary", ":all:"]
    # pip's consistency check would look at this environment's packages, not at the image's.
    command += ["--no-compile", "--no-deps", "--requirement", str(lock_root / _LOCK)]
    run(command, "The packages of requirements.lock could not be installed.", "Check pip's configuration.")
    # Scripts that pip installs would start this environment's Python.
    shutil.rmtree(target / "bin", ignore_errors=True)


def install_product(root: Path, tree: Path) -> None:
    """Copy the product's packages and examples into `tree` and write its programs.

    The embedded cluster is left out: the image runs only in an existing cluster.
    """
    target = tree / FOLDER
    skipped = shutil.ignore_patterns("__pycache__", ".*")
    for package in (kubecore, virtplane):
        source = Path(str(package.__file__)).resolve().parent
        shutil.copytree(source, target / source.name, ignore=skipped)
    shutil.copytree(root / "examples", target / "virtplane" / "examples", ignore=skipped)
    programs = tree / "usr/bin"
    programs.mkdir(parents=True)
    for name, text in PROGRAMS.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    path_file = tree / "usr/lib/python3/dist-packages/virtplane.pth"
    path_file.parent.mkdir(parents=True)
    path_file.write_text(f"/{FOLDER}\n")


def compile_python(tree: Path, python: str) -> None:
    """Compile every module below `tree`: the files are read-only later, so that every start would compile
    them again.

    The compiled files do not depend on times. Raises BuildError.
    """
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    if python != here:
        raise BuildError(
            "The image's modules cannot be compiled.",
            f"The distribution's Python is {python}, this one is {here}.",
            "Remove the folder .venv and run this command again.",
        )
    folders = [str(path) for path in sorted((tree / "usr/lib").glob("python3*"))]
    if (tree / FOLDER).is_dir():
        folders.append(str(tree / FOLDER))
    command = [sys.executable, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(tree), "-p", "/", *folders]
    run(command, "The image's Python modules could not be compiled.")
