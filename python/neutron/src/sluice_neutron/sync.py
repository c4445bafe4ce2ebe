"""Makes the fabric what Neutron's database says.

Everything is decided by what the database says *now*, not by what an event said: an event only
tells which port or network to look at. After a change the database is read again, and what has
changed meanwhile is done once more. So it does not matter how many processes look at one port, nor
in which order, and one that is killed in between leaves nothing that the next comparison of
everything (`Sync.reconcile`) does not find.

```text
  reconcile: list the fabric ─▶ read the database ─▶ what differs ─▶ port(id), network(id)
```

The fabric is listed first: what was in it then, and is not in the database later, was deleted. The
other order would take a port for a stray one that came in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sluice_client import Problem

from . import facts
from .facts import Network, Port, Rules
from .hosts import Hosts, differs
from .queue import Look

LOG = logging.getLogger(__name__)

#: Times that a port is done again because the database changed meanwhile.
ROUNDS = 8
REFUSED = 409


class Facts(Protocol):
    """The database."""

    def port(self, id: str) -> Port | None:
        """Returns a port."""

    def revision(self, id: str) -> int | None:
        """Returns the revision number of a port."""

    def ports(self) -> dict[str, Port]:
        """Returns all ports that the driver has bound."""

    def network(self, id: str) -> Network | None:
        """Returns a network."""

    def networks(self) -> dict[str, Network]:
        """Returns all networks with a VXLAN segment."""

    def complete(self, port: str) -> None:
        """Tells that a port is in the fabric."""


@dataclass
class Found:
    """Outcome of a comparison of everything."""

    ports: list[str] = field(default_factory=list)
    """Ports that differed, or were left over."""
    networks: list[str] = field(default_factory=list)
    """Networks that differed, or were left over."""
    silent: list[str] = field(default_factory=list)
    """Hosts that could not be asked."""
    failed: list[str] = field(default_factory=list)
    """Ports and networks that could not be repaired."""


class Sync:
    """The way from the database to the fabric."""

    def __init__(self, database: Facts, hosts: Hosts, rules: Rules) -> None:
        self._database = database
        self._hosts = hosts
        self._rules = rules
        self._robbed: set[str] = set()
        """Ports whose addresses were at another host at the last comparison."""

    def look(self, look: Look) -> None:
        """Looks at a port or a network."""
        if look.kind == "port":
            self.port(look.id, look.hosts)
        else:
            self.network(look.id)

    # One port.

    def port(self, id: str, hosts: Iterable[str] = (), anew: bool = False) -> None:
        """Makes a port what the database says; `hosts` may still have it.

        With `anew` it is deleted at its hosts first.
        """
        seen = {host for host in hosts if host in self._hosts.names}
        for _ in range(ROUNDS):
            port = self._database.port(id)
            wanted = self._rules.ports(port) if port else {}
            for host, new in wanted.items():
                if anew:
                    self._hosts.delete_port(host, self._rules.name(id))
                self._put(host, new, port.network if port else "")
            anew = False
            for host in sorted(seen - set(wanted)):
                self._hosts.delete_port(host, self._rules.name(id))
            seen |= set(wanted)
            if self._database.revision(id) == (port.revision if port else None):
                break
        else:
            raise RuntimeError(f"port {id} changes all the time")
        if port and not port.is_up and any(b.is_active for b in port.bindings):
            self._database.complete(id)

    def _put(self, host: str, new: Mapping[str, Any], network: str) -> None:
        try:
            return self._hosts.put_port(host, new)
        except Problem as problem:
            if problem.status != REFUSED:
                raise
            there = self._hosts.ports(host).get(str(new["name"]))
            if there is None:
                # Perhaps the fabric does not have its network yet.
                if not self.network(network):
                    raise
            elif facts.can_change(new, there):
                raise
            else:
                LOG.info("port %s at %s is made anew: %s", new["name"], host, problem.message)
                self._hosts.delete_port(host, str(new["name"]))
        self._hosts.put_port(host, new)

    # One network.

    def network(self, id: str) -> bool:
        """Makes a network what the database says. Returns true if something was to be done."""
        there = self._hosts.configuration()
        network = self._database.network(id)
        operations = self._operations(id, network, there)
        if not operations:
            return False
        revision = f", revision {network.revision}" if network else ", deleted"
        self._hosts.change(operations, f"Neutron network {id}{revision}")
        return True

    def _operations(
        self, id: str, network: Network | None, there: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        name = self._rules.name(id)
        has = there.get("vnets", {}).get(name)
        wanted = self._rules.network(network) if network and network.vni is not None else None
        operations: list[dict[str, Any]] = []
        vlans = set(network.vlans) if network and wanted else set()
        mapped = {
            (trunk, int(number)): vlan["vnet"]
            for trunk, numbers in there.get("vlans", {}).items()
            for number, vlan in numbers.items()
        }
        for (trunk, number), vnet in sorted(mapped.items()):
            if vnet == name and (trunk, number) not in vlans:
                operations.append({"set_vlan": {"trunk": trunk, "number": number}})
        if wanted is None:
            if has is not None:
                operations.append({"delete_vnet": {"name": name}})
            return operations
        if has is None:
            operations.append({"create_vnet": {"name": name, "vnet": wanted}})
        elif has.get("vni") != wanted["vni"]:
            raise Problem(REFUSED, "refused", f"network {name} has VNI {has.get('vni')}, and not "
                          f"{wanted['vni']}", "delete its ports and the network in the fabric")
        elif has.get("mtu") != wanted["mtu"]:
            change = {"name": name, "key": "mtu", "value": wanted["mtu"]}
            operations.append({"set_vnet": change})
        for trunk, number in sorted(vlans):
            if mapped.get((trunk, number)) != name:
                vlan = {"trunk": trunk, "number": number, "vlan": {"vnet": name}}
                operations.append({"set_vlan": vlan})
        return operations

    # Everything.

    def reconcile(self) -> Found:
        """Compares the whole database with the whole fabric, and repairs what differs."""
        found = Found()
        there = self._list(found)
        try:
            configuration = self._hosts.configuration()
        except (Problem, OSError) as error:
            LOG.warning("the fabric cannot be compared: %s", error)
            configuration = None
        ports = self._database.ports()
        if configuration is not None:
            self._networks(configuration, found, gone=False)
        for id, hosts in self._differing(ports, there).items():
            found.ports.append(id)
            self._try(found, id, lambda id=id, hosts=hosts: self.port(id, hosts))
        for id in self._robbed_twice(ports, set(found.ports), found):
            found.ports.append(id)
            self._try(found, id, lambda id=id: self.port(id, anew=True))
        for id, port in ports.items():
            is_there = all(b.host in there for b in port.bindings)
            if not port.is_up and is_there and id not in found.ports:
                self._try(found, id, lambda id=id: self.port(id))
        if configuration is not None:
            # Networks go last: a port keeps its network.
            self._networks(configuration, found, gone=True)
        if found.ports or found.networks or found.silent:
            LOG.info("reconciled: %s", found)
        return found

    def _robbed_twice(self, ports: Mapping[str, Port], differ: set[str], found: Found) -> list[str]:
        """Returns the ports whose addresses have been at another host for two comparisons.

        A port that lost them to another one (`--move`, a host that was taken for dead) looks as it
        should, and is bound no more. Once alone may be a port that is about to move.
        """
        try:
            owners = self._hosts.owners()
        except (Problem, OSError) as error:
            LOG.warning("the endpoints cannot be compared: %s", error)
            return []
        robbed = set()
        for id, port in ports.items():
            active = [b.host for b in port.bindings if b.is_active]
            owner = owners.get((self._rules.name(port.network), port.mac.lower()))
            if not active or owner is None or not port.is_secured or id in differ:
                continue
            if active[0] not in found.silent and owner != self._hosts.member(active[0]):
                robbed.add(id)
        twice, self._robbed = robbed & self._robbed, robbed
        return sorted(twice)

    def _list(self, found: Found) -> dict[str, dict[str, dict[str, Any]]]:
        there = {}
        for host in self._hosts.names:
            try:
                there[host] = self._hosts.ports(host)
            except (Problem, OSError) as error:
                LOG.warning("host %s cannot be compared: %s", host, error)
                found.silent.append(host)
        return there

    def _differing(
        self, ports: Mapping[str, Port], there: Mapping[str, Mapping[str, dict[str, Any]]]
    ) -> dict[str, set[str]]:
        """Returns the ports that differ at some host, and these hosts."""
        differing: dict[str, set[str]] = {}
        for id, port in ports.items():
            try:
                wanted = self._rules.ports(port)
            except facts.Unsupported as error:
                LOG.error("port %s: %s", id, error)
                continue
            for host, new in wanted.items():
                if host in there and differs(new, there[host].get(self._rules.name(id))):
                    differing.setdefault(id, set()).add(host)
        for host, rows in there.items():
            for name in rows:
                own = self._rules.id(name)
                if own and (own not in ports or host not in {b.host for b in ports[own].bindings}):
                    differing.setdefault(own, set()).add(host)
        return differing

    def _networks(self, there: Mapping[str, Any], found: Found, gone: bool) -> None:
        networks = self._database.networks()
        marked = {self._rules.id(name) for name in there.get("vnets", {})} - {None}
        ids = sorted(id for id in marked - set(networks) if id) if gone else sorted(networks)
        for id in ids:
            try:
                differs_now = bool(self._operations(id, networks.get(id), there))
            except Problem as problem:
                LOG.error("network %s: %s", id, problem)
                found.failed.append(id)
                continue
            if differs_now:
                found.networks.append(id)
                self._try(found, id, lambda id=id: self.network(id))

    def _try(self, found: Found, id: str, repair: Any) -> None:
        try:
            repair()
        except Exception as error:  # One that cannot be repaired stops no other.
            LOG.warning("%s is not repaired: %s", id, error)
            found.failed.append(id)
