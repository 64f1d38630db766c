"""What the API server must know of cdi-apiserver."""

from __future__ import annotations

import base64

import pytest

from virtplane.operators.cdi import webhooks
from virtplane.operators.kit.product import Product
from virtplane.operators.kit.webhooks import Endpoint
from virtplane.storage.cdi.apiserver.reviews import WEBHOOKS

_PRODUCT = Product("cdi-operator", "storage", "cdi.kubevirt.io", "d", "c", "s")
_ENDPOINT = Endpoint(_PRODUCT, "cdi", "cdi-api", "cdi-apiserver-server-cert", "authority")

_CHANGES = ["CREATE", "UPDATE"]
_CDI = {
    "cdi-api-dataimportcron-validate": (
        "/dataimportcron-validate",
        _CHANGES,
        ["dataimportcrons"],
        "Fail",
        30,
    ),
    "cdi-api-datavolume-mutate": ("/datavolume-mutate", _CHANGES, ["datavolumes"], "Fail", 30),
    "cdi-api-datavolume-validate": ("/datavolume-validate", _CHANGES, ["datavolumes"], "Fail", 30),
    "cdi-api-populator-validate": (
        "/populator-validate",
        _CHANGES,
        ["volumeimportsources", "volumeuploadsources"],
        "Fail",
        30,
    ),
    "cdi-api-pvc-mutate": ("/pvc-mutate", ["CREATE"], ["persistentvolumeclaims"], "Fail", 10),
    "cdi-api-validate": ("/cdi-validate", ["DELETE"], ["cdis"], "Ignore", 30),
    "objecttransfer-api-validate": ("/objecttransfer-validate", _CHANGES, ["objecttransfers"], "Fail", 30),
}


def test_the_configurations_are_those_of_cdi() -> None:
    found = {}
    for document in webhooks.configurations(_ENDPOINT, must_guard_deletion=False):
        name, (webhook, *_) = document["metadata"]["name"], document["webhooks"]
        (rule,) = webhook["rules"]
        service = webhook["clientConfig"]["service"]
        assert (service["namespace"], service["name"]) == ("cdi", "cdi-api")
        assert base64.b64decode(webhook["clientConfig"]["caBundle"]) == b"authority"
        assert webhook["name"] == f"{service['path'].removeprefix('/')}.cdi.kubevirt.io"
        assert document["metadata"]["labels"] == {"cdi.kubevirt.io": "cdi-api"}
        found[name] = (
            service["path"],
            rule["operations"],
            rule["resources"],
            webhook["failurePolicy"],
            webhook["timeoutSeconds"],
        )
    own = found.pop("cdi-api-fields-warn")
    assert own[3] == "Ignore"
    assert found == _CDI


@pytest.mark.parametrize(("guarded", "policy"), [(True, "Fail"), (False, "Ignore")])
def test_whether_cdi_can_be_deleted_while_nobody_answers_is_up_to_the_operator(
    guarded: bool, policy: str
) -> None:
    documents = webhooks.configurations(_ENDPOINT, must_guard_deletion=guarded)
    (webhook,) = next(each for each in documents if each["metadata"]["name"] == "cdi-api-validate")[
        "webhooks"
    ]
    assert webhook["failurePolicy"] == policy


def test_only_claims_with_the_label_are_completed() -> None:
    documents = webhooks.configurations(_ENDPOINT, must_guard_deletion=True)
    selectors = [
        webhook["objectSelector"]
        for document in documents
        for webhook in document["webhooks"]
        if "objectSelector" in webhook
    ]
    assert selectors == [{"matchLabels": {"cdi.kubevirt.io/applyStorageProfile": "true"}}]


def test_every_webhook_is_registered() -> None:
    documents = webhooks.configurations(_ENDPOINT, must_guard_deletion=True)
    paths = {
        webhook["clientConfig"]["service"]["path"]
        for document in documents
        for webhook in document["webhooks"]
    }
    assert paths == set(WEBHOOKS)


def test_the_upload_api_is_aggregated() -> None:
    document = webhooks.api_service(_ENDPOINT)
    assert document["metadata"]["name"] == "v1beta1.upload.cdi.kubevirt.io"
    spec = document["spec"]
    assert (spec["groupPriorityMinimum"], spec["versionPriority"]) == (1000, 15)
