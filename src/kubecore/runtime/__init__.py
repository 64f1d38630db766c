"""The controller runtime: informers, work queues, controllers, leader election, events, health.

The vocabulary and the algorithms are those of client-go and controller-runtime; everything runs on
asyncio, in one thread.
"""

from kubecore.logs import set_up_logging
from kubecore.runtime.component import (
    CannotRun,
    Component,
    ComponentEnded,
    Context,
    run_components,
    until_signalled,
)
from kubecore.runtime.controller import (
    DONE,
    Controller,
    Done,
    RequeueAfter,
    Result,
    own_key,
)
from kubecore.runtime.events import EventKind, EventRecorder
from kubecore.runtime.expectations import Expectations
from kubecore.runtime.health import Health, serve_health
from kubecore.runtime.informer import Informer
from kubecore.runtime.leader import LeaderElector, LeadershipLost
from kubecore.runtime.manager import Manager
from kubecore.runtime.queue import QueueShutDown, WorkQueue
from kubecore.runtime.store import Key, key_of

__all__ = [
    "DONE",
    "CannotRun",
    "Component",
    "ComponentEnded",
    "Context",
    "Controller",
    "Done",
    "EventKind",
    "EventRecorder",
    "Expectations",
    "Health",
    "Informer",
    "Key",
    "LeaderElector",
    "LeadershipLost",
    "Manager",
    "QueueShutDown",
    "RequeueAfter",
    "Result",
    "WorkQueue",
    "key_of",
    "own_key",
    "run_components",
    "serve_health",
    "set_up_logging",
    "until_signalled",
]
