"""What a process takes over from the KubeVirt object without a restart."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator

import pytest

from kubecore.json import JsonObject
from kubecore.logs import TRACE, LogLevels, on_behalf_of, set_up_logging
from kubecore.runtime import Context
from kubecore.testing import MemoryApi
from virtplane.api.config import API_WEBHOOKS, REQUEST_LIMITS, ClusterConfig
from virtplane.api.fields.installation import INSTALLATION
from virtplane.api.fields.warnings import unsupported_warnings
from virtplane.api.resources import KUBEVIRTS
from virtplane.api.verbosity import log_level
from virtplane.reloading import CONFIGURED, Reloader, request_limits, tls_settings
from virtplane.serving.tls import ServersTLS, TLSSettings


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Where the root logger writes; it is as before afterwards."""
    root = logging.getLogger()
    saved, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = saved
    root.setLevel(level)
    logging.captureWarnings(False)


def _kubevirt(configuration: JsonObject) -> JsonObject:
    metadata = {"name": "kubevirt", "namespace": "ns"}
    return {"metadata": metadata, "spec": {"configuration": configuration}, "status": {"phase": "Deployed"}}


def _verbosity(**levels: object) -> JsonObject:
    return {"developerConfiguration": {"logVerbosity": levels}}


def test_verbosities_are_levels_of_logs() -> None:
    assert [log_level(number) for number in range(10)] == [
        *(logging.INFO,) * 3,
        *(logging.DEBUG,) * 3,
        *(TRACE,) * 4,
    ]


@pytest.mark.feature("SUP-11")
@pytest.mark.parametrize(
    ("levels", "node", "wanted"),
    [
        ({}, "n", (2, 2, 2, 2)),
        ({"virtAPI": 5, "virtController": 4, "virtHandler": 3, "virtOperator": 6}, "n", (6, 5, 4, 3)),
        ({"virtOperator": 1, "virtAPI": 3, "virtController": 4, "virtHandler": 5}, "n", (1, 3, 4, 5)),
        ({"virtHandler": 5, "nodeVerbosity": {"n": 7}}, "n", (7, 7, 7, 7)),
        ({"virtHandler": 5, "nodeVerbosity": {"n": 7}}, "other", (2, 2, 2, 5)),
    ],
)
def test_each_component_has_its_verbosity_and_a_node_has_that_of_all(
    levels: JsonObject, node: str, wanted: tuple[int, ...]
) -> None:
    config = ClusterConfig(_kubevirt(_verbosity(**levels)))
    assert tuple(config.log_verbosity(name, node) for name in CONFIGURED) == wanted


def test_flags_of_components_count_where_the_configuration_says_nothing() -> None:
    flags = {"api": {"v": "5"}, "controller": {"v": "4", "port": "1"}, "handler": {"v": "much"}}
    kubevirt = _kubevirt(_verbosity(virtController=1))
    kubevirt["spec"]["customizeComponents"] = {"flags": flags}
    config = ClusterConfig(kubevirt)
    assert [config.log_verbosity(name, "n") for name in CONFIGURED] == [2, 5, 1, 2]
    assert unsupported_warnings(INSTALLATION, kubevirt["spec"]) == [
        "spec.customizeComponents.flags.controller.port: accepted, but has no effect yet"
    ]


@pytest.mark.feature("SUP-10")
def test_components_of_one_process_log_under_their_names_from_their_levels_on(stream: io.StringIO) -> None:
    levels = set_up_logging("virt-operator", stream=stream)
    reloader = Reloader(["virt-operator", "virt-api"], levels, {}, ServersTLS())
    shared = logging.getLogger("kubecore.shared")
    config = ClusterConfig(_kubevirt(_verbosity(virtAPI=4)))
    for _ in range(2):
        reloader.take_over(config, "n")
    for component in ("virt-operator", "virt-api", ""):
        with on_behalf_of(component):
            shared.debug("detail")
            shared.log(TRACE, "request")
            shared.info("news")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["component"], line["msg"]) for line in lines] == [
        ("virt-operator", "set verbosity to 2"),
        ("virt-api", "set verbosity to 4"),
        ("virt-operator", "news"),
        ("virt-api", "detail"),
        ("virt-api", "news"),
        ("virt-operator", "news"),
    ]


