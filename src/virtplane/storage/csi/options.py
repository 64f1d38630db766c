"""The command line of ``virtplane csi``: the flags of kubernetes-csi's sidecars, under their names.

A flag is accepted where one of the parts that are asked for has it; everything else is an error. Some flags
have another default for each part; given once, they hold for all of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubecore.objects.durations import seconds_of

PROVISIONER, ATTACHER, RESIZER = "provisioner", "attacher", "resizer"
SNAPSHOTTER, REGISTRAR, LIVENESS = "snapshotter", "registrar", "liveness"
PARTS = (PROVISIONER, ATTACHER, RESIZER, SNAPSHOTTER, REGISTRAR, LIVENESS)
CONTROLLERS = PARTS[:4]
"""The parts that speak with the API server."""

GATES: Mapping[str, Mapping[str, bool]] = {
    PROVISIONER: {
        "Topology": True,
        "CrossNamespaceVolumeDataSource": False,
        "VolumeAttributesClass": True,
        "ReleaseLeaderElectionOnExit": True,
    },
    ATTACHER: {"ReleaseLeaderElectionOnExit": True, "MutableCSINodeAllocatableCount": False},
    RESIZER: {
        "AnnotateFsResize": True,
        "RecoverVolumeExpansionFailure": True,
        "VolumeAttributesClass": False,
        "ReleaseLeaderElectionOnExit": True,
    },
    SNAPSHOTTER: {"CSIVolumeGroupSnapshot": False, "ReleaseLeaderElectionOnExit": True},
}
"""Feature gates by part, and what holds here unless the gate says otherwise."""
_SETTABLE = frozenset({"Topology", "CrossNamespaceVolumeDataSource", "CSIVolumeGroupSnapshot"})
"""Gates that may be turned; the others are as they are."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag: the parts that have it, with their defaults, and how its text is read."""

    name: str
    kind: str
    defaults: Mapping[str, Any]
    has_effect: bool = True
    """False for what tunes a program that works otherwise; it is said at the start."""


def _for(parts: Sequence[str], value: Any) -> dict[str, Any]:
    return dict.fromkeys(parts, value)


