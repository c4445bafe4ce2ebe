"""The shapes are those of the document."""

import json
import sys
import typing
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import generate_types  # noqa: E402
from sluice_client import types  # noqa: E402


class Types(unittest.TestCase):
    def test_types_are_made_of_document(self) -> None:
        document = json.loads(generate_types.DOCUMENT.read_text(encoding="utf-8"))
        made = generate_types.make(document)
        self.assertEqual(generate_types.TARGET.read_text(encoding="utf-8"), made)

    def test_each_name_in_them_is_known(self) -> None:
        tables = [one for one in vars(types).values() if typing.is_typeddict(one)]
        self.assertGreater(len(tables), 100)
        for table in tables:
            if table is not typing.TypedDict:
                typing.get_type_hints(table)


if __name__ == "__main__":
    unittest.main()
