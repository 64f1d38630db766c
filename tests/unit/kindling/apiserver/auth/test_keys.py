"""Keys of service account tokens: read late, refused early where that is possible."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kindling.apiserver.auth.keys import Keys, load_or_create_key, new_key


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "service-account.key"
    made = load_or_create_key(path)
    assert load_or_create_key(path) == made
    assert path.stat().st_mode & 0o777 == 0o600


def test_what_is_no_key_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="not in PEM form"):
        Keys([new_key(), b"a password"])


def test_a_key_that_cannot_be_read_is_refused_when_it_is_needed() -> None:
    keys = Keys([b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
    with pytest.raises(ValueError):
        _ = keys.ring


def test_a_server_without_tokens_does_not_load_what_signs_them() -> None:
    program = (
        "import sys\n"
        "import kindling.apiserver.main\n"
        "packages = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*packages & {'cel_expr_python', 'cryptography', 'google', 'joserfc'})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_server_without_keys_signs_with_one_that_it_makes_at_the_first_token() -> None:
    keys = Keys(())
    assert "ring" not in vars(keys)
    token = keys.ring.sign({"sub": "system:serviceaccount:a:b"})
    assert keys.ring.verified(token) == {"sub": "system:serviceaccount:a:b"}
    assert Keys(()).ring.verified(token) is None
