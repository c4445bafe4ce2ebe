"""Makes `src/sluice_client/types.py` of the OpenAPI document; `--check` only compares."""

import json
import keyword
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parent / "docs" / "openapi.json"
TARGET = HERE / "src" / "sluice_client" / "types.py"

HEAD = '''"""Shapes of bodies and answers. Made of the OpenAPI document by `generate_types.py`."""

from __future__ import annotations

from typing import Literal, NotRequired, TypeAlias, TypedDict

'''
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
Schema = dict[str, Any]


class Maker:
    """Writes each schema once, behind those that it is made of."""

    def __init__(self, schemas: dict[str, Schema]) -> None:
        self.schemas = schemas
        self.made: dict[str, str] = {}

    def word(self, schema: Schema, name: str) -> str:
        """Returns the type of a schema; one that needs a name gets this one."""
        if "$ref" in schema:
            return str(schema["$ref"].rsplit("/", 1)[1])
        if "enum" in schema:
            return f"Literal[{', '.join(json.dumps(one) for one in schema['enum'])}]"
        for key in ("oneOf", "anyOf"):
            if key in schema:
                return self.one_of(schema[key], name)
        if "allOf" in schema:
            return self.all_of(schema["allOf"], name)
        kind = schema.get("type", "object")
        if isinstance(kind, list):
            return " | ".join(self.word({**schema, "type": one}, name) for one in kind)
        if kind == "array":
            return f"list[{self.word(schema['items'], name + 'Item')}]"
        if kind != "object":
            return SIMPLE[kind]
        if "properties" in schema:
            self.table(name, schema)
            return name
        of = schema.get("additionalProperties")
        return f"dict[str, {self.word(of, name + 'Value')}]" if of else "dict[str, object]"

    def one_of(self, variants: list[Schema], name: str) -> str:
        words = []
        for variant in variants:
            keys = list(variant.get("properties", {}))
            own = name + "".join(part.capitalize() for part in keys[0].split("_")) if keys else name
            words.append(self.word(variant, own))
        return " | ".join(dict.fromkeys(words))

    def all_of(self, parts: list[Schema], name: str) -> str:
        """Joins the keys of all parts; of one with variants, a type for each variant."""
        tables = self.joined(parts)
        if len(tables) == 1:
            self.table(name, tables[0])
            return name
        words = [f"{name}_{number}" for number in range(1, len(tables) + 1)]
        for word, table in zip(words, tables, strict=True):
            self.table(word, table)
        return " | ".join(words)

    def joined(self, parts: list[Schema]) -> list[Schema]:
        """Returns the objects that have the keys of a variant of each part."""
        tables: list[Schema] = [{"properties": {}, "required": []}]
        for part in parts:
            tables = [
                {
                    "properties": {**table["properties"], **more["properties"]},
                    "required": table["required"] + more["required"],
                }
                for table in tables
                for more in self.variants(part)
            ]
        return tables

    def variants(self, schema: Schema) -> list[Schema]:
        """Returns the objects that a schema may be."""
        if "$ref" in schema:
            return self.variants(self.schemas[schema["$ref"].rsplit("/", 1)[1]])
        if "oneOf" in schema:
            return [table for one in schema["oneOf"] for table in self.variants(one)]
        if "allOf" in schema:
            return self.joined(schema["allOf"])
        keys, required = schema.get("properties", {}), schema.get("required", [])
        return [{"properties": keys, "required": required}]

    def table(self, name: str, schema: Schema) -> None:
        """Writes a TypedDict."""
        required = set(schema.get("required", []))
        rows = []
        for key, of in schema["properties"].items():
            word = self.word(of, name + "".join(part.capitalize() for part in key.split("_")))
            rows.append((key, word if key in required else f"NotRequired[{word}]"))
        if any(keyword.iskeyword(key) or not key.isidentifier() for key, _ in rows):
            # Such a key is no name in Python; types there are text, as they may come later.
            body = "".join(f"    {json.dumps(key)}: {json.dumps(word)},\n" for key, word in rows)
            self.made[name] = f'{name} = TypedDict("{name}", {{\n{body}}})\n'
        else:
            body = "".join(f"    {key}: {word}\n" for key, word in rows)
            self.made[name] = f"class {name}(TypedDict):\n{body or '    pass' + chr(10)}"


def make(document: Schema) -> str:
    """Returns the text of the module."""
    maker = Maker(document["components"]["schemas"])
    aliases = {}
    for name, schema in maker.schemas.items():
        word = maker.word(schema, name)
        if word != name:
            aliases[name] = word
    tables = "\n\n".join(maker.made[name] for name in sorted(maker.made))
    rows = "".join(f"{name}: TypeAlias = {word}\n" for name, word in in_order(aliases))
    return f"{HEAD}\n{tables}\n\n{rows}"


def in_order(aliases: dict[str, str]) -> list[tuple[str, str]]:
    """Returns aliases, each behind those that it names."""
    rows: dict[str, str] = {}
    while len(rows) < len(aliases):
        for name in sorted(set(aliases) - set(rows)):
            named = set(re.findall(r"\w+", aliases[name]))
            if not named & (set(aliases) - set(rows)):
                rows[name] = aliases[name]
    return list(rows.items())


def main() -> None:
    text = make(json.loads(DOCUMENT.read_text(encoding="utf-8")))
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") != text:
            sys.exit("types.py is not what the document says; run generate_types.py")
    else:
        TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
