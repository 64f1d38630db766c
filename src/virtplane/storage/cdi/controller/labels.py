"""Labels that content hands on: to DataSources, and from crons to what they make."""

from __future__ import annotations

from collections.abc import Mapping

from virtplane.api import cdi_labels as names

_DOMAIN = "kubevirt.io"


def handed_on(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that go with content: those of KubeVirt, such as the default instance type.

    Labels of CDI itself say what belongs to what. They are not copied: a DataSource of a user would belong
    to the cron whose claim it names.
    """
    return {name: value for name, value in labels.items() if _goes_with_content(name)}


def _goes_with_content(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    if not slash or f"{domain}/" == names.PREFIX:
        return False
    return domain == _DOMAIN or domain.endswith(f".{_DOMAIN}")
