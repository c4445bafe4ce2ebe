"""What Neutron's database says, and what the fabric shall have by it.

```text
  database ─▶ Network, Port ─▶ Rules ─▶ the port of each host, the network of the fabric
```

Pure: the same facts always give the same ports.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Any, Mapping

#: Addresses that a port of Sluice may be bound to, and prefixes that it may use beside them.
IPS_MAX = 4
ALLOWED_MAX = 16

#: Characters of a port's identifier in the names of devices, as everywhere in OpenStack.
SHORT_SIZE = 11

UUID = "([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"

VHOST_USER = "vhostuser"
TAP = "tap"


class Unsupported(ValueError):
    """A port asks for what Sluice does not have."""


@dataclass(frozen=True)
class Binding:
    """A port at a host, bound by the driver."""

    host: str
    is_active: bool
    vif_type: str
    socket: str = ""
    """Path of the vhost-user socket."""
    qemu_listens: bool = False


@dataclass(frozen=True)
class Port:
    """A port of Neutron, as far as the fabric has to know it."""

    id: str
    network: str
    revision: int
    mac: str
    ips: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    """Allowed address pairs: MAC and prefix."""
    is_secured: bool
    """True if frames with other addresses are dropped (`port_security_enabled`)."""
    is_up: bool
    """True if Neutron calls it ACTIVE."""
    bindings: tuple[Binding, ...]


@dataclass(frozen=True)
class Network:
    """A network of Neutron, as far as the fabric has to know it."""

    id: str
    revision: int
    vni: int | None
    """VNI of its VXLAN segment; None: it has none yet, and the fabric nothing of it."""
    mtu: int
    vlans: tuple[tuple[str, int], ...] = ()
    """Its VLANs in trunks of Sluice."""


def tap_name(port: str) -> str:
    """Returns the name of a port's TAP, as Nova and the agents of Neutron call it."""
    return f"tap{port[:SHORT_SIZE]}"


def socket_name(port: str) -> str:
    """Returns the name of a port's vhost-user socket."""
    return f"vhu{port[:SHORT_SIZE]}"


def check_pairs(mac: str, ips: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> None:
    """Checks the addresses of a secured port.

    Raises `Unsupported` with the remedy.
    """
    if len(ips) > IPS_MAX:
        raise Unsupported(
            f"{len(ips)} fixed addresses are more than the {IPS_MAX} of a port of Sluice; use "
            "allowed address pairs with prefixes, or another port"
        )
    others = sorted({other for other, _ in pairs if other.lower() != mac.lower()})
    if others:
        raise Unsupported(
            f"an allowed address pair with another MAC ({others[0]}) needs a port of Sluice that "
            "is bound to two; leave `mac_address` out of the pair, or switch `port_security` off"
        )
    count = len(allowed(ips, pairs))
    if count > ALLOWED_MAX:
        raise Unsupported(
            f"{count} allowed address pairs are more than the {ALLOWED_MAX} of a port of Sluice; "
            "use prefixes"
        )


def allowed(ips: tuple[str, ...], pairs: tuple[tuple[str, str], ...]) -> list[str]:
    """Returns the prefixes of address pairs, as the fabric writes them, without the own ones."""
    words = set()
    for _, prefix in pairs:
        network = ipaddress.ip_network(prefix, strict=False)
        single = network.prefixlen == network.max_prefixlen
        words.add(str(network.network_address) if single else str(network))
    return sorted(words - {str(ipaddress.ip_address(ip)) for ip in ips})


class Rules:
    """Names and forms of what the driver makes in the fabric."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._form = re.compile(re.escape(mark) + "-" + UUID)

    def name(self, id: str) -> str:
        """Returns the name in the fabric of a port or a network of Neutron."""
        return f"{self._mark}-{id}"

    def id(self, name: str | None) -> str | None:
        """Returns the identifier in a name that the driver gave; None: it is not the driver's."""
        found = self._form.fullmatch(name or "")
        return found.group(1) if found else None

    def ports(self, port: Port) -> dict[str, dict[str, Any]]:
        """Returns the port of each host that shall have it, the active one first."""
        ordered = sorted(port.bindings, key=lambda binding: not binding.is_active)
        return {binding.host: self._port(port, binding) for binding in ordered}

    def _port(self, port: Port, binding: Binding) -> dict[str, Any]:
        new: dict[str, Any] = {"name": self.name(port.id), "vnet": self.name(port.network)}
        if binding.vif_type == VHOST_USER:
            new["place"] = {"vm": {"socket": binding.socket}}
            if binding.qemu_listens:
                new["place"]["vm"]["client"] = True
        else:
            new["place"] = {"tap": tap_name(port.id)}
        if not port.is_secured:
            return new
        check_pairs(port.mac, port.ips, port.pairs)
        new["mac"] = port.mac.lower()
        # The prefix is of no use to a machine behind a port.
        addresses = sorted(map(ipaddress.ip_address, port.ips), key=lambda ip: (ip.version, int(ip)))
        if addresses:
            new["ips"] = [f"{ip}/{ip.max_prefixlen}" for ip in addresses]
        if prefixes := allowed(port.ips, port.pairs):
            new["allow_ip"] = prefixes
        if not binding.is_active:
            new["standby"] = True
        return new

    def network(self, network: Network) -> dict[str, Any]:
        """Returns the settings of a network that the fabric shall have."""
        return {"vni": network.vni, "mtu": network.mtu}


#: Parts of a port that are changed in place; the others need another port.
IN_PLACE = ("ips", "allow_ip", "standby")
#: Parts that the host fills in, or does not keep.
OF_HOST = ("device", "kind", "taken", "move", "change")


def same(wanted: Mapping[str, Any], there: Mapping[str, Any], aside: tuple[str, ...] = ()) -> bool:
    """Returns true if a port is what is wanted, the parts in `aside` apart."""
    aside = (*aside, *OF_HOST)

    def bare(port: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in port.items() if key not in aside and value}
        for key in ("ips", "allow_ip"):
            if key in kept:
                kept[key] = sorted(kept[key])
        return kept

    return bare(wanted) == bare(there)


def can_change(wanted: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """Returns true if a port can become what is wanted without being made anew."""
    goes_back = bool(wanted.get("standby")) and not there.get("standby")
    return same(wanted, there, IN_PLACE) and bool(wanted.get("mac")) and not goes_back
