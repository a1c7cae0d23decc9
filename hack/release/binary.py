"""Binaries of a release: what they say of themselves, and the list of their packages inside them."""

import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

TARGETS = {"amd64": "x86_64-unknown-linux-gnu", "arm64": "aarch64-unknown-linux-gnu"}
MACHINES = {"amd64": 0x3E, "arm64": 0xB7}
EMULATORS = {"amd64": "qemu-x86_64-static", "arm64": "qemu-aarch64-static"}
# The section that cargo-auditable, Trivy, Syft and others read.
SECTION = ".dep-v0"


class Refused(Exception):
    """A release that cannot be made, and what to do about it."""


def native():
    """The architecture of this machine."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def check(path, architecture, allow_shared):
    """Refuses a file that an image FROM scratch for the architecture could not run."""
    head = path.open("rb").read(64)
    if head[:4] != b"\x7fELF" or int.from_bytes(head[18:20], "little") != MACHINES[architecture]:
        raise Refused(f"{path} is no program for linux/{architecture}")
    if not allow_shared and is_shared(path):
        raise Refused(f"{path} needs shared libraries, which its image lacks: build it with hack/build-static")


def is_shared(path):
    """Whether a program names an interpreter (PT_INTERP)."""
    with path.open("rb") as file:
        head = file.read(64)
        offset, size, count = (int.from_bytes(head[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
        for number in range(count):
            file.seek(offset + number * size)
            if int.from_bytes(file.read(4), "little") == 3:
                return True
    return False


def command(path, architecture):
    """How to run a binary here: directly, or emulated."""
    if architecture == native():
        return [str(path)]
    emulator = shutil.which(EMULATORS[architecture])
    return [emulator, str(path)] if emulator else None


def output(path, architecture, *arguments):
    """What a binary prints; None where it cannot run."""
    run = command(path, architecture)
    return run and subprocess.run([*run, *arguments], check=True, capture_output=True).stdout


def origins(path):
    """Versions of what is linked beside crates: the standard library of Rust and the C library."""
    data = path.read_bytes()
    rust = re.search(rb"rustc version (\d+\.\d+\.\d+)", data)
    libc = re.search(rb"GNU C Library [^\n]*?version (\d+\.\d+)", data)
    found = {"rust-std": rust, "glibc": None if is_shared(path) else libc}
    return {name: match.group(1).decode() for name, match in found.items() if match}


def with_packages(path, architecture, packages):
    """The bytes of a binary with the list of its packages in it, as cargo-auditable writes it."""
    objcopy = "objcopy" if architecture == native() else f"{TARGETS[architecture].split('-')[0]}-linux-gnu-objcopy"
    if not shutil.which(objcopy):
        raise Refused(f"there is no {objcopy}: install binutils for {architecture}")
    with tempfile.TemporaryDirectory() as folder:
        data, made = Path(folder) / "packages", Path(folder) / "mcm"
        data.write_bytes(zlib.compress(json.dumps({"packages": packages}, separators=(",", ":")).encode(), 9))
        flags = [f"--add-section={SECTION}={data}", f"--set-section-flags={SECTION}=noload,readonly"]
        subprocess.run([objcopy, f"--remove-section={SECTION}", *flags, str(path), str(made)], check=True)
        os.chmod(made, 0o755)
        return made.read_bytes()
