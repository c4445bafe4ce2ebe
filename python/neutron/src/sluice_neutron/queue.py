"""What is to be looked at, and when: a thread, and a way to the thread of another process.

```text
  API process: postcommit ── datagram ──▶ periodic workers: Mailbox ─▶ Queue ─▶ the fabric
                    └── nobody is there ─▶ its own Queue ─▶ the fabric
```

Neutron's request ends without waiting for the fabric, and the work costs its process nothing: threads
of one Python take turns, so that an API process that asked the hosts itself would answer others
later. What is on its way when a process is killed, `Sync.reconcile` finds.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .facts import UUID

LOG = logging.getLogger(__name__)

#: Seconds before what failed is tried again.
DELAYS = (0.5, 1.0, 2.0, 5.0)
#: Looks that wait at most; the next comparison finds what is beyond.
WAITING_MAX = 1 << 16
#: Longest delay of a letter, in seconds.
DELAY_MAX = 60.0
#: Longest datagram.
LETTER_MAX = 1 << 16


@dataclass(frozen=True)
class Look:
    """A port or a network that is to be looked at."""

    kind: str
    id: str
    hosts: tuple[str, ...] = ()
    """Hosts that may have a port."""

    @staticmethod
    def read(text: bytes) -> tuple[Look, list[float]]:
        """Reads a letter. Raises `ValueError` if it is none."""
        kind, id, hosts, delays = json.loads(text)
        if kind not in ("port", "network") or not re.fullmatch(UUID, id):
            raise ValueError("no port and no network")
        times = [float(delay) for delay in delays]
        if not all(0 <= time <= DELAY_MAX for time in times):
            raise ValueError("no delay")
        return Look(kind, id, tuple(map(str, hosts))), times

    def write(self, delays: Iterable[float]) -> bytes:
        """Writes a letter."""
        return json.dumps([self.kind, self.id, self.hosts, list(delays)]).encode()


class Queue:
    """Looks in the order of their time, in one thread of each process."""

    def __init__(self, look: Callable[[Look], None]) -> None:
        self._look = look
        self._begin()

    def _begin(self) -> None:
        self._wake = threading.Condition()
        self._waiting: list[tuple[float, int, int, Look]] = []
        self._order = itertools.count()
        self._process = 0

    def put(self, look: Look, delays: Iterable[float], failed: int = 0) -> None:
        """Has something looked at after each of these delays."""
        if self._process not in (0, os.getpid()):
            # A fork has the lock of its parent, and not the thread.
            self._begin()
        with self._wake:
            now = time.monotonic()
            for delay in delays:
                if len(self._waiting) < WAITING_MAX:
                    row = (now + delay, next(self._order), failed, look)
                    heapq.heappush(self._waiting, row)
            if not self._process:
                self._process = os.getpid()
                threading.Thread(target=self._run, name="sluice", daemon=True).start()
            self._wake.notify()

    def _next(self) -> tuple[int, Look]:
        with self._wake:
            while True:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else None
                if left is not None and left <= 0:
                    _, _, failed, look = heapq.heappop(self._waiting)
                    return failed, look
                self._wake.wait(left)

    def _run(self) -> None:
        while True:
            failed, look = self._next()
            try:
                self._look(look)
            except Exception as error:  # The thread outlives whatever a look meets.
                if failed < len(DELAYS):
                    LOG.info("%s %s waits: %s", look.kind, look.id, error)
                    self.put(look, (DELAYS[failed],), failed + 1)
                else:
                    LOG.warning(
                        "%s %s waits for the next comparison: %s", look.kind, look.id, error
                    )


class Mailbox:
    """The way to the periodic workers of this machine.

    Its address is a name in the network namespace, made of what both have in their configuration.
    A letter says where to look, and not what to do: one of a stranger costs a look.
    """

    def __init__(self, *shared: str) -> None:
        digest = hashlib.sha256("\0".join(shared).encode()).hexdigest()
        self._address = f"\0sluice-neutron-{digest[:32]}"

    def send(self, look: Look, delays: Iterable[float]) -> bool:
        """Sends a letter. False: nobody is there, or too many letters wait."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.setblocking(False)
                sender.sendto(look.write(delays), self._address)
            except OSError:
                return False
        return True

    def open(self, queue: Queue) -> None:
        """Reads letters from now on, in a thread, if no other process does."""
        box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            box.bind(self._address)
        except OSError as error:
            LOG.warning("the API processes look after ports themselves: %s", error)
            box.close()
            return
        threading.Thread(target=self._read, args=(box, queue), name="sluice", daemon=True).start()

    @staticmethod
    def _read(box: socket.socket, queue: Queue) -> None:
        while True:
            letter = box.recv(LETTER_MAX)
            try:
                queue.put(*Look.read(letter))
            except (ValueError, TypeError) as error:
                LOG.warning("a letter of a stranger is left unread: %s", error)
