"""Tables: columns, and the texts of ages, selectors and access modes in their cells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from kindling.apiserver.registry.definition import TableColumn
from kubecore.json import JsonObject, get_list, get_object, get_str

NONE = "<none>"
UNKNOWN = "<unknown>"
UNSET = "<unset>"

Read = Callable[[JsonObject], Any]
"""The cell of an object."""


@dataclass(frozen=True, slots=True)
class Column(TableColumn):
    """A column that computes its own cells; without `read`, the table's `fill` makes whole rows."""

    read: Read | None = None


def _read_by(value: str | Read | None, absent: Any, empty: Any) -> Read | None:
    if not isinstance(value, str):
        return value
    *parents, last = value.split(".")

    def read(obj: JsonObject) -> Any:
        found = get_object(obj, *parents).get(last, absent)
        return found if found or empty is None else empty

    return read


def plain(
    name: str,
    value: str | Read | None = None,
    *,
    kind: str = "string",
    absent: Any = "",
    empty: Any = None,
    description: str = "",
) -> Column:
    """A column that always shows.

    `value` is a function, or a field's dotted path; `absent` shows where the field is not set, and `empty`
    (unless None) where it is not set or empty.
    """
    return Column(name, kind, description=description, read=_read_by(value, absent, empty))


def wide(
    name: str, value: str | Read | None = None, *, kind: str = "string", absent: Any = "", empty: Any = None
) -> Column:
    """A column that only shows with ``-o wide``; see ``plain``."""
    return replace(plain(name, value, kind=kind, absent=absent, empty=empty), priority=1)


def _no_conditions(obj: JsonObject) -> list[JsonObject]:
    return []


class Table:
    """Columns, and the function that fills a row where cells depend on each other."""

    def __init__(
        self,
        *columns: Column,
        fill: Callable[[JsonObject], list[Any]] | None = None,
        condition: Callable[[JsonObject], list[JsonObject]] = _no_conditions,
    ) -> None:
        self.columns = columns
        self._fill = fill
        self._condition = condition

    def cells(self, obj: JsonObject) -> list[Any]:
        """See TableConverter.cells."""
        if self._fill is not None:
            return self._fill(obj)
        return [column.read(obj) for column in self.columns if column.read is not None]

    def conditions(self, obj: JsonObject) -> list[JsonObject]:
        """See TableConverter.conditions."""
        return self._condition(obj)


def moment(text: Any) -> datetime | None:
    """The time that an API document writes, or None."""
    if not isinstance(text, str) or not text:
        return None
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def since(text: Any, now: datetime | None = None) -> str:
    """How long ago a time was, as a short duration; ``<unknown>`` for none."""
    then = moment(text)
    if then is None:
        return UNKNOWN
    return human_duration(((now or datetime.now(UTC)) - then).total_seconds())


def age(obj: JsonObject) -> str:
    """The cell of the column Age."""
    return since(get_str(obj, "metadata", "creationTimestamp"))


def name_of(obj: JsonObject) -> str:
    """The cell of the column Name."""
    return get_str(obj, "metadata", "name")


NAME = Column("Name", format="name", description="Name must be unique within a namespace.", read=name_of)
AGE = Column("Age", description="Time since the object was created.", read=age)
CREATED_AT = plain("Created At", "metadata.creationTimestamp", kind="date")
"""Kinds without a table of their own have it beside the name."""


def name_as(read: Read) -> Column:
    """The column Name with something added to the name."""
    return replace(NAME, read=read)


def human_duration(seconds: float) -> str:
    """A duration in its one or two largest units: ``45s``, ``3m2s``, ``5h10m``, ``3d4h``, ``2y35d``."""
    total = int(seconds)
    if seconds < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 192:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(first: int, unit: str, second: int, smaller: str) -> str:
    return f"{first}{unit}{second}{smaller}" if second else f"{first}{unit}"


def format_labels(labels: Mapping[str, Any] | None) -> str:
    """A map of labels as ``a=b,c=d``; ``<none>`` when empty."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def format_selector(selector: Mapping[str, Any] | None) -> str:
    """A label selector object in its string form; ``<none>`` when it selects by nothing."""
    if not selector:
        return NONE
    parts: list[tuple[str, str]] = [
        (key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for requirement in selector.get("matchExpressions") or ():
        key = requirement.get("key", "")
        values = ",".join(sorted(requirement.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }.get(requirement.get("operator", ""), key)
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0])) or NONE


def go_selector(selector: Mapping[str, Any]) -> str:
    """A label selector as Go's types print themselves."""
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key', '')},Operator:{each.get('operator', '')},"
        f"Values:[{' '.join(each.get('values') or [])}],}},"
        for each in selector.get("matchExpressions") or []
    )
    shown = f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},{shown},}}"


def containers(template: Mapping[str, Any]) -> tuple[str, str]:
    """Names and images of a pod template's containers, each joined by commas."""
    found = get_list(template, "spec", "containers")
    names = ",".join(str(container.get("name", "")) for container in found)
    return names, ",".join(str(container.get("image", "")) for container in found)


def access_modes(modes: Sequence[Any] | None) -> str:
    """Access modes in their abbreviations, in Kubernetes' order."""
    short = {
        "ReadWriteOnce": "RWO",
        "ReadOnlyMany": "ROX",
        "ReadWriteMany": "RWX",
        "ReadWriteOncePod": "RWOP",
    }
    return ",".join(text for mode, text in short.items() if mode in (modes or ()))


def load_balancer_addresses(obj: JsonObject) -> list[str]:
    """IP or host name of each ingress point in status.loadBalancer."""
    points = get_list(obj, "status", "loadBalancer", "ingress")
    return [point.get("ip") or point.get("hostname") or "" for point in points if isinstance(point, dict)]


def template_of(obj: JsonObject) -> JsonObject:
    """spec.template."""
    return get_object(obj, "spec", "template")


def template_columns(template: Callable[[JsonObject], JsonObject] = template_of) -> tuple[Column, Column]:
    """Wide columns with names and images of the containers of a pod template."""
    return (
        wide("Containers", lambda obj: containers(template(obj))[0]),
        wide("Images", lambda obj: containers(template(obj))[1]),
    )


SELECTOR = wide("Selector", lambda obj: format_selector(get_object(obj, "spec").get("selector")))


def limited(values: list[str], shown: int = 3, separator: str = ",") -> str:
    """The first values, and how many more there are; ``<none>`` for none."""
    more = f" + {len(values) - shown} more..." if len(values) > shown else ""
    return separator.join(values[:shown]) + more if values else NONE
