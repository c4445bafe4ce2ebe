#!/usr/bin/env python3
"""Where the work of an overlay is done, and what it costs the servers (Netvisor, section 6).

    experiments/netvisor-overlay/run.py                 as root, from the root of the repository
    experiments/netvisor-overlay/run.py --rounds 30     as many pairs as the page has

Two servers behind two switches, a router between:

    s1 e0 ─ p1 [w1] up0 ─ r0 [rt] r1 ─ up0 [w2] p1 ─ e0 s2

    none             the switches are bridges; the router routes between the servers
    server           the same, and each server encapsulates (the kernel's VXLAN)
    switch/software  the switches are hosts of Sluice that encapsulate, by the data process
    switch/kernel    the same, by the kernel as their chip

Ten TCP connections with a window of 32 KB write 64, 512 and 1,450 bytes at a time. All four are
there from the start, and take turns in each round.

Servers' work and switches' work are told apart by CPUs: programs of the servers are pinned to CPU
0, and what their cards receive is delivered there (RPS); what the cards of switches and router
receive is delivered on CPU 1, where the data processes are pinned, too. So the time of CPU 0 that
is not idle is the servers', softirqs included, both ends together; that of CPU 1 is the network's.
Each row says which of the two was busier, and so what limited it.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

OVERLAYS = [("none", None), ("server", None), ("switch", "software"), ("switch", "kernel")]
WRITES = [64, 512, 1450]
# Section 6 of the paper: VM to VM, Gbit/s.
PAPER = {
    "none": {64: 4.45, 512: 8.88, 1450: 9.24},
    "server": {64: 3.46, 512: 5.31, 1450: 5.56},
    "switch": {64: 4.35, 512: 8.71, 1450: 8.93},
}
MTU = 1450
VNI = 42
SERVERS, NETWORK = 0, 1


def run(line):
    """Runs a command, and returns its output."""
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"`{line}`: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Net:
    """Namespaces and processes of one kind of overlay."""

    def __init__(self, overlay, chip, program, folder):
        self.overlay, self.chip = overlay, chip
        self.name = overlay if chip is None else f"{overlay}/{chip}"
        self.prefix = f"sluice-e-{os.getpid()}-{overlay}{chip or ''}"[:40]
        self.program, self.folder, self.daemons = program, folder, []
        self.spaces = {}

    def space(self, name):
        space = f"{self.prefix}-{name}"
        run(f"ip netns add {space}")
        self.spaces[name] = space
        self.at(name, "ip link set lo up")
        self.at(name, "sysctl -qw net.ipv6.conf.default.disable_ipv6=1")

    def at(self, name, line):
        return run(f"ip netns exec {self.spaces[name]} {line}")

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

    def build(self):
        for name in ("s1", "s2", "w1", "w2", "rt"):
            self.space(name)
        for at in (1, 2):
            self.cable((f"s{at}", "e0"), (f"w{at}", "p1"))
            self.cable((f"w{at}", "up0"), ("rt", f"r{at}"))
            # A bridge has the servers' subnet; a host of Sluice has its own.
            self.at("rt", f"ip addr add 192.0.{at}.1/24 dev r{at}")
            # The router routes what is 1,500 bytes on its links.
            self.at(f"s{at}", "ip link set e0 mtu 1500")
        self.at("rt", "sysctl -qw net.ipv4.ip_forward=1")
        (self.switches if self.overlay == "switch" else self.bridges)()

    def bridges(self):
        for at in (1, 2):
            self.at(f"w{at}", "ip link add br0 type bridge")
            for port in ("p1", "up0"):
                self.at(f"w{at}", f"ip link set {port} master br0")
            self.at(f"w{at}", "ip link set br0 up")
            other = 3 - at
            self.at(f"s{at}", f"ip addr add 192.0.{at}.2/24 dev e0")
            self.at(f"s{at}", f"ip route add 192.0.{other}.0/24 via 192.0.{at}.1")
            if self.overlay == "none":
                self.at(f"s{at}", f"ip link set e0 mtu {MTU}")
                self.address = "192.0.2.2"
                continue
            vxlan = f"ip link add vx0 mtu {MTU} type vxlan id {VNI} local 192.0.{at}.2"
            self.at(f"s{at}", f"{vxlan} remote 192.0.{other}.2 dstport 4789")
            self.at(f"s{at}", f"ip addr add 10.1.0.{at}/24 dev vx0")
            self.at(f"s{at}", "ip link set vx0 up")
            self.address = "10.1.0.2"

    def switches(self):
        self.address = "10.1.0.2"
        for at in (1, 2):
            other = 3 - at
            self.at(f"w{at}", f"ip addr add 192.0.{at}.2/24 dev up0")
            self.at(f"w{at}", f"ip route add 192.0.{other}.0/24 via 192.0.{at}.1")
            self.at(f"s{at}", f"ip link set e0 address 02:00:00:00:00:0{at} mtu {MTU}")
            self.at(f"s{at}", f"ip addr add 10.1.0.{at}/24 dev e0")
            if self.chip == "software":
                # The ring of its device takes frames as they are on a wire.
                self.at(f"s{at}", "ethtool -K e0 tso off gso off")
            folder = self.folder / self.name.replace("/", "-") / f"w{at}"
            folder.mkdir(parents=True)
            (folder / "host.toml").write_text(self.config(at, folder))
            words = [self.program, "daemon", "--config", str(folder / "host.toml")]
            log = open(folder / "log", "w", encoding="utf-8")
            enter = ["ip", "netns", "exec", self.spaces[f"w{at}"]]
            daemon = subprocess.Popen(enter + words, stdout=log, stderr=log)
            self.daemons.append((daemon, folder))
        for _, folder in self.daemons:
            wait(lambda folder=folder: self.answers(folder), f"{folder} answers")

    def answers(self, folder):
        show = [self.program, "show", "ports", "--run-dir", str(folder)]
        return subprocess.run(show, capture_output=True, check=False).returncode == 0

    def config(self, at, folder):
        other = 3 - at
        return f"""
