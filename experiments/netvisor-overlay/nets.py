"""Two servers behind two switches with a router between, in namespaces, and what a load does there."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

MTU = 1450
VNI = 42
# CPUs: programs and cards of the servers here, everything else there.
SERVERS, NETWORK = 0, 1


def run(line):
    """Runs a command, and returns its output."""
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{line}`: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait(is_done, what):
    until = time.monotonic() + 15
    while not is_done():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within 15 s")
        time.sleep(0.05)


class Net:
    """Namespaces and processes of one kind of overlay. `None` is without an overlay."""

    overlay, datapath, subject = "none", None, "linux"

    def __init__(self, folder):
        self.name = "/".join(filter(None, (self.overlay, self.datapath)))
        self.prefix = f"sluice-e-{os.getpid()}-{self.overlay}{self.datapath or ''}"
        self.folder = folder / self.name.replace("/", "-")
        self.folder.mkdir()
        self.spaces, self.daemons = {}, []

    def build(self):
        for name in ("s1", "s2", "w1", "w2", "rt"):
            space = f"{self.prefix}-{name}"
            run(f"ip netns add {space}")
            self.spaces[name] = space
            self.at(name, "ip link set lo up")
            self.at(name, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")
        for at in (1, 2):
            self.cable((f"s{at}", "e0"), (f"w{at}", "p1"))
            self.cable((f"w{at}", "up0"), ("rt", f"r{at}"))
            # A bridge has the servers' subnet; a host of Sluice has its own.
            self.at("rt", f"ip addr add 192.0.{at}.1/24 dev r{at}")
        self.at("rt", "sysctl -qw net.ipv4.ip_forward=1")
        for at in (1, 2):
            self.switch(at)
            self.server(at)
        self.started()
        self.reach()

    def switch(self, at):
        """Makes switch `at` a Linux bridge."""
        self.at(f"w{at}", "ip link add br0 type bridge")
        for port in ("p1", "up0"):
            self.at(f"w{at}", f"ip link set {port} master br0")
        self.at(f"w{at}", "ip link set br0 up")

    def server(self, at):
        self.plug(at, "e0")
        self.at(f"s{at}", f"ip link set e0 mtu {MTU}")

    def started(self):
        """Returns when what was launched answers."""

    def address(self):
        """Returns where s2 listens."""
        return "192.0.2.2"

    def plug(self, at, device):
        """Gives a device of server `at` an address of the underlay."""
        self.at(f"s{at}", f"ip addr add 192.0.{at}.2/24 dev {device}")
        self.at(f"s{at}", f"ip link set {device} up")
        self.at(f"s{at}", f"ip route add 192.0.{3 - at}.0/24 via 192.0.{at}.1")

    def at(self, name, line):
        return run(f"ip netns exec {self.spaces[name]} {line}")

    def launch(self, name, words, log, **environment):
        """Starts a process that lives as long as the net does."""
        enter = ["ip", "netns", "exec", self.spaces[name]]
        with open(log, "a", encoding="utf-8") as out:
            self.daemons.append(subprocess.Popen(
                enter + words, stdout=out, stderr=out, env=os.environ | environment))

    def cable(self, left, right):
        (a, device), (b, other) = left, right
        made = f"ip link add {device} netns {self.spaces[a]} type veth"
        run(f"{made} peer name {other} netns {self.spaces[b]}")
        for name, end in (left, right):
            self.at(name, f"ip link set {end} up")
            mask = 1 << (SERVERS if name in ("s1", "s2") else NETWORK)
            path = f"/sys/class/net/{end}/queues/rx-0/rps_cpus"
            tee = ["ip", "netns", "exec", self.spaces[name], "tee", path]
            subprocess.run(tee, input=f"{mask:x}", text=True, capture_output=True, check=True)

    def reach(self):
        enter = ["ip", "netns", "exec", self.spaces["s1"]]
        ping = enter + ["ping", "-n", "-c", "1", "-W", "1", self.address()]
        wait(lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0,
             f"{self.name}: s2 answers s1")

    def measure(self, write, seconds):
        """Returns bits per second, the busy cores of servers and network, and the bytes in a frame
        that s2 receives."""
        server = self.pinned("s2", ["iperf3", "-s", "-1"])
        wait(lambda: ":5201" in self.at("s2", "ss -Hltn"), "iperf3 listens")
        words = ["iperf3", "-c", self.address(), "-J", "-P", "10", "-w", "32K", "-l", str(write)]
        client = self.pinned("s1", words + ["-t", str(seconds + 1)])
        time.sleep(0.5)
        before, began, had = busy(), time.monotonic(), self.received()
        time.sleep(seconds)
        after, took, has = busy(), time.monotonic() - began, self.received()
        output, _ = client.communicate(timeout=seconds + 30)
        server.wait(timeout=30)
        end = json.loads(output)["end"]["sum_received"]
        cores = [(now - then) / took for now, then in zip(after, before)]
        size = (has[0] - had[0]) / max(1, has[1] - had[1])
        return end["bits_per_second"], cores[SERVERS], cores[NETWORK], size

    def pinned(self, name, words):
        enter = ["ip", "netns", "exec", self.spaces[name], "taskset", "-c", str(SERVERS)]
        return subprocess.Popen(enter + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def received(self):
        """Returns bytes and frames that the card of s2 has received."""
        link = json.loads(self.at("s2", "ip -j -s link show e0"))[0]["stats64"]["rx"]
        return link["bytes"], link["packets"]

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False)


class LinuxServers(Net):
    """Each server encapsulates by the kernel's VXLAN."""

    overlay, datapath = "server", "linux"

    def server(self, at):
        self.plug(at, "e0")
        vxlan = f"ip link add vx0 mtu {MTU} type vxlan id {VNI} local 192.0.{at}.2"
        self.at(f"s{at}", f"{vxlan} remote 192.0.{3 - at}.2 dstport 4789")
        self.at(f"s{at}", f"ip addr add 10.1.0.{at}/24 dev vx0")
        self.at(f"s{at}", "ip link set vx0 up")

    def address(self):
        return "10.1.0.2"


