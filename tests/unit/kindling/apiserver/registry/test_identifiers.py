"""Identifiers of objects and requests."""

from __future__ import annotations

import uuid

from kindling.apiserver.registry.identifiers import new_uuid


def test_identifiers_are_random_uuids_in_their_usual_form() -> None:
    made = [new_uuid() for _ in range(2000)]
    assert len(set(made)) == len(made)
    for text in made:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)
