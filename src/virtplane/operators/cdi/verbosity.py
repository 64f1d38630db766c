"""How much CDI's components log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubecore.logs import LogLevels
from kubecore.runtime import Informer, Manager
from virtplane.api import cdi_names, verbosity
from virtplane.api import resources as api
from virtplane.api.cdi_v1beta1.cdi import CDI, Flags


def verbosity_of(component: str, cdi: CDI, usual: int) -> int:
    """The verbosity of `component`: that of its flags, else of the configuration, else `usual`.

    Raises KeyError for components that are not CDI's.
    """
    config = cdi.spec.config
    flags = cdi.spec.customize_components.flags or Flags()
    given = {
        cdi_names.API_SERVER: flags.api,
        cdi_names.CONTROLLER: flags.controller,
        cdi_names.UPLOAD_PROXY: flags.upload_proxy,
    }[component]
    configured = config.log_verbosity if config is not None else None
    wanted = (verbosity.of_flags(given), configured, usual)
    return next(each for each in wanted if each is not None)


def follow(manager: Manager, components: Iterable[str], levels: LogLevels, usual: int) -> None:
    """Have `components` of this process log as much as the CDI object says, while `manager` runs."""
    names = tuple(components)
    cdis: Informer[CDI] = manager.informer(api.CDIS, struct=CDI)
    cdis.add_handler(_taking_over(cdis, names, levels, usual))


def _taking_over(
    cdis: Informer[CDI], names: tuple[str, ...], levels: LogLevels, usual: int
) -> Callable[[str, CDI | None, CDI], None]:
    def take_over(_event: str, _old: CDI | None, _new: CDI) -> None:
        cdi = next(iter(cdis.list()), CDI())
        for name in names:
            levels.set(name, verbosity.log_level(verbosity_of(name, cdi, usual)))

    return take_over
