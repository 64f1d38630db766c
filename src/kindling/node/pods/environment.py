"""The environment, command and arguments of a container: sources, references and ``$(VAR)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kindling.node.pods.downward_api import FieldProblem, NodeFacts, field_value, resource_value
from kindling.node.secret_values import decode_text
from kubecore.json import JsonObject, get_bool, get_int, get_list, get_object, get_str
from kubecore.objects.names import is_relaxed_env_var_name

_LONGEST = 131_072
"""Of one variable or argument: the kernel's MAX_ARG_STRLEN, with the byte that ends it."""

_MOST = 6 * 1024 * 1024
"""Of all of them: the kernel takes no more, whatever the limit of the stack."""


class ConfigProblem(Exception):
    """A container cannot be configured now (``CreateContainerConfigError``); the text is shown as is."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that environments and volumes of one pod refer to, by name. Objects that do not exist are
    not in it.
    """

    config_maps: Mapping[str, JsonObject] = field(default_factory=dict)
    secrets: Mapping[str, JsonObject] = field(default_factory=dict)
    services: Sequence[JsonObject] = ()


@dataclass(frozen=True, slots=True)
class EnvironmentContext:
    """What values may come from."""

    pod: JsonObject
    node: NodeFacts
    sources: Sources
    pod_ips: tuple[str, ...] = ()


def referenced(pod: JsonObject) -> tuple[set[str], set[str]]:
    """Names of the config maps and secrets that the environments of a pod's containers refer to."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for container in get_list(pod, "spec", "initContainers") + get_list(pod, "spec", "containers"):
        for source in get_list(container, "envFrom"):
            config_maps.add(get_str(source, "configMapRef", "name"))
            secrets.add(get_str(source, "secretRef", "name"))
        for variable in get_list(container, "env"):
            config_maps.add(get_str(variable, "valueFrom", "configMapKeyRef", "name"))
            secrets.add(get_str(variable, "valueFrom", "secretKeyRef", "name"))
    return config_maps - {""}, secrets - {""}


def expand(text: str, lookup: Sequence[Mapping[str, str]]) -> str:
    """Replace ``$(NAME)``; ``$$`` stands for ``$``; unknown references stay as they are.

    Raises ConfigProblem when the result is longer than a program can be given: variables that name each other
    twice double with each one, so the size is counted before anything is joined.
    """
    result: list[str] = []
    parts: tuple[str, ...]
    position = size = 0
    closed = True  # whether a ")" may follow; looked for in vain only once
    while position < len(text):
        start = text.find("$", position)
        if start < 0 or start + 1 >= len(text):
            parts, position = (text[position:],), len(text)
        else:
            following = text[start + 1]
            end = text.find(")", start) if following == "(" and closed else -1
            closed = closed and (following != "(" or end > 0)
            if following == "$":
                replacement, after = "$", start + 2
            elif end > 0:
                name = text[start + 2 : end]
                found = next((mapping[name] for mapping in lookup if name in mapping), None)
                replacement, after = (f"$({name})" if found is None else found), end + 1
            else:
                replacement, after = "$" + following, start + 2
            parts, position = (text[position:start], replacement), after
        size += sum(len(part) for part in parts)
        if size >= _LONGEST:
            raise ConfigProblem(
                f"a value with its references expanded is longer than {_LONGEST - 1} characters"
            )
        result.extend(parts)
    return "".join(result)


def build_environment(container: JsonObject, context: EnvironmentContext) -> dict[str, str]:
    """All variables of a container. Raises ConfigProblem when a required source is missing, or when they are
    more than a program can be given.
    """
    values: dict[str, str] = {}
    size = _Size()
    for source in get_list(container, "envFrom"):
        found = _from_source(source, context)
        size.add(*found, *found.values())
        values.update(found)
    service_values = service_environment(context.pod, context.sources.services)
    for variable in get_list(container, "env"):
        name = get_str(variable, "name")
        if "valueFrom" in variable and variable["valueFrom"] is not None:
            value = _from_reference(variable["valueFrom"], get_str(container, "name"), context)
            if value is None:
                continue
        else:
            value = expand(get_str(variable, "value"), (values, service_values))
        size.add(name, value)
        values[name] = value
    return {**service_values, **values}


def command_line(container: JsonObject, values: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The expanded command and arguments; both empty when the image decides. Raises ConfigProblem when they
    are more than a program can be given.
    """
    size = _Size()

    def expanded(words: Iterable[str]) -> list[str]:
        result = []
        for word in words:
            result.append(expand(word, (values,)))
            size.add(result[-1])
        return result

    return expanded(get_list(container, "command")), expanded(get_list(container, "args"))


