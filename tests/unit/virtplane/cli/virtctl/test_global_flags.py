"""The flags that every command has: whom the server is told, where it is, and what cannot be meant."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from virtplane.cli.virtctl.globalflags import repeated

from .conftest import SUB, FakeServer, Virtctl
from .test_streams import SOURCES

_START = f"{SUB}/default/virtualmachines/vm/start"


@pytest.fixture
def kubeconfig(api: FakeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with two clusters, of which only ``here`` exists, and two users."""
    clusters = {"here": api.url, "away": "http://127.0.0.1:9"}
    users = {"ann": {"token": "of-ann"}, "bob": {"username": "bob", "password": "secret"}}
    content = {
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in clusters.items()],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": "c", "context": {"cluster": "away", "user": "ann", "namespace": "lab"}}],
        "current-context": "c",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def _run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """virtctl without ``--server``."""
    command = [sys.executable, "-m", "virtplane.cli.virtctl.main", *arguments]
    settings = {"PYTHONPATH": str(SOURCES), "PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=15, check=False, env=settings)


def test_entries_of_the_kubeconfig_replace_those_of_the_context(api: FakeServer, kubeconfig: Path) -> None:
    line = ("start", "vm", "--cluster", "here", "--user", "bob", "--kubeconfig", str(kubeconfig))
    ended = _run(*line)
    assert ended.returncode == 0, ended.stderr
    assert api.requests[0][1] == f"{SUB}/lab/virtualmachines/vm/start"
    assert api.headers[0]["Authorization"].startswith("Basic ")


def test_whom_a_user_acts_as_is_told_to_the_server(api: FakeServer, virtctl: Virtctl) -> None:
    given = ["--as", "ann", "--as-uid", "7", "--as-group", "crew"]
    assert virtctl("start", "vm", *given).code == 0
    headers = api.headers[0]
    told = [headers[f"Impersonate-{what}"] for what in ("User", "Uid", "Group")]
    assert told == ["ann", "7", "crew"]


def test_a_name_and_a_password_are_basic_authentication(api: FakeServer, virtctl: Virtctl) -> None:
    assert virtctl("start", "vm", "--username", "u", "--password", "p").code == 0
    assert api.headers[0]["Authorization"] == "Basic dTpw"


@pytest.mark.parametrize(("given", "seconds"), [("5", "5s"), ("1m", "60s"), ("0", "")])
def test_the_server_is_told_how_long_a_request_may_take(
    api: FakeServer, virtctl: Virtctl, given: str, seconds: str
) -> None:
    assert virtctl("start", "vm", "--request-timeout", given).code == 0
    assert api.requests[0][1] == _START + (f"?timeout={seconds}" if seconds else "")


def test_a_server_that_does_not_answer_in_time_is_given_up(api: FakeServer, virtctl: Virtctl) -> None:
    api.delays.add(_START)
    result = virtctl("start", "vm", "--request-timeout", "200ms")
    assert result.code == 1
    assert result.err.endswith("failed: no answer in time\n")


@pytest.mark.parametrize(("given", "encoding"), [([], "gzip"), (["--disable-compression"], "identity")])
def test_answers_may_be_asked_for_without_compression(
    api: FakeServer, virtctl: Virtctl, given: list[str], encoding: str
) -> None:
    assert virtctl("start", "vm", *given).code == 0
    assert encoding in api.headers[0]["Accept-Encoding"]


@pytest.mark.feature("CTL-13")
def test_requests_are_logged_from_level_six_on(api: FakeServer) -> None:
    quiet, told = (_run("start", "vm", "-v", level, "--server", api.url) for level in ("5", "6"))
    assert _START not in quiet.stderr
    assert f"PUT {_START}: 200" in told.stderr
    assert quiet.stdout == told.stdout == "VM vm was scheduled to start\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--context gone", 'context "gone" does not exist'),
        ("--cluster gone", 'cluster "gone" does not exist'),
        ("--user gone", 'auth info "gone" does not exist'),
        ("--kubeconfig /nowhere/config", "stat /nowhere/config: no such file or directory"),
        (
            "--as-group crew",
            "invalid configuration: requesting uid, groups or user-extra for  without impersonating a user",
        ),
        (
            "--token t --username u --password p",
            "invalid configuration: more than one authentication method found for ;"
            " found [token basicAuth], only one is allowed",
        ),
        (
            "--request-timeout soon",
            "Invalid timeout value. Timeout must be a single integer in seconds, or an integer followed by a"
            " corresponding time unit (e.g. 1s | 2m | 3h)",
        ),
        (
            "--proxy-url ftp://p:1",
            'invalid configuration: invalid \'proxy-url\' "ftp://p:1" for cluster "": unsupported scheme'
            ' "ftp", must be http, https, or socks5',
        ),
        (
            "--certificate-authority /nowhere.pem",
            "invalid configuration: unable to read certificate-authority /nowhere.pem for  due to"
            " open /nowhere.pem: no such file or directory",
        ),
        (
            "--client-certificate /nowhere.pem",
            "invalid configuration: [client-key-data or client-key must be specified for  to use the"
            " clientCert authentication method., unable to read client-cert /nowhere.pem for  due to"
            " open /nowhere.pem: no such file or directory]",
        ),
    ],
)
def test_flags_that_cannot_be_meant_are_told(api: FakeServer, virtctl: Virtctl, line: str, said: str) -> None:
    result = virtctl("start", "vm", *line.split())
    assert (result.code, result.err) == (1, f"{said}\n")
    assert api.requests == []


def test_a_started_virtctl_gets_the_flags_that_lead_to_the_server() -> None:
    given = {
        "as_user": "ann",
        "as_group": ("a", "b"),
        "insecure_skip_tls_verify": True,
        "disable_compression": False,
        "namespace": "lab",
        "request_timeout": "0",
        "verbosity": 4,
        "tls_server_name": "n",
    }
    wanted = ["--as=ann", "--as-group=a", "--as-group=b", "--insecure-skip-tls-verify", "--tls-server-name=n"]
    assert repeated(given) == wanted
