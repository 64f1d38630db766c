"""The libvirt session daemon: its configuration and its life."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import uuid
from pathlib import Path

from virtplane.compute.launcher.settings import Settings, libvirt_daemon

_FIRST_PASSED_FD = 3

_QEMU_CONFIGURATION = """\
stdio_handler = "file"
security_driver = "none"
namespaces = []
cgroup_controllers = []
remember_owner = 0
max_core = 0
"""

_DAEMON_CONFIGURATION = """\
log_outputs = "{level}:stderr"
host_uuid = "{host}"
max_client_requests = 20
min_workers = 1
prio_workers = 2
"""
# It serves one guest and few callers.

_DRIVER = "libvirt/connection-driver/libvirt_driver_qemu.so"
_LIBRARIES = (Path("/usr/lib"), Path("/usr/lib64"))


class LibvirtDaemon:
    """Starts the daemon with a socket that the launcher made, so that clients may connect at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pid: int | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The daemon's process, or None when it does not run."""
        return self._pid

    def configure(self) -> None:
        """Write the configuration; called once."""
        folder = self._settings.home_directory / "libvirt"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "qemu.conf").write_text(_QEMU_CONFIGURATION)
        level = "1" if os.environ.get("LIBVIRT_DEBUG_LOGS") else "3"
        text = _DAEMON_CONFIGURATION.format(level=level, host=uuid.uuid4())
        for name in ("libvirtd.conf", "virtqemud.conf"):
            (folder / name).write_text(text)
        self._offer_one_driver()
        self._settings.cache_directory.mkdir(parents=True, exist_ok=True)
        self._settings.libvirt_socket.parent.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start the daemon; nothing happens when it runs already."""
        if self._pid is not None:
            return
        program = libvirt_daemon()
        listener = self._listen()
        configuration = self._settings.home_directory / "libvirt" / f"{Path(program).name}.conf"
        # systemd's protocol of socket activation: LISTEN_PID must be the daemon's own, which only a shell
        # that becomes the daemon knows.
        command = ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$0" "$@"', program, "-f", str(configuration)]
        activation = {"LISTEN_FDS": "1", "LISTEN_FDNAMES": f"{Path(program).name}.socket"}
        self._pid = os.posix_spawn(
            command[0],
            command,
            self._environment() | activation,
            file_actions=[(os.POSIX_SPAWN_DUP2, listener.fileno(), _FIRST_PASSED_FD)],
        )

    def reaped(self) -> None:
        """The process was waited for elsewhere (the launcher reaps all children)."""
        self._pid = None

    def terminate(self) -> None:
        """Ask the daemon to end."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)

    def shut_domain_down(self, domain: str) -> None:
        """ACPI shutdown without virt-handler's help; when virsh cannot, the grace period decides."""
        uri = f"qemu+unix:///session?socket={self._settings.libvirt_socket}"
        virsh = shutil.which("virsh")
        if virsh is not None:
            os.posix_spawn(virsh, [virsh, "-q", "-c", uri, "shutdown", domain], self._environment())

    @property
    def _drivers(self) -> Path:
        return self._settings.home_directory / "libvirt" / "drivers"

    def _offer_one_driver(self) -> None:
        """The monolithic daemon loads every driver that it finds, and a launcher needs that of QEMU alone."""
        found = [path for folder in _LIBRARIES for path in (folder / _DRIVER, *folder.glob(f"*/{_DRIVER}"))]
        driver = next((path for path in found if path.exists()), None)
        link = self._drivers / Path(_DRIVER).name
        if driver is not None and not link.is_symlink():
            self._drivers.mkdir(parents=True, exist_ok=True)
            link.symlink_to(driver)

    def _listen(self) -> socket.socket:
        if self._socket is None:
            path = self._settings.libvirt_socket
            path.unlink(missing_ok=True)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind(str(path))
            path.chmod(0o700)
            self._socket.listen(30)
        return self._socket

    def _environment(self) -> dict[str, str]:
        home = str(self._settings.home_directory)
        drivers = {"LIBVIRT_DRIVER_DIR": str(self._drivers)} if self._drivers.is_dir() else {}
        return {
            "PATH": os.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
            "XDG_CACHE_HOME": str(self._settings.cache_directory),
            "XDG_RUNTIME_DIR": str(self._settings.runtime_directory),
            "LC_ALL": "C.UTF-8",
            # A heap for each of its threads would be memory that lies idle; QEMU does not inherit this.
            "MALLOC_ARENA_MAX": "1",
            **drivers,
        }
