"""moto, an S3 server of others that checks signatures and policies, as a process of its own (a pytest plugin:
`tests/conftest.py` names it).

It needs versions that the other packages for tests cannot have (python-dateutil before 3), so it has an
environment of its own, made of ``moto.lock`` beside this module.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.environments import install_environment

_LOCK = Path(__file__).with_name("moto.lock")
_INSTALL_SECONDS = 300

# Until the check of who asks is turned on, everybody may do everything.
_SERVER = """
import json, logging, pathlib, signal, sys, urllib.request
import boto3
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel("ERROR")
server = ThreadedMotoServer(ip_address=sys.argv[1], port=int(sys.argv[2]), verbose=False)
server.start()
host, port = server.get_host_and_port()
endpoint = f"http://{host}:{port}"
session = boto3.Session("x", "x", region_name="us-east-1")
iam, s3 = (session.client(name, endpoint_url=endpoint) for name in ("iam", "s3"))
s3.create_bucket(Bucket="disks")
for file in sorted(pathlib.Path(sys.argv[3]).iterdir()):
    s3.upload_file(str(file), "disks", file.name)
print(f"{endpoint}/disks")
for user, action in (("reader", "s3:GetObject"), ("stranger", "s3:PutObject")):
    iam.create_user(UserName=user)
    statement = {"Effect": "Allow", "Action": action, "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName=user, PolicyName="only", PolicyDocument=policy)
    made = iam.create_access_key(UserName=user)["AccessKey"]
    print(made["AccessKeyId"], made["SecretAccessKey"])
headers = {"Content-Type": "application/octet-stream"}
urllib.request.urlopen(urllib.request.Request(f"{endpoint}/moto-api/reset-auth", b"0", headers)).close()
print("ready", flush=True)
signal.pause()
"""


@dataclass(frozen=True)
class Keys:
    """An access key with its secret."""

    access: str
    secret: str


@dataclass(frozen=True)
class Bucket:
    """A bucket at `address`, path-style, which `reader` may read, and `stranger`, also known, may not."""

    address: str
    reader: Keys
    stranger: Keys


def moto_environment(folder: Path) -> Path:
    """The interpreter of a new environment with moto in `folder`. Raises CalledProcessError."""
    install_environment(folder, _LOCK, seconds=_INSTALL_SECONDS)
    return folder / "bin/python"


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has moto."""
    try:
        return moto_environment(tmp_path_factory.mktemp("moto") / "environment")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the packages of moto cannot be fetched: {error.stderr!r}")


@contextmanager
def serving_bucket(
    python: Path, files: Path, address: str = "127.0.0.1", port: int = 0, network: Sequence[str] = ()
) -> Iterator[Bucket]:
    """A server that has the files of a folder in one bucket; `network` runs commands where its address is."""
    environment = {name: text for name, text in os.environ.items() if not name.lower().endswith("_proxy")}
    environment["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000000"
    command = [*network, str(python), "-c", _SERVER, address, str(port), str(files)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline().split() for _ in range(4)]
            assert lines[-1] == ["ready"], lines
            yield Bucket(lines[0][0], Keys(*lines[1]), Keys(*lines[2]))
        finally:
            server.kill()
