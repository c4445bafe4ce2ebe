"""A genuine Neutron with the driver against two hosts of a fabric: what is bound, what is repaired.

The live test `neutron` runs it: it owns the hosts, and does what a line `do WISH` asks for.
`SLUICE_H1` and `SLUICE_H2` are the hosts' sockets, `SLUICE_DIR` a directory of its own; Neutron asks
the first host over the network, at `SLUICE_AT`, with `SLUICE_AUTHORITY` and a token in
`SLUICE_TOKENS`.
"""

from __future__ import annotations

import argparse
import atexit
import os
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2] / "src"), str(Path(__file__).parent)]

from sluice_client import Client  # noqa: E402
from stack import Refusal, Stack, wait_for  # noqa: E402

SOCKETS = {"h1": os.environ["SLUICE_H1"], "h2": os.environ["SLUICE_H2"]}
HOSTS = {name: Client(path) for name, path in SOCKETS.items()}
DIR = Path(os.environ["SLUICE_DIR"])
SECTION = {
    # One over the network, the other by its socket.
    "hosts": f"compute-h1:{os.environ['SLUICE_AT']},compute-h2:{SOCKETS['h2']}",
    "authority": os.environ["SLUICE_AUTHORITY"],
    "token_dir": os.environ["SLUICE_TOKENS"],
    "members": "compute-h1:h1,compute-h2:h2",
    "vif_types": "compute-h2:tap",
    "vhostuser_socket_dir": str(DIR),
    "trunks": "rack:rack",
    "host_physnets": "metal-1:rack",
    "reconcile_interval": "0.5",
}
H1, H2 = "compute-h1", "compute-h2"


def wish(what: str) -> None:
    """Has the owner of the hosts do something."""
    print(f"do {what}", flush=True)
    assert sys.stdin.readline() == "done\n"


def fabric_ports(host: str) -> dict[str, dict[str, Any]]:
    """Returns the ports of a host with the driver's mark, by Neutron's identifier."""
    rows = [dict(row["port"]) for row in HOSTS[host].ports()]
    return {str(row["name"])[3:]: row for row in rows if str(row["name"]).startswith("os-")}


def fabric_networks() -> dict[str, Any]:
    """Returns the networks with the driver's mark, by Neutron's identifier."""
    vnets = HOSTS["h1"].config()["config"].get("vnets", {})
    return {name[3:]: vnet for name, vnet in vnets.items() if name.startswith("os-")}


def network_mtu(id: str) -> Any:
    """Returns the MTU of a network in the fabric; None: it is not there."""
    return fabric_networks().get(id, {}).get("mtu")


