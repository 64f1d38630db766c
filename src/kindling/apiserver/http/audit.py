"""The audit log: one audit.k8s.io/v1 Event per finished request, as JSON lines, at level Metadata."""

from __future__ import annotations

import logging
import queue
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson

from kubecore.json import JsonObject
from kubecore.objects import times

from .call import Call

_LOG = logging.getLogger(__name__)
_MAX_QUEUED = 20_000
_MAX_BYTES = 100 * 1024 * 1024


class AuditLog:
    """Writes events in a thread of its own; the file is rotated at 100 MiB, keeping one old file. When the
    disk is too slow, events are dropped and counted; requests never wait.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.Queue[JsonObject | None] = queue.Queue(_MAX_QUEUED)
        self._dropped = 0
        self._thread = threading.Thread(target=self._write, name="audit-log", daemon=True)
        self._thread.start()

    def observe(self, call: Call, status: int, seconds: float) -> None:
        """Log a finished request."""
        try:
            self._queue.put_nowait(audit_event(call, status, seconds))
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Write queued events and stop; blocks."""
        self._queue.put(None)
        self._thread.join()

    def _write(self) -> None:
        file = self._path.open("ab")
        try:
            while True:
                event = self._queue.get()
                if event is None:
                    return
                file.write(orjson.dumps(event) + b"\n")
                if self._queue.empty():
                    file.flush()
                if file.tell() > _MAX_BYTES:
                    file.close()
                    self._path.replace(self._path.with_suffix(self._path.suffix + ".1"))
                    file = self._path.open("ab")
        except OSError as error:
            _LOG.error("The audit log cannot be written", extra={"err": str(error)})
        finally:
            file.close()


def audit_event(call: Call, status: int, seconds: float) -> JsonObject:
    """The event of a finished request."""
    info, request = call.info, call.request
    finished = datetime.now(UTC)
    event: JsonObject = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": call.audit_id,
        "stage": "ResponseComplete",
        "requestURI": request.path_qs,
        "verb": info.verb,
        "user": call.user.to_json(),
        "sourceIPs": [request.remote] if request.remote else [],
        "userAgent": request.headers.get("User-Agent", ""),
        "responseStatus": {"metadata": {}, "code": status},
        "requestReceivedTimestamp": times.format_micro_time(finished - timedelta(seconds=seconds)),
        "stageTimestamp": times.format_micro_time(finished),
    }
    if info.is_resource:
        reference = {
            "resource": info.resource,
            "namespace": info.namespace,
            "name": info.name,
            "apiGroup": info.group,
            "apiVersion": info.version,
            "subresource": info.subresource,
        }
        event["objectRef"] = {key: value for key, value in reference.items() if value}
    return event
