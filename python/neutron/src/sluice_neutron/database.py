"""Neutron's database as facts. Only what this driver has bound is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy
from neutron.db import models_v2
from neutron.db import provisioning_blocks
from neutron.db import segments_db
from neutron.db.models import provisioning_block
from neutron.objects import network as network_objects
from neutron.objects import ports as port_objects
from neutron_lib import constants
from neutron_lib import context as contexts
from neutron_lib.callbacks import resources
from neutron_lib.db import api as db
from neutron_lib.db import standard_attr

from .facts import Binding, Network, Port, TAP, VHOST_USER

#: Name of the driver in `mechanism_drivers`, and so in the levels of a binding.
DRIVER = "sluice"
#: Entity of the driver's provisioning blocks.
ENTITY = "SLUICE"
#: Ports that are read by one query.
BATCH = 500


def _details(binding: Any) -> Mapping[str, Any]:
    return binding.vif_details or {}


def _binding(row: Any) -> Binding:
    details = _details(row)
    return Binding(
        host=row.host,
        is_active=row.status == constants.ACTIVE,
        vif_type=row.vif_type,
        socket=details.get("vhostuser_socket", ""),
        qemu_listens=details.get("vhostuser_mode") == "server",
    )


def _port(row: Any, hosts: Iterable[str]) -> Port:
    """Makes the facts of a port, which is bound by this driver at some hosts."""
    ours = set(hosts)
    kinds = (VHOST_USER, TAP)
    bindings = [b for b in row.bindings if b.host in ours and b.vif_type in kinds]
    pairs = row.allowed_address_pairs or []
    return Port(
        id=row.id,
        network=row.network_id,
        revision=row.revision_number,
        mac=str(row.mac_address),
        ips=tuple(sorted(str(ip.ip_address) for ip in row.fixed_ips)),
        pairs=tuple(sorted((str(p.mac_address), str(p.ip_address)) for p in pairs)),
        is_secured=row.security is None or bool(row.security.port_security_enabled),
        is_up=row.status == constants.PORT_STATUS_ACTIVE,
        bindings=tuple(sorted(map(_binding, bindings), key=lambda b: b.host)),
    )


def _bottoms(levels: Iterable[Any]) -> dict[str, set[str]]:
    """Returns the hosts where a port's lowest level is this driver's, by port."""
    lowest: dict[tuple[str, str], Any] = {}
    for level in levels:
        key = (level.port_id, level.host)
        if key not in lowest or level.level > lowest[key].level:
            lowest[key] = level
    found: dict[str, set[str]] = {}
    for (port, host), level in lowest.items():
        if level.driver == DRIVER:
            found.setdefault(port, set()).add(host)
    return found


class Database:
    """The database, read as Neutron itself reads it."""

    def __init__(self, trunks: Mapping[str, str]) -> None:
        self._trunks = trunks

    def port(self, id: str) -> Port | None:
        """Returns a port; None if there is none."""
        context = contexts.get_admin_context()
        with db.CONTEXT_READER.using(context):
            row = port_objects.Port.get_object(context, id=id)
            if row is None:
                return None
            levels = port_objects.PortBindingLevel.get_objects(context, port_id=id)
            return _port(row, _bottoms(levels).get(id, ()))

    def revision(self, id: str) -> int | None:
        """Returns the revision number of a port, which counts its bindings, too."""
        context = contexts.get_admin_context()
        attributes, ports = standard_attr.StandardAttribute, models_v2.Port
        with db.CONTEXT_READER.using(context):
            query = context.session.query(attributes.revision_number)
            query = query.join(ports, ports.standard_attr_id == attributes.id)
            return query.filter(ports.id == id).scalar()  # type: ignore[no-any-return]

    def ports(self) -> dict[str, Port]:
        """Returns all ports that this driver has bound somewhere."""
        context = contexts.get_admin_context()
        found: dict[str, Port] = {}
        with db.CONTEXT_READER.using(context):
            ours = port_objects.PortBindingLevel.get_objects(context, driver=DRIVER)
            ids = sorted({level.port_id for level in ours})
            for at in range(0, len(ids), BATCH):
                batch = ids[at : at + BATCH]
                levels = port_objects.PortBindingLevel.get_objects(context, port_id=batch)
                bottoms = _bottoms(levels)
                for row in port_objects.Port.get_objects(context, id=batch):
                    port = _port(row, bottoms.get(row.id, ()))
                    if port.bindings:
                        found[port.id] = port
        return found

    def network(self, id: str) -> Network | None:
        """Returns a network; None if there is none."""
        context = contexts.get_admin_context()
        with db.CONTEXT_READER.using(context):
            row = network_objects.Network.get_object(context, id=id)
            if row is None:
                return None
            segments = segments_db.get_network_segments(context, id, filter_dynamic=None)
            return self._network(row, segments)

    def networks(self) -> dict[str, Network]:
        """Returns all networks that have a VXLAN segment."""
        context = contexts.get_admin_context()
        with db.CONTEXT_READER.using(context):
            rows = {row.id: row for row in network_objects.Network.get_objects(context)}
            every = segments_db.get_networks_segments(context, list(rows), filter_dynamic=None)
            all = {id: self._network(row, every[id]) for id, row in rows.items()}
        return {id: network for id, network in all.items() if network.vni is not None}

    def _network(self, row: Any, segments: Iterable[Mapping[str, Any]]) -> Network:
        vnis = [s["segmentation_id"] for s in segments if s["network_type"] == "vxlan"]
        vlans = [
            (self._trunks[s["physical_network"]], int(s["segmentation_id"]))
            for s in segments
            if s["network_type"] == "vlan" and s["physical_network"] in self._trunks
        ]
        return Network(
            id=row.id,
            revision=row.revision_number,
            vni=int(vnis[0]) if vnis else None,
            mtu=int(row.mtu),
            vlans=tuple(sorted(vlans)),
        )

    def complete(self, port: str) -> None:
        """Tells Neutron that a port is in the fabric: its part of ACTIVE."""
        provisioning_blocks.provisioning_complete(
            contexts.get_admin_context(), port, resources.PORT, ENTITY
        )


def block(plugin_context: Any, port: str) -> None:
    """Keeps a port from ACTIVE until `Database.complete`.

    It is `provisioning_blocks.add_provisioning_component` in one statement instead of four: the
    user waits for it.
    """
    blocks, ports = provisioning_block.ProvisioningBlock, models_v2.Port
    is_there = sqlalchemy.exists().where(
        blocks.standard_attr_id == ports.standard_attr_id, blocks.entity == ENTITY
    )
    row = sqlalchemy.select(ports.standard_attr_id, sqlalchemy.literal(ENTITY))
    row = row.where(ports.id == port, ~is_there)
    into = sqlalchemy.insert(blocks).from_select(["standard_attr_id", "entity"], row)
    with db.CONTEXT_WRITER.using(plugin_context):
        plugin_context.session.execute(into)
