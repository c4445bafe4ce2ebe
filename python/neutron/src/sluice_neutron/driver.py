"""What Neutron calls.

```text
  precommit     checks, and blocks ACTIVE: in Neutron's transaction, no call
  postcommit    tells the worker which port or network to look at: no call either
  bind_port     decides by the configuration alone
  the worker    asks the hosts, and then completes the port: ACTIVE; it compares everything, from
                time to time
```
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from typing import Any

from neutron_lib import constants
from neutron_lib import exceptions
from neutron_lib import worker
from neutron_lib.api.definitions import portbindings
from neutron_lib.plugins.ml2 import api
from oslo_config import cfg

from . import database, facts, options
from .facts import Rules, Unsupported
from .hosts import Hosts
from .queue import Look, Mailbox, Queue
from .sync import Sync

LOG = logging.getLogger(__name__)

#: Seconds after which a port is looked at: the answer to Neutron's user goes first.
SOON = (0.1,)
#: Neutron does not tell when a binding that is not active yet is committed, a moment after
#: `bind_port`.
LATER = (0.2, 0.5, 2.0)


class Refused(exceptions.InvalidInput):
    """A port asks for what Sluice does not have."""

    message = "%(error_message)s"


class SluiceDriver(api.MechanismDriver):
    """The mechanism driver `sluice`."""

    def initialize(self) -> None:
        """Reads the configuration."""
        self._conf = options.register(cfg.CONF)
        hosts = Hosts(self._conf)
        rules = Rules(self._conf.mark)
        self._sync = Sync(database.Database(self._conf.trunks), hosts, rules)
        self._queue = Queue(self._sync.look)
        # Without the password: others see the name that is made of it.
        connection = (cfg.CONF.database.connection or "").rpartition("@")[2]
        self._mailbox = Mailbox(connection, self._conf.mark)
        LOG.info("Sluice binds ports at %s", ", ".join(hosts.names) or "no host")

    @property
    def connectivity(self) -> Any:
        """Machines have layer 2."""
        return portbindings.CONNECTIVITY_L2

    def get_workers(self) -> list[Any]:
        """Returns the worker that compares everything."""
        return [Reconciler(self._sync, self._mailbox, self._conf.reconcile_interval)]

    # Networks.

    def create_network_postcommit(self, context: Any) -> None:
        """Has the network made."""
        self._look_at_network(context.current["id"])

    def update_network_postcommit(self, context: Any) -> None:
        """Has the network changed."""
        self._look_at_network(context.current["id"])

    def delete_network_postcommit(self, context: Any) -> None:
        """Has the network deleted."""
        self._look_at_network(context.current["id"])

    def _look_at_network(self, id: str) -> None:
        self._have_looked_at(Look("network", id))

    # Ports.

    def create_port_precommit(self, context: Any) -> None:
        """Checks the port, and keeps it from ACTIVE."""
        self._precommit(context)

    def update_port_precommit(self, context: Any) -> None:
        """Checks the port, and keeps it from ACTIVE if it is bound anew."""
        self._precommit(context)

    def _precommit(self, context: Any) -> None:
        if not _is_ours(context.binding_levels, context.vif_type):
            return
        port = context.current
        try:
            _check(port)
        except Unsupported as error:
            raise Refused(error_message=str(error)) from error
        before = (context.original_host, context.original_vif_type)
        is_active = port["status"] == constants.PORT_STATUS_ACTIVE
        if before != (context.host, context.vif_type) and not is_active:
            database.block(context.plugin_context, port["id"])

    def create_port_postcommit(self, context: Any) -> None:
        """Has the port made, if it is bound."""
        self._postcommit(context)

    def update_port_postcommit(self, context: Any) -> None:
        """Has the port changed at the hosts that it is, or was, bound at."""
        self._postcommit(context)

    def delete_port_postcommit(self, context: Any) -> None:
        """Has the port deleted."""
        self._postcommit(context)

    def _postcommit(self, context: Any) -> None:
        ours = _is_ours(context.binding_levels, context.vif_type)
        was = _is_ours(context.original_binding_levels, context.original_vif_type)
        if ours or was:
            hosts = {context.host, context.original_host} - {None, ""}
            self._have_looked_at(Look("port", context.current["id"], tuple(sorted(hosts))))

    def _have_looked_at(self, look: Look, delays: Iterable[float] = SOON) -> None:
        if not self._mailbox.send(look, delays):
            self._queue.put(look, delays)

    # Bindings.

    def bind_port(self, context: Any) -> None:
        """Binds a port at a host of the fabric, or has another driver bind it behind a trunk."""
        port, host = context.current, context.host
        kind = port.get(portbindings.VNIC_TYPE, portbindings.VNIC_NORMAL)
        if host in self._conf.host_physnets:
            return self._bind_behind_trunk(context, self._conf.host_physnets[host])
        if host not in self._conf.hosts or kind != portbindings.VNIC_NORMAL:
            return
        try:
            _check(port)
        except Unsupported as error:
            LOG.error("port %s is not bound: %s", port["id"], error)
            return
        for segment in context.segments_to_bind:
            if segment[api.NETWORK_TYPE] == constants.TYPE_VXLAN:
                vif_type, details = self._vif(host, port)
                context.set_binding(segment[api.ID], vif_type, details)
                if port[portbindings.HOST_ID] != host:
                    # Not the active one. Of that Neutron tells when it is committed.
                    self._have_looked_at(Look("port", port["id"], (host,)), LATER)
                return
        self._bind_trunk_by_vxlan(context)

    def _vif(self, host: str, port: Any) -> tuple[str, dict[str, Any]]:
        vif_type = self._conf.vif_types.get(host, self._conf.vif_type)
        details: dict[str, Any] = {portbindings.CAP_PORT_FILTER: False}
        if vif_type == facts.VHOST_USER:
            directory = self._conf.vhostuser_socket_dir
            socket = os.path.join(directory, facts.socket_name(port["id"]))
            details[portbindings.VHOST_USER_SOCKET] = socket
            details[portbindings.VHOST_USER_MODE] = self._conf.vhostuser_mode
            details[portbindings.VHOST_USER_OVS_PLUG] = False
        return vif_type, details

    def _bind_behind_trunk(self, context: Any, physnet: str) -> None:
        """VXLAN above, VLAN below: a machine without Sluice, behind a trunk."""
        for segment in context.segments_to_bind:
            if segment[api.NETWORK_TYPE] == constants.TYPE_VXLAN:
                vlan = {api.NETWORK_TYPE: constants.TYPE_VLAN, api.PHYSICAL_NETWORK: physnet}
                dynamic = context.allocate_dynamic_segment(vlan)
                context.continue_binding(segment[api.ID], [dynamic])
                self._look_at_network(context.network.current["id"])
                return

    def _bind_trunk_by_vxlan(self, context: Any) -> None:
        """VLAN above, VXLAN below: a network of a trunk, at a host of the fabric."""
        for segment in context.segments_to_bind:
            is_vlan = segment[api.NETWORK_TYPE] == constants.TYPE_VLAN
            if is_vlan and segment[api.PHYSICAL_NETWORK] in self._conf.trunks:
                vxlan = {api.NETWORK_TYPE: constants.TYPE_VXLAN, api.PHYSICAL_NETWORK: None}
                dynamic = context.allocate_dynamic_segment(vxlan)
                context.continue_binding(segment[api.ID], [dynamic])
                self._look_at_network(context.network.current["id"])
                return


def _is_ours(levels: Any, vif_type: str | None) -> bool:
    """Returns true if the lowest level of a binding is this driver's."""
    bound = bool(levels) and levels[-1].get(api.BOUND_DRIVER) == database.DRIVER
    return bound and vif_type in (facts.VHOST_USER, facts.TAP)


