"""Signatures with a key of ECDSA P-256, as cosign makes and verifies them, and provenance."""

import base64
import subprocess

PAYLOAD = "application/vnd.in-toto+json"


def sign(key, data):
    """The signature of bytes, in base64."""
    run = ["openssl", "dgst", "-sha256", "-sign", str(key)]
    return base64.b64encode(subprocess.run(run, check=True, input=data, capture_output=True).stdout).decode()


def public(key):
    """The public key, in PEM."""
    return subprocess.run(["openssl", "pkey", "-in", str(key), "-pubout"], check=True, capture_output=True).stdout


def is_p256(key):
    """Whether a file has a private key that can sign releases."""
    run = subprocess.run(["openssl", "pkey", "-in", str(key), "-noout", "-text"], capture_output=True, text=True)
    return run.returncode == 0 and "prime256v1" in run.stdout


def statement(subjects, parameters, sources, builder):
    """An in-toto statement with SLSA provenance: these artefacts by name and SHA-256 were made of these sources."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mcm:release:v1",
                "externalParameters": parameters,
                "resolvedDependencies": sources,
            },
            "runDetails": {"builder": {"id": builder}},
        },
    }


def envelope(key, payload):
    """A statement in a signed envelope (DSSE)."""
    signed = f"DSSEv1 {len(PAYLOAD)} {PAYLOAD} {len(payload)} ".encode() + payload
    return {"payloadType": PAYLOAD, "payload": base64.b64encode(payload).decode(), "signatures": [{"sig": sign(key, signed)}]}