class Case:
    """A stack, with a network and a subnet."""

    def __init__(self) -> None:
        self.stack = Stack(DIR, SECTION)
        atexit.register(self.stack.stop)
        self.stack.start_api()
        # Each fills the table of VNIs, if it is empty: one after the other.
        self.stack.wait_for_api()
        self.stack.start_workers()
        self.net = self.stack.make("network", name="blue", **{"provider:network_type": "vxlan"})
        self.subnet = self.stack.make(
            "subnet", network_id=self.net["id"], ip_version=4, cidr="10.7.0.0/22", enable_dhcp=False
        )
        self.stack.make(
            "subnet", network_id=self.net["id"], ip_version=6, cidr="fd07::/64", enable_dhcp=False
        )
        self.red = self.stack.make("network", name="red")

    def port(self, host: str, **values: Any) -> Any:
        """Makes a port that is bound at a host, and waits until Neutron calls it ACTIVE."""
        port = self.new_port(host, **values)
        return self.active(port["id"])

    def new_port(self, host: str, **values: Any) -> Any:
        """Makes a port that is bound at a host."""
        owner = {"device_owner": "compute:nova", "device_id": "vm"}
        bound = {"binding:host_id": host}
        return self.stack.make("port", network_id=self.net["id"], **owner, **bound, **values)

    def active(self, id: str) -> Any:
        """Waits until a port is ACTIVE."""

        def look() -> Any:
            port = self.stack.get("port", id)
            return port if port["status"] == "ACTIVE" else None

        return wait_for(f"port {id} is ACTIVE", look)

    def agree(self) -> bool:
        """Returns true if Neutron and the fabric have the same ports and networks."""
        ports = self.stack.ask("GET", "/ports")["ports"]
        kinds = ("vhostuser", "tap")
        for name, host in (("h1", H1), ("h2", H2)):
            wanted = {
                p["id"]: p
                for p in ports
                if p["binding:host_id"] == host and p["binding:vif_type"] in kinds
            }
            there = fabric_ports(name)
            if not set(wanted) <= set(there):
                return False
            for id in set(there) - set(wanted):
                # A migration that stopped half way: Neutron has a second binding, too.
                if not (there[id].get("standby") and self.is_second(id, host)):
                    return False
            for id, port in wanted.items():
                ips = sorted(
                    ip["ip_address"] + ("/128" if ":" in ip["ip_address"] else "/32")
                    for ip in port["fixed_ips"]
                )
                row = there[id]
                mac = port["mac_address"]
                if row.get("standby") or row["vnet"] != f"os-{port['network_id']}":
                    return False
                if port["port_security_enabled"] and (
                    row.get("mac") != mac or sorted(row.get("ips", [])) != ips
                ):
                    return False
        networks = self.stack.ask("GET", "/networks")["networks"]
        vnis = {
            n["id"]: n["provider:segmentation_id"]
            for n in networks
            if n["provider:network_type"] == "vxlan"
        }
        have = {id: vnet["vni"] for id, vnet in fabric_networks().items()}
        return all(have.get(id) == vni for id, vni in vnis.items()) and set(have) <= {
            n["id"] for n in networks
        }


    def is_second(self, id: str, host: str) -> bool:
        """Returns true if a port has an inactive binding at a host."""
        try:
            bindings = self.stack.ask("GET", f"/ports/{id}/bindings")["bindings"]
        except Refusal:
            return False
        return any(b["host"] == host and b["status"] == "INACTIVE" for b in bindings)


# What is bound, and how.


def networks_become_vnets(case: Case) -> None:
    """A network is a vnet of its VNI and MTU; a deleted one goes."""
    net = case.net
    wait_for("the vnet is there", lambda: net["id"] in fabric_networks())
    vnet = fabric_networks()[net["id"]]
    assert vnet["vni"] == net["provider:segmentation_id"], vnet
    assert vnet["mtu"] == net["mtu"] == 1450, vnet
    case.stack.set("network", case.red["id"], mtu=1400)
    wait_for("the MTU follows", lambda: network_mtu(case.red["id"]) == 1400)
    gone = case.stack.make("network", name="gone")
    wait_for("it comes", lambda: gone["id"] in fabric_networks())
    case.stack.delete("network", gone["id"])
    wait_for("it goes", lambda: gone["id"] not in fabric_networks())


def features(connection: socket.socket) -> int:
    """Asks the other end of a vhost-user socket for its features, as QEMU does first."""
    connection.settimeout(30)
    connection.sendall(struct.pack("<III", 1, 1, 0))
    head = connection.recv(20, socket.MSG_WAITALL)
    request, _, size, value = struct.unpack("<IIIQ", head)
    assert (request, size) == (1, 8), head
    return int(value)


def machines_get_sockets(case: Case) -> None:
    """Mode `server`: QEMU listens, and the switch connects; the front end's first question."""
    port = case.port(H1)
    details = port["binding:vif_details"]
    assert port["binding:vif_type"] == "vhostuser" and details["vhostuser_mode"] == "server"
    row = fabric_ports("h1")[port["id"]]
    assert row["place"] == {"vm": {"socket": details["vhostuser_socket"], "client": True}}, row
    assert row["mac"] == port["mac_address"]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(details["vhostuser_socket"])
        listener.listen()
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            assert features(connection) & 1 << 32, "VIRTIO_F_VERSION_1"
    case.stack.delete("port", port["id"])
    wait_for("the port goes", lambda: port["id"] not in fabric_ports("h1"))


