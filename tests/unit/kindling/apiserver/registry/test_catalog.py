"""Which resources are served now."""

from __future__ import annotations

from kindling.apiserver.kinds.served import builtin_definitions
from kindling.apiserver.registry.catalog import Catalog
from kubecore.resources import CONFIG_MAPS, EVENTS


def test_resources_that_serve_the_same_objects_are_equivalent_while_they_are_served() -> None:
    catalog = Catalog()
    definitions = builtin_definitions()
    catalog.replace("built-in", definitions)
    events = catalog.of(EVENTS)
    config_maps = catalog.of(CONFIG_MAPS)
    assert events is not None
    assert config_maps is not None
    assert {each.resource.api_version for each in catalog.equivalents(events)} == {"v1", "events.k8s.io/v1"}
    assert list(catalog.equivalents(config_maps)) == [config_maps]

    catalog.replace("built-in", [each for each in definitions if each is not events])
    assert [each.resource.api_version for each in catalog.equivalents(events)] == ["events.k8s.io/v1"]
    catalog.replace("built-in", [])
    assert list(catalog.equivalents(events)) == []
