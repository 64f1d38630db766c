"""What an update changed that it may not change, for the words of a refusal."""

from __future__ import annotations

import difflib
import json
from typing import Any


def difference(new: Any, old: Any) -> str:
    """A unified diff of both as indented JSON, shown after the words of a refusal."""
    before, after = (json.dumps(value, indent=2, sort_keys=True).splitlines() for value in (old, new))
    return "\n".join(list(difflib.unified_diff(before, after, lineterm=""))[2:])