def taps_are_made(case: Case) -> None:
    """A host may have TAPs instead, with the names that the agents of Neutron give them."""
    port = case.port(H2)
    assert port["binding:vif_type"] == "tap", port
    name = f"tap{port['id'][:11]}"
    row = fabric_ports("h2")[port["id"]]
    assert (row["place"], row["device"]) == ({"tap": name}, name), row
    assert HOSTS["h2"].port(row["name"])["device"] == name, "the kernel has the device"
    case.stack.delete("port", port["id"])
    wait_for("the port goes", lambda: port["id"] not in fabric_ports("h2"))


def addresses_change_in_place(case: Case) -> None:
    """Fixed addresses, address pairs and port security; the port keeps its socket for the first."""
    port = case.port(H1, allowed_address_pairs=[{"ip_address": "10.7.3.0/24"}])
    id = port["id"]
    row = fabric_ports("h1")[id]
    assert row["allow_ip"] == ["10.7.3.0/24"], row
    socket_path = Path(port["binding:vif_details"]["vhostuser_socket"])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path))
        listener.listen()
        listener.settimeout(60)
        connection, _ = listener.accept()
        with connection:
            features(connection)
            pairs = [{"ip_address": "10.7.2.9"}, {"ip_address": "10.7.2.0/25"}]
            case.stack.set("port", id, allowed_address_pairs=pairs)
            fixed = [{"ip_address": "10.7.1.77"}]
            case.stack.set("port", id, fixed_ips=fixed)
            want = (["10.7.2.0/25", "10.7.2.9"], ["10.7.1.77/32"])

            def follows() -> bool:
                row = fabric_ports("h1")[id]
                return (sorted(row.get("allow_ip", [])), row["ips"]) == want

            wait_for("the addresses follow", follows)
            features(connection)  # The same connection: the card was not made anew.
    mac = "02:00:00:00:00:99"
    try:
        pairs = [{"ip_address": "10.7.2.9", "mac_address": mac}]
        case.stack.set("port", id, allowed_address_pairs=pairs)
        raise AssertionError("a second MAC is refused")
    except Refusal as refusal:
        assert refusal.status == 400 and "another MAC" in str(refusal), refusal
    case.stack.set("port", id, allowed_address_pairs=[])
    case.stack.set("port", id, security_groups=[], port_security_enabled=False)
    wait_for("it learns", lambda: "mac" not in fabric_ports("h1").get(id, {"mac": 1}))
    case.stack.set("port", id, port_security_enabled=True)
    wait_for("it is bound", lambda: fabric_ports("h1").get(id, {}).get("mac"))
    case.stack.delete("port", id)


def live_migration_has_two_bindings(case: Case) -> None:
    """The destination has the card on standby, and the addresses move when it is activated."""
    port = case.port(H1)
    id = port["id"]
    case.stack.ask("POST", f"/ports/{id}/bindings", {"binding": {"host": H2}})
    wait_for("the destination has a card", lambda: id in fabric_ports("h2"))
    assert fabric_ports("h2")[id]["standby"] is True
    assert "standby" not in fabric_ports("h1")[id]
    owner = HOSTS["h1"].vport(port["mac_address"], f"os-{case.net['id']}")["host"]
    assert owner == "h1", owner
    case.stack.ask("PUT", f"/ports/{id}/bindings/{H2}/activate")
    wait_for("the source's goes", lambda: id not in fabric_ports("h1"))
    assert "standby" not in fabric_ports("h2")[id]
    wait_for("the addresses are at the destination", lambda: HOSTS["h2"].vport(
        port["mac_address"], f"os-{case.net['id']}")["host"] == "h2")
    case.active(id)
    # A migration that is given up: the card on standby goes by the next comparison.
    case.stack.ask("DELETE", f"/ports/{id}/bindings/{H1}")
    case.stack.ask("POST", f"/ports/{id}/bindings", {"binding": {"host": H1}})
    wait_for("a card on standby", lambda: fabric_ports("h1").get(id, {}).get("standby"))
    case.stack.ask("DELETE", f"/ports/{id}/bindings/{H1}")
    wait_for("it goes", lambda: id not in fabric_ports("h1"))
    case.stack.delete("port", id)


