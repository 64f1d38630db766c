"""/version: the Kubernetes release whose API this is."""

from __future__ import annotations

import functools
import hashlib
import platform
from pathlib import Path

from kubecore.json import JsonObject

MAJOR, MINOR, PATCH = 1, 36, 0


def git_version() -> str:
    """The version as clients compare it; the suffix tells which server this is."""
    return f"v{MAJOR}.{MINOR}.{PATCH}+kindling"


def digest_of(package: Path) -> str:
    """Names the code of a package by its sources: 40 hexadecimal digits."""
    digest = hashlib.sha1(usedforsecurity=False)
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode())
        digest.update(hashlib.sha1(path.read_bytes(), usedforsecurity=False).digest())
    return digest.hexdigest()


@functools.cache
def _commit() -> str:
    """Has the form of a commit, which clients check: an installed package knows none, but its sources."""
    return digest_of(Path(__file__).parents[1])


def version_document() -> JsonObject:
    """The version document."""
    return {
        "major": str(MAJOR),
        "minor": str(MINOR),
        "emulationMajor": str(MAJOR),
        "emulationMinor": str(MINOR),
        "minCompatibilityMajor": str(MAJOR),
        "minCompatibilityMinor": str(MINOR - 1),
        "gitVersion": git_version(),
        "gitCommit": _commit(),
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": "linux/amd64" if platform.machine() == "x86_64" else f"linux/{platform.machine()}",
    }
