"""Tokens, token files and exec plug-ins."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from kubecore.client import ClientConfig, ConfigError, ExecPlugin
from kubecore.client.credentials import TOKEN_FILE_PERIOD_SECONDS, CredentialSource, parse_exec_credential

CONFIG = ClientConfig(server="https://api")


async def test_a_token_file_is_read_again_after_a_minute_and_on_demand(tmp_path: Path) -> None:
    clock = [0.0]
    path = tmp_path / "token"
    path.write_text("one\n")
    source = CredentialSource(ClientConfig(server="https://api", token_file=str(path)), lambda: clock[0])
    assert (await source.current()).authorization == "Bearer one"
    path.write_text("two")
    assert (await source.current()).authorization == "Bearer one"
    clock[0] = TOKEN_FILE_PERIOD_SECONDS
    assert (await source.current()).authorization == "Bearer two"
    path.write_text("three")
    assert source.refresh()
    assert (await source.current()).authorization == "Bearer three"


async def test_an_unreadable_token_file_falls_back_to_the_static_token(tmp_path: Path) -> None:
    config = ClientConfig(server="https://api", token_file=str(tmp_path / "absent"), token="static")
    assert (await CredentialSource(config).current()).authorization == "Bearer static"
    config = ClientConfig(server="https://api", token_file=str(tmp_path / "absent"))
    with pytest.raises(ConfigError, match="failed to read token file"):
        await CredentialSource(config).current()


async def test_static_credentials_are_never_refreshed() -> None:
    source = CredentialSource(ClientConfig(server="https://api", username="u", password="p"))
    assert (await source.current()).authorization == "Basic dTpw"
    assert not source.refresh()
    assert (await CredentialSource(CONFIG).current()).authorization == ""


async def test_a_plugin_is_told_about_the_cluster_and_its_answer_is_kept_until_it_expires() -> None:
    script = (
        "import json,os;info=json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "print(json.dumps({'status':{'token':info['spec']['cluster']['server']+os.environ['X'],"
        "'expirationTimestamp':'2030-01-01T00:00:00Z'}}))"
    )
    plugin = ExecPlugin(sys.executable, ("-c", script), {"X": "!"}, provide_cluster_info=True)
    source = CredentialSource(ClientConfig(server="https://api", exec_plugin=plugin), lambda: 0.0)
    assert (await source.current()).authorization == "Bearer https://api!"


async def test_a_missing_plugin_gives_its_hint_and_a_failing_one_its_exit_code() -> None:
    absent = ExecPlugin("/nonexistent/login", install_hint="install it")
    with pytest.raises(ConfigError, match="install it"):
        await CredentialSource(ClientConfig(server="https://api", exec_plugin=absent)).current()
    failing = ExecPlugin(sys.executable, ("-c", "raise SystemExit(3)"))
    with pytest.raises(ConfigError, match="exit code 3"):
        await CredentialSource(ClientConfig(server="https://api", exec_plugin=failing)).current()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ({}, "didn't return a token"),
        ({"clientCertificateData": "c"}, "only certificate or key"),
        ({"token": "t", "expirationTimestamp": "soon"}, "decoding stdout"),
    ],
)
def test_an_incomplete_answer_of_a_plugin_is_refused(status: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_exec_credential(orjson.dumps({"status": status}), CONFIG)
    with pytest.raises(ConfigError, match="decoding stdout"):
        parse_exec_credential(b"no json", CONFIG)


def test_a_plugin_may_return_a_certificate() -> None:
    status = {"clientCertificateData": "cert", "clientKeyData": "key"}
    credentials, until = parse_exec_credential(orjson.dumps({"status": status}), CONFIG)
    assert (credentials.client_cert, credentials.client_key) == (b"cert", b"key")
    assert until == float("inf")
