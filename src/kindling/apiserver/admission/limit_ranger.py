"""LimitRanger: defaults and bounds for the resources of containers, pods and claims."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from kindling.apiserver.registry.admission import AdmissionAttributes
from kubecore.json import JsonObject, get_list, get_object, get_str
from kubecore.objects import meta
from kubecore.objects.quantity import Quantity
from kubecore.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS

from .base import ReadingPlugin, concerns, refuse

_ANNOTATION = "kubernetes.io/limit-ranger"
Amounts = dict[str, str]


class LimitRanger(ReadingPlugin):
    """See the module."""

    def _limits(self, namespace: str) -> Iterator[JsonObject]:
        for limit_range in self._objects.list(LIMIT_RANGES, namespace):
            yield from get_list(limit_range, "spec", "limits")

    async def mutate(self, attributes: AdmissionAttributes) -> None:
        """Containers of new pods take the defaults that the namespace has for them."""
        pod = attributes.object
        if pod is None or not concerns(attributes, PODS, "CREATE"):
            return
        ranges = list(self._objects.list(LIMIT_RANGES, attributes.ctx.namespace))
        notes = [note for each in ranges for note in _complete_pod(pod, each)]
        if notes:
            meta.set_annotation(pod, _ANNOTATION, f"LimitRanger plugin set: {'; '.join(notes)}")
            attributes.redefault(pod)

    async def validate(self, attributes: AdmissionAttributes) -> None:
        """Nothing is outside the bounds."""
        obj = attributes.object
        if obj is None:
            return
        is_resized = concerns(attributes, PODS, "UPDATE", subresource="resize")
        if is_resized or concerns(attributes, PODS, "CREATE"):
            found = [
                text for limit in self._limits(attributes.ctx.namespace) for text in _pod_errors(obj, limit)
            ]
        elif concerns(attributes, PERSISTENT_VOLUME_CLAIMS, "CREATE", "UPDATE"):
            found = [
                text
                for limit in self._limits(attributes.ctx.namespace)
                if limit.get("type") == "PersistentVolumeClaim"
                for text in _claim_errors(obj, limit)
            ]
        else:
            return
        if found:
            raise refuse(attributes, found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _complete_pod(pod: JsonObject, limit_range: JsonObject) -> list[str]:
    requests: Amounts = {}
    limits: Amounts = {}
    for limit in get_list(limit_range, "spec", "limits"):
        if limit.get("type") == "Container":
            requests |= {key: value for key, value in get_object(limit, "defaultRequest").items() if value}
            limits |= {key: value for key, value in get_object(limit, "default").items() if value}
    notes = []
    for group, noun in (("containers", "container"), ("initContainers", "init container")):
        for container in get_list(pod, "spec", group):
            resources = container.setdefault("resources", {})
            for field, amounts, word in (
                ("requests", requests, "request"),
                ("limits", limits, "limit"),
            ):
                missing = sorted(key for key in amounts if key not in (resources.get(field) or {}))
                if missing:
                    resources[field] = {
                        **(resources.get(field) or {}),
                        **{key: amounts[key] for key in missing},
                    }
                    notes.append(f"{', '.join(missing)} {word} for {noun} {container.get('name')}")
    return notes


def _pod_errors(pod: JsonObject, limit: JsonObject) -> Iterator[str]:
    kind = limit.get("type")
    spec = get_object(pod, "spec")
    if kind == "Container":
        for group in ("containers", "initContainers"):
            for container in get_list(spec, group):
                resources = get_object(container, "resources")
                yield from _bounds(
                    limit, "Container", get_object(resources, "requests"), get_object(resources, "limits")
                )
    elif kind == "Pod":
        yield from _bounds(limit, "Pod", pod_amounts(spec, "requests"), pod_amounts(spec, "limits"))


def _claim_errors(claim: JsonObject, limit: JsonObject) -> Iterator[str]:
    requests = get_object(claim, "spec", "resources", "requests")
    for name, bound in get_object(limit, "min").items():
        yield from _beyond("minimum", name, str(bound), "PersistentVolumeClaim", requests, {})
    for name, bound in get_object(limit, "max").items():
        value, text = requests.get(name), f"maximum {name} usage per PersistentVolumeClaim is {bound}"
        if value is None:
            yield f"{text}.  No request is specified"
        elif Quantity.parse(str(value)) > Quantity.parse(str(bound)):
            yield f"{text}, but request is {value}"


def _bounds(limit: JsonObject, kind: str, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    for field, word in (("min", "minimum"), ("max", "maximum")):
        for name, bound in sorted(get_object(limit, field).items()):
            yield from _beyond(word, name, str(bound), kind, requests, limits)
    for name, bound in sorted(get_object(limit, "maxLimitRequestRatio").items()):
        yield from _ratio(name, str(bound), kind, requests, limits)


def _beyond(
    word: str, name: str, bound: str, kind: str, requests: JsonObject, limits: JsonObject
) -> Iterator[str]:
    """What is below a minimum, which requests must be given for, or above a maximum, which limits must be."""
    amounts = {"request": requests.get(name), "limit": limits.get(name)}
    needed, is_beyond = ("request", operator.lt) if word == "minimum" else ("limit", operator.gt)
    text = f"{word} {name} usage per {kind} is {bound}"
    if amounts[needed] is None:
        yield f"{text}.  No {needed} is specified"
        return
    for noun in sorted(amounts, key=lambda noun: noun != needed):
        amount = amounts[noun]
        if amount is not None and is_beyond(Quantity.parse(str(amount)), Quantity.parse(bound)):
            yield f"{text}, but {noun} is {amount}"
            return


def _ratio(name: str, bound: str, kind: str, requests: JsonObject, limits: JsonObject) -> Iterator[str]:
    request, upper = requests.get(name), limits.get(name)
    text = f"{name} max limit to request ratio per {kind} is {bound}"
    if request is None or Quantity.parse(str(request)).milli_value == 0:
        yield f"{text}, but no request is specified or request is 0"
        return
    if upper is None or Quantity.parse(str(upper)).milli_value == 0:
        yield f"{text}, but no limit is specified or limit is 0"
        return
    ratio = Quantity.parse(str(upper)).milli_value / Quantity.parse(str(request)).milli_value
    if ratio > Quantity.parse(bound).milli_value / 1000:
        yield f"{text}, but provided ratio is {ratio:f}"


def pod_amounts(spec: JsonObject, field: str) -> Amounts:
    """What a whole pod requests (or is limited to): containers together or one init container, and overhead.

    Sidecars (init containers which restart) count with the containers, and with every init container
    started after them. What the pod itself names replaces the sum.
    """
    total: dict[str, Quantity] = {}
    for container in get_list(spec, "containers"):
        _add(total, get_object(container, "resources", field))
    sidecars: dict[str, Quantity] = {}
    highest: dict[str, Quantity] = {}
    for container in get_list(spec, "initContainers"):
        amounts = get_object(container, "resources", field)
        if get_str(container, "restartPolicy") == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise(highest, sidecars)
        else:
            during = dict(sidecars)
            _add(during, amounts)
            _raise(highest, during)
    _raise(total, highest)
    own = get_object(spec, "resources", field)
    total |= {name: Quantity.parse(str(value)) for name, value in own.items()}
    if field == "requests" or total:
        _add(total, get_object(spec, "overhead"))
    return {name: str(amount) for name, amount in total.items()}


def _add(total: dict[str, Quantity], amounts: JsonObject) -> None:
    for name, value in amounts.items():
        amount = Quantity.parse(str(value))
        total[name] = total[name] + amount if name in total else amount


def _raise(total: dict[str, Quantity], amounts: dict[str, Quantity]) -> None:
    for name, amount in amounts.items():
        if name not in total or total[name] < amount:
            total[name] = amount
