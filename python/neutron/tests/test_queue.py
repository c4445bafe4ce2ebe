"""What is looked at, when, and by whom."""

import json
import queue
import unittest
import uuid

from sluice_neutron.queue import Look, Mailbox, Queue

ID = "12345678-9abc-4def-8123-456789abcdef"
PATIENCE = 60.0


class Letters(unittest.TestCase):
    def test_letter_is_read_as_it_was_written(self) -> None:
        look = Look("port", ID, ("h1", "h2"))
        self.assertEqual(Look.read(look.write((0.0, 2.5))), (look, [0.0, 2.5]))

    def test_what_is_no_letter_is_refused(self) -> None:
        good = ["port", ID, ["h1"], [0.0]]
        wrong = [
            b"", b"{}", b"7", b"\xff", json.dumps(good[:3]).encode(),
            json.dumps(["subnet", *good[1:]]).encode(), json.dumps(["port", "../x", [], []]).encode(),
            json.dumps([*good[:3], [-1]]).encode(), json.dumps([*good[:3], [1e9]]).encode(),
            json.dumps([*good[:3], [float("nan")]]).encode(), json.dumps([*good[:3], 7]).encode(),
        ]
        for text in wrong:
            with self.assertRaises((ValueError, TypeError), msg=text):
                Look.read(text)


class Looks(unittest.TestCase):
    def test_what_fails_is_looked_at_again(self) -> None:
        seen: queue.Queue[Look] = queue.Queue()
        fails = [0, 1, 1]

        def look(what: Look) -> None:
            seen.put(what)
            if fails.pop():
                raise OSError("away")

        Queue(look).put(Look("port", ID), (0.0,))
        for _ in range(3):
            self.assertEqual(seen.get(timeout=PATIENCE).id, ID)

    def test_letters_reach_the_one_who_reads(self) -> None:
        seen: queue.Queue[Look] = queue.Queue()
        name = str(uuid.uuid4())
        look = Look("network", ID)
        self.assertFalse(Mailbox(name).send(look, (0.0,)), "nobody is there")
        reader = Queue(seen.put)
        Mailbox(name).open(reader)
        Mailbox(name).open(Queue(lambda _: self.fail("the first one reads")))
        self.assertTrue(Mailbox(name).send(look, (0.0,)))
        self.assertEqual(seen.get(timeout=PATIENCE), look)
        self.assertFalse(Mailbox("another").send(look, (0.0,)))


if __name__ == "__main__":
    unittest.main()
