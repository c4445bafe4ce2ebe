"""The client and a host over the network.

`SLUICE_AT` is the address of its `[api.tls]`, `SLUICE_NAME` the name in its certificate,
`SLUICE_AUTHORITY` the file of the authority, and `SLUICE_TOKEN` the token of a viewer; or
`SLUICE_CERTIFICATE` the file with a viewer's certificate and its key.
"""

import os
import unittest

from sluice_client import Client, Problem, Remote, Unreachable

AT, NAME = os.environ.get("SLUICE_AT"), os.environ.get("SLUICE_NAME", "")
AUTHORITY, TOKEN = os.environ.get("SLUICE_AUTHORITY"), os.environ.get("SLUICE_TOKEN", "")
CERTIFICATE = os.environ.get("SLUICE_CERTIFICATE")


class Address(unittest.TestCase):
    def test_wrong_address_is_refused(self) -> None:
        for at in ("nowhere", "192.0.2.1:", "192.0.2.1:http"):
            with self.subTest(at), self.assertRaises(Unreachable) as caught:
                Client(Remote(at, "secret", "h1")).ports()
            self.assertIn("192.0.2.1:9343", str(caught.exception))

    def test_token_is_not_shown(self) -> None:
        self.assertNotIn("secret", repr(Remote("192.0.2.1:9343", "secret", "h1")))


@unittest.skipUnless(AT, "SLUICE_AT names no host")
class Host(unittest.TestCase):
    def test_viewer_looks_and_changes_nothing(self) -> None:
        host = Client(Remote(str(AT), TOKEN, NAME, AUTHORITY, CERTIFICATE))
        self.assertEqual(host.host()["host"], NAME)
        self.assertEqual([row["vnet"] for row in host.vnets()], ["blue"])
        with self.assertRaises(Problem) as caught:
            host.create_vnet("py", {"vni": 900})
        self.assertEqual((caught.exception.status, caught.exception.code), (403, "forbidden"))

    def test_unknown_token_is_refused(self) -> None:
        with self.assertRaises(Problem) as caught:
            Client(Remote(str(AT), "sluice-api-0", NAME, AUTHORITY)).ports()
        self.assertEqual((caught.exception.status, caught.exception.code), (401, "unauthorized"))

    def test_other_authority_or_name_is_not_trusted(self) -> None:
        for name, authority in ((NAME, None), ("h9", AUTHORITY)):
            with self.subTest(name), self.assertRaises(Unreachable) as caught:
                Client(Remote(str(AT), TOKEN, name, authority)).ports()
            self.assertFalse(caught.exception.may_have_happened)
            self.assertIn("certificate", str(caught.exception).lower())


if __name__ == "__main__":
    unittest.main()