class SluiceSwitches(Net):
    """The switches are hosts of Sluice that encapsulate; the servers are plain."""

    overlay, subject = "switch", "sluice"

    def __init__(self, chip, program, folder):
        self.datapath, self.program = chip, program
        super().__init__(folder)

    def switch(self, at):
        self.at(f"w{at}", f"ip addr add 192.0.{at}.2/24 dev up0")
        self.at(f"w{at}", f"ip route add 192.0.{3 - at}.0/24 via 192.0.{at}.1")

    def server(self, at):
        self.at(f"s{at}", f"ip link set e0 address 02:00:00:00:00:0{at} mtu {MTU}")
        self.at(f"s{at}", f"ip addr add 10.1.0.{at}/24 dev e0")
        if self.datapath == "software":
            # The ring of its device takes frames as they are on a wire.
            self.at(f"s{at}", "ethtool -K e0 tso off gso off")

    def started(self):
        for at in (1, 2):
            folder = self.run_dir(at)
            folder.mkdir()
            (folder / "host.toml").write_text(self.config(at))
            words = [self.program, "daemon", "--config", str(folder / "host.toml")]
            self.launch(f"w{at}", words, folder / "log")
        for at in (1, 2):
            wait(lambda at=at: self.answers(at), f"w{at} answers")

    def address(self):
        return "10.1.0.2"

    def run_dir(self, at):
        return self.folder / f"w{at}"

    def answers(self, at):
        show = [self.program, "show", "ports", "--run-dir", str(self.run_dir(at))]
        return subprocess.run(show, capture_output=True, check=False).returncode == 0

    def config(self, at):
        other = 3 - at
        return f"""
[host]
name = "w{at}"
run_dir = "{self.run_dir(at)}"
worker_cpu = {NETWORK}
[chip]
kind = "{self.datapath}"
[underlay]
kind = "l2"
device = "up0"
address = "192.0.{at}.2"
[[vnet]]
name = "blue"
vni = {VNI}
mtu = {MTU}
[[port]]
name = "p1"
kind = "l2"
vnet = "blue"
device = "p1"
[[peer]]
name = "w{other}"
vtep = "192.0.{other}.2"
vnets = ["blue"]
[[vport]]
vnet = "blue"
port = "p1"
mac = "02:00:00:00:00:0{at}"
ip = "10.1.0.{at}"
[[vport]]
vnet = "blue"
peer = "w{other}"
mac = "02:00:00:00:00:0{other}"
ip = "10.1.0.{other}"
"""


def busy():
    """Seconds for which each CPU was not idle, since the start of the machine."""
    tick = os.sysconf("SC_CLK_TCK")
    lines = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()
    cpus = [line.split() for line in lines if re.match(r"cpu\d", line)]
    # user, nice, system, idle, iowait, irq, softirq
    return [sum(int(words[at]) for at in (1, 2, 3, 6, 7)) / tick for words in cpus]
