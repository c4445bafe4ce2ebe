"""Servers that encapsulate by Open vSwitch's userspace data path."""

import os

import nets

SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
TOOLS = ("ovsdb-tool", "ovsdb-server", "ovs-vswitchd", "ovs-vsctl")


class OvsServers(nets.Net):
    """Each server has two bridges of the userspace data path: `phy` has its card and its address,
    `int` its program's device and the tunnel."""

    overlay, datapath, subject = "server", "ovs", "openvswitch"

    def server(self, at):
        folder = self.folder / f"s{at}"
        folder.mkdir()
        places = {name: str(folder) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}
        database, socket, log = folder / "conf.db", folder / "db.sock", folder / "log"
        nets.run(f"ovsdb-tool create {database} {SCHEMA}")
        # Its threads are the server's work.
        pinned = ["taskset", "-c", str(nets.SERVERS)]
        words = ["ovsdb-server", str(database), f"--remote=punix:{socket}"]
        self.launch(f"s{at}", pinned + words, log, **places)
        nets.wait(lambda: os.path.exists(socket), "Open vSwitch's database answers")
        control = f"ovs-vsctl --timeout=20 --db=unix:{socket}"
        nets.run(f"{control} --no-wait init")
        self.launch(f"s{at}", pinned + ["ovs-vswitchd", f"unix:{socket}"], log, **places)
        for bridge in ("phy", "int"):
            nets.run(f"{control} add-br {bridge} -- set bridge {bridge} datapath_type=netdev")
        nets.run(f"{control} add-port phy e0")
        self.plug(at, "phy")
        tunnel = f"options:remote_ip=192.0.{3 - at}.2 options:key={nets.VNI}"
        nets.run(f"{control} add-port int vx0 -- set interface vx0 type=vxlan {tunnel}")
        self.at(f"s{at}", f"ip addr add 10.1.0.{at}/24 dev int")
        self.at(f"s{at}", f"ip link set int mtu {nets.MTU} up")

    def address(self):
        return "10.1.0.2"