def vlans_are_mapped(case: Case) -> None:
    """VLAN above and VXLAN below; a machine behind a trunk has VXLAN above and VLAN below."""
    provider = {"provider:network_type": "vlan", "provider:physical_network": "rack",
                "provider:segmentation_id": 150}
    net = case.stack.make("network", name="rack-150", **provider)
    values = {"binding:host_id": H1, "device_owner": "compute:nova", "device_id": "vm"}
    port = case.stack.make("port", network_id=net["id"], **values)
    case.active(port["id"])
    row = fabric_ports("h1")[port["id"]]
    assert row["vnet"] == f"os-{net['id']}", row
    vlans = HOSTS["h1"].config()["config"]["vlans"]["rack"]
    assert vlans["150"]["vnet"] == f"os-{net['id']}", vlans
    case.stack.delete("port", port["id"])
    case.stack.delete("network", net["id"])

    def is_gone() -> bool:
        config = HOSTS["h1"].config()["config"]
        return net["id"] not in fabric_networks() and not config.get("vlans", {}).get("rack")

    wait_for("network and VLAN go", is_gone)
    metal = case.new_port("metal-1")

    def is_mapped() -> bool:
        vlans = HOSTS["h1"].config()["config"].get("vlans", {}).get("rack", {})
        return any(vlan["vnet"] == f"os-{case.net['id']}" for vlan in vlans.values())

    wait_for("a VLAN of the trunk is the network", is_mapped)
    # No driver is there for the VLAN: Neutron says so, and the fabric has no port.
    assert case.stack.get("port", metal["id"])["binding:vif_type"] == "binding_failed"
    case.stack.delete("port", metal["id"])


# Drift.


def drift_is_repaired(case: Case) -> None:
    """Each side is changed behind the other's back."""
    port = case.port(H1)
    other = case.port(H2)
    HOSTS["h1"].delete_port(f"os-{port['id']}")
    wait_for("a port that was deleted at the host is back", lambda: port["id"] in fabric_ports("h1"))
    stray = "os-00000000-0000-4000-8000-000000000001"
    vnet = f"os-{case.net['id']}"
    HOSTS["h2"].add_port({"name": stray, "vnet": vnet, "place": {"tap": "stray0"}})
    HOSTS["h2"].add_port({"name": "by-hand", "vnet": vnet, "place": {"tap": "byhand0"}})
    wait_for("a stray port goes", lambda: stray[3:] not in fabric_ports("h2"))
    HOSTS["h1"].create_vnet("os-00000000-0000-4000-8000-000000000002", {"vni": 777})
    wait_for("a stray network goes", lambda: len(stray) and
             "00000000-0000-4000-8000-000000000002" not in fabric_networks())
    HOSTS["h1"].delete_port(f"os-{port['id']}")
    HOSTS["h1"].add_port({
        "name": f"os-{port['id']}", "vnet": vnet, "place": {"tap": "wrong0"},
        "mac": "02:00:00:00:00:42", "ips": ["10.7.3.3/32"],
    })
    wait_for("a wrong port is made anew", lambda: case.agree())
    mac = port["mac_address"]
    thief: Any = {"name": "thief", "vnet": vnet, "place": {"tap": "thief0"}, "mac": mac, "move": True}
    HOSTS["h2"].add_port(thief)
    wait_for("the addresses are stolen", lambda: HOSTS["h1"].vport(mac, vnet)["host"] == "h2")
    wait_for("they are back", lambda: HOSTS["h2"].vport(mac, vnet)["host"] == "h1")
    HOSTS["h2"].delete_port("thief")
    HOSTS["h1"].set_vnet(f"os-{case.red['id']}", {"mtu": 1300})
    wait_for("an MTU is back", lambda: network_mtu(case.red["id"]) == 1400)
    assert "by-hand" in {row["port"]["name"] for row in HOSTS["h2"].ports()}, "not the driver's"
    HOSTS["h2"].delete_port("by-hand")
    # Neutron's rows go while nobody calls the driver: a database brought back, an API that was down.
    case.stack.kill_api()
    import sqlite3

    with sqlite3.connect(DIR / "neutron.db", timeout=60) as db:
        db.execute("PRAGMA foreign_keys = ON")
        attr = "SELECT standard_attr_id FROM ports WHERE id = ?"
        (row,) = db.execute(attr, (other["id"],)).fetchone()
        db.execute("DELETE FROM ports WHERE id = ?", (other["id"],))
        db.execute("DELETE FROM standardattributes WHERE id = ?", (row,))
    wait_for("its port goes too", lambda: other["id"] not in fabric_ports("h2"))
    case.stack.start_api()
    case.stack.wait_for_api()
    case.stack.delete("port", port["id"])


