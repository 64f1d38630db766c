"""What is said of a machine's status."""

from __future__ import annotations

from dataclasses import dataclass

from kubecore.json import JsonObject


@dataclass(frozen=True, slots=True)
class Change:
    """A field, what it says now, and what to do about it."""

    field: str
    value: str
    advice: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One sentence, the fields to change, and the numbers behind the sentence."""

    sentence: str
    changes: tuple[Change, ...] = ()
    numbers: tuple[str, ...] = ()

    def document(self, name: str, status: str) -> JsonObject:
        """The answer for programs."""
        return {
            "name": name,
            "status": status,
            "sentence": self.sentence,
            "changes": [
                {"field": each.field, "value": each.value, "advice": each.advice} for each in self.changes
            ],
            "numbers": list(self.numbers),
        }

    def lines(self, name: str, status: str) -> list[str]:
        """The answer for people."""
        found = [f"{name} ({status}): {self.sentence}"]
        for each in self.changes:
            value = f" is {each.value}" if each.value else ""
            found += [f"  field:   {each.field}{value}", f"  change:  {each.advice}"]
        found += [f"  numbers: {each}" for each in self.numbers]
        return [line.replace("\n", " ") for line in found]


def size(count: int) -> str:
    """Bytes for people: ``3.1Gi``."""
    for unit, name in ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")):
        if abs(count) >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + name
    return str(count)


def amount(resource: str, count: int) -> str:
    """An amount of a resource as `room` counts it, for people."""
    if resource == "cpu":
        return f"{count / 1000:g}"
    is_size = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return size(count) if is_size else str(count)
