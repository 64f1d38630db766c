"""What the installation says about every domain."""

from __future__ import annotations

from typing import Any

from kubecore.objects.structs import encode
from virtplane.api.kubevirt_v1.configuration import KubeVirtConfiguration


def domain_options(configuration: KubeVirtConfiguration) -> dict[str, Any]:
    """Members of DomainContext that the configuration has (pure)."""
    options, seconds = configuration.virtual_machine_options, configuration.mem_balloon_stats_period
    return {
        "smbios": {key: value for key, value in encode(configuration.smbios).items() if value},
        "serial_console_log": options.disable_serial_console_log is None,
        "free_page_reporting": options.disable_free_page_reporting is None,
        "balloon_seconds": 10 if seconds is None else seconds,
    }
