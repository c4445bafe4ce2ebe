"""The client and a host: `SLUICE_SOCKET` is its socket, `SLUICE_NETNS` a container's namespace.

The host must be a member of a fabric that was made by command, with the network `blue`.
"""

import os
import unittest
from threading import Timer
from typing import Any

from sluice_client import Client, Problem, Way

SOCKET, NETNS = os.environ.get("SLUICE_SOCKET"), os.environ.get("SLUICE_NETNS")


class Noted(Client):
    """Notes the operations that it asks for."""

    asked: set[tuple[str, str]] = set()

    def ask(self, method: str, template: str, *rest: Any, **more: Any) -> Any:
        self.asked.add((method.lower(), template))
        return super().ask(method, template, *rest, **more)


@unittest.skipUnless(SOCKET and NETNS, "SLUICE_SOCKET and SLUICE_NETNS name no host")
class Host(unittest.TestCase):
    def test_each_operation_of_document(self) -> None:
        host = Noted(str(SOCKET))
        self.looked_at(host)
        self.ports(host)
        self.tokens(host)
        self.configuration(host)
        host.asked.add(("get", "/v1/events"))
        self.events(host)
        operations = {
            (method, path)
            for path, methods in host.openapi()["paths"].items()
            for method in methods
        }
        self.assertEqual(host.asked, operations)

    def looked_at(self, host: Client) -> None:
        self.assertEqual(host.host()["host"], "h1")
        self.assertIn("/v1/ports", host.paths())
        self.assertIn(host.status()["grade"], ("pass", "warn"))
        self.assertTrue(host.show("audit")["closed"])
        self.assertEqual(host.fabric("members")[0]["host"], "h1")
        host.reload()

    def ports(self, host: Client) -> None:
        made = host.add_port(
            {
                "place": {"netns": str(NETNS)},
                "vnet": "blue",
                "name": "web/1é",
                "ips": ["10.42.0.77/24"],
                "device": "py0",
            }
        )
        self.assertEqual((made["device"], made["ips"]), ("py0", ["10.42.0.77/24"]))
        self.assertIn("web/1é", [row["port"]["name"] for row in host.ports()])
        self.assertEqual(host.port("web/1é")["device"], "py0")
        mac = made["mac"]
        assert mac is not None
        self.assertIn(mac, [row["mac"] for row in host.vports("blue")])
        self.assertEqual(host.vport("10.42.0.77", "blue")["mac"], mac)
        self.assertFalse(host.thaw(mac, "blue")[0]["was_frozen"])
        self.assertEqual(host.delete_port("web/1é")["name"], "web/1é")
        with self.assertRaises(Problem) as caught:
            host.delete_port("web/1é")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "no_such_port"))

    def events(self, host: Client) -> None:
        events = host.events(seconds=20)
        changes = Timer(0.5, host.create_vnet, ("py3", {"vni": 903}))
        changes.start()
        seen = next(event for event in events if event["event"] == "transaction")
        self.assertIn("network py3 is made", seen["what"])
        events.close()
        changes.join()
        host.delete_vnet("py3")

    def tokens(self, host: Client) -> None:
        made = host.make_token({"name": "py", "role": "tenant", "vnets": ["blue"], "days": 1})
        self.assertTrue(made["token"].startswith("sluice-api-"))
        [entry] = [entry for entry in host.tokens() if entry["name"] == "py"]
        self.assertEqual((entry["role"], entry["vnets"]), ("tenant", ["blue"]))
        self.assertEqual(host.revoke_token("py"), "py")
        with self.assertRaises(Problem) as caught:
            host.revoke_token("py")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "no_such_token"))

    def configuration(self, host: Client) -> None:
        before = host.config()["revision"]
        checked = host.create_vnet("py", {"vni": 900}, Way(check=True))
        self.assertIn("accepted", checked)
        self.assertEqual(host.config()["revision"], before)
        host.create_vnet("py", {"vni": 900}, Way(comment="büro & co", require_all=True))
        self.assertEqual(host.transactions(1)[0]["comment"], "büro & co")
        host.set_vnet("py", {"mtu": 1300, "hold": "2s"})
        once = host.once("6e2c")
        made = once.create_vnet("py2", {"vni": 902})
        self.assertEqual(once.create_vnet("py2", {"vni": 902}), made)
        with self.assertRaises(Problem) as caught:
            once.delete_vnet("py2")
        self.assertEqual((caught.exception.status, caught.exception.code), (422, "key_reused"))
        host.delete_vnet("py2")
        host.set_vnet("py", {"hold": None})
        self.assertEqual(host.config()["config"]["vnets"]["py"], {"vni": 900, "mtu": 1300})
        self.assertIn("py", [row["vnet"] for row in host.vnets()])
        host.delete_vnet("py")
        host.change([{"create_vnet": {"name": "py", "vnet": {"vni": 901}}}], Way(confirmed_s=60))
        host.confirm()
        host.rollback(before)
        self.assertNotIn("py", host.config()["config"]["vnets"])
        host.set_placement({"mode": "rss"})
        self.assertEqual(host.placement()["stamped"]["policy"], {"mode": "rss"})
        with self.assertRaises(Problem) as caught:
            host.create_vnet("py", {"vni": 1 << 30})
        self.assertIn("16777215", caught.exception.message + caught.exception.remedy)


if __name__ == "__main__":
    unittest.main()
