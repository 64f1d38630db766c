"""The words of others, who are not trusted, as statuses, events and logs can hold them."""

from __future__ import annotations

MOST = 1024
"""Characters of one text; events have no more."""
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_LAYOUT = "\n\t"


def repeatable(said: object) -> str:
    """A text of which an end that is too long is cut off, without what terminals obey or JSON cannot hold."""
    text = str(said)
    shown = "".join(each if each.isprintable() or each in _LAYOUT else _UNKNOWN for each in text[:MOST])
    return shown if len(text) <= MOST else f"{shown[: MOST - 3]}..."
