"""A genuine Neutron in a directory: its API server, its periodic workers, a database of sqlite."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

#: Longest time for anything that is waited for; nothing is judged by it.
PATIENCE = 120.0
#: Times that a request is sent which Neutron answers with 500.
SQLITE_TRIES = 8
HERE = Path(__file__).parent
ROOT = HERE.parent

CONFIG = """
[DEFAULT]
state_path = {dir}
core_plugin = ml2
service_plugins =
auth_strategy = noauth
transport_url = fake://
api_paste_config = {paste}
rpc_workers = 0
dhcp_agent_notification = false
notify_nova_on_port_status_changes = false
notify_nova_on_port_data_changes = false
global_physnet_mtu = 1500
base_mac = fa:16:3e:00:00:00

[database]
connection = sqlite:///{dir}/neutron.db?timeout=60
max_pool_size = 20
max_overflow = 40

[oslo_concurrency]
lock_path = {dir}/locks

[oslo_policy]
policy_file = {dir}/policy.yaml

[ml2]
type_drivers = vxlan,vlan
tenant_network_types = vxlan
mechanism_drivers = {drivers}
extension_drivers = port_security
physical_network_mtus = rack:1450

[ml2_type_vxlan]
vni_ranges = 1000:1499

[ml2_type_vlan]
network_vlan_ranges = rack:100:199

[ml2_sluice]
{section}
"""

#: Nova's part of a live migration is that of the service role, which `noauth` has not.
POLICY = """
"create_port_binding": ""
"get_port_binding": ""
"delete_port_binding": ""
"activate": ""
"""

MAKE_DATABASE = """
import sys
from neutron.db.migration.models import head
from sqlalchemy import create_engine, text
engine = create_engine(sys.argv[1])
with engine.connect() as connection:
    connection.execute(text("PRAGMA journal_mode = WAL"))
head.get_metadata().create_all(engine)
"""


class Refusal(Exception):
    """Neutron refuses a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


def wait_for(what: str, happened: Callable[[], Any]) -> Any:
    """Waits until something is true, and returns it."""
    until = time.monotonic() + PATIENCE
    while not (seen := happened()):
        if time.monotonic() > until:
            raise AssertionError(f"never: {what}")
        time.sleep(0.05)
    return seen


def build_wheels(to: Path) -> None:
    """Builds the packages, and unpacks them, as pip would install them."""
    for source in (ROOT, ROOT.parent):
        words = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(to)]
        subprocess.run(words, cwd=source, check=True, capture_output=True, env=environment())
    for wheel in to.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(to)


def environment() -> dict[str, str]:
    """Returns an environment in which Neutron's own modules are compiled once."""
    return {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def free_port() -> int:
    """Returns a port of TCP that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Stack:
    """The processes, and requests to them."""

    def __init__(self, dir: Path, section: Mapping[str, str], drivers: str = "sluice") -> None:
        self.dir = dir
        dir.mkdir(parents=True, exist_ok=True)
        self.site = dir / "site"
        url = f"sqlite:///{dir}/neutron.db"
        making = subprocess.Popen([sys.executable, "-c", MAKE_DATABASE, url], env=environment())
        build_wheels(self.site)
        paste = Path(sys.prefix) / "etc/neutron/api-paste.ini"
        lines = "\n".join(f"{key} = {value}" for key, value in section.items())
        words = {"dir": dir, "paste": paste, "drivers": drivers, "section": lines}
        self.conf = dir / "neutron.conf"
        self.conf.write_text(CONFIG.format_map(words))
        (dir / "policy.yaml").write_text(POLICY)
        if making.wait():
            raise AssertionError("the database is not made")
        self.port = free_port()
        self.api: subprocess.Popen[bytes] | None = None
        self.workers: subprocess.Popen[bytes] | None = None

    def _start(self, log: str, words: list[str]) -> subprocess.Popen[bytes]:
        env = environment()
        env["PYTHONPATH"] = str(self.site)
        env["OS_NEUTRON_CONFIG_FILES"] = str(self.conf)
        with open(self.dir / log, "ab") as file:
            return subprocess.Popen(
                words, env=env, stdout=file, stderr=file, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start_api(self) -> None:
        """Starts the API server."""
        words = [sys.executable, str(HERE / "api_server.py"), str(self.port)]
        self.api = self._start("api.log", words)

    def wait_for_api(self) -> None:
        """Waits until the API answers."""

        def answers() -> bool:
            if self.api and self.api.poll() is not None:
                raise AssertionError(f"the API server ended:\n{self.log('api.log')}")
            try:
                return bool(self.ask("GET", "/networks"))
            except OSError:
                return False

        wait_for("the API answers", answers)

    def start_workers(self) -> None:
        """Starts the periodic workers, with that of the driver."""
        program = Path(sys.executable).parent / "neutron-periodic-workers"
        words = [sys.executable, str(program), "--config-file", str(self.conf)]
        self.workers = self._start("workers.log", words)

    def kill(self, process: subprocess.Popen[bytes] | None) -> None:
        """Kills a process and its children at once."""
        if process:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                pass
            process.wait()

    def kill_api(self) -> None:
        """Kills the API server at once."""
        self.kill(self.api)
        self.api = None

    def kill_workers(self) -> None:
        """Kills the periodic workers at once."""
        self.kill(self.workers)
        self.workers = None

    def stop(self) -> None:
        """Ends everything."""
        self.kill_api()
        self.kill_workers()

    def log(self, name: str) -> str:
        """Returns the end of a log."""
        path = self.dir / name
        return path.read_text(errors="replace")[-4000:] if path.exists() else ""

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Sends a request, and returns the JSON of its answer.

        Sqlite refuses a transaction that has read what another one has written since, and Neutron,
        which knows MySQL, answers 500: it is asked again.
        """
        for attempt in range(SQLITE_TRIES):
            try:
                return self._ask(method, path, body)
            except Refusal as refusal:
                if refusal.status == 404 and method == "DELETE" and attempt:
                    return {}
                if refusal.status != 500 or attempt + 1 == SQLITE_TRIES:
                    raise
            time.sleep(0.1)

    def _ask(self, method: str, path: str, body: object) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v2.0{path}", data, method=method
        )
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise Refusal(error.code, error.read().decode(errors="replace")) from error
        return json.loads(text) if text else {}

    def make(self, kind: str, **values: Any) -> Any:
        """Makes a resource."""
        return self.ask("POST", f"/{kind}s", {kind: values})[kind]

    def set(self, kind: str, id: str, **values: Any) -> Any:
        """Changes a resource."""
        return self.ask("PUT", f"/{kind}s/{id}", {kind: values})[kind]

    def get(self, kind: str, id: str) -> Any:
        """Shows a resource."""
        return self.ask("GET", f"/{kind}s/{id}")[kind]

    def delete(self, kind: str, id: str) -> None:
        """Deletes a resource."""
        self.ask("DELETE", f"/{kind}s/{id}")