_P, _A, _R, _S = (PROVISIONER,), (ATTACHER,), (RESIZER,), (SNAPSHOTTER,)
FLAGS: tuple[Flag, ...] = (
    Flag("csi-address", "text", _for(PARTS, "/run/csi/socket")),
    Flag("kubeconfig", "text", _for(CONTROLLERS, "")),
    Flag("timeout", "seconds", {PROVISIONER: 10.0, ATTACHER: 15.0, RESIZER: 10.0, SNAPSHOTTER: 60.0}),
    Flag("worker-threads", "count", {PROVISIONER: 100, ATTACHER: 10, SNAPSHOTTER: 10}),
    Flag("workers", "count", _for(_R, 10)),
    Flag("retry-interval-start", "seconds", _for(CONTROLLERS, 1.0)),
    Flag("retry-interval-max", "seconds", _for(CONTROLLERS, 300.0)),
    Flag("feature-gates", "gates", _for(CONTROLLERS, "")),
    Flag("leader-election", "switch", _for(CONTROLLERS, False)),
    Flag("leader-election-namespace", "text", _for(CONTROLLERS, "")),
    Flag("leader-election-lease-duration", "seconds", _for(CONTROLLERS, 15.0)),
    Flag("leader-election-renew-deadline", "seconds", _for(CONTROLLERS, 10.0)),
    Flag("leader-election-retry-period", "seconds", _for(CONTROLLERS, 5.0)),
    Flag("http-endpoint", "endpoint", _for((*CONTROLLERS, REGISTRAR, LIVENESS), "")),
    Flag("metrics-path", "text", _for(CONTROLLERS, "/metrics"), has_effect=False),
    Flag("kube-api-qps", "number", _for(CONTROLLERS, 5.0), has_effect=False),
    Flag("kube-api-burst", "count", _for(CONTROLLERS, 10), has_effect=False),
    Flag("kube-api-capacity-qps", "number", _for(_P, 1.0), has_effect=False),
    Flag("kube-api-capacity-burst", "count", _for(_P, 5), has_effect=False),
    Flag("resync", "seconds", _for(_A, 600.0), has_effect=False),
    Flag("resync-period", "seconds", _for((*_R, *_S), 600.0), has_effect=False),
    Flag("v", "count", _for(PARTS, 0), has_effect=False),
    Flag("default-fstype", "text", _for((*_P, *_A), "")),
    Flag("volume-name-prefix", "text", _for(_P, "pvc")),
    Flag("volume-name-uuid-length", "length", _for(_P, -1)),
    Flag("strict-topology", "switch", _for(_P, False)),
    Flag("immediate-topology", "switch", _for(_P, True)),
    Flag("extra-create-metadata", "switch", _for((*_P, *_S), False)),
    Flag("controller-publish-readonly", "switch", _for(_P, False)),
    Flag("prevent-volume-mode-conversion", "switch", _for(_P, True)),
    Flag("cloning-protection-threads", "count", _for(_P, 1), has_effect=False),
    Flag("snapshot-orphan-sweep-interval", "seconds", _for(_P, 300.0)),
    Flag("enable-capacity", "switch", _for(_P, False)),
    Flag("capacity-threads", "count", _for(_P, 1), has_effect=False),
    Flag("capacity-ownerref-level", "length", _for(_P, 1)),
    Flag("capacity-poll-interval", "seconds", _for(_P, 60.0)),
    Flag("capacity-for-immediate-binding", "switch", _for(_P, False)),
    Flag("node-deployment", "switch", _for((*_P, *_S), False)),
    Flag("node-deployment-immediate-binding", "switch", _for(_P, True)),
    Flag("node-deployment-base-delay", "seconds", _for(_P, 20.0)),
    Flag("node-deployment-max-delay", "seconds", _for(_P, 60.0)),
    Flag("reconcile-sync", "seconds", _for(_A, 60.0)),
    Flag("max-entries", "count", _for(_A, 0)),
    Flag("handle-volume-inuse-error", "switch", _for(_R, True)),
    Flag("snapshot-name-prefix", "text", _for(_S, "snapshot")),
    Flag("snapshot-name-uuid-length", "length", _for(_S, -1)),
    Flag("groupsnapshot-name-prefix", "text", _for(_S, "groupsnapshot")),
    Flag("groupsnapshot-name-uuid-length", "length", _for(_S, -1)),
    Flag("kubelet-registration-path", "text", _for((REGISTRAR,), "")),
    Flag("plugin-registration-path", "text", _for((REGISTRAR,), "/registration")),
    Flag("health-port", "count", _for((LIVENESS,), 9808)),
    Flag("probe-timeout", "seconds", _for((LIVENESS,), 1.0)),
)


@dataclass(frozen=True, slots=True)
class Options:
    """The parts that are asked for, and what was given."""

    parts: tuple[str, ...]
    given: Mapping[str, Any] = field(default_factory=dict)
    """Values of the flags that were on the command line."""

    def of(self, part: str, name: str) -> Any:
        """The value of a flag for a part: what was given, or the part's default."""
        flag = _BY_NAME[name]
        return self.given.get(name, flag.defaults[part])

    def any(self, name: str) -> Any:
        """The value of a flag that is the same for all parts."""
        flag = _BY_NAME[name]
        return self.given.get(name, next(iter(flag.defaults.values())))

    def gate(self, part: str, name: str) -> bool:
        """Whether a feature is on."""
        gates: Mapping[str, bool] = self.given.get("feature-gates", {})
        return gates.get(name, GATES[part][name])

    @property
    def without_effect(self) -> list[str]:
        """The flags that were given and change nothing here."""
        return [f"--{name}" for name in self.given if not _BY_NAME[name].has_effect]


_BY_NAME: Mapping[str, Flag] = {flag.name: flag for flag in FLAGS}
_TRUE, _FALSE = frozenset({"1", "t", "true"}), frozenset({"0", "f", "false"})


