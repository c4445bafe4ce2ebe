"""The section `[ml2_sluice]` of Neutron's configuration."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

GROUP = "ml2_sluice"

OPTIONS: list[Any] = [
    cfg.DictOpt(
        "hosts",
        default={},
        help="Hosts whose ports the driver binds: HOST:ADDRESS, HOST as Neutron calls it "
        "(`binding:host_id`), ADDRESS the path of a socket, or the address and port of the "
        "host's `[api.tls]`, such as 192.0.2.1:9343.",
    ),
    cfg.DictOpt(
        "members",
        default={},
        help="Names of hosts in Sluice's fabric, where they are others than Neutron's: "
        "HOST:MEMBER.",
    ),
    cfg.StrOpt(
        "authority",
        help="File of the authority that signed the hosts' certificates (PEM), such as `tls/ca.pem` "
        "of a member. Without it those that this machine trusts.",
    ),
    cfg.StrOpt(
        "token_dir",
        default="/etc/neutron/sluice",
        help="Directory with a file MEMBER.token for each host that is asked over the network.",
    ),
    cfg.StrOpt(
        "mark",
        default="os",
        regex="^[a-z][a-z0-9]{0,15}$",
        help="Beginning of the names of all that the driver makes in the fabric. Nothing else is "
        "ever changed or deleted. Two clouds in one fabric need two marks.",
    ),
    cfg.StrOpt(
        "vif_type",
        default="vhostuser",
        choices=["vhostuser", "tap"],
        help="How machines are attached.",
    ),
    cfg.DictOpt(
        "vif_types",
        default={},
        help="How machines are attached at single hosts, if it is another way: HOST:VIF_TYPE.",
    ),
    cfg.StrOpt(
        "vhostuser_mode",
        default="server",
        choices=["server", "client"],
        help="QEMU's part at the socket. `server`: QEMU makes it, and Sluice connects.",
    ),
    cfg.StrOpt(
        "vhostuser_socket_dir",
        default="/var/run/sluice-vhost",
        help="Directory of the sockets, on every host; QEMU and Sluice may write there.",
    ),
    cfg.DictOpt(
        "trunks",
        default={},
        help="Physical networks that are trunks of Sluice: PHYSNET:TRUNK. Their VLAN segments are "
        "mapped to the network's VXLAN.",
    ),
    cfg.DictOpt(
        "host_physnets",
        default={},
        help="Machines behind a trunk, which run no Sluice: HOST:PHYSNET. Their ports get a dynamic "
        "VLAN of it, which another driver binds.",
    ),
    cfg.FloatOpt(
        "reconcile_interval",
        default=60.0,
        min=0.2,
        help="Seconds between two comparisons of the whole database with the whole fabric.",
    ),
    cfg.FloatOpt("timeout", default=20.0, min=1.0, help="Seconds for an answer of a host."),
]


def register(conf: Any) -> Any:
    """Registers the section, and returns it.

    Raises `ValueError` if it is wrong, with the remedy.
    """
    conf.register_opts(OPTIONS, GROUP)
    section = conf[GROUP]
    owner: dict[str, str] = {}
    for host, address in section.hosts.items():
        if (first := owner.setdefault(address, host)) != host:
            raise ValueError(
                f"[{GROUP}] hosts: {first} and {host} have one address, {address}; the ports of "
                "the one would be strays of the other: name it once"
            )
    for host, vif_type in section.vif_types.items():
        if vif_type not in ("vhostuser", "tap"):
            raise ValueError(
                f"[{GROUP}] vif_types: `{vif_type}` of {host} is none; use vhostuser or tap"
            )
    for host, physnet in section.host_physnets.items():
        if physnet not in section.trunks:
            raise ValueError(
                f"[{GROUP}] host_physnets: {host} is behind {physnet}, which `trunks` does not have"
            )
    return section


def list_options() -> list[tuple[str, list[Any]]]:
    """Lists the options for `oslo-config-generator`."""
    return [(GROUP, OPTIONS)]
