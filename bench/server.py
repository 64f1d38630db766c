"""An API server of its own for measurements: TLS, RBAC and synchronous writes on, on the first core."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

from bench.phases import Profile
from bench.wire import Connection

PORT = 16443
TOKEN, ADMIN_TOKEN = "bench-token", "admin-token"
_CONNECTIONS = 16
_SERVER_CORE = 0


class Server:
    """An API server of its own in `folder`."""

    def __init__(self, folder: Path, *, profiled: bool = False) -> None:
        self._folder = folder
        self._profile = folder / "profile" if profiled else None
        self._process: asyncio.subprocess.Process | None = None
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        tokens = f'{TOKEN},bench,1,"benchers"\n{ADMIN_TOKEN},admin,2,"system:masters"\n'
        (folder / "tokens.csv").write_text(tokens)
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
        command += ["-nodes", "-subj", "/CN=bench", "-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)

    async def start(self) -> float:
        """Seconds until ``/readyz`` says yes."""
        begun = time.monotonic()
        options = {"state-dir": self._folder, "token-file": self._folder / "tokens.csv", "port": PORT}
        options |= {"tls-cert": self._folder / "cert.pem", "tls-key": self._folder / "key.pem"}
        command = [sys.executable, "-m", "kindling.apiserver.main", "--bind=127.0.0.1"]
        if self._profile is not None:
            command[2:3] = ["bench.profiled", str(self._profile)]
        with (self._folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("taskset", "-c", str(_SERVER_CORE)),
                *command,
                *(f"--{name}={value}" for name, value in options.items()),
                stderr=log,
                stdout=log,
            )
        while True:
            if self._process.returncode is not None:
                raise RuntimeError((self._folder / "log").read_text()[-2000:])
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                connection = await self.connect(ADMIN_TOKEN)
                status, _ = await connection.request("GET", "/readyz")
                connection.close()
                if status == 200:
                    return time.monotonic() - begun
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            await self._process.wait()
            self._process = None

    async def connect(self, token: str = TOKEN) -> Connection:
        """One more connection."""
        return await Connection.open(PORT, token, self.context)

    @contextlib.asynccontextmanager
    async def connections(self) -> AsyncIterator[list[Connection]]:
        """The sixteen."""
        made = [await self.connect() for _ in range(_CONNECTIONS)]
        try:
            yield made
        finally:
            for each in made:
                each.close()

    @property
    def profiled(self) -> bool:
        """Whether it has a sampler in it."""
        return self._profile is not None

    async def profile(self) -> Profile:
        """What the sampler counted since it was last asked."""
        assert self._process is not None and self._profile is not None
        self._profile.unlink(missing_ok=True)
        self._process.send_signal(signal.SIGUSR1)
        for _ in range(100):
            await asyncio.sleep(0.05)
            if self._profile.exists():
                return Profile(**json.loads(self._profile.read_text()))
        raise RuntimeError("the sampler does not answer")

    def rss(self) -> float:
        """Resident MiB."""
        assert self._process is not None
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0