def _check(port: Any) -> None:
    """Raises `Unsupported` if Sluice cannot have a port."""
    if port.get("port_security_enabled", True):
        pairs = port.get("allowed_address_pairs") or []
        mac = port["mac_address"]
        words = tuple((str(p.get("mac_address") or mac), str(p["ip_address"])) for p in pairs)
        facts.check_pairs(mac, tuple(ip["ip_address"] for ip in port["fixed_ips"]), words)


class Reconciler(worker.BaseWorker):
    """Looks at what the API processes of this machine say, and at everything at its start and
    every `reconcile_interval`."""

    def __init__(self, sync: Sync, mailbox: Mailbox, interval: float) -> None:
        # In a thread of the process of the periodic workers.
        super().__init__(worker_process_count=0, desc="sluice reconciler")
        self._sync = sync
        self._mailbox = mailbox
        self._interval = interval
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, *args: Any, **kwargs: Any) -> None:
        """Begins."""
        super().start(*args, **kwargs)
        self._mailbox.open(Queue(self._sync.look))
        self._thread = threading.Thread(target=self._run, name="sluice", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._sync.reconcile()
            except Exception:  # The next comparison finds what this one did not.
                LOG.exception("the comparison ended early")
            self._stopped.wait(self._interval)

    def stop(self) -> None:
        """Ends."""
        self._stopped.set()

    def wait(self) -> None:
        """Waits for the end."""
        if self._thread:
            self._thread.join()

    def reset(self) -> None:
        """Does nothing: the configuration is read at the start."""
