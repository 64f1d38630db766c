"""The libvirt session daemon: configuration, start and end."""

from __future__ import annotations

import os
import signal
import socket
import sys

from virtplane.compute.launcher.settings import MODULAR_SOCKET, libvirt_daemon, program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from virtplane.compute.launcher.settings import Settings

_STDERR = 2
_FIRST_PASSED_FD = 3

_QEMU_CONFIGURATION = """\
stdio_handler = "file"
security_driver = "none"
namespaces = []
cgroup_controllers = []
remember_owner = 0
max_core = 0
"""

_ROOT_CONFIGURATION = """\
swtpm_user = "root"
swtpm_group = "root"
"""
# The launcher's image has no account for it.

_DAEMON_CONFIGURATION = """\
log_filters = "{filters}"
log_outputs = "1:stderr"
host_uuid = "{host}"
max_client_requests = 20
min_workers = 1
prio_workers = 2
"""
# Few threads suffice: the daemon serves one guest and few clients.

_DRIVER = "libvirt_driver_qemu.so"
_DRIVERS = "libvirt/connection-driver"
_LIBRARIES = ("/usr/lib", "/usr/lib64")
_PID_FILES = ("libvirt/qemu/run", "libvirt/qemu")
"""Where libvirt keeps a guest's pid, below the runtime directory: for an ordinary user, and for root."""

_PID_BYTES = 32
_QUOTED = 200
_RANDOM_UUID = "/proc/sys/kernel/random/uuid"


_DEBUG, _INFO, _WARNING = 1, 2, 3
"""Levels of libvirt's log."""

_TALKATIVE = ("access", "event", "node_device", "remote", "rpc", "util.dbus", "util.json", "util.object")
"""Parts of libvirt that say nothing of guests when they are debugged, and that thousands of times."""

_FILTER_CHARACTERS = "abcdefghijklmnopqrstuvwxyz0123456789._*+-"


def log_filters(environment: Mapping[str, str], asked: str = "") -> str:
    """What the daemon logs, by the variables of the launcher's container, or as the instance has `asked`.

    `asked` is a list of filters, ``level:part``; a list that the daemon would refuse, and end, is left out.
    """
    words = asked.split()
    if words and all(map(_is_filter, words)):
        return " ".join(words)
    if words:
        sys.stderr.write(
            "virt-launcher: the filters for libvirt's log are left out; they must be like 1:qemu 3:util.json"
            f": {asked[:_QUOTED]!r}\n"
        )
    given = environment.get("VIRT_LAUNCHER_LOG_VERBOSITY", "")
    verbosity = int(given) if len(given) < 3 and given.isdecimal() else 0
    if environment.get("LIBVIRT_DEBUG_LOGS") or verbosity >= 5:
        return " ".join([*(f"{_WARNING}:{part}" for part in _TALKATIVE), f"{_DEBUG}:*"])
    return f"{_INFO if verbosity >= 3 else _WARNING}:*"


def _is_filter(word: str) -> bool:
    level, _, part = word.partition(":")
    return level in ("1", "2", "3", "4") and part != "" and not part.lower().strip(_FILTER_CHARACTERS)


