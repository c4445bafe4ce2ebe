"""A thread with what is to be looked at, and when.

Neutron's request ends without waiting for the fabric. What is in the queue when its process is
killed, `Sync.reconcile` finds.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable

LOG = logging.getLogger(__name__)

#: Seconds before what failed is tried again.
DELAYS = (0.5, 1.0, 2.0, 5.0)

Job = Callable[[], None]


class Queue:
    """Jobs in the order of their time, in one thread of each process."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._wake = threading.Condition()
        self._jobs: list[tuple[float, int, str, int, Job]] = []
        self._order = itertools.count()
        self._process = 0

    def put(self, what: str, job: Job, delays: Iterable[float] = (0.0,), failed: int = 0) -> None:
        """Adds a job, to be done after each of these delays."""
        if self._process not in (0, os.getpid()):
            # A fork has the lock of its parent, and not the thread.
            self._begin()
        with self._wake:
            now = time.monotonic()
            for delay in delays:
                heapq.heappush(self._jobs, (now + delay, next(self._order), what, failed, job))
            if not self._process:
                self._process = os.getpid()
                threading.Thread(target=self._run, name="sluice", daemon=True).start()
            self._wake.notify()

    def _next(self) -> tuple[str, int, Job]:
        with self._wake:
            while True:
                left = self._jobs[0][0] - time.monotonic() if self._jobs else None
                if left is not None and left <= 0:
                    _, _, what, failed, job = heapq.heappop(self._jobs)
                    return what, failed, job
                self._wake.wait(left)

    def _run(self) -> None:
        while True:
            what, failed, job = self._next()
            try:
                job()
            except Exception as error:  # The thread outlives whatever a job meets.
                if failed < len(DELAYS):
                    LOG.info("%s waits: %s", what, error)
                    self.put(what, job, (DELAYS[failed],), failed + 1)
                else:
                    LOG.warning("%s waits for the next comparison: %s", what, error)
