"""The paths and options of one launcher."""

from __future__ import annotations

import os
import sys

LIBVIRT_SOCKET = "libvirt/libvirt-sock"
"""Below the runtime directory; the monolithic daemon's name, also used with virtqemud."""

MODULAR_SOCKET = "virtqemud-sock"
"""Beside it: the name by which KubeVirt's launchers are asked (``virsh -c qemu+unix:///session?socket=...``)."""

SHARE_DIRECTORY = "/var/run/kubevirt"
CONTROL_SOCKET = "sockets/launcher-sock"
"""Below the shared directory."""

_PAUSED = "agent-probes-paused"

_PROGRAM_FOLDERS = "/usr/sbin:/usr/bin:/sbin:/bin"
_EXIT_USAGE = 2


class Settings:
    """The options of the pod's command line. Directories are mount points of the pod's volumes."""

    def __init__(self, options: dict[str, str]) -> None:
        """Take options by name, without their dashes. Raises KeyError, ValueError."""
        self.name = options["name"]
        self.uid = options["uid"]
        self.namespace = options["namespace"]
        self.share_directory = options.get("kubevirt-share-dir", SHARE_DIRECTORY)
        self.private_directory = options.get("private-dir", "/var/run/kubevirt-private")
        self.runtime_directory = options.get("runtime-dir", "/var/run")
        """``XDG_RUNTIME_DIR`` of the libvirt daemon, which makes ``libvirt/`` in it."""
        self.grace_period_seconds = int(options.get("grace-period-seconds", "30"))
        """Until SIGTERM becomes a power cut."""
        self.simulates_crash = "simulate-crash" in options
        self.stays_after_failure = "keep-after-failure" in options
        """Whether the container runs on when its guest has failed, for somebody to look at it."""
        self.libvirt_log_filters = options.get("libvirt-log-filters", "")

    @property
    def domain(self) -> str:
        """The name of the guest's libvirt domain."""
        return f"{self.namespace}_{self.name}"

    @property
    def control_socket(self) -> str:
        """The path of the control socket once the launcher is ready."""
        return f"{self.share_directory}/{CONTROL_SOCKET}"

    @property
    def initial_socket(self) -> str:
        """The control socket's name before the launcher is ready."""
        return f"{self.share_directory}/sockets/launcher-init-sock"

    @property
    def libvirt_socket(self) -> str:
        """The path of the libvirt daemon's socket."""
        return f"{self.runtime_directory}/{LIBVIRT_SOCKET}"

    @property
    def paused_probes(self) -> str:
        """The path of the file that is there while probes by the guest's agent are paused."""
        return paused_probes(self.libvirt_socket)

    @property
    def home_directory(self) -> str:
        """Home, configuration and data of the libvirt daemon; short, for libvirt puts sockets below it."""
        return self.private_directory

    @property
    def cache_directory(self) -> str:
        """``XDG_CACHE_HOME``: virt-handler puts the node's QEMU capabilities here before libvirt starts."""
        return f"{self.runtime_directory}/libvirt/cache"


def paused_probes(libvirt_socket: str) -> str:
    """The file beside libvirt's socket that is there while probes by the guest's agent are paused."""
    return f"{os.path.dirname(libvirt_socket)}/{_PAUSED}"


def options(arguments: list[str]) -> dict[str, str]:
    """Options and their values: ``--name value``, ``--name=value``, and the empty string for a flag alone."""
    found: dict[str, str] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, _, found_value = word[2:].partition("=")
            found[name] = found_value
        elif name:
            found[name] = word
            name = ""
    return found


def parse(arguments: list[str]) -> Settings:
    """The settings of a command line; exits with code 2 when it is wrong.

    Options that only other implementations act on are accepted.
    """
    try:
        return Settings(options(arguments))
    except KeyError as error:
        sys.stderr.write(f"virt-launcher: --{error.args[0]} is missing\n")
    except ValueError as error:
        sys.stderr.write(f"virt-launcher: {error}\n")
    raise SystemExit(_EXIT_USAGE)


def program(name: str, folders: str = _PROGRAM_FOLDERS) -> str | None:
    """The path of an executable in one of `folders`, which are separated by colons."""
    paths = (os.path.join(folder, name) for folder in folders.split(":") if folder)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def libvirt_daemon() -> str:
    """The QEMU daemon of modular libvirt where it is installed, else the monolithic one."""
    path = program("virtqemud") or program("libvirtd")
    if path is None:
        raise FileNotFoundError("neither virtqemud nor libvirtd is installed in this image")
    return path
