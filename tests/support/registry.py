"""A registry with one image, for those with the password: ``python -m tests.support.registry ARCHIVE``.

It listens on 127.0.0.1 of the network namespace it is started in, and prints its port.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tarfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO

USER, PASSWORD = "reader", "s3cret"
_CREDENTIALS = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"


def server(archive: Path, architecture: str = "") -> ThreadingHTTPServer:
    """The registry with the image of an OCI archive, under any name and tag.

    With `architecture` it is an index that has the image for that one alone.
    """
    with tarfile.open(archive) as tar:
        blobs = {
            "sha256:" + Path(name).name: _file(tar, name).read()
            for name in tar.getnames()
            if name.startswith("blobs/sha256/")
        }
        entry = json.load(_file(tar, "index.json"))["manifests"][0]
    first, kinds = entry["digest"], {entry["digest"]: _MANIFEST}
    if architecture:
        only = {name: entry[name] for name in ("mediaType", "digest", "size")}
        only["platform"] = {"architecture": architecture, "os": "linux"}
        index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [only]}).encode()
        first = f"sha256:{hashlib.sha256(index).hexdigest()}"
        blobs[first], kinds[first] = index, _INDEX

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[1].split("?")[0]
            digest = name if name.startswith("sha256:") else first
            if self.headers.get("Authorization") != f"Basic {_CREDENTIALS}":
                self._answer(401, {"WWW-Authenticate": 'Basic realm="registry"'}, b"")
                return
            kind = kinds.get(digest, "application/octet-stream")
            self._answer(200, {"Content-Type": kind, "Docker-Content-Digest": digest}, blobs[digest])

        do_HEAD = do_GET

        def _answer(self, code: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def _file(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    found = tar.extractfile(name)
    assert found is not None, name
    return found


def main() -> None:
    """Serve until killed."""
    registry = server(Path(sys.argv[1]))
    sys.stdout.write(f"{registry.server_port}\n")
    sys.stdout.flush()
    registry.serve_forever()


if __name__ == "__main__":
    main()