def parse(argv: Sequence[str]) -> Options:
    """Read the command line; exits with status 2 where it makes no sense."""
    parser = argparse.ArgumentParser(
        prog="virtplane csi",
        description="Drive a CSI driver from the Kubernetes API, as kubernetes-csi's sidecars do.",
        allow_abbrev=False,
    )
    parser.add_argument("parts", metavar="NAMES", help="separated by commas: " + ", ".join(PARTS))
    for flag in FLAGS:
        has = f"{', '.join(flag.defaults)}; {_default_text(flag)}"
        extra: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.kind == "switch" else {}
        parser.add_argument(
            f"--{flag.name}",
            f"-{flag.name}",
            dest=flag.name,
            default=argparse.SUPPRESS,
            help=has.replace("%", "%%"),
            metavar=flag.kind.upper(),
            **extra,
        )
    found = vars(parser.parse_args(argv))
    parts = tuple(dict.fromkeys(name.strip() for name in found.pop("parts").split(",") if name.strip()))
    unknown = [name for name in parts if name not in PARTS]
    if unknown or not parts:
        parser.error(f"no such part: {', '.join(unknown) or '(none given)'}; there are: {', '.join(PARTS)}")
    given: dict[str, Any] = {}
    for name, text in found.items():
        flag = _BY_NAME[name]
        if not set(parts) & set(flag.defaults):
            parser.error(f"--{name} belongs to {' and '.join(flag.defaults)}, not to {', '.join(parts)}")
        try:
            given[name] = _read(flag, text, parts)
        except ValueError as error:
            parser.error(f"--{name}: {error}")
    problem = _contradiction(parts, given)
    if problem:
        parser.error(problem)
    return Options(parts, given)


def _default_text(flag: Flag) -> str:
    values = dict.fromkeys(str(value) for value in flag.defaults.values())
    text = f"default {', '.join(value or 'none' for value in values)}"
    return text if flag.has_effect else f"{text}; accepted, without effect"


def _contradiction(parts: Sequence[str], given: Mapping[str, Any]) -> str:
    if REGISTRAR in parts and not given.get("kubelet-registration-path"):
        return "registrar needs --kubelet-registration-path: the driver's socket as the kubelet sees it"
    for name in ("volume-name-prefix", "snapshot-name-prefix", "groupsnapshot-name-prefix"):
        if given.get(name) == "":
            return f"--{name} must not be empty"
    if given.get("node-deployment") and given.get("leader-election"):
        return "--leader-election makes no sense with --node-deployment: every node's own instance works"
    return ""


def _read(flag: Flag, text: str, parts: Sequence[str]) -> Any:
    """The value that a flag's text stands for. Raises ValueError."""
    match flag.kind:
        case "switch":
            if text.lower() in _TRUE | _FALSE:
                return text.lower() in _TRUE
            raise ValueError(f"{text!r} is neither true nor false")
        case "seconds":
            seconds = seconds_of(text)
            if seconds < 0:
                raise ValueError("must not be negative")
            return seconds
        case "count" | "length":
            number = int(text)
            if number < (0 if flag.kind == "count" else -1):
                raise ValueError("must not be less than " + ("0" if flag.kind == "count" else "-1"))
            return number
        case "number":
            return float(text)
        case "endpoint":
            return _endpoint(text)
        case "gates":
            return _gates(text, parts)
    return text


def _endpoint(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address such as :8080")
    return host.strip("[]"), int(port)


def _gates(text: str, parts: Sequence[str]) -> dict[str, bool]:
    known = {name: value for part in parts for name, value in GATES.get(part, {}).items()}
    found: dict[str, bool] = {}
    for each in filter(None, text.split(",")):
        name, _, value = each.partition("=")
        if name not in known:
            raise ValueError(f"unrecognized feature gate: {name}")
        if value.lower() not in _TRUE | _FALSE:
            raise ValueError(f"invalid value of {name}: {value!r}")
        found[name] = value.lower() in _TRUE
        if name not in _SETTABLE and found[name] != known[name]:
            raise ValueError(f"{name}={value} is not supported: it is always {str(known[name]).lower()}")
    return found
