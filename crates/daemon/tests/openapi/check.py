"""Checks answers of a live host against the OpenAPI document.

    check.py DOCUMENT < ANSWERS

A line of ANSWERS is a JSON object: `method`, `path` as in the document, `status`, `body`. An answer
must have a schema for its status and be as it says, and its keys must be ones that the schema
names. Each operation of the document must have been answered without a problem. What is wrong is
printed, and the exit code is 1.
"""

import json
import sys

from jsonschema import Draft202012Validator


def closed(schema):
    """Refuses keys that a schema does not name: the document must say everything."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(part) for key, part in schema.items()}
    if "allOf" in made or "oneOf" in made:
        made.setdefault("unevaluatedProperties", False)
    return made


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
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
        schema = closed(response["content"]["application/json"]["schema"])
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