[host]
name = "w{at}"
run_dir = "{folder}"
worker_cpu = {NETWORK}
[chip]
kind = "{self.chip}"
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

    def pinned(self, name, words):
        enter = ["ip", "netns", "exec", self.spaces[name], "taskset", "-c", str(SERVERS)]
        return subprocess.Popen(enter + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def reach(self):
        enter = ["ip", "netns", "exec", self.spaces["s1"]]
        ping = enter + ["ping", "-n", "-c", "1", "-W", "1", self.address]
        wait(lambda: subprocess.run(ping, capture_output=True, check=False).returncode == 0,
             f"{self.name}: s2 answers s1")

    def measure(self, write, seconds):
        """Returns bits per second, and the busy cores of servers and network."""
        server = self.pinned("s2", ["iperf3", "-s", "-1"])
        wait(lambda: ":5201" in self.at("s2", "ss -Hltn"), "iperf3 listens")
        words = ["iperf3", "-c", self.address, "-J", "-P", "10", "-w", "32K", "-l", str(write)]
        client = self.pinned("s1", words + ["-t", str(seconds + 1)])
        time.sleep(0.5)
        before, began = busy(), time.monotonic()
        time.sleep(seconds)
        after, took = busy(), time.monotonic() - began
        output, _ = client.communicate(timeout=seconds + 30)
        server.wait(timeout=30)
        end = json.loads(output)["end"]["sum_received"]
        cores = [(now - then) / took for now, then in zip(after, before)]
        return end["bits_per_second"], cores[SERVERS], cores[NETWORK]

    def close(self):
        for daemon, _ in self.daemons:
            daemon.send_signal(signal.SIGTERM)
        for daemon, _ in self.daemons:
            try:
                daemon.wait(timeout=10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False)


def wait(is_done, what):
    until = time.monotonic() + 15
    while not is_done():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within 15 s")
        time.sleep(0.05)


def busy():
    """Seconds for which each CPU was not idle, since the start of the machine."""
    tick = os.sysconf("SC_CLK_TCK")
    lines = pathlib.Path("/proc/stat").read_text(encoding="utf-8").splitlines()
    cpus = [line.split() for line in lines if re.match(r"cpu\d", line)]
    # user, nice, system, idle, iowait, irq, softirq
    return [sum(int(words[at]) for at in (1, 2, 3, 6, 7)) / tick for words in cpus]


def rows(samples):
    for (name, write), values in samples.items():
        overlay, _, chip = name.partition("/")
        context = {"write_bytes": write, "overlay": overlay}
        if chip:
            context["chip"] = chip
        limit = ["servers" if servers >= network else "network" for _, servers, network in values]
        context["limited_by"] = statistics.mode(limit)
        rates, servers, network = (list(column) for column in zip(*values))
        context["network_cpu"] = statistics.median(network)
        for measure, unit, column in [
            ("throughput", "bit/s", rates),
            ("server_cpu", "cores", servers),
        ]:
            yield {"measure": measure, "subject": "sluice" if chip else "linux", "unit": unit,
                   "context": context, "values": column, "min": min(column),
                   "median": statistics.median(column), "max": max(column)}


def interval(ratios):
    """Returns the mean of some ratios, and half of its 95 % interval."""
    if len(ratios) < 2:
        return ratios[0], math.inf
    return statistics.mean(ratios), 1.96 * statistics.stdev(ratios) / math.sqrt(len(ratios))


def table(samples):
    lines = ["| bytes | overlay | Gbit/s | of `none` | paper | servers' cores per Gbit/s, of `none` "
             "| network's cores | limit |", "|---|---|---|---|---|---|---|---|"]
    for write in WRITES:
        base = samples[("none", write)]
        for overlay, chip in OVERLAYS:
            name = overlay if chip is None else f"{overlay}/{chip}"
            values = samples[(name, write)]
            rate = interval([value[0] / with_none[0] for value, with_none in zip(values, base)])
            cpu = interval([(value[1] / value[0]) / (with_none[1] / with_none[0])
                            for value, with_none in zip(values, base)])
            paper = PAPER[overlay][write] / PAPER["none"][write]
            limit = statistics.mode("servers" if v[1] >= v[2] else "network" for v in values)
            lines.append(
                f"| {write} | {name} | {statistics.median(v[0] for v in values) / 1e9:.2f} "
                f"| {rate[0]:.2f} ± {rate[1]:.2f} | {paper:.2f} | {cpu[0]:.2f} ± {cpu[1]:.2f} "
                f"| {statistics.median(v[2] for v in values):.2f} | {limit} |")
    return "\n".join(lines) + "\n"


def picture(samples):
    """Draws the throughput of each overlay as a part of that without one, beside the paper's."""
    names = ["server", "switch/software", "switch/kernel"]
    colours = {"server": "#c44e52", "switch/software": "#4c72b0", "switch/kernel": "#55a868"}
    parts, left, base, height = [], 60, 260, 200
    for at, write in enumerate(WRITES):
        for nth, name in enumerate(names):
            ratios = [a[0] / b[0] for a, b in zip(samples[(name, write)], samples[("none", write)])]
            seen = statistics.median(ratios)
            paper = PAPER[name.split("/")[0]][write] / PAPER["none"][write]
            x = left + at * 200 + nth * 56
            for value, offset, opacity in ((seen, 0, 1), (paper, 24, 0.35)):
                size = min(value, 1.2) * height / 1.2
                parts.append(f'<rect x="{x + offset}" y="{base - size:.1f}" width="22" '
                             f'height="{size:.1f}" fill="{colours[name]}" opacity="{opacity}"/>')
                parts.append(f'<text x="{x + offset + 11}" y="{base - size - 4:.1f}" '
                             f'font-size="9" text-anchor="middle">{value:.2f}</text>')
        parts.append(f'<text x="{left + at * 200 + 80}" y="{base + 18}" font-size="12" '
                     f'text-anchor="middle">{write} bytes a write</text>')
    line = base - height / 1.2
    parts.append(f'<line x1="{left - 10}" x2="{left + 600}" y1="{line:.1f}" y2="{line:.1f}" '
                 'stroke="#555" stroke-dasharray="4"/>')
    for nth, name in enumerate(names):
        parts.append(f'<rect x="{left + nth * 170}" y="14" width="12" height="12" '
                     f'fill="{colours[name]}"/><text x="{left + 18 + nth * 170}" y="24" '
                     f'font-size="12">{name}</text>')
    parts.append(f'<text x="{left}" y="46" font-size="11">throughput, of that without an overlay; '
                 'pale: the paper</text>')
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="680" height="300" '
            f'font-family="sans-serif">\n<rect width="680" height="300" fill="white"/>\n{body}\n'
            "</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/netvisor-overlay"))
    parser.add_argument("--program", default="target/release/sluice")
    parser.add_argument("--json", action="store_true", help="print result.json, not the table")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("it makes network namespaces: run it as root")
    if (os.cpu_count() or 1) < 2:
        raise SystemExit("it needs two CPUs: one for the servers, one for the network")
    for tool in ("ip", "iperf3", "taskset", "ss", "ethtool"):
        if shutil.which(tool) is None:
            raise SystemExit(f"`{tool}` is not installed")
    program = pathlib.Path(arguments.program)
    if not program.exists():
        raise SystemExit(f"{program}: build it with `cargo build --release`, or name another one "
                         "with `--program`")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        nets = [Net(overlay, chip, str(program.resolve()), pathlib.Path(folder))
                for overlay, chip in OVERLAYS]
        samples = {(net.name, write): [] for net in nets for write in WRITES}
        try:
            for net in nets:
                net.build()
                net.reach()
            for nth in range(arguments.rounds):
                for write in WRITES:
                    for net in nets:
                        samples[(net.name, write)].append(net.measure(write, arguments.seconds))
                print(f"round {nth + 1} of {arguments.rounds}", file=sys.stderr)
        finally:
            for net in nets:
                net.close()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True,
                            check=False).stdout.strip() or "unknown"
    result = {"name": "netvisor-overlay", "commit": commit,
              "machine": f"{os.cpu_count()} processors, Linux {platform.release()}",
              "rows": list(rows(samples))}
    (arguments.out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.out / "overlay.svg").write_text(picture(samples))
    (arguments.out / "table.md").write_text(table(samples))
    print(json.dumps(result) if arguments.json else table(samples))


if __name__ == "__main__":
    main()
