"""/version: the Kubernetes release whose API this is."""

from __future__ import annotations

import platform

from kubecore.json import JsonObject

MAJOR, MINOR, PATCH = 1, 36, 0


def git_version() -> str:
    """The version as clients compare it; the suffix tells which server this is."""
    return f"v{MAJOR}.{MINOR}.{PATCH}+kindling"


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
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{platform.python_version()}",
        "compiler": platform.python_implementation().lower(),
        "platform": "linux/amd64" if platform.machine() == "x86_64" else f"linux/{platform.machine()}",
    }
