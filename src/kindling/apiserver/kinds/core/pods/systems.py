"""Operating systems of pods: settings of Windows, and what each system does not know."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kindling.apiserver.kinds.machinery import fields as f
from kubecore.json import JsonObject, get_list, get_object
from kubecore.objects.fields import FieldError, FieldPath, forbidden, invalid, not_supported, required

_MAX_CREDENTIALS_KIB, _MAX_DOMAIN, _MAX_USER = 64, 256, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NOT_IN_USERS = re.compile(r'["/\\:;|=,+*?<>@\[\]]')
_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_NOT_ON_LINUX = "windows options cannot be set for a linux pod"


def _credentials(path: FieldPath, text: str) -> Iterator[FieldError]:
    if not text:
        yield invalid(path, text, "gmsaCredentialSpec cannot be an empty string")
    elif len(text.encode()) > _MAX_CREDENTIALS_KIB * 1024:
        yield invalid(path, text, f"gmsaCredentialSpec size must be under {_MAX_CREDENTIALS_KIB} KiB")


def _user_name(path: FieldPath, text: str) -> Iterator[FieldError]:
    return (invalid(path, text, f"runAsUserName{problem}") for problem in _user_problems(text))


def _user_problems(text: str) -> Iterator[str]:
    """What is wrong with the name of a user of Windows, perhaps of a domain: ``DOMAIN\\user``."""
    if not text:
        yield " cannot be an empty string"
    elif _CONTROL.search(text):
        yield " cannot contain control characters"
    elif text.count("\\") > 1:
        yield " cannot contain more than one backslash"
    else:
        domain, separator, user = text.rpartition("\\")
        if len(domain.encode()) >= _MAX_DOMAIN:
            yield f"'s Domain length must be under {_MAX_DOMAIN} characters"
        if separator and not (_NET_BIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
            yield "'s Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "'s User cannot be empty"
        elif len(user.encode()) > _MAX_USER:
            yield f"'s User length must not be longer than {_MAX_USER} characters"
        if user and not user.strip(". "):
            yield "'s User cannot contain only periods or spaces"
        if _NOT_IN_USERS.search(user):
            yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


WINDOWS_OPTIONS = f.given(
    "windowsOptions",
    f.given("gmsaCredentialSpecName", f.SUBDOMAIN),
    f.given("gmsaCredentialSpec", _credentials),
    f.given("runAsUserName", _user_name),
)
"""The part about Windows of the security context of a pod or container."""


def _containers(path: FieldPath, spec: JsonObject) -> Iterator[tuple[FieldPath, JsonObject]]:
    """All containers of a pod, with their paths."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for position, container in enumerate(get_list(spec, field)):
            yield path.child(field).index(position), container


def host_processes(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    """Processes of the node itself: all containers of a pod are, or none is, and they have its network."""
    whole = get_object(spec, "securityContext", "windowsOptions").get("hostProcess")
    found = []
    for at, container in _containers(path, spec):
        own = get_object(container, "securityContext", "windowsOptions").get("hostProcess")
        if None not in (whole, own) and whole != own:
            text = f"pod hostProcess value must be identical if both are specified, was {str(whole).lower()}"
            yield invalid(at.child("securityContext", "windowsOptions", "hostProcess"), own, text)
        found.append(bool(whole if own is None else own))
    if not any(found):
        return
    if not all(found):
        text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(path, "", text)
    if not spec.get("hostNetwork"):
        text = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(path.child("hostNetwork"), False, text)


_UNKNOWN_TO_WINDOWS = (
    "securityContext.appArmorProfile",
    "securityContext.seLinuxOptions",
    *("hostUsers", "hostPID", "hostIPC"),
    "securityContext.seccompProfile",
    "securityContext.fsGroup",
    "securityContext.fsGroupChangePolicy",
    "securityContext.sysctls",
    "shareProcessNamespace",
    "securityContext.runAsUser",
    "securityContext.runAsGroup",
    "securityContext.supplementalGroups",
    "securityContext.supplementalGroupsPolicy",
)
"""Settings of a pod, in the order in which they are refused."""
_UNKNOWN_TO_CONTAINERS = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem"),
    *("privileged", "allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup"),
)
_SWITCHES = ("hostPID", "hostIPC")
"""Settings that are off where they are absent."""


def operating_system(path: FieldPath, spec: JsonObject) -> Iterable[FieldError]:
    """The system that a pod is for, and settings that it does not know."""
    system, at = spec.get("os"), path.child("os")
    if system is None:
        return ()
    name = system.get("name")
    if not name:
        return [required(at.child("name"))]
    if name not in ("linux", "windows"):
        return [not_supported(at, name, ("linux", "windows"))]
    return _not_on_windows(path, spec) if name == "windows" else _not_on_linux(path, spec)


def _not_on_windows(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    for dotted in _UNKNOWN_TO_WINDOWS:
        *parents, field = dotted.split(".")
        value = get_object(spec, *parents).get(field)
        if value is not None and (value or field not in (*_SWITCHES, "sysctls")):
            yield forbidden(path.child(*parents, field), _NOT_ON_WINDOWS)
    for at, container in _containers(path, spec):
        security = get_object(container, "securityContext")
        yield from f.absent(_NOT_ON_WINDOWS, *_UNKNOWN_TO_CONTAINERS)(at.child("securityContext"), security)


def _not_on_linux(path: FieldPath, spec: JsonObject) -> Iterator[FieldError]:
    for at, holder in ((path, spec), *_containers(path, spec)):
        security = get_object(holder, "securityContext")
        yield from f.absent(_NOT_ON_LINUX, "windowsOptions")(at.child("securityContext"), security)
