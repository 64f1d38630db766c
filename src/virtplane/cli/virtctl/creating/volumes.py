"""The volumes of ``create vm``: converts flags to parts of a VirtualMachine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from kubecore.json import JsonObject, get_object
from virtplane.cli.virtctl.params import FlagError, one_of, parameters, prefixed, quantity, random_ending

_IMPORT = "volume-import"
_SIZED = ("size", "type", "name", "bootorder")
_LISTS = ("extraheaders", "secretextraheaders")
_SOURCE_FIELDS = {
    "certconfigmap": "certConfigMap",
    "extraheaders": "extraHeaders",
    "secretextraheaders": "secretExtraHeaders",
    "secretref": "secretRef",
    "url": "url",
    "diskid": "diskId",
    "imagestream": "imageStream",
    "pullmethod": "pullMethod",
    "backingfile": "backingFile",
    "initimageurl": "initImageURL",
    "thumbprint": "thumbprint",
    "uuid": "uuid",
}
_SOURCES: Mapping[str, Sequence[str]] = {
    "blank": (),
    "gcs": ("secretref", "url"),
    "http": ("certconfigmap", "extraheaders", "secretextraheaders", "secretref", "url"),
    "imageio": ("certconfigmap", "diskid", "secretref", "url"),
    "registry": ("certconfigmap", "imagestream", "pullmethod", "secretref", "url"),
    "s3": ("certconfigmap", "secretref", "url"),
    "vddk": ("backingfile", "initimageurl", "secretref", "thumbprint", "url", "uuid"),
}
"""Sources that are described by parameters of their own."""

_REFERENCES = ("pvc", "snapshot", "ds")
"""Sources that are objects of the cluster; their size is optional."""

_INFERABLE = ("pvc", "registry", "snapshot")


@dataclass
class Volumes:
    """The volumes in the order of the flags; some names contain `vm_name`."""

    vm_name: str
    volumes: list[JsonObject] = field(default_factory=list)
    templates: list[JsonObject] = field(default_factory=list)
    boot_orders: dict[int, str] = field(default_factory=dict)

    def add_all(self, given: Mapping[str, Sequence[str]]) -> None:
        """Add the volumes of all flags. Raises FlagError."""
        for text in given["volume-containerdisk"]:
            self._container_disk(text)
        for text in given["volume-pvc"]:
            self._claim(text)
        imports = list(given[_IMPORT])
        # Flags from before --volume-import lack its type; each of their values comes before all others.
        for flag, kind in (
            ("volume-datasource", "ds"),
            ("volume-clone-pvc", "pvc"),
            ("volume-blank", "blank"),
        ):
            for text in given[flag]:
                imports.insert(0, f"type:{kind},{text}")
        for text in imports:
            self._import(text)

    def add_sysprep(self, text: str) -> None:
        """Add a sysprep volume. Raises FlagError."""
        flag = "volume-sysprep"
        found = parameters(flag, text, ("src", "type"))
        name = _own_name(flag, found, "configmap or secret")
        kind = one_of(flag, "sysprep source type", found.get("type") or "configmap", ("configmap", "secret"))
        source = {"configmap": "configMap", "secret": "secret"}[kind]
        self._add(flag, "sysprepdisk", {"sysprep": {source: {"name": name}}}, {})

    @property
    def disks(self) -> list[JsonObject]:
        """The disks with a boot order, as the volumes are in order."""
        return [{"name": name, "bootOrder": order} for order, name in self.boot_orders.items()]

    def inferable(self, name: str = "") -> str:
        """The volume that an instance type can be inferred from: the one called `name` or the first to boot.

        Raises click.ClickException where there is none.
        """
        if not self.volumes and not name:
            text = "at least one volume is needed to infer an instance type or preference"
            raise click.ClickException(text)
        wanted = name or self._first_to_boot()
        volume = next((volume for volume in self.volumes if volume["name"] == wanted), None)
        if volume is None:
            raise click.ClickException(f'there is no volume with name "{wanted}"')
        if "persistentVolumeClaim" in volume:
            return wanted
        if "dataVolume" not in volume:
            text = "inference of instancetype or preference works only with datasources, datavolumes or pvcs"
            raise click.ClickException(text)
        template = next(item for item in self.templates if item["metadata"]["name"] == wanted)
        source = get_object(template, "spec", "source")
        if "sourceRef" not in template["spec"] and not any(kind in source for kind in _INFERABLE):
            text = "this datavolume is not valid to infer an instancetype or preference from"
            needs = "source needs to be PVC, Registry or Snapshot, sourceRef needs to be DataSource"
            raise click.ClickException(f"{text} ({needs})")
        return wanted

    def _first_to_boot(self) -> str:
        return self.boot_orders[min(self.boot_orders)] if self.boot_orders else str(self.volumes[0]["name"])

    def _add(self, flag: str, name: str, source: JsonObject, found: Mapping[str, str]) -> None:
        if any(volume["name"] == name for volume in self.volumes):
            raise FlagError(flag, f'there is already a volume with name "{name}"')
        self.volumes.append({"name": name, **source})
        if "bootorder" not in found:
            return
        text = found["bootorder"]
        if not text.isdigit():
            reason = f'failed to parse param "bootorder": strconv.ParseUint: parsing "{text}": invalid syntax'
            raise FlagError(flag, reason)
        order = int(text)
        if order == 0:
            raise FlagError(flag, "bootorder must be greater than 0")
        if order in self.boot_orders:
            raise FlagError(flag, f"bootorder {order} was specified multiple times")
        self.boot_orders[order] = name

    def _container_disk(self, text: str) -> None:
        flag = "volume-containerdisk"
        found = parameters(flag, text, ("name", "src", "bootorder"))
        if not found.get("src"):
            raise FlagError(flag, "src must be specified")
        number = sum("containerDisk" in volume for volume in self.volumes)
        name = found.get("name") or f"{self.vm_name}-containerdisk-{number}"
        self._add(flag, name, {"containerDisk": {"image": found["src"]}}, found)

    def _claim(self, text: str) -> None:
        flag = "volume-pvc"
        found = parameters(flag, text, ("name", "src", "bootorder"))
        claim = _own_name(flag, found, "pvc")
        self._add(flag, found.get("name") or claim, {"persistentVolumeClaim": {"claimName": claim}}, found)

    def _import(self, text: str) -> None:
        kind = _type_of(text)
        if kind in _REFERENCES:
            found = parameters(_IMPORT, text, ("name", "src", "size", "type", "bootorder"))
            spec = _reference(kind, found)
        else:
            found = parameters(_IMPORT, text, (*_SOURCES[kind], *_SIZED))
            spec = {"source": {kind: _source(kind, found)}}
            if not found.get("size"):
                raise FlagError(_IMPORT, "size must be specified")
        spec["storage"] = {"resources": _requests(found.get("size", ""))}
        name = found.get("name") or f"imported-volume-{random_ending()}"
        self._add(_IMPORT, name, {"dataVolume": {"name": name}}, found)
        self.templates.append({"metadata": {"name": name}, "spec": spec})


def _type_of(text: str) -> str:
    found = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    kind = found.get("type")
    if kind is None:
        # Errors of the form come first.
        parameters(_IMPORT, text, tuple(found))
        raise FlagError(_IMPORT, "type must be specified")
    if kind not in _SOURCES and kind not in _REFERENCES:
        raise FlagError(_IMPORT, f'invalid volume import type "{kind}", see help for supported values')
    return kind


def _own_name(flag: str, found: Mapping[str, str], what: str) -> str:
    """The name in ``src``, which must be of the VM's own namespace."""
    if not found.get("src"):
        raise FlagError(flag, "src must be specified")
    namespace, name = prefixed(flag, found["src"], "src invalid: ")
    if namespace:
        raise FlagError(flag, f'not allowed to specify namespace of {what} "{name}"')
    return name


