"""A web server for the files of a folder that sends each slowly: so that there is time to kill who reads.

python -m tests.support.slow_files ADDRESS PORT FOLDER BYTES_PER_SECOND
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from pathlib import Path

from aiohttp import web

_RANGE = re.compile(r"bytes=(\d+)-(\d*)$")
_PIECE = 256 << 10


def application(folder: Path, bytes_per_second: float) -> web.Application:
    """The server; it answers ranges."""

    async def answer(request: web.Request) -> web.StreamResponse:
        path = folder / request.match_info["name"]
        if not path.is_file():
            raise web.HTTPNotFound
        content = path.read_bytes()
        first, last, headers = 0, len(content) - 1, {"Accept-Ranges": "bytes", "ETag": f'"{path.name}"'}
        found = _RANGE.match(request.headers.get("Range", ""))
        if found:
            first, last = int(found[1]), min(int(found[2] or last), last)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        response = web.StreamResponse(status=206 if found else 200, headers=headers)
        response.content_length = last - first + 1
        await response.prepare(request)
        if request.method != "HEAD":
            with contextlib.suppress(ConnectionError):  # who reads is killed
                for place in range(first, last + 1, _PIECE):
                    piece = content[place : min(place + _PIECE, last + 1)]
                    await response.write(piece)
                    await asyncio.sleep(len(piece) / bytes_per_second)
        return response

    made = web.Application()
    made.router.add_route("*", "/{name}", answer)
    return made


def main(address: str, port: str, folder: str, bytes_per_second: str) -> None:
    """Serve until killed."""
    made = application(Path(folder), float(bytes_per_second))
    web.run_app(made, host=address, port=int(port), print=None, access_log=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
