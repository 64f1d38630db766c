"""The side of S3 that checks who asks: Signature Version 4, computed from the request as it came."""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from aiohttp import web

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>[^/,]+)/(?P<day>\d{8})/(?P<region>[^/,]+)/s3/aws4_request, ?"
    r"SignedHeaders=(?P<headers>[a-z0-9;-]+), ?Signature=(?P<signature>[0-9a-f]{64})$"
)
_OUGHT_TO_BE_SIGNED = frozenset({"host", "x-amz-content-sha256", "x-amz-date"})
_GOOD_FOR = timedelta(minutes=15)
_PLAIN = re.compile(rb"[A-Za-z0-9_.~/-]")


@dataclass
class SignatureCheck:
    """Lets in whoever signs with `secret`; says in `refusals` why others were not let in."""

    key: str
    secret: str
    region: str
    refusals: list[str] = field(default_factory=list)

    def __call__(self, request: web.Request) -> bool:
        problem = self._problem(request)
        if problem:
            self.refusals.append(problem)
        return not problem

    def _problem(self, request: web.Request) -> str:
        found = _AUTHORIZATION.match(request.headers.get("Authorization", ""))
        if found is None:
            return "AccessDenied"
        if found["key"] != self.key:
            return "InvalidAccessKeyId"
        moment = request.headers.get("x-amz-date", "")
        try:
            at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            return "AccessDenied"
        if abs(datetime.now(UTC) - at) > _GOOD_FOR:
            return "RequestTimeTooSkewed"
        if found["region"] != self.region or not moment.startswith(found["day"]):
            return "AuthorizationHeaderMalformed"
        names = found["headers"].split(";")
        ought = _OUGHT_TO_BE_SIGNED | {name.lower() for name in request.headers if name.lower() == "range"}
        if not ought <= set(names) or names != sorted(names):
            return "AccessDenied"
        if request.headers["x-amz-content-sha256"] != hashlib.sha256(b"").hexdigest():
            return "XAmzContentSHA256Mismatch"
        signature = self._signature(_canonical(request, names), moment, found["day"])
        return "" if hmac.compare_digest(signature, found["signature"]) else "SignatureDoesNotMatch"

    def _signature(self, canonical: str, moment: str, day: str) -> str:
        scope = f"{day}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = b"AWS4" + self.secret.encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}".encode(), "sha256").hex()


def _canonical(request: web.Request, names: list[str]) -> str:
    path, _, query = request.raw_path.partition("?")
    pairs = [each if "=" in each else each + "=" for each in query.split("&") if each]
    lines = [f"{name}:{' '.join(request.headers[name].split())}\n" for name in names]
    return "\n".join(
        (
            request.method,
            _encoded(path),
            "&".join(sorted(pairs)),
            "".join(lines),
            ";".join(names),
            request.headers["x-amz-content-sha256"],
        )
    )


def _encoded(path: str) -> str:
    """The path with every byte but plain ones as ``%XX``, whatever the client has left as it was."""
    unquoted = re.sub(rb"%([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), path.encode())
    pieces = (bytes([byte]) for byte in unquoted)
    return "".join(each.decode() if _PLAIN.match(each) else f"%{each[0]:02X}" for each in pieces)
