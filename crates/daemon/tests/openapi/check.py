"""Checks answers of a live host against the OpenAPI document.

    check.py DOCUMENT < ANSWERS

A line of ANSWERS is a JSON object: `method`, `path` as in the document, `status`, `body`. An answer
must have a schema for its status and be as it says, and its keys must be ones that the schema
names. Each operation of the document must have been answered without a problem. What is wrong is
printed, and the exit code is 1. Of a stream of events, `body` is the data of one.
"""

import json
import sys

from jsonschema import Draft202012Validator


def parts_of_others(schema, is_part, found):
    """Collects schemas of components that are parts of others: their keys stand beside more."""
    if isinstance(schema, list):
        for one in schema:
            parts_of_others(one, is_part, found)
    elif isinstance(schema, dict):
        if is_part and "$ref" in schema:
            found.add(schema["$ref"].rsplit("/", 1)[1])
        for key, value in schema.items():
            keeps = is_part and key in ("oneOf", "anyOf")
            parts_of_others(value, key == "allOf" or keeps, found)


def closed(schema, is_part=False):
    """Refuses keys that a schema does not name: the document must say everything."""
    if isinstance(schema, list):
        return [closed(one, is_part) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {}
    for key, value in schema.items():
        if key in ("properties", "examples", "enum"):
            made[key] = {name: closed(one) for name, one in value.items()} \
                if key == "properties" else value
        else:
            made[key] = closed(value, key == "allOf" or (is_part and key in ("oneOf", "anyOf")))
    if is_part:
        return made
    if "allOf" in made:
        made.setdefault("unevaluatedProperties", False)
    elif "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    schemas, parts = document["components"]["schemas"], set()
    parts_of_others(document, False, parts)
    for name in schemas:
        schemas[name] = closed(schemas[name], name in parts)
    wrong, answered, refused = [], set(), {}
    for line in sys.stdin:
        answer = json.loads(line)
        method, path, status = answer["method"], answer["path"], str(answer["status"])
        what = f"{method} {path} {status}"
        operation = document["paths"].get(path, {}).get(method.lower())
        response = (operation or {}).get("responses", {}).get(status)
        if response is None:
            wrong.append(f"{what}: not in the document: {answer['body']}")
            continue
        (content,) = response["content"].values()
        schema = closed(content["schema"])
        schema["components"] = document["components"]
        for error in Draft202012Validator(schema).iter_errors(answer["body"]):
            wrong.append(f"{what}: {error.json_path}: {error.message[:300]}")
        if status.startswith("2"):
            answered.add((method.lower(), path))
        else:
            refused[method.lower(), path] = answer["body"].get("message")
    for path, methods in document["paths"].items():
        for method in methods:
            if (method, path) not in answered:
                why = refused.get((method, path), "never asked")
                wrong.append(f"{method} {path}: only refused: {why}")
    print("\n".join(wrong))
    print(f"{len(answered)} operations, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


main()