def _rate(qps: float, burst: int) -> JsonObject:
    return {"restClient": {"rateLimiter": {"tokenBucketRateLimiter": {"qps": qps, "burst": burst}}}}


@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        ({}, [(200, 400), (200, 400), (200, 400), (50, 100)]),
        (
            {"apiConfiguration": _rate(1, 2), "webhookConfiguration": _rate(3, 4)},
            [(1, 2), (3, 4), (200, 400), (50, 100)],
        ),
        (
            {"controllerConfiguration": _rate(0.5, 0), "handlerConfiguration": _rate(0, 6)},
            [(200, 400), (200, 400), (0.5, 400), (50, 6)],
        ),
    ],
)
def test_each_client_has_its_limit_of_requests(
    configuration: JsonObject, wanted: list[tuple[float, int]]
) -> None:
    config = ClusterConfig(_kubevirt(configuration))
    assert [(rate.qps, rate.burst) for rate in map(config.request_limit, REQUEST_LIMITS)] == wanted


@pytest.mark.feature("SUP-10")
@pytest.mark.looptime
async def test_limits_of_requests_are_taken_over_and_told(stream: io.StringIO) -> None:
    levels, loop = set_up_logging("virt-api", stream=stream), asyncio.get_running_loop()
    limits = request_limits(["virt-api"])
    assert set(limits) == {"virt-api", API_WEBHOOKS}
    reloader = Reloader(["virt-api"], levels, limits, ServersTLS())
    for _ in range(2):
        reloader.take_over(ClusterConfig(_kubevirt({"apiConfiguration": _rate(5, 10)})), "n")
    for _ in range(20):
        await limits["virt-api"].wait()
        await limits[API_WEBHOOKS].wait()
    assert loop.time() == pytest.approx(2, abs=0.1)
    told = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["msg"] for line in told if "rate" in line["msg"]] == [
        "setting rate limiter to 5 QPS and 10 Burst",
        "setting rate limiter to 200 QPS and 400 Burst",
    ]


@pytest.mark.parametrize(
    ("configuration", "wanted"),
    [
        ({}, TLSSettings()),
        ({"tlsConfiguration": {"minTLSVersion": "VersionTLS13"}}, TLSSettings((), "VersionTLS13")),
        (
            {
                "tlsConfiguration": {
                    "minTLSVersion": "VersionTLS12",
                    "ciphers": ["TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"],
                }
            },
            TLSSettings(("ECDHE-RSA-CHACHA20-POLY1305", "TLS_AES_128_GCM_SHA256"), "VersionTLS12"),
        ),
    ],
)
def test_versions_and_ciphers_are_those_of_the_configuration(
    configuration: JsonObject, wanted: TLSSettings
) -> None:
    assert tls_settings(ClusterConfig(_kubevirt(configuration))) == wanted


async def test_a_change_of_the_object_is_taken_over_and_its_end_too() -> None:
    api, levels = MemoryApi([KUBEVIRTS], whole=[KUBEVIRTS]), LogLevels("virt-handler", logging.INFO)
    context = Context(lambda _: api.client(), namespace="ns", node_name="n")
    changed = asyncio.Event()

    class Told(LogLevels):
        def set(self, component: str, level: int) -> None:
            levels.set(component, level)
            changed.set()

    async def level() -> int:
        async with asyncio.timeout(5):
            await changed.wait()
        changed.clear()
        return levels.of("virt-handler")

    root = logging.getLogger()
    usual = root.level
    task = asyncio.create_task(Reloader(["virt-handler"], Told("", 0), {}, ServersTLS()).run(context))
    try:
        client = context.client("virt-handler")
        await client.create(KUBEVIRTS, _kubevirt(_verbosity(virtHandler=9)))
        assert await level() == TRACE
        patch = {"spec": {"configuration": _verbosity(nodeVerbosity={"n": 3})}}
        await client.patch(KUBEVIRTS, "kubevirt", patch, "ns", type="merge")
        assert await level() == logging.DEBUG
        await client.delete(KUBEVIRTS, "kubevirt", "ns")
        assert await level() == logging.INFO
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        root.setLevel(usual)