def hosts_away(case: Case) -> None:
    """Neutron goes on while a host is away, and the host gets what it has missed."""
    kept = case.port(H2)
    wish("stop_control 1")
    port = case.new_port(H2)
    case.stack.delete("port", kept["id"])
    time.sleep(1)
    assert case.stack.get("port", port["id"])["status"] == "DOWN"
    wish("start_control 1")
    case.active(port["id"])
    wait_for("both agree", case.agree)
    case.stack.delete("port", port["id"])


# Kills.

WISHES = ("kill_control 0", "kill_data 0", "kill_both 0", "kill_control 1", "kill_data 1",
          "kill_both 1")


#: Ports that are kept from one kill to the next.
PORTS_MAX = 16
KINDS = ("make", "make", "delete", "address", "move", "pairs", "migrate", "network")


def migrate(case: Case, id: str) -> None:
    """Moves a port as Nova does: a second binding, its activation, the end of the first."""
    source = case.stack.get("port", id)["binding:host_id"]
    target = H2 if source == H1 else H1
    case.stack.ask("POST", f"/ports/{id}/bindings", {"binding": {"host": target}})
    case.stack.ask("PUT", f"/ports/{id}/bindings/{target}/activate")
    case.stack.ask("DELETE", f"/ports/{id}/bindings/{source}")


def make_or_delete_network(case: Case, draw: random.Random) -> None:
    """Makes a network, or deletes one that was made so."""
    made = case.stack.ask("GET", "/networks?name=drawn")["networks"]
    if len(made) > 3 or (made and draw.random() < 0.5):
        case.stack.delete("network", draw.choice(made)["id"])
    else:
        case.stack.make("network", name="drawn")


def one_operation(case: Case, draw: random.Random, ports: list[str], lock: threading.Lock) -> None:
    """Does one thing of a user; an API that is away is no error of this test."""
    with lock:
        id = draw.choice(ports) if ports else None
        kind = draw.choice(KINDS)
        host, number = draw.choice((H1, H2)), draw.randrange(1, 250)
    try:
        if kind == "make" or id is None:
            made = case.new_port(host)["id"]
            with lock:
                ports.append(made)
        elif kind == "delete":
            case.stack.delete("port", id)
        elif kind == "address":
            case.stack.set("port", id, fixed_ips=[{"ip_address": f"10.7.2.{number}"}])
        elif kind == "migrate":
            migrate(case, id)
        elif kind == "network":
            make_or_delete_network(case, draw)
        elif kind == "move":
            case.stack.set("port", id, **{"binding:host_id": host})
        else:
            pair = {"ip_address": f"10.7.3.{number}"}
            case.stack.set("port", id, allowed_address_pairs=[pair])
    except Refusal as refusal:
        # Gone already, or an address that another port has.
        assert refusal.status in (400, 404, 409, 500, 503), refusal
        if refusal.status == 404 and id:
            with lock:
                if id in ports:
                    ports.remove(id)
    except OSError:
        time.sleep(0.1)


