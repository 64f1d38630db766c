"""/livez, /readyz and /healthz with their named checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from ..http import responses
from ..http.call import Call
from ..http.responses import Response

Check = Callable[[], str]
"""Why something is not healthy; empty when it is."""
Page = Callable[[Call], Awaitable[Response | web.StreamResponse]]


class Health:
    """`checks` by endpoint (livez, readyz, healthz), in the order they are reported."""

    def __init__(self, checks: Mapping[str, Mapping[str, Check]]) -> None:
        self._checks = checks

    def page(self, path: str) -> Page | None:
        """The handler of a path, if it is a health endpoint."""
        endpoint, _, name = path.strip("/").partition("/")
        checks = self._checks.get(endpoint)
        if checks is None or (name and name not in checks):
            return None
        chosen = {name: checks[name]} if name else checks

        async def page(call: Call) -> Response:
            return _report(endpoint, chosen, call, single=bool(name))

        return page


def _report(endpoint: str, checks: Mapping[str, Check], call: Call, *, single: bool) -> Response:
    excluded = set(call.query.getall("exclude", []))
    lines: list[str] = []
    failed: list[str] = []
    for name, check in checks.items():
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok\n")
            continue
        problem = check()
        if problem:
            failed.append(name)
            lines.append(f"[-]{name} failed: reason withheld\n")
        else:
            lines.append(f"[+]{name} ok\n")
    unknown = sorted(excluded - checks.keys())
    if unknown:
        listed = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}\n")
    if failed:
        if single:
            return responses.text_response(500, f"internal server error: {failed[0]} failed")
        return responses.text_response(500, f"{''.join(lines)}{endpoint} check failed\n")
    if single or "verbose" not in call.query:
        return responses.text_response(200, "ok")
    return responses.text_response(200, f"{''.join(lines)}{endpoint} check passed\n")
