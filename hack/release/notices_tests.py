"""Tests of the notices and of the list of packages, offline and without a binary. A test of tests/packaging runs them."""

import re
import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))

import binary
import notices
import sbom

FEATURES = ",".join(sorted(folder.name for folder in (notices.ROOT / "src/drivers").iterdir()))
ARCHITECTURE = binary.native()
ORIGINS = {"rust-std": "1.0.0", "glibc": "2.0"}


class NoticesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.linked = sbom.packages(ARCHITECTURE, FEATURES)
        cls.found = notices.texts(cls.linked, ORIGINS, ARCHITECTURE, FEATURES) | notices.certificates()

    def test_each_package_of_the_sbom_has_a_text(self):
        text = notices.render(self.found).decode()
        listed = sbom.cyclonedx(self.linked, ORIGINS, "0" * 64, 0)
        components = [listed["metadata"]["component"], *listed["components"]]
        self.assertGreater(len(components), 200)
        for component in components:
            self.assertTrue(component["licenses"][0]["expression"], component)
            numbers = re.search(rf"(?m)^{re.escape(component['purl'])} \(.*\): ([\d, ]+)$", text).group(1).split(", ")
            headings = [f"\n{'=' * 20} {number} {'=' * 20}\n\n" for number in numbers]
            texts = [text.split(heading)[1].split("\n" + "=" * 20)[0] for heading in headings]
            self.assertGreater(sum(map(len, texts)), 300, component["purl"])

    def test_a_package_keeps_the_names_of_its_authors(self):
        for name in ("ring", "tokio", "vsimd"):
            texts = next(texts for purl, (_, texts) in self.found.items() if purl.startswith(f"pkg:cargo/{name}@"))
            self.assertRegex("\n".join(texts), "(?i)copyright")

    def test_a_static_c_library_has_its_licence_and_how_to_link_another(self):
        license, (relink, text) = self.found["pkg:generic/glibc@2.0"]
        self.assertEqual(license, "LGPL-2.1-or-later")
        self.assertIn("hack/build-static", relink)
        self.assertTrue((notices.ROOT / "hack/build-static").exists())
        self.assertIn("GNU LESSER GENERAL PUBLIC LICENSE", text)

    def test_deny_allows_each_licence(self):
        self.assertEqual(notices.unknown(self.found), [])
        self.assertEqual(notices.unknown({"pkg:cargo/x@1": ("GPL-3.0-only", ["text"])}), ["pkg:cargo/x@1"])

    def test_a_package_without_a_text_is_refused(self):
        package = sbom.Package("x", "1.0.0", "Beerware", "0" * 64)
        folder = {("x", "1.0.0"): {"manifest_path": str(Path(__file__).parent / "no-such/Cargo.toml"), "license_file": None,
                                   "authors": [], "repository": None}}
        before, notices._folders = notices._folders, lambda *_: folder
        try:
            with self.assertRaisesRegex(binary.Refused, "no licence text for pkg:cargo/x@1.0.0"):
                notices.texts([package], {}, ARCHITECTURE, FEATURES)
        finally:
            notices._folders = before

    def test_of_alternatives_one_licence_holds(self):
        cases = {
            "MIT OR Apache-2.0": {"Apache-2.0"},
            "Unlicense OR MIT": {"MIT"},
            "(Apache-2.0 OR MIT) AND BSD-3-Clause": {"Apache-2.0", "BSD-3-Clause"},
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT": {"Apache-2.0"},
            "MIT AND (ISC OR Zlib AND MIT)": {"MIT", "ISC"},
        }
        for license, expected in cases.items():
            self.assertEqual(notices.chosen(license), expected, license)
        for license in ("", "MIT AND", "MIT Apache-2.0", "OR MIT"):
            with self.assertRaises(binary.Refused):
                notices.chosen(license)


if __name__ == "__main__":
    unittest.main()
