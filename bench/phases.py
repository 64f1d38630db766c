"""What a sampled server (``bench.profiled``) says about the phases of its requests, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.figures import percentile, say

LOOP = "event loop, TLS, sockets"
SOURCES = (
    ("kindling/apiserver/storage/", "storage"),
    ("kindling/apiserver/registry/encoding", "encode"),
    ("kindling/apiserver/registry/managed", "managed fields"),
    ("kubecore/patch/", "managed fields"),
    ("kindling/apiserver/auth/authentication", "authenticate"),
    ("kindling/apiserver/auth/", "authorize"),
    ("kindling/apiserver/admission/", "admission"),
    ("kindling/apiserver/http/bodies", "decode, prune, default"),
    ("kindling/apiserver/registry/decoding", "decode, prune, default"),
    ("kubecore/schema/", "decode, prune, default"),
    ("kindling/apiserver/kinds/encoding/wire", "decode, prune, default"),
    ("kindling/apiserver/kinds/", "validate, prepare"),
    ("kindling/apiserver/registry/object_meta", "validate, prepare"),
    ("kubecore/objects/meta_validation", "validate, prepare"),
    ("kindling/apiserver/http/metrics", "metrics, audit"),
    ("kindling/apiserver/http/audit", "metrics, audit"),
    ("prometheus_client/", "metrics, audit"),
    ("kindling/apiserver/http/answers", "answer"),
    ("kindling/apiserver/http/watching", "watchers"),
    ("kindling/apiserver/http/connection", "HTTP"),
    ("kindling/apiserver/", "routing, registry"),
    ("aiohttp/http_writer", LOOP),
    ("aiohttp/", "HTTP"),
    ("yarl/", "HTTP"),
    ("uvloop/", LOOP),
)
"""What part of a file's path says about the phase; the first that fits counts."""

OTHER_THREADS = "other threads (journal)"
_NAME_WIDTH, _CELL_WIDTH = 26, 9


@dataclass(frozen=True, slots=True)
class Profile:
    """What was counted during one load."""

    ticks: Mapping[str, int]
    """Samples of the event loop's thread by phase."""
    main_seconds: float
    """CPU time of the event loop's thread."""
    other_seconds: float
    """CPU time of all other threads."""
    waits: Sequence[float]
    """Seconds that each write waited until it was durable."""

    def micros(self, phase: str, count: int) -> float:
        """CPU time of a phase for each of `count` requests, in microseconds."""
        share = self.ticks.get(phase, 0) / max(1, sum(self.ticks.values()))
        return share * self.main_seconds / count * 1e6


def report(profiles: Mapping[str, tuple[Profile, int]]) -> None:
    """Print microseconds of CPU by phase; `profiles` has each load's profile and number of requests."""
    say()
    say(_line("microseconds of CPU each", list(profiles)))
    for phase in dict.fromkeys((LOOP, *(phase for _, phase in SOURCES))):
        cells = [profile.micros(phase, count) for profile, count in profiles.values()]
        if any(round(cell) for cell in cells):
            say(_line(phase, [f"{cell:.0f}" for cell in cells]))
    others = [max(0.0, profile.other_seconds) / count * 1e6 for profile, count in profiles.values()]
    mains = [profile.main_seconds / count * 1e6 for profile, count in profiles.values()]
    say(_line(OTHER_THREADS, [f"{cell:.0f}" for cell in others]))
    say(_line("together", [f"{one + other:.0f}" for one, other in zip(mains, others, strict=True)]))
    waits = [profile.waits for profile, _ in profiles.values()]
    middles = [f"{percentile(each, 0.5) * 1e3:.1f}" if each else "" for each in waits]
    say(_line("until durable, P50 (ms)", middles))


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<{_NAME_WIDTH}}" + "".join(f"{cell:>{_CELL_WIDTH}}" for cell in cells)
