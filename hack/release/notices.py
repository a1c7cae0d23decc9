"""THIRD-PARTY: the copyright notices and licences of everything that is linked into a binary, and of what its image has beside it.

It is made from the same list of packages as the SBOM. A package whose notice is missing stops the release."""

import html.parser
import json
import re
import subprocess
import tomllib
from pathlib import Path

import sbom
from binary import Refused, TARGETS

ROOT = Path(__file__).resolve().parents[2]
LICENSES = Path(__file__).parent / "licenses"
NAME = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)
# Folders of crates whose files are not linked.
SKIPPED = {"tests", "test", "testdata", "benches", "examples", "fuzz", "docs", "doc"}
# Licences of what is no crate.
OTHERS = sbom.OTHERS | {"ca-certificates": "MPL-2.0"}
# Texts for crates that are published without one, by licence.
PLAIN = {"Apache-2.0": ROOT / "LICENSE", "MIT": LICENSES / "MIT.txt"}
RELINK = """The program contains the GNU C Library {version} as a static library. You may change that library and link the program again: its
sources, their dependencies (Cargo.lock) and the command that links it (hack/build-static) are those of the commit in
`mcm version`, and link with the libc.a of your machine. The sources of the library are those of glibc {version} in the
distribution of the builder, and at the GNU project."""


def purl(name, version):
    return f"pkg:generic/{name}@{version}"


def texts(linked, origins, architecture, features):
    """The texts of each package, by its purl, with the licence: pairs of a licence and a list of texts."""
    folders = _folders(architecture, features)
    found = {}
    for package in linked:
        metadata = folders[(package.name, package.version)]
        found[package.purl] = (package.license, _of_crate(package, metadata))
    for name, version in sorted(origins.items()):
        found[purl(name, version)] = (OTHERS[name], _of_other(name, version))
    missing = [name for name, (license, of_package) in found.items() if not license or not of_package]
    if missing:
        raise Refused(f"no licence text for {', '.join(missing)}: add one to {LICENSES}")
    return found


def render(found):
    """The file: the packages, each with the numbers of its texts, and the texts, each once."""
    numbers, listed, lines = {}, [], []
    for name, (license, of_package) in found.items():
        own = []
        for text in of_package:
            number = numbers.setdefault(text, len(numbers) + 1)
            if number > len(listed):
                listed.append(text)
            own.append(number)
        lines.append(f"{name} ({license}): {', '.join(map(str, sorted(set(own))))}")
    parts = ["Notices of the software in this program and in its image, with the numbers of their texts.", "\n".join(lines)]
    parts += [f"{'=' * 20} {number} {'=' * 20}\n\n{text}" for number, text in enumerate(listed, 1)]
    return ("\n\n".join(parts) + "\n").encode()


def certificates():
    """The notice of the CA bundle of an image."""
    text = "The CA bundle /etc/ssl/certs/ca-certificates.crt has certificates of the Mozilla CA program.\n\n"
    return {"ca-certificates": (OTHERS["ca-certificates"], [text + (LICENSES / "MPL-2.0.txt").read_text().strip()])}


def expression(found):
    """One licence expression for all packages: of alternatives, Apache-2.0 if it is one."""
    names = set().union(*(chosen(license) for license, _ in found.values()))
    return " AND ".join(sorted(names))


def chosen(license):
    """The licences that hold for a package: of alternatives one."""
    words = re.findall(r"\(|\)|[^\s()]+(?:\s+WITH\s+[^\s()]+)?", license)
    found, rest = _either(words)
    if rest:
        raise Refused(f"{license} is no licence expression")
    return found


def unknown(found):
    """Packages under a licence that deny.toml does not allow."""
    allowed = {*tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"], *OTHERS.values()}
    return sorted(name for name, (license, _) in found.items() if not chosen(license) <= allowed)


def _either(words):
    found, words = _both(words)
    choices = [found]
    while words[:1] == ["OR"]:
        found, words = _both(words[1:])
        choices.append(found)
    return min(choices, key=lambda choice: (choice != {"Apache-2.0"}, len(choice), sorted(choice))), words


def _both(words):
    found, words = _one(words)
    while words[:1] == ["AND"]:
        other, words = _one(words[1:])
        found = found | other
    return found, words


def _one(words):
    if words[:1] == ["("]:
        found, words = _either(words[1:])
        return found, words[1:]
    if not words or words[0] in ("AND", "OR", ")"):
        raise Refused("a licence expression is not complete")
    return {words[0]}, words[1:]


def _folders(architecture, features):
    metadata = sbom._cargo("metadata", "--format-version=1", "--filter-platform", TARGETS[architecture], *sbom._features(features))
    return {(it["name"], it["version"]): it for it in json.loads(metadata)["packages"]}


def _of_crate(package, metadata):
    if not package.checksum:
        return [_read(ROOT / "LICENSE")]
    folder = Path(metadata["manifest_path"]).parent
    files = [path for path in folder.rglob("*") if NAME.fullmatch(path.name) and path.is_file() and path.suffix not in (".rs", ".py")]
    files = [path for path in files if not SKIPPED & {*path.relative_to(folder).parts[:-1]}]
    if metadata["license_file"]:
        files.append(folder / metadata["license_file"])
    if files:
        return [_read(path) for path in sorted({*files})]
    names = [name for name in PLAIN if name in chosen(package.license)]
    authors = ", ".join(re.sub(r"\s*<.*?>", "", author) for author in metadata["authors"])
    notice = f"Copyright of {package.name}: {authors or 'its authors'} ({metadata['repository']})"
    return [f"{notice}\n\n{_read(PLAIN[name])}" if name == "MIT" else _read(PLAIN[name]) for name in names]


def _of_other(name, version):
    if name == "rust-std":
        sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
        page = Path(sysroot.strip()) / "share/doc/rust/COPYRIGHT-library.html"
        if not page.exists():
            raise Refused(f"the toolchain has no {page}: install it with rustup")
        reader = PageReader()
        reader.feed(page.read_text())
        return [re.sub(r"\s*\n(\s*\n)+", "\n\n", "".join(reader.parts)).strip(), _read(ROOT / "LICENSE")]
    return [RELINK.format(version=version), _read(LICENSES / f"{OTHERS[name]}.txt")]


def _read(path):
    text = path.read_text(errors="replace").replace("\r\n", "\n")
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


class PageReader(html.parser.HTMLParser):
    """The text of a page."""

    def __init__(self):
        super().__init__()
        self.parts = []

    def handle_data(self, data):
        self.parts.append(data)