class LibvirtDaemon:
    """Starts the daemon with a socket that the launcher has opened, so that clients can connect at once."""

    def __init__(self, settings: Settings, log: int = _STDERR) -> None:
        """`log` is the descriptor that the daemon logs to."""
        self._settings = settings
        self._log = log
        self._pid: int | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The daemon's process ID; None if it does not run."""
        return self._pid

    @property
    def was_started(self) -> bool:
        """Whether the daemon runs or has run: then there may be a guest, even while the daemon restarts."""
        return self._socket is not None

    def _configure(self) -> None:
        """Write the configuration. virt-handler hands over folders of it before it has the daemon started."""
        folder = f"{self._settings.home_directory}/libvirt"
        os.makedirs(folder, exist_ok=True)
        filters = log_filters(os.environ, self._settings.libvirt_log_filters)
        with open(_RANDOM_UUID, encoding="ascii") as source:
            text = _DAEMON_CONFIGURATION.format(filters=filters, host=source.read().strip())
        emulator = _QEMU_CONFIGURATION + (_ROOT_CONFIGURATION if os.geteuid() == 0 else "")
        texts = {"qemu.conf": emulator, "libvirtd.conf": text, "virtqemud.conf": text}
        for name, content in texts.items():
            with open(f"{folder}/{name}", "w", encoding="utf-8") as target:
                target.write(content)
        self._offer_one_driver()
        os.makedirs(self._settings.cache_directory, exist_ok=True)
        os.makedirs(os.path.dirname(self._settings.libvirt_socket), exist_ok=True)

    def start(self) -> None:
        """Start the daemon unless it runs."""
        if self._pid is not None:
            return
        if self._socket is None:
            self._configure()
        daemon = libvirt_daemon()
        name = os.path.basename(daemon)
        listener = self._listen()
        configuration = f"{self._settings.home_directory}/libvirt/{name}.conf"
        # systemd's protocol of socket activation: LISTEN_PID must be the daemon's own, which only a shell
        # that becomes the daemon knows.
        command = ["/bin/sh", "-c", 'export LISTEN_PID=$$; exec "$0" "$@"', daemon, "-f", configuration]
        activation = {"LISTEN_FDS": "1", "LISTEN_FDNAMES": f"{name}.socket"}
        self._pid = os.posix_spawn(
            command[0],
            command,
            self._environment() | activation,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, self._log, _STDERR),
                (os.POSIX_SPAWN_DUP2, listener.fileno(), _FIRST_PASSED_FD),
            ],
        )

    def reaped(self) -> None:
        """Record that the daemon has ended (the launcher reaps all children)."""
        self._pid = None

    def terminate(self) -> None:
        """Send SIGTERM to the daemon."""
        if self._pid is not None:
            os.kill(self._pid, signal.SIGTERM)

    def guest_pid(self) -> int | None:
        """The process ID of QEMU, whose parent is the launcher; None if no guest runs."""
        for folder in _PID_FILES:
            path = f"{self._settings.runtime_directory}/{folder}/{self._settings.domain}.pid"
            try:
                # Do not block, whatever kind of file is there.
                descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    return int(os.read(descriptor, _PID_BYTES))
                finally:
                    os.close(descriptor)
            except (OSError, ValueError):
                continue  # libvirt has not written the file yet, or has removed it when the guest ended
        return None

    def shut_domain_down(self) -> int | None:
        """Begin an ACPI shutdown without virt-handler's help: the process that asks, None without virsh.

        When it cannot, the grace period decides.
        """
        uri = f"qemu+unix:///session?socket={self._settings.libvirt_socket}"
        virsh = program("virsh")
        if virsh is None:
            return None
        command = [virsh, "-q", "-c", uri, "shutdown", self._settings.domain]
        return os.posix_spawn(virsh, command, self._environment())

    @property
    def _drivers(self) -> str:
        return f"{self._settings.home_directory}/libvirt/drivers"

    def _offer_one_driver(self) -> None:
        """Provide only QEMU's driver: the monolithic daemon loads every driver that it finds."""
        driver = next(filter(os.path.exists, _driver_places()), None)
        link = f"{self._drivers}/{_DRIVER}"
        if driver is not None and not os.path.islink(link):
            os.makedirs(self._drivers, exist_ok=True)
            os.symlink(driver, link)

    def _listen(self) -> socket.socket:
        if self._socket is None:
            path = self._settings.libvirt_socket
            if os.path.lexists(path):
                os.unlink(path)
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.bind(path)
            os.chmod(path, 0o700)
            self._socket.listen(30)
            self._link(path)
        return self._socket

    def _link(self, path: str) -> None:
        """Let clients that look for the other kind of daemon, as people's ``virsh`` does, find this one."""
        other = f"{os.path.dirname(path)}/{MODULAR_SOCKET}"
        if os.path.lexists(other):
            os.unlink(other)
        os.symlink(os.path.basename(path), other)

    def _environment(self) -> dict[str, str]:
        home = self._settings.home_directory
        drivers = {"LIBVIRT_DRIVER_DIR": self._drivers} if os.path.isdir(self._drivers) else {}
        return {
            "PATH": os.environ.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            "HOME": home,
            "XDG_CONFIG_HOME": home,
            "XDG_DATA_HOME": home,
            "XDG_CACHE_HOME": self._settings.cache_directory,
            "XDG_RUNTIME_DIR": self._settings.runtime_directory,
            "LC_ALL": "C.UTF-8",
            # Limit malloc to few arenas: one for each thread wastes memory. QEMU does not inherit this.
            "MALLOC_ARENA_MAX": "1",
            **drivers,
        }


def _driver_places() -> list[str]:
    """The directories in which distributions install libvirt's drivers, with or without an architecture."""
    places = []
    for folder in filter(os.path.isdir, _LIBRARIES):
        inside = [folder, *(f"{folder}/{name}" for name in sorted(os.listdir(folder)) if "-linux-" in name)]
        places += [f"{each}/{_DRIVERS}/{_DRIVER}" for each in inside]
    return places
