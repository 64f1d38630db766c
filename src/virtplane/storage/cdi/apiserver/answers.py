"""Refusals in the form that CDI's webhooks give them."""

from __future__ import annotations

from collections.abc import Sequence

from virtplane.serving.responses import DUPLICATE, Cause, Response


class Refused(Exception):
    """Ends a review with a refusal."""

    def __init__(self, response: Response) -> None:
        super().__init__(response)
        self.response = response


def refused(causes: Sequence[Cause]) -> Response:
    """The refusal for these causes. The message has all of theirs, each after a space."""
    message = "".join(f" {cause.message}" for cause in causes)
    details = {"causes": [cause.document() for cause in causes]}
    return Response(False, {"code": 422, "message": message, "details": details})


def refused_update(kind: str) -> Response:
    """The refusal of a change of a spec that must stay."""
    return refused([Cause(f"Cannot update {kind} Spec", f"{kind}.Spec", DUPLICATE)])


def long_name(name: str, longest: int) -> list[Cause]:
    """The cause against a name that is too long."""
    return [Cause(f"Name cannot be longer than {longest} characters")] if len(name) > longest else []