class _Size:
    """How much a container's environment, or its command, takes so far."""

    def __init__(self) -> None:
        self._sum = 0

    def add(self, *texts: str) -> None:
        self._sum += sum(len(text) for text in texts)
        if self._sum > _MOST:
            raise ConfigProblem(f"the environment or command is longer than {_MOST} characters")


def service_environment(pod: JsonObject, services: Iterable[JsonObject]) -> dict[str, str]:
    """Variables of default/kubernetes and, with service links, of the namespace's services.

    Raises ConfigProblem when they are more than a program can be given.
    """
    links = get_bool(pod, "spec", "enableServiceLinks", default=True)
    namespace = get_str(pod, "metadata", "namespace")
    values: dict[str, str] = {}
    size = _Size()
    for service in sorted(services, key=lambda item: get_str(item, "metadata", "name")):
        name, of = get_str(service, "metadata", "name"), get_str(service, "metadata", "namespace")
        is_api = (of, name) == ("default", "kubernetes")
        address = get_str(service, "spec", "clusterIP")
        if address in ("", "None") or not (is_api or (links and of == namespace)):
            continue
        found = _service_variables(name, address, get_list(service, "spec", "ports"))
        size.add(*found, *found.values())
        values.update(found)
    return values


def _service_variables(name: str, address: str, ports: Sequence[JsonObject]) -> dict[str, str]:
    prefix = name.upper().replace("-", "_")
    values = {f"{prefix}_SERVICE_HOST": address}
    if not ports:
        return values
    values[f"{prefix}_SERVICE_PORT"] = str(get_int(ports[0], "port"))
    for port in ports:
        if get_str(port, "name"):
            suffix = get_str(port, "name").upper().replace("-", "_")
            values[f"{prefix}_SERVICE_PORT_{suffix}"] = str(get_int(port, "port"))
    for index, port in enumerate(ports):
        protocol, number = get_str(port, "protocol", default="TCP"), str(get_int(port, "port"))
        url = f"{protocol.lower()}://{address}:{number}"
        if index == 0:
            values[f"{prefix}_PORT"] = url
        base = f"{prefix}_PORT_{number}_{protocol}"
        values |= {
            base: url,
            f"{base}_PROTO": protocol.lower(),
            f"{base}_PORT": number,
            f"{base}_ADDR": address,
        }
    return values


def _from_source(source: JsonObject, context: EnvironmentContext) -> dict[str, str]:
    prefix = get_str(source, "prefix")
    if "configMapRef" in source:
        reference, kind = source["configMapRef"], "configmap"
        found = context.sources.config_maps.get(get_str(reference, "name"))
        data = get_object(found, "data")
    else:
        reference, kind = get_object(source, "secretRef"), "secret"
        found = context.sources.secrets.get(get_str(reference, "name"))
        data = {name: decode_text(value) for name, value in get_object(found, "data").items()}
    if found is None:
        if get_bool(reference, "optional"):
            return {}
        raise ConfigProblem(f'{kind} "{get_str(reference, "name")}" not found')
    return {
        prefix + name: value for name, value in data.items() if not is_relaxed_env_var_name(prefix + name)
    }


def _from_reference(source: JsonObject, container: str, context: EnvironmentContext) -> str | None:
    """The value, or None when an optional source is absent."""
    try:
        if "fieldRef" in source:
            return field_value(
                context.pod, get_str(source, "fieldRef", "fieldPath"), context.node, context.pod_ips
            )
        if "resourceFieldRef" in source:
            return resource_value(context.pod, source["resourceFieldRef"], container, context.node)
    except FieldProblem as problem:
        raise ConfigProblem(str(problem)) from problem
    namespace = get_str(context.pod, "metadata", "namespace")
    if "configMapKeyRef" in source:
        reference, title, kind = source["configMapKeyRef"], "ConfigMap", "configmap"
        found = context.sources.config_maps.get(get_str(reference, "name"))
    elif "secretKeyRef" in source:
        reference, title, kind = source["secretKeyRef"], "Secret", "secret"
        found = context.sources.secrets.get(get_str(reference, "name"))
    else:
        raise ConfigProblem("unsupported source of an environment variable: " + ", ".join(source))
    name, key = get_str(reference, "name"), get_str(reference, "key")
    optional = get_bool(reference, "optional")
    if found is None:
        if optional:
            return None
        raise ConfigProblem(f'{kind} "{name}" not found')
    data = get_object(found, "data")
    if key not in data:
        if optional:
            return None
        raise ConfigProblem(f"couldn't find key {key} in {title} {namespace}/{name}")
    return decode_text(data[key]) if kind == "secret" else str(data[key])
