"""The packages that are linked into a binary: as CycloneDX, and as cargo-auditable writes them into the binary."""

import json
import subprocess
import tomllib
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from binary import TARGETS

ROOT = Path(__file__).resolve().parents[2]
# Licences of what is linked beside crates.
OTHERS = {"rust-std": "MIT OR Apache-2.0", "glibc": "LGPL-2.1-or-later"}


@dataclass
class Package:
    """A package in the tree of dependencies."""

    name: str
    version: str
    license: str = ""
    checksum: str = ""
    needs: list = field(default_factory=list)

    @property
    def purl(self):
        return f"pkg:cargo/{self.name}@{self.version}"


def packages(architecture, features):
    """What cargo links for a target with these features, the product first. Packages that only run while others are compiled
    (procedural macros, build dependencies) and those of tests are left out. `cargo metadata` alone lists more, because it unites
    the features of all targets."""
    tree = _cargo("tree", "-p", "mcm", "-e", "normal,no-proc-macro", "--target", TARGETS[architecture], "--prefix", "depth",
                  "--no-dedupe", "-f", " {p}", *_features(features))
    known, above = {}, []
    for line in tree.splitlines():
        depth, name, version = line.split()[:3]
        key = (name, version.removeprefix("v"))
        package = known.setdefault(key, Package(*key))
        above[int(depth):] = [package]
        if len(above) > 1 and package.purl not in above[-2].needs:
            above[-2].needs.append(package.purl)
    _describe(known, TARGETS[architecture], features)
    root = next(iter(known.values()))
    return [root, *sorted((it for it in known.values() if it is not root), key=lambda it: it.purl)]


def _describe(known, target, features):
    # Packages for other platforms were not downloaded for the build.
    metadata = _cargo("metadata", "--format-version=1", "--filter-platform", target, *_features(features))
    for found in json.loads(metadata)["packages"]:
        if package := known.get((found["name"], found["version"])):
            # The slash is an older way to write OR.
            package.license = (found["license"] or "").replace("/", " OR ")
    for found in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]:
        if package := known.get((found["name"], found["version"])):
            package.checksum = found.get("checksum", "")


def _features(features):
    return ["--features", features] if features else []


def _cargo(command, *arguments):
    run = ["cargo", command, "--locked", "--offline", *arguments]
    return subprocess.run(run, check=True, capture_output=True, text=True, cwd=ROOT).stdout


def auditable(linked):
    """The list in the format of cargo-auditable."""
    order = {package.purl: index for index, package in enumerate(linked)}
    listed = []
    for package in linked:
        one = {"name": package.name, "version": package.version, "source": "crates.io" if package.checksum else "local"}
        if package.needs:
            one["dependencies"] = sorted(order[purl] for purl in package.needs)
        if package is linked[0]:
            one["root"] = True
        listed.append(one)
    return listed


def cyclonedx(linked, origins, digest, time):
    """CycloneDX of a binary with this SHA-256."""
    root, *others = linked
    libraries = [_component(package, "library") for package in others]
    for name, version in sorted(origins.items()):
        purl = f"pkg:generic/{name}@{version}"
        libraries.append({"type": "library", "name": name, "version": version, "purl": purl, "bom-ref": purl,
                          "licenses": [{"expression": OTHERS[name]}]})
    product = _component(root, "application") | {"hashes": [{"alg": "SHA-256", "content": digest}]}
    needs = [{"ref": package.purl, "dependsOn": sorted(package.needs)} for package in linked]
    needs[0]["dependsOn"] += [library["purl"] for library in libraries[len(others):]]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"timestamp": datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "component": product},
        "components": libraries,
        "dependencies": needs,
    }


def _component(package, kind):
    component = {"type": kind, "name": package.name, "version": package.version, "purl": package.purl, "bom-ref": package.purl}
    if package.license:
        component["licenses"] = [{"expression": package.license}]
    if package.checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": package.checksum}]
    return component
