"""Container images as OCI layouts, without a container engine. Docker loads them too (manifest.json)."""

from datetime import datetime, timezone

from files import Tar, compressed, json_bytes, sha256

USER = "65532"
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nmcm:x:{USER}:{USER}:mcm:/:/sbin/nologin\n"
GROUP = f"root:x:0:\nmcm:x:{USER}:\n"
# The names of the Go programs: invoked by one of them, mcm takes its flags.
NAMES = ("machine-controller-manager", "machine-controller")
OCI = "application/vnd.oci.image"


class Image:
    """The image of one architecture."""

    def __init__(self, architecture, program, certificates, labels, time):
        root = Tar(time)
        root.file("etc/group", GROUP.encode())
        root.file("etc/passwd", PASSWD.encode())
        root.file("etc/ssl/certs/ca-certificates.crt", certificates)
        for name in NAMES:
            root.link(name, "mcm")
        root.file("mcm", program, 0o755)
        layer = root.bytes()
        created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.architecture = architecture
        self.blobs = {}
        layers = [self._blob(f"{OCI}.layer.v1.tar+gzip", compressed(layer))]
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": {"User": f"{USER}:{USER}", "WorkingDir": "/", "Entrypoint": ["/mcm"], "Env": ["PATH=/"],
                       "Labels": labels | {"org.opencontainers.image.created": created}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]},
            "history": [{"created": created, "created_by": "hack/release/run"}],
        }
        self.config = self._blob(f"{OCI}.config.v1+json", json_bytes(config))
        self.layers = layers
        manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": self.config, "layers": layers}
        self.manifest = self._blob(f"{OCI}.manifest.v1+json", json_bytes(manifest))
        self.manifest["platform"] = {"os": "linux", "architecture": architecture}

    def _blob(self, media_type, data):
        self.blobs[sha256(data)] = data
        return {"mediaType": media_type, "digest": f"sha256:{sha256(data)}", "size": len(data)}


def layout(images, reference, labels, time):
    """A layout with all images behind one reference, as a tar archive, and the digest of its index. With one image, docker load
    takes it too."""
    blobs = {digest: data for image in images for digest, data in image.blobs.items()}
    index = json_bytes({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "annotations": labels,
                        "manifests": [image.manifest for image in images]})
    digest = sha256(index)
    blobs[digest] = index
    tag = reference.rsplit(":", 1)[1]
    names = {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": reference}
    top = {"mediaType": f"{OCI}.index.v1+json", "digest": f"sha256:{digest}", "size": len(index), "annotations": names}
    tar = Tar(time)
    tar.file("oci-layout", json_bytes({"imageLayoutVersion": "1.0.0"}))
    tar.file("index.json", json_bytes({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": [top]}))
    if len(images) == 1:
        tar.file("manifest.json", json_bytes([{
            "Config": _path(images[0].config),
            "RepoTags": [reference],
            "Layers": [_path(layer) for layer in images[0].layers],
        }]))
    for name in sorted(blobs):
        tar.file(f"blobs/sha256/{name}", blobs[name])
    return tar.bytes(), digest


def _path(blob):
    return f"blobs/sha256/{blob['digest'].removeprefix('sha256:')}"