def _reference(kind: str, found: Mapping[str, str]) -> JsonObject:
    if not found.get("src"):
        raise FlagError(_IMPORT, "src must be specified")
    namespace, name = prefixed(_IMPORT, found["src"], "src invalid: ")
    if kind == "ds":
        reference = {"kind": "DataSource", "name": name}
        return {"sourceRef": {**reference, "namespace": namespace} if namespace else reference}
    if not namespace:
        raise FlagError(_IMPORT, f'namespace of {kind} "{name}" must be specified')
    return {"source": {kind: {"name": name, "namespace": namespace}}}


def _source(kind: str, found: Mapping[str, str]) -> JsonObject:
    _check_source(kind, found)
    result: dict[str, Any] = {}
    for parameter in _SOURCES[kind]:
        value = found.get(parameter)
        if value:
            result[_SOURCE_FIELDS[parameter]] = value.split(";") if parameter in _LISTS else value
    return result


def _check_source(kind: str, found: Mapping[str, str]) -> None:
    has_url = bool(found.get("url"))
    if kind == "imageio" and not (has_url and found.get("diskid")):
        raise FlagError(_IMPORT, "url and diskid are both required with imageio volume source")
    if kind == "registry":
        if has_url == bool(found.get("imagestream")):
            raise FlagError(_IMPORT, "exactly one of url or imagestream must be defined")
        if found.get("pullmethod", "pod") not in ("pod", "node"):
            raise FlagError(_IMPORT, "pullmethod must be set to pod or node")
    if kind in ("gcs", "http", "s3", "vddk") and not has_url:
        raise FlagError(_IMPORT, f"url is required with {kind} volume source")
    for parameter in ("uuid", "thumbprint", "secretref") if kind == "vddk" else ():
        if not found.get(parameter):
            raise FlagError(_IMPORT, f"{parameter} is required with vddk volume source")


def _requests(size: str) -> JsonObject:
    if not size:
        return {}
    try:
        return {"requests": {"storage": quantity(size)}}
    except ValueError as error:
        raise FlagError(_IMPORT, f'failed to parse param "size": {error}') from error
