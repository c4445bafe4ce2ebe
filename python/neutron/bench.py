"""What the driver adds to the creation of a port, as Neutron's user sees it.

    PYTHON bench.py [--ports 200] [--pause 0.25] [--dir DIR] --host SOCKET

PYTHON is one with Neutron 29 and hatchling; SOCKET the `http.sock` of a host of a fabric. Two API
servers run side by side, one with the mechanism driver `sluice`, one with a driver that binds the
port and does nothing else. Ports are made in turn at each of them, so that a machine that slows down
slows both of them down. After each one it pauses, so that no side is slowed down by what the other
one has left to do; with `--pause 0` one request follows the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "tests"))

from stack import Stack  # noqa: E402


NULL = """
from neutron_lib.plugins.ml2 import api


class NullDriver(api.MechanismDriver):
    def initialize(self):
        pass

    def bind_port(self, context):
        for segment in context.segments_to_bind:
            context.set_binding(segment[api.ID], "vhostuser", {"port_filter": False})
            return
"""


def add_null_driver(site: Path) -> None:
    """Adds a mechanism driver `null` to a folder of packages."""
    (site / "null_driver.py").write_text(NULL)
    about = site / "null_driver-0.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: null-driver\nVersion: 0\n")
    entry = "[neutron.ml2.mechanism_drivers]\nnull = null_driver:NullDriver\n"
    (about / "entry_points.txt").write_text(entry)


class Side:
    """One Neutron, and the times of its ports in milliseconds."""

    def __init__(self, name: str, stack: Stack, host: str) -> None:
        self.name = name
        self.stack = stack
        self.host = host
        self.times: list[float] = []
        stack.start_api()
        stack.wait_for_api()
        stack.start_workers()
        self.net = stack.make("network", name="bench")["id"]
        stack.make(
            "subnet", network_id=self.net, ip_version=4, cidr="10.8.0.0/16", enable_dhcp=False
        )

    def make_port(self, keep: bool) -> None:
        """Makes a port, and notes the time; deletes it again, outside of the time."""
        values = {"binding:host_id": self.host, "device_owner": "compute:nova", "device_id": "vm"}
        began = time.perf_counter()
        port = self.stack.make("port", network_id=self.net, **values)
        took = (time.perf_counter() - began) * 1000
        if keep:
            self.times.append(took)
        self.stack.delete("port", port["id"])


def quantile(times: list[float], part: float) -> float:
    """Returns a quantile of times."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def main() -> None:
    """Measures, and prints a table and a line of JSON."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ports", type=int, default=200)
    arguments.add_argument("--warm", type=int, default=20)
    arguments.add_argument("--pause", type=float, default=0.25)
    arguments.add_argument("--dir", type=Path)
    arguments.add_argument("--host", required=True)
    said = arguments.parse_args()
    root = said.dir or Path(tempfile.mkdtemp(prefix="sluice-neutron-"))
    section = {"hosts": f"compute:{said.host}", "vhostuser_socket_dir": str(root)}
    without = Stack(root / "without", section, "null")
    add_null_driver(without.site)
    stacks = {"without": without, "with": Stack(root / "with", section, "sluice")}
    sides = [Side(name, stack, "compute") for name, stack in stacks.items()]
    try:
        for at in range(said.warm + said.ports):
            # Each goes first as often as the other.
            for side in sides if at % 2 else reversed(sides):
                side.make_port(at >= said.warm)
                time.sleep(said.pause)
    finally:
        for side in sides:
            side.stack.stop()
    report(sides)


def report(sides: list[Side]) -> None:
    """Prints the table."""
    rows: dict[str, Any] = {}
    print(f"{'':10} {'p50 ms':>8} {'p99 ms':>8} {'mean ms':>8}")
    for side in sides:
        row = {
            "p50": quantile(side.times, 0.5),
            "p99": quantile(side.times, 0.99),
            "mean": statistics.fmean(side.times),
        }
        rows[side.name] = row
        print(f"{side.name:10} {row['p50']:8.1f} {row['p99']:8.1f} {row['mean']:8.1f}")
    ratios = {key: rows["with"][key] / rows["without"][key] for key in ("p50", "p99", "mean")}
    print(json.dumps({"ports": len(sides[0].times), "ratio": ratios} | rows))


main()
