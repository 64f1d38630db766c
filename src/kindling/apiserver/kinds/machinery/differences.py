"""Differences between old and new immutable fields, for error messages."""

from __future__ import annotations

import difflib
import json
from typing import Any


def difference(new: Any, old: Any) -> str:
    """A unified diff of both values as indented JSON, which is appended to error messages."""
    before, after = (json.dumps(value, indent=2, sort_keys=True).splitlines() for value in (old, new))
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])
