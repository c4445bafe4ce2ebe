"""What the fabric shall have by what Neutron says."""

import unittest
from dataclasses import replace

from sluice_neutron import facts
from sluice_neutron.facts import Binding, Network, Port, Rules, Unsupported

ID = "12345678-9abc-4def-8123-456789abcdef"
NET = "aaaaaaaa-9abc-4def-8123-456789abcdef"
RULES = Rules("os")
BOUND = Binding("c1", True, "vhostuser", "/run/v/vhu1", True)
PORT = Port(
    ID, NET, 3, "FA:16:3E:00:00:01", ("10.0.0.7", "fd00::7"), (), True, False, (BOUND,)
)


class Names(unittest.TestCase):
    def test_only_own_names_are_own(self) -> None:
        self.assertEqual(RULES.id(RULES.name(ID)), ID)
        for name in (None, "", ID, f"os2-{ID}", f"os-{ID}x", "os-web", f"os-{ID.upper()}", "blue"):
            self.assertIsNone(RULES.id(name), name)
        self.assertIsNone(Rules("o.").id(f"os-{ID}"), "a mark is no pattern")


class Ports(unittest.TestCase):
    def test_secured_port_is_bound(self) -> None:
        (new,) = RULES.ports(PORT).values()
        self.assertEqual(
            new,
            {
                "name": f"os-{ID}",
                "vnet": f"os-{NET}",
                "place": {"vm": {"socket": "/run/v/vhu1", "client": True}},
                "mac": "fa:16:3e:00:00:01",
                "ips": ["10.0.0.7/32", "fd00::7/128"],
            },
        )

    def test_unsecured_port_learns(self) -> None:
        (new,) = RULES.ports(replace(PORT, is_secured=False, pairs=(("x", "bad"),))).values()
        self.assertEqual(set(new), {"name", "vnet", "place"})

    def test_tap_has_the_name_of_all_agents(self) -> None:
        bound = Binding("c1", True, "tap")
        (new,) = RULES.ports(replace(PORT, bindings=(bound,))).values()
        self.assertEqual(new["place"], {"tap": "tap12345678-9a"})

    def test_active_host_is_first_and_the_other_on_standby(self) -> None:
        other = replace(BOUND, host="c0", is_active=False)
        ports = RULES.ports(replace(PORT, bindings=(other, BOUND)))
        self.assertEqual(list(ports), ["c1", "c0"])
        self.assertNotIn("standby", ports["c1"])
        self.assertTrue(ports["c0"]["standby"])

    def test_pairs_are_prefixes_without_own_addresses(self) -> None:
        mac = PORT.mac
        pairs = ((mac, "10.0.0.9/24"), (mac, "10.0.0.7"), (mac, "10.0.1.1/32"), (mac, "FD00::9"))
        self.assertEqual(
            facts.allowed(PORT.ips, pairs), ["10.0.0.0/24", "10.0.1.1", "fd00::9"]
        )

    def test_beyond_the_limits_is_refused_with_a_remedy(self) -> None:
        five = tuple(f"10.0.0.{n}" for n in range(5))
        many = tuple((PORT.mac, f"10.1.{n}.0/24") for n in range(17))
        foreign = (("02:00:00:00:00:09", "10.0.0.9"),)
        for ips, pairs, remedy in (
            (five, (), "another port"), ((), many, "use prefixes"), ((), foreign, "mac_address"),
        ):
            with self.assertRaisesRegex(Unsupported, remedy):
                facts.check_pairs(PORT.mac, ips, pairs)


class Differences(unittest.TestCase):
    def test_what_the_host_fills_in_is_no_difference(self) -> None:
        (new,) = RULES.ports(PORT).values()
        there = new | {"kind": "vhost-user", "taken": 2, "move": True, "ips": new["ips"][::-1]}
        self.assertTrue(facts.same(new, there))
        changes: list[dict[str, object]]
        changes = [{"ips": ["10.0.0.8/32"]}, {"vnet": "x"}, {"standby": True}, {"mtu": 900}]
        for change in changes:
            self.assertFalse(facts.same(new, there | change), change)

    def test_addresses_change_in_place_and_nothing_else_does(self) -> None:
        (new,) = RULES.ports(PORT).values()
        self.assertTrue(facts.can_change(new, new | {"ips": [], "standby": True}))
        self.assertFalse(facts.can_change(new | {"standby": True}, new))
        self.assertFalse(facts.can_change(new, new | {"mac": "02:00:00:00:00:01"}))
        self.assertFalse(facts.can_change(new, new | {"place": {"tap": "t"}}))
        self.assertFalse(facts.can_change({"name": "a"}, {"name": "a"}), "one that learns")


class Networks(unittest.TestCase):
    def test_network_has_vni_and_mtu(self) -> None:
        network = Network(NET, 1, 77, 1450)
        self.assertEqual(RULES.network(network), {"vni": 77, "mtu": 1450})


if __name__ == "__main__":
    unittest.main()
