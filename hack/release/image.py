"""Container images as OCI layouts, without a container engine. Docker loads them too (manifest.json)."""

from datetime import datetime, timezone

from files import Tar, compressed, json_bytes, sha256

USER = "65532"
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nmcm:x:{USER}:{USER}:mcm:/:/sbin/nologin\n"
GROUP = f"root:x:0:\nmcm:x:{USER}:\n"
# The names of the Go programs: invoked by one of them, mcm takes its flags.
NAMES = ("machine-controller-manager", "machine-controller")
# Gardener starts the sidecar of a provider by the entry point of its image, and passes only flags. So the release has its image a
# second time with another entry point, under a tag with this suffix. Its layer is the same.
ENTRY_POINTS = {"": "mcm", "-machine-controller": "machine-controller"}
OCI = "application/vnd.oci.image"


class Image:
    """The image of one architecture: a layer, and a manifest for each suffix of the tag."""

    def __init__(self, architecture, program, certificates, notices, labels, time):
        root = Tar(time)
        root.file("etc/group", GROUP.encode())
        root.file("etc/passwd", PASSWD.encode())
        root.file("etc/ssl/certs/ca-certificates.crt", certificates)
        for name in NAMES:
            root.link(name, "mcm")
        root.file("mcm", program, 0o755)
        for name, data in notices.items():
            root.file(f"usr/share/doc/mcm/{name}", data)
        layer = root.bytes()
        created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.architecture = architecture
        self.blobs = {}
        self.layer = self._blob(f"{OCI}.layer.v1.tar+gzip", compressed(layer))
        config = {
            "architecture": architecture,
            "os": "linux",
            "created": created,
            "config": {"User": f"{USER}:{USER}", "WorkingDir": "/", "Env": ["PATH=/"],
                       "Labels": labels | {"org.opencontainers.image.created": created}},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]},
            "history": [{"created": created, "created_by": "hack/release/run"}],
        }
        self.configs, self.manifests = {}, {}
        for suffix, name in ENTRY_POINTS.items():
            self._add(suffix, config | {"config": config["config"] | {"Entrypoint": [f"/{name}"]}})

    def _add(self, suffix, config):
        described = self._blob(f"{OCI}.config.v1+json", json_bytes(config))
        manifest = {"schemaVersion": 2, "mediaType": f"{OCI}.manifest.v1+json", "config": described, "layers": [self.layer]}
        platform = {"os": "linux", "architecture": self.architecture}
        self.configs[suffix] = described
        self.manifests[suffix] = self._blob(f"{OCI}.manifest.v1+json", json_bytes(manifest)) | {"platform": platform}

    def _blob(self, media_type, data):
        self.blobs[sha256(data)] = data
        return {"mediaType": media_type, "digest": f"sha256:{sha256(data)}", "size": len(data)}


def layout(images, reference, labels, time):
    """A layout with all images, as a tar archive, and the digests of their indexes by reference. With one architecture, docker load
    takes it too."""
    blobs = {digest: data for image in images for digest, data in image.blobs.items()}
    digests, top = {}, []
    for suffix in ENTRY_POINTS:
        name = reference + suffix
        index = json_bytes({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "annotations": labels,
                            "manifests": [image.manifests[suffix] for image in images]})
        digest = digests[name] = sha256(index)
        blobs[digest] = index
        names = {"org.opencontainers.image.ref.name": name.rsplit(":", 1)[1], "io.containerd.image.name": name}
        top.append({"mediaType": f"{OCI}.index.v1+json", "digest": f"sha256:{digest}", "size": len(index), "annotations": names})
    tar = Tar(time)
    tar.file("oci-layout", json_bytes({"imageLayoutVersion": "1.0.0"}))
    tar.file("index.json", json_bytes({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": top}))
    if len(images) == 1:
        tar.file("manifest.json", json_bytes([
            {"Config": _path(images[0].configs[suffix]), "RepoTags": [reference + suffix], "Layers": [_path(images[0].layer)]}
            for suffix in ENTRY_POINTS
        ]))
    for name in sorted(blobs):
        tar.file(f"blobs/sha256/{name}", blobs[name])
    return tar.bytes(), digests


def _path(blob):
    return f"blobs/sha256/{blob['digest'].removeprefix('sha256:')}"
