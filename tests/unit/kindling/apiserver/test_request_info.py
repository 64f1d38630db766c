"""What URLs mean."""

from __future__ import annotations

import pytest

from kindling.apiserver.http.request_info import parse, refine_list


@pytest.mark.parametrize(
    ("method", "path", "verb", "namespace", "resource", "name", "subresource"),
    [
        ("GET", "/api/v1/pods", "list", "", "pods", "", ""),
        ("GET", "/api/v1/namespaces/n/pods", "list", "n", "pods", "", ""),
        ("GET", "/api/v1/namespaces/n/pods/p", "get", "n", "pods", "p", ""),
        ("GET", "/api/v1/namespaces/n/pods/p/log", "get", "n", "pods", "p", "log"),
        ("POST", "/api/v1/namespaces", "create", "", "namespaces", "", ""),
        ("GET", "/api/v1/namespaces/n", "get", "n", "namespaces", "n", ""),
        ("PUT", "/api/v1/namespaces/n/finalize", "update", "n", "namespaces", "n", "finalize"),
        ("DELETE", "/apis/apps/v1/namespaces/n/deployments", "deletecollection", "n", "deployments", "", ""),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
            "patch",
            "n",
            "deployments",
            "d",
            "scale",
        ),
        ("GET", "/api/v1/watch/namespaces/n/pods", "watch", "n", "pods", "", ""),
        ("GET", "/api/v1/nodes/a%2Fb", "get", "", "nodes", "a/b", ""),
    ],
)
def test_resource_paths_name_verb_namespace_resource_and_subresource(
    method: str, path: str, verb: str, namespace: str, resource: str, name: str, subresource: str
) -> None:
    info = parse(method, path)
    assert info.is_resource
    found = (info.verb, info.namespace, info.resource, info.name, info.subresource)
    assert found == (verb, namespace, resource, name, subresource)


@pytest.mark.parametrize("path", ["/", "/api", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"])
def test_other_paths_are_no_resources_and_keep_the_method_as_verb(path: str) -> None:
    info = parse("GET", path)
    assert not info.is_resource
    assert info.verb == "get"


def test_a_watch_of_one_name_is_authorized_by_that_name() -> None:
    info = parse("GET", "/api/v1/namespaces/n/secrets")
    refine_list(info, watch=True, name_selected="one")
    assert (info.verb, info.name) == ("watch", "one")
