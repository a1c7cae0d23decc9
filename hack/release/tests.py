"""Tests of hack/release/run with the real tools that read a release. hack/test-release runs them."""

import base64
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import urllib.request
import zlib
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))

import binary
from files import sha256

ROOT = Path(__file__).resolve().parents[2]
VERSION = "v" + re.search(r'(?m)^version = "(.*)"', (ROOT / "Cargo.toml").read_text()).group(1)
NAME = f"mcm-{VERSION}"
NATIVE = binary.native()
OTHER = {"amd64": "arm64", "arm64": "amd64"}[NATIVE]
# The drivers in the program under test, as in its release.
FEATURES = os.environ.get("FEATURES", "")
if FEATURES == "all":
    FEATURES = ",".join(sorted(folder.name for folder in (ROOT / "src/drivers").iterdir()))
CLUSTERCTL = Path(os.environ["KUBEBUILDER_ASSETS"]) / "clusterctl"
DIFFERS = {"SHA256SUMS.sig", "provenance.intoto.jsonl"}


def run(*command, code=0, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if code is not None and done.returncode != code:
        raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def release(folder, *arguments, code=0, version=VERSION, **options):
    return run(ROOT / "hack/release/run", version, "--trial", "--out", folder, *arguments, code=code, **options)


def key(file):
    run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", file)
    return file


class ReleaseTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.program = cls.folder / "mcm"
        run("objcopy", "--strip-all", os.environ["MCM_BINARY"], cls.program)
        cls.binaries = [f"--binary={NATIVE}={cls.program}"]
        # The binary of the other architecture takes another compiler, so it may be missing.
        cls.other = os.environ.get("MCM_BINARY_OTHER")
        if cls.other:
            cls.binaries.append(f"--binary={OTHER}={cls.other}")
        cls.architectures = [NATIVE, OTHER] if cls.other else [NATIVE]
        cls.arguments = [*cls.binaries, f"--features={FEATURES}", f"--key={key(cls.folder / 'key.pem')}"]
        release(cls.folder, *cls.arguments)
        cls.made = cls.folder / VERSION

    def files(self, folder):
        return {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_file()}

    def unpacked(self, architecture):
        """The file system of the image of an architecture, by umoci."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "layout").mkdir()
        run("tar", "-xf", self.made / f"{NAME}-image-{architecture}.tar", "-C", folder / "layout")
        run("umoci", "unpack", "--image", f"{folder}/layout:{VERSION}", folder / "bundle")
        return folder / "bundle/rootfs"

    def test_a_release_is_complete(self):
        expected = {"SHA256SUMS", "SHA256SUMS.sig", "mcm.pub", "mcm.yaml", "crds.yaml", "crds-cluster-api.yaml",
                    "provenance.json", "provenance.intoto.jsonl", f"{NAME}-image.tar", f"{NAME}-manifests.tar.gz"}
        for architecture in self.architectures:
            expected |= {f"{NAME}-linux-{architecture}.tar.gz", f"{NAME}-linux-{architecture}.cdx.json",
                         f"{NAME}-image-{architecture}.tar"}
        expected |= {f"{chart.parent.name}-{VERSION[1:]}.tgz" for chart in ROOT.glob("charts/*/Chart.yaml")}
        found = self.files(self.made)
        self.assertEqual({name for name in found if not name.startswith("clusterctl/")}, expected)
        self.assertIn(f"clusterctl/infrastructure-mcm/{VERSION}/metadata.yaml", found)
        listed = {line.split()[1] for line in found["SHA256SUMS"].read_text().splitlines()}
        self.assertEqual(listed, found.keys() - DIFFERS - {"SHA256SUMS", "mcm.pub"})

    def test_the_same_inputs_make_the_same_bytes(self):
        again = Path(self.enterContext(tempfile.TemporaryDirectory()))
        previous = os.umask(0o077)
        try:
            release(again, *self.arguments, cwd="/", env=os.environ | {"TZ": "Asia/Tokyo", "LC_ALL": "C"})
        finally:
            os.umask(previous)
        first, second = self.files(self.made), self.files(again / VERSION)
        self.assertEqual(first.keys(), second.keys())
        different = {name for name in first if sha256(first[name]) != sha256(second[name])}
        self.assertEqual(different, DIFFERS)

    def test_a_changed_byte_breaks_the_checksums(self):
        copy = Path(self.enterContext(tempfile.TemporaryDirectory())) / "copy"
        shutil.copytree(self.made, copy)
        run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=copy)
        file = copy / f"{NAME}-linux-{NATIVE}.tar.gz"
        changed = bytearray(file.read_bytes())
        changed[len(changed) // 2] ^= 1
        file.write_bytes(changed)
        said = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=copy, code=1).stdout
        self.assertIn(f"{file.name}: FAILED", said)

    def verified(self, data, signature, public):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "signature").write_bytes(base64.b64decode(signature))
        command = ("openssl", "dgst", "-sha256", "-verify", public, "-signature", folder / "signature")
        return subprocess.run(command, input=data, capture_output=True).returncode == 0

    def test_a_signature_verifies_and_that_of_changed_files_does_not(self):
        sums, public = (self.made / "SHA256SUMS").read_bytes(), self.made / "mcm.pub"
        signature = (self.made / "SHA256SUMS.sig").read_text()
        self.assertTrue(self.verified(sums, signature, public))
        self.assertFalse(self.verified(bytes([sums[0] ^ 1]) + sums[1:], signature, public))
        other = key(self.folder / "other.pem")
        run("openssl", "pkey", "-in", other, "-pubout", "-out", self.folder / "other.pub")
        self.assertFalse(self.verified(sums, signature, self.folder / "other.pub"))

    def test_the_provenance_is_signed_and_names_every_file(self):
        envelope = json.loads((self.made / "provenance.intoto.jsonl").read_text())
        payload = base64.b64decode(envelope["payload"])
        self.assertEqual(payload, (self.made / "provenance.json").read_bytes())
        kind = envelope["payloadType"]
        signed = f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
        self.assertTrue(self.verified(signed, envelope["signatures"][0]["sig"], self.made / "mcm.pub"))
        self.assertFalse(self.verified(signed + b" ", envelope["signatures"][0]["sig"], self.made / "mcm.pub"))
        statement = json.loads(payload)
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        for line in (self.made / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split()
            if name != "provenance.json":
                self.assertEqual(subjects[name], digest)
        commit = run("git", "rev-parse", "HEAD", cwd=ROOT).stdout.strip()
        sources = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
        self.assertEqual(sources[0]["digest"], {"gitCommit": commit})

    def test_the_images_have_a_numeric_user_labels_and_the_names_of_the_go_programs(self):
        for architecture in self.architectures:
            found = self.inspected(architecture, VERSION, "--config")
            self.assertEqual((found["architecture"], found["os"]), (architecture, "linux"))
            config = found["config"]
            self.assertEqual((config["User"], config["Entrypoint"], config["WorkingDir"]), ("65532:65532", ["/mcm"], "/"))
            labels = config["Labels"]
            for label, value in {"title": "mcm", "version": VERSION}.items():
                self.assertEqual(labels[f"org.opencontainers.image.{label}"], value)
            licenses = labels["org.opencontainers.image.licenses"].split(" AND ")
            self.assertTrue({"Apache-2.0", "MIT", "MPL-2.0"} <= {*licenses}, licenses)
            self.assertEqual(labels["org.opencontainers.image.created"], found["created"])
            root = self.unpacked(architecture)
            files = {str(file.relative_to(root)) for file in root.rglob("*") if not file.is_dir()}
            self.assertEqual(files, {"mcm", "machine-controller", "machine-controller-manager", "etc/passwd", "etc/group",
                                     "etc/ssl/certs/ca-certificates.crt", "usr/share/doc/mcm/LICENSE",
                                     "usr/share/doc/mcm/THIRD-PARTY"})
            self.noticed(architecture, root / "usr/share/doc/mcm/THIRD-PARTY")
            for name in ("machine-controller", "machine-controller-manager"):
                self.assertEqual(os.readlink(root / name), "mcm")
            self.assertEqual((root / "mcm").stat().st_mode & 0o7777, 0o755)

    def noticed(self, architecture, file):
        """Each package of the SBOM has a text in the notices."""
        listed = json.loads((self.made / f"{NAME}-linux-{architecture}.cdx.json").read_text())
        text = file.read_text()
        for component in [listed["metadata"]["component"], *listed["components"]]:
            self.assertTrue(component["licenses"], component)
            numbers = re.search(rf"(?m)^{re.escape(component['purl'])} \(.*\): ([\d, ]+)$", text).group(1)
            for number in numbers.split(", "):
                self.assertIn(f"\n{'=' * 20} {number} {'=' * 20}\n\n", text)

    def inspected(self, architecture, reference, *flags):
        """What skopeo finds behind a reference of the image."""
        archive = f"oci-archive:{self.made / NAME}-image.tar:{reference}"
        return json.loads(run("skopeo", "--override-arch", architecture, "inspect", *flags, archive).stdout)

    def test_the_image_for_sidecars_of_gardener_differs_in_its_entry_point_alone(self):
        sidecar = f"{VERSION}-machine-controller"
        for architecture in self.architectures:
            one, other = (self.inspected(architecture, reference, "--config") for reference in (VERSION, sidecar))
            self.assertEqual(other["config"].pop("Entrypoint"), ["/machine-controller"])
            one["config"].pop("Entrypoint")
            self.assertEqual(one, other)
            layers = [self.inspected(architecture, reference)["Layers"] for reference in (VERSION, sidecar)]
            self.assertEqual((layers[0], len(layers[0])), (layers[1], 1))
        listed = run("tar", "-tf", self.made / f"{NAME}-image.tar").stdout.splitlines()
        # For each architecture a layer, and two times a configuration and a manifest; two indexes.
        self.assertEqual(len([name for name in listed if re.search("sha256/.", name)]), 5 * len(self.architectures) + 2)

    def test_gardener_starts_the_sidecar_with_flags_alone(self):
        """The command line of a container without a command: the entry point of its image, and its arguments."""
        entry = self.inspected(NATIVE, f"{VERSION}-machine-controller", "--config")["config"]["Entrypoint"]
        program = self.unpacked(NATIVE) / entry[0].lstrip("/")
        said = run(program, "--help").stdout
        self.assertIn("--machine-creation-timeout", said)
        self.assertNotIn("--safety-up", said)

    def test_docker_reads_the_images_of_one_architecture(self):
        for suffix in ("", "-machine-controller"):
            archive = f"docker-archive:{self.made / NAME}-image-{NATIVE}.tar:localhost/mcm:{VERSION}{suffix}"
            self.assertEqual(json.loads(run("skopeo", "inspect", archive).stdout)["Architecture"], NATIVE)

    def test_a_registry_gets_the_digest_of_the_provenance(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        subjects = json.loads((self.made / "provenance.json").read_text())["subject"]
        digests = {subject["name"]: "sha256:" + subject["digest"]["sha256"] for subject in subjects}
        for reference in (VERSION, f"{VERSION}-machine-controller"):
            source, copy = f"oci-archive:{self.made / NAME}-image.tar:{reference}", folder / reference
            run("skopeo", "copy", "--all", "--preserve-digests", source, f"oci:{copy}:{reference}")
            index = json.loads((copy / "index.json").read_text())["manifests"][0]["digest"]
            self.assertEqual(index, digests[f"localhost/mcm:{reference} (image)"])

    def test_one_parameter_sets_the_image_everywhere(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        image = "registry.test:5000/machines/mcm:v7-rc.1"
        command = ["make", "release", f"VERSION={VERSION}", f"IMAGE={image}",
                   f"RELEASE=--trial --out {folder} --features= {self.binaries[0]}"]
        run(*command, cwd=ROOT)
        made = folder / VERSION
        for archive in (f"{NAME}-manifests.tar.gz", f"mcm-{VERSION[1:]}.tgz"):
            run("tar", "-xzf", made / archive, "-C", folder)
        for base in ("standalone", "drop-in", "cluster-api"):
            said = run(Path(os.environ["KUBEBUILDER_ASSETS"]) / "kubectl", "kustomize", folder / "config" / base).stdout
            self.assertEqual({*re.findall(r"\bimage: (\S+)", said)}, {image})
        values = (folder / "mcm/values.yaml").read_text()
        self.assertRegex(values, r'(?m)^  repository: registry.test:5000/machines/mcm$')
        self.assertRegex(values, r'(?m)^  tag: "v7-rc.1"$')
        gardener = {file.name: file.read_text() for file in (folder / "config/gardener").iterdir()}
        for file in ("one-shoot.yaml", "fleet.yaml"):
            self.assertIn(f"'{image}'", gardener[file])
        for file, tag in {"gardenlet-values.yaml": "v7-rc.1", "extension-values.yaml": "v7-rc.1-machine-controller"}.items():
            self.assertIn(f"repository: registry.test:5000/machines/mcm\n      tag: {tag}\n", gardener[file])
        components = made / f"clusterctl/infrastructure-mcm/{VERSION}"
        for file in ("infrastructure-components.yaml", "stand-in-components.yaml", "in-place-components.yaml"):
            self.assertIn(f"image: {image}\n", (components / file).read_text())
        with tarfile.open(made / f"{NAME}-image-{NATIVE}.tar") as layout:
            loaded = json.load(layout.extractfile("manifest.json"))
        self.assertEqual([tag for one in loaded for tag in one["RepoTags"]], [image, f"{image}-machine-controller"])

    def test_the_list_of_packages_is_that_of_cargo(self):
        for architecture in self.architectures:
            tree = run("cargo", "tree", "--locked", "--offline", "-p", "mcm", "-e", "normal,no-proc-macro", "--target",
                       binary.TARGETS[architecture], "--features", FEATURES, "--prefix", "none", "-f", "{p}", cwd=ROOT).stdout
            linked = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
            listed = json.loads((self.made / f"{NAME}-linux-{architecture}.cdx.json").read_text())
            components = [listed["metadata"]["component"], *listed["components"]]
            crates = [it for it in components if it["purl"].startswith("pkg:cargo/")]
            self.assertEqual({(it["name"], f"v{it['version']}") for it in crates}, linked)
            self.assertEqual(len(crates), len(linked))
            self.assertTrue(all(it["licenses"] for it in crates))
            names = {it["name"] for it in components}
            self.assertTrue({"kube-client", "rust-std"} <= names and not {"proptest", "serde_derive", "insta"} & names)
            self.assertEqual(self.packages_inside(architecture), {(name, version[1:]) for name, version in linked})

    def packages_inside(self, architecture):
        """The packages that cargo-auditable's readers find in the binary of the archive."""
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        run("tar", "-xzf", self.made / f"{NAME}-linux-{architecture}.tar.gz", "-C", folder, "mcm")
        tool = "objcopy" if architecture == NATIVE else f"{binary.TARGETS[architecture].split('-')[0]}-linux-gnu-objcopy"
        run(tool, "-O", "binary", "--only-section=.dep-v0", "--set-section-flags=.dep-v0=alloc", folder / "mcm", folder / "it")
        packages = json.loads(zlib.decompress((folder / "it").read_bytes()))["packages"]
        self.assertEqual([it["name"] for it in packages if it.get("root")], ["mcm"])
        return {(it["name"], it["version"]) for it in packages}

    def test_the_archive_has_a_program_completions_man_pages_and_licence(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        run("tar", "-xzf", self.made / f"{NAME}-linux-{NATIVE}.tar.gz", "-C", folder)
        names = self.files(folder).keys()
        self.noticed(NATIVE, folder / "THIRD-PARTY")
        self.assertTrue({"mcm", "LICENSE", "THIRD-PARTY", "README.md", "completions/mcm.bash", "completions/_mcm", "completions/mcm.fish",
                         "man/mcm.1", "man/mcm-why.1", "templates/simulated/pool.yaml"} <= names, names)
        self.assertIn(f"mcm {VERSION[1:]}\n", run(folder / "mcm", "version").stdout)
        run("bash", "-n", folder / "completions/mcm.bash")

    def test_krew_installs_the_archive_as_a_plugin(self):
        tools, manifest = Path(os.environ["KREW_TOOLS"]), self.made / "mcm.yaml"
        run(tools / "validate-krew-manifest", "-manifest", manifest, "--skip-install")
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        archive = self.made / f"{NAME}-linux-{NATIVE}.tar.gz"
        run(tools / "krew", "install", f"--manifest={manifest}", f"--archive={archive}",
            env=os.environ | {"KREW_ROOT": str(folder)}, stdin=subprocess.DEVNULL)
        self.assertIn(f"mcm {VERSION[1:]}\n", run(folder / "bin/kubectl-mcm", "version").stdout)

    @unittest.skipUnless(CLUSTERCTL.exists(), "hack/control-plane get cluster-api makes clusterctl")
    def test_clusterctl_reads_the_provider(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        url = f"file://{self.made}/clusterctl/infrastructure-mcm/latest/infrastructure-components.yaml"
        provider = {"name": "mcm", "type": "InfrastructureProvider", "url": url}
        (folder / "config.yaml").write_text(json.dumps({"providers": [provider]}))
        offline = os.environ | {"CLUSTERCTL_DISABLE_VERSIONCHECK": "true", "GOPROXY": "off"}
        said = run(CLUSTERCTL, "generate", "provider", "--config",
                   folder / "config.yaml", "--infrastructure", "mcm", env=offline).stdout
        self.assertIn(f"image: localhost/mcm:{VERSION}\n", said)

    def test_the_image_of_another_architecture_serves(self):
        """In a root folder with nothing but the image and the emulator, as its user."""
        if not self.other:
            self.skipTest(f"no binary for {OTHER}: set MCM_BINARY_OTHER")
        root = self.unpacked(OTHER)
        emulator = binary.EMULATORS[OTHER]
        shutil.copy(shutil.which(emulator), root / emulator)
        # Containers have these devices.
        (root / "dev").mkdir()
        for name, number in {"random": 8, "urandom": 9}.items():
            os.mknod(root / "dev" / name, stat.S_IFCHR, os.makedev(1, number))
            os.chmod(root / "dev" / name, 0o666)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["chroot", "--userspec=65532:65532", root, f"/{emulator}", "/mcm", "simulated-cloud"]
        with subprocess.Popen([*map(str, command), f"--address=127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(self.answer(process, f"http://127.0.0.1:{port}/healthz"), 200)
            finally:
                process.kill()
        said = run("chroot", root, f"/{emulator}", "/mcm", "version").stdout
        self.assertIn(f"platform: linux/{OTHER}\n", said)
        help = run("chroot", root, f"/{emulator}", "-0", "/machine-controller-manager", "/machine-controller-manager", "--help")
        self.assertIn("--safety-up", help.stdout)

    def answer(self, process, url):
        for _ in range(300):
            try:
                return urllib.request.urlopen(url, timeout=5).status
            except OSError:
                if process.poll() is not None:
                    raise AssertionError(process.stderr.read())
                time.sleep(0.1)
        raise AssertionError(f"no answer at {url}")

    def test_a_useless_release_is_refused(self):
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        weak = folder / "weak.pem"
        run("openssl", "genpkey", "-algorithm", "ed25519", "-out", weak)
        cases = {
            "is no version": dict(version="0.1.0"),
            "is not the version of Cargo.toml": dict(version="v9.9.0"),
            f"is no program for linux/{OTHER}": dict(arguments=[f"--binary={OTHER}={self.program}"]),
            "architectures are amd64 and arm64": dict(arguments=["--arch=riscv64"]),
            "is no private key for ECDSA P-256": dict(arguments=[f"--key={weak}"]),
            "pass --certificates FILE": dict(arguments=["--certificates=/nonexistent"]),
            "needs a tag": dict(arguments=["--image=registry.test:5000/mcm"]),
            "which is not latest": dict(arguments=["--image=registry.test/mcm:latest"]),
        }
        for reason, case in cases.items():
            arguments = case.get("arguments", self.binaries)
            done = release(folder / "out", *arguments, "--features=", version=case.get("version", VERSION), code=1)
            self.assertIn(reason, done.stderr)
        run_strict = [ROOT / "hack/release/run", VERSION, "--out", folder / "out", *self.binaries, "--features="]
        done = run(*run_strict, code=1)
        self.assertRegex(done.stderr, "there are uncommitted changes|needs shared libraries")
        self.assertFalse((folder / "out" / VERSION).exists())


if __name__ == "__main__":
    unittest.main()
