#!/usr/bin/env python3
"""Writes the bill of materials of a program: CycloneDX 1.5, JSON.

    scripts/sbom.py [PACKAGE] [--target TRIPLE] > sbom.cdx.json

Everything comes from cargo and `Cargo.lock`, offline: `cargo tree` has what is built for PACKAGE
(default: sluice) with the features that it has then, `cargo metadata` the licences and edges, the
lock file the checksums. Crates that only build the others (build scripts, procedural macros) have the
scope `excluded`. The same tree gives the same text: no time, no random serial number.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FORMAT = "1.5"


def cargo(*words: str) -> str:
    done = subprocess.run(["cargo", *words], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"cargo {words[0]}: {done.stderr.strip()}")
    return done.stdout


def host() -> str:
    lines = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[1] for line in lines.splitlines() if line.startswith("host: "))


def built(package: str, target: str, edges: str) -> set[tuple[str, str]]:
    """Returns name and version of every crate that is built for a package."""
    words = ["--package", package, "--target", target, "--edges", edges, "--prefix", "none"]
    lines = cargo("tree", "--locked", *words, "--format", "{p}").splitlines()
    parts = [line.split() for line in lines if line.strip()]
    return {(part[0], part[1].removeprefix("v")) for part in parts}


def purl(name: str, version: str) -> str:
    return f"pkg:cargo/{name}@{version}"


def component(found: dict, checksum: str | None, is_linked: bool) -> dict:
    name, version = found["name"], found["version"]
    row = {
        "type": "library",
        "bom-ref": purl(name, version),
        "name": name,
        "version": version,
        "scope": "required" if is_linked else "excluded",
    }
    if found["source"]:
        # A crate of the workspace is in no registry: one of its name there is somebody else's.
        row["purl"] = purl(name, version)
    if checksum:
        row["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if found["license"]:
        # An old way to write `OR`, which SPDX does not know.
        row["licenses"] = [{"expression": found["license"].replace("/", " OR ")}]
    if found["repository"]:
        row["externalReferences"] = [{"type": "vcs", "url": found["repository"]}]
    return row


def dependencies(found: dict[tuple[str, str], dict], nodes: list[dict]) -> list[dict]:
    """Returns the edges between crates that are built."""
    refs = {row["id"]: purl(*key) for key, row in found.items()}
    edges = []
    for node in nodes:
        if node["id"] in refs:
            is_built = [dep["pkg"] for dep in node["deps"] if any(
                kind["kind"] in (None, "build") for kind in dep["dep_kinds"])]
            to = sorted({refs[dep] for dep in is_built if dep in refs})
            edges.append({"ref": refs[node["id"]], "dependsOn": to})
    return sorted(edges, key=lambda edge: edge["ref"])


def bill(package: str, target: str) -> dict:
    metadata = json.loads(
        cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", target)
    )
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(row["name"], row["version"]): row.get("checksum") for row in lock["package"]}
    all_built = built(package, target, "normal,build")
    linked = built(package, target, "normal,no-proc-macro")
    packages = {(row["name"], row["version"]): row for row in metadata["packages"]}
    if missing := sorted(all_built - packages.keys()):
        sys.exit(f"cargo tree and cargo metadata differ: {missing}")
    found = {key: packages[key] for key in sorted(all_built)}
    unsigned = [key for key, row in found.items() if row["source"] and not sums.get(key)]
    if unsigned:
        sys.exit(f"Cargo.lock has no checksum of {unsigned}")
    [own] = [key for key in found if key[0] == package]
    rows = [
        component(row, sums.get(key), key in linked) for key, row in found.items() if key != own
    ]
    subject = component(found[own], None, True) | {"type": "application"}
    edges = dependencies(found, metadata["resolve"]["nodes"])
    refs = {row["bom-ref"] for row in [subject, *rows]}
    assert {edge["ref"] for edge in edges} == refs, "each crate has its edges"
    content = json.dumps([subject, rows, edges], sort_keys=True).encode()
    digest = hashlib.sha256(content).hexdigest()
    words = [digest[:8], digest[8:12], "8" + digest[13:16], "8" + digest[17:20], digest[20:32]]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": FORMAT,
        "serialNumber": "urn:uuid:" + "-".join(words),
        "version": 1,
        "metadata": {
            "component": subject,
            "properties": [{"name": "sluice:target", "value": target}],
        },
        "components": rows,
        "dependencies": edges,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes a bill of materials (CycloneDX, JSON).")
    parser.add_argument("package", nargs="?", default="sluice")
    parser.add_argument("--target", help="as of rustc; default: this machine's")
    asked = parser.parse_args()
    json.dump(bill(asked.package, asked.target or host()), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
