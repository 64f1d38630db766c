"""Loading aiohttp without the authorities that the machine trusts.

aiohttp makes two TLS contexts when it is loaded, for connections that name none, and has OpenSSL read its
file of authorities into each: 125 ms of processor time and 3 MiB of memory where there is one, in every
process. All connections of ours name the context that they want.
"""

from __future__ import annotations

import os

_FILE = "SSL_CERT_FILE"
"""Environment variable that names the file of authorities to OpenSSL."""


def load_aiohttp() -> None:
    """Load aiohttp; its own contexts trust no authority of OpenSSL's file. Contexts that are made later do.

    To be called before anything else imports aiohttp, while this process has one thread.
    """
    before = os.environ.get(_FILE)
    os.environ[_FILE] = os.devnull
    try:
        import aiohttp  # noqa: F401, PLC0415
    finally:
        if before is None:
            del os.environ[_FILE]
        else:
            os.environ[_FILE] = before