def random_kills_leave_both_alike(case: Case, kills: int, seed: int) -> None:
    """Each side is killed in the middle of operations, at random times; then both are compared."""
    draw = random.Random(seed)
    ports: list[str] = []
    lock = threading.Lock()
    for kill in range(kills):
        stop = threading.Event()
        failed: list[BaseException] = []

        def work(own: int) -> None:
            mine = random.Random(seed * 1000 + kill * 10 + own)
            while not stop.is_set():
                try:
                    one_operation(case, mine, ports, lock)
                except BaseException as error:
                    failed.append(error)
                    return

        threads = [threading.Thread(target=work, args=(own,)) for own in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(draw.uniform(0.05, 1.5))
        which = draw.choice((*WISHES, "api", "workers", "api"))
        if which == "api":
            case.stack.kill_api()
        elif which == "workers":
            case.stack.kill_workers()
        else:
            wish(which)
        time.sleep(draw.uniform(0.0, 0.3))
        stop.set()
        for thread in threads:
            thread.join()
        assert not failed, failed
        if which == "api":
            case.stack.start_api()
            case.stack.wait_for_api()
        elif which == "workers":
            case.stack.start_workers()
        try:
            wait_for("both sides agree", case.agree)
        except AssertionError:
            explain(case, which, kill)
            raise
        make_room(case, draw)
    count = len(case.stack.ask("GET", "/ports")["ports"])
    print(f"{kills} kills with seed {seed}: both sides agree after each, {count} ports in the end",
          flush=True)
    for port in case.stack.ask("GET", "/ports")["ports"]:
        case.stack.delete("port", port["id"])
    wait_for("nothing is left", lambda: not fabric_ports("h1") and not fabric_ports("h2"))


def make_room(case: Case, draw: random.Random) -> None:
    """Deletes ports beyond a few: a host has a place for 64."""
    ports = [port["id"] for port in case.stack.ask("GET", "/ports")["ports"]]
    for id in draw.sample(ports, max(0, len(ports) - PORTS_MAX)):
        case.stack.delete("port", id)


def explain(case: Case, which: str, kill: int) -> None:
    """Says what differs."""
    print(f"after kill {kill} ({which}):", flush=True)
    for port in case.stack.ask("GET", "/ports")["ports"]:
        words = (port["id"], port["binding:host_id"], port["binding:vif_type"], port["status"],
                 port["mac_address"], [ip["ip_address"] for ip in port["fixed_ips"]])
        print("neutron", *words, flush=True)
    for host in HOSTS:
        for id, row in fabric_ports(host).items():
            print(host, id, row, flush=True)


def main() -> None:
    """Runs everything."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--kills", type=int, default=6)
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--only", default=None)
    said = arguments.parse_args()
    seed = said.seed if said.seed is not None else random.SystemRandom().randrange(1 << 16)
    began = time.monotonic()
    case = Case()
    print(f"Neutron answers after {time.monotonic() - began:.1f} s", flush=True)
    steps: list[Callable[[Case], None]] = [
        networks_become_vnets, machines_get_sockets, taps_are_made, addresses_change_in_place,
        live_migration_has_two_bindings, vlans_are_mapped, drift_is_repaired, hosts_away,
    ]
    try:
        for step in steps:
            if said.only in (None, step.__name__):
                began = time.monotonic()
                step(case)
                print(f"{step.__name__}: ok, {time.monotonic() - began:.1f} s", flush=True)
        if said.only in (None, "kills"):
            random_kills_leave_both_alike(case, said.kills, seed)
    except BaseException:
        print(f"seed {seed}\n{case.stack.log('api.log')}\n{case.stack.log('workers.log')}",
              flush=True)
        raise


main()
