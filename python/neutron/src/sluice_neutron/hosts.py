"""The hosts of the fabric, each asked by itself for its ports, and any of them for the fabric."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sluice_client import Client, Problem, Remote, Unreachable, Way

from . import facts

T = TypeVar("T")

#: Times that a change is sent by one key while its answer does not come.
TRIES = 3
#: Seconds before it is sent again.
PAUSE = 0.2


class Hosts:
    """The hosts that the configuration names."""

    def __init__(self, conf: Any) -> None:
        self._conf = conf
        self.names: tuple[str, ...] = tuple(conf.hosts)

    def _client(self, host: str) -> Client:
        at = self._conf.hosts[host]
        timeout = float(self._conf.timeout)
        if at.startswith("/"):
            return Client(at, timeout)
        member = self.member(host)
        # Read each time, so that a new token counts without a restart.
        path = os.path.join(self._conf.token_dir, f"{member}.token")
        with open(path, encoding="ascii") as file:
            token = file.read().strip()
        return Client(Remote(at, token, member, self._conf.authority), timeout)

    def _once(self, host: str, change: Callable[[Client], T]) -> T:
        """Makes a change once. The key is of this change alone: the same change may be needed
        again, after somebody undid it, and must not get the old answer."""
        client = self._client(host).once(str(uuid.uuid4()))
        for _ in range(TRIES - 1):
            try:
                return change(client)
            except Unreachable as error:
                if not error.may_have_happened:
                    raise
            except Problem as problem:
                if not (problem.may_have_happened or problem.code in ("in_progress", "busy")):
                    raise
            time.sleep(PAUSE)
        return change(client)

    # Ports of a host.

    def ports(self, host: str) -> dict[str, dict[str, Any]]:
        """Returns the ports that were added to a host, by name."""
        rows = [cast(dict[str, Any], row["port"]) for row in self._client(host).ports()]
        return {row["name"]: row for row in rows}

    def put_port(self, host: str, port: Mapping[str, Any]) -> None:
        """Adds a port, or gives one that is there other addresses."""
        body = cast(Any, dict(port))
        if "mac" in port:
            # Neutron is the authority for the addresses of its networks.
            body |= {"change": True} if port.get("standby") else {"change": True, "move": True}
        self._once(host, lambda client: client.add_port(body))

    def delete_port(self, host: str, name: str) -> None:
        """Deletes a port; one that is not there is deleted already."""
        try:
            self._once(host, lambda client: client.delete_port(name))
        except Problem as problem:
            if problem.status != 404:
                raise

    def member(self, host: str) -> str:
        """Returns the name of a host in the fabric."""
        return cast(str, self._conf.members.get(host, host))

    # The fabric, which every host knows.

    def _any(self, ask: Callable[[str], T]) -> T:
        last: Exception = Unreachable("[ml2_sluice] hosts", "no host is named", False)
        for host in self.names:
            try:
                return ask(host)
            except (Unreachable, OSError) as error:
                last = error
            except Problem as problem:
                # This one is not ready, or our token there may not do it.
                if problem.status not in (401, 403, 503):
                    raise
                last = problem
        raise last

    def configuration(self) -> dict[str, Any]:
        """Returns the configuration of the fabric."""
        read = self._any(lambda host: self._client(host).config())
        return cast(dict[str, Any], read["config"])

    def owners(self) -> dict[tuple[str, str], str]:
        """Returns the member that each endpoint is at, by network and MAC."""
        rows = self._any(lambda host: self._client(host).vports())
        return {(row["vnet"], row["mac"]): row["host"] for row in rows}

    def change(self, operations: Sequence[Mapping[str, Any]], comment: str) -> None:
        """Changes the configuration of the fabric, all of it or nothing."""
        way = Way(comment=comment)
        self._any(lambda host: self._once(host, lambda client: client.change(operations, way)))


def differs(wanted: Mapping[str, Any], there: Mapping[str, Any] | None) -> bool:
    """Returns true if a host does not have the port that it shall have."""
    return there is None or not facts.same(wanted, there)
