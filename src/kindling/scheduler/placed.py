"""What the scheduler reads of pods that have a node, each once and not for every pod that is to be scheduled.

A tenant may have pods with thousands of containers, and many of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kindling.scheduler import requests, terms
from kindling.scheduler.requests import Amounts, HostPort
from kindling.scheduler.terms import Term
from kubecore.json import JsonObject


@dataclass(frozen=True, slots=True)
class Needs:
    """What a placed pod takes of its node."""

    requested: Amounts
    in_use: Amounts
    """cpu and memory, with defaults for a pod that asks for nothing."""
    ports: tuple[HostPort, ...]


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """What matters of a placed pod to others."""

    needs: Needs
    anti_affinity: tuple[Term, ...]
    """The required terms by which it keeps others away."""
    attraction: tuple[tuple[Term, int], ...]
    """The terms by which it draws others near, or repels them, with weights."""


def read(pod: JsonObject) -> PlacedPod:
    """What matters of a placed pod."""
    requested = requests.of_placed_pod(pod)
    return PlacedPod(
        Needs(requested, requests.at_least_defaults(requested), tuple(requests.host_ports(pod))),
        tuple(terms.required_terms(pod, "podAntiAffinity")),
        terms.attraction(pod),
    )


class Memory:
    """What was read of pods. As objects of caches they never change: a changed pod is another object.

    It forgets what was not asked for between two calls of `turn_page`.
    """

    def __init__(self) -> None:
        self._page: dict[int, tuple[JsonObject, PlacedPod]] = {}
        """By the object's identity, which is its own for as long as it is here."""
        self._page_before: dict[int, tuple[JsonObject, PlacedPod]] = {}

    def read(self, pod: JsonObject) -> PlacedPod:
        """What matters of a placed pod."""
        key = id(pod)
        known = self._page.get(key) or self._page_before.get(key) or (pod, read(pod))
        self._page[key] = known
        return known[1]

    def turn_page(self) -> None:
        """A decision begins."""
        self._page_before, self._page = self._page, {}
