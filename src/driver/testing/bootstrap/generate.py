#!/usr/bin/env python3
"""Writes the bootstrap data of this folder again, with the real kubeadm bootstrap provider of Cluster API and a real API server.

    python3 tests/clouds/bootstrap/generate.py

Needs PyYAML, and what `hack/control-plane get cluster-api` builds. Keys, certificates and tokens are replaced by others of the same length.
"""

import base64
import json
import os
import pathlib
import re
import socket
import subprocess
import tempfile
import time

import yaml

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CLUSTER, NAMESPACE, VERSION = "golden", "default", "v1.33.0"
CORE, BOOTSTRAP = "cluster.x-k8s.io/v1beta2", "bootstrap.cluster.x-k8s.io/v1beta2"
LABELS = {"cluster.x-k8s.io/cluster-name": CLUSTER}
EXTERNAL = [{"name": "cloud-provider", "value": "external"}]
USERS = [{
    "name": "capi", "sudo": "ALL=(ALL) NOPASSWD:ALL",
    "sshAuthorizedKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHN5bnRoZXRpYw capi"],
}]


def registration(name):
    return {"nodeRegistration": {"name": name, "kubeletExtraArgs": EXTERNAL}}


JOIN = {"users": USERS, "joinConfiguration": registration("{{ ds.meta_data.local_hostname }}")}
JOIN_CONTROL_PLANE = JOIN | {
    "preKubeadmCommands": ['hostnamectl set-hostname "$(hostname)"'],
    "files": [{"path": "/etc/greeting", "owner": "root:root", "permissions": "0644", "content": "grüße\n"}],
    "clusterConfiguration": {"apiServer": {"extraArgs": EXTERNAL}, "controllerManager": {"extraArgs": EXTERNAL}},
}
INIT = JOIN_CONTROL_PLANE | {"initConfiguration": registration("{{ ds.meta_data.local_hostname }}")}
IGNITION = JOIN | {
    "format": "ignition", "joinConfiguration": registration("$${COREOS_GCE_HOSTNAME}"),
    "ignition": {"containerLinuxConfig": {"additionalConfig": "systemd:\n  units:\n  - name: docker.service\n    enabled: true\n"}},
}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Management:
    """An API server with the kinds of Cluster API. Only the stored versions are served, so nothing is converted."""

    def __init__(self, programs, kubeconfig):
        self.programs, self.kubeconfig = programs, kubeconfig
        for file in ("cluster-api/*/core-components.yaml", "bootstrap-kubeadm/*/bootstrap-components.yaml"):
            (components,) = (programs / "repository").glob(file)
            for kind in yaml.safe_load_all(components.read_text()):
                if kind and kind["kind"] == "CustomResourceDefinition":
                    kind["spec"].pop("conversion", None)
                    kind["spec"]["versions"] = [one for one in kind["spec"]["versions"] if one["storage"]]
                    kind["metadata"].pop("annotations", None)
                    self.apply(kind)
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def kubectl(self, *words, text=None):
        command = [self.programs / "kubectl", "--kubeconfig", self.kubeconfig, *words]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def apply(self, new):
        return json.loads(self.kubectl("apply", "--server-side", "-f", "-", "-o", "json", text=json.dumps(new)))

    def set_status(self, status):
        patch = json.dumps({"status": status})
        self.kubectl("patch", "cluster", CLUSTER, "--subresource=status", "--type=merge", "-p", patch)

    def bootstrap_data(self, cluster, name, spec, labels=None):
        """Those of a Machine."""
        labels, infrastructure = LABELS | (labels or {}), {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMMachine"}
        owner = {"apiVersion": CORE, "kind": "Cluster", "name": CLUSTER, "uid": cluster["metadata"]["uid"]}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        reference = {"apiGroup": BOOTSTRAP.split("/")[0], "kind": "KubeadmConfig", "name": name}
        machine = self.apply({
            "apiVersion": CORE, "kind": "Machine", "metadata": metadata | {"ownerReferences": [owner]},
            "spec": {
                "clusterName": CLUSTER, "version": VERSION, "bootstrap": {"configRef": reference},
                "infrastructureRef": infrastructure | {"name": name},
            },
        })
        owner = {"apiVersion": CORE, "kind": "Machine", "name": name, "uid": machine["metadata"]["uid"], "controller": True}
        config = metadata | {"ownerReferences": [owner]}
        self.apply({"apiVersion": BOOTSTRAP, "kind": "KubeadmConfig", "metadata": config, "spec": spec})
        for _ in range(120):
            found = json.loads(self.kubectl("get", "secret", "-o", "json"))["items"]
            for secret in found:
                if secret["metadata"]["name"] == name:
                    return base64.b64decode(secret["data"]["value"]).decode()
            time.sleep(0.5)
        raise SystemExit(f"there are no bootstrap data: {self.kubectl('get', 'kubeadmconfig', name, '-o', 'yaml')}")


def synthetic(data):
    """Without anything secret, and of the same length."""
    def word(match):
        return ("c3ludGhldGlj" * len(match.group()))[:len(match.group())]

    def body(match):
        lines = match.group().split("\n")
        return "\n".join(line if "-----" in line else re.sub(r"[A-Za-z0-9+/=]+", word, line) for line in lines)

    same = re.sub(r"-----BEGIN .*?-----END", body, data, flags=re.DOTALL)
    same = re.sub(r"(?<=token: )[a-z0-9]{6}\.[a-z0-9]{16}", "abcdef.0123456789abcdef", same)
    same = re.sub(r"(?<=token%3A%20)[a-z0-9]{6}\.[a-z0-9]{16}", "abcdef.0123456789abcdef", same)
    same = re.sub(r"(?<=sha256:)[0-9a-f]{64}|(?<=sha256%3A)[0-9a-f]{64}", "0123456789abcdef" * 4, same)
    assert len(same) == len(data)
    return same


def main():
    control_plane = ROOT / "hack/control-plane"
    programs = pathlib.Path(subprocess.check_output([control_plane, "get", "cluster-api"], text=True).strip())
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        kubeconfig = subprocess.check_output([control_plane, "up", work / "api"], text=True).strip()
        try:
            generate(Management(programs, kubeconfig), programs, work)
        finally:
            subprocess.run([control_plane, "down", work / "api"], check=True)


def generate(management, programs, work):
    for source, target in (("server.crt", "tls.crt"), ("server.key", "tls.key")):
        (work / target).write_bytes((work / "api/pki" / source).read_bytes())
    command = [
        programs / "capi-kubeadm-bootstrap", f"--kubeconfig={management.kubeconfig}", "--leader-elect=false",
        f"--webhook-port={free_port()}", f"--webhook-cert-dir={work}", f"--health-addr=127.0.0.1:{free_port()}",
        f"--diagnostics-address=127.0.0.1:{free_port()}", "--insecure-diagnostics",
        "--feature-gates=KubeadmBootstrapFormatIgnition=true",
    ]
    environment = os.environ | {key: "x" for key in ("POD_NAMESPACE", "POD_NAME", "POD_UID")}
    with open(work / "log", "w", encoding="utf-8") as log, subprocess.Popen(command, env=environment, stdout=log, stderr=log) as provider:
        try:
            cluster = management.apply({
                "apiVersion": CORE, "kind": "Cluster", "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
                "spec": {
                    "controlPlaneEndpoint": {"host": "192.0.2.10", "port": 6443},
                    "clusterNetwork": {"pods": {"cidrBlocks": ["10.244.0.0/16"]}, "services": {"cidrBlocks": ["10.96.0.0/12"]}},
                    "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "MCMCluster", "name": CLUSTER},
                },
            })
            # The workload cluster, in which tokens are made, is this one.
            management.apply({
                "apiVersion": "v1", "kind": "Secret", "type": "cluster.x-k8s.io/secret",
                "metadata": {"name": f"{CLUSTER}-kubeconfig", "namespace": NAMESPACE, "labels": LABELS},
                "data": {"value": base64.b64encode(pathlib.Path(management.kubeconfig).read_bytes()).decode()},
            })
            of_control_plane = {"cluster.x-k8s.io/control-plane": ""}
            management.set_status({"initialization": {"infrastructureProvisioned": True}})
            found = {"init.cloud-config": management.bootstrap_data(cluster, "init", INIT, of_control_plane)}
            initialized = {
                "type": "ControlPlaneInitialized", "status": "True", "reason": "Initialized", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            management.set_status({
                "initialization": {"infrastructureProvisioned": True, "controlPlaneInitialized": True}, "conditions": [initialized],
            })
            join = management.bootstrap_data(cluster, "join-control-plane", JOIN_CONTROL_PLANE, of_control_plane)
            found["join-control-plane.cloud-config"] = join
            found["join-worker.cloud-config"] = management.bootstrap_data(cluster, "join-worker", JOIN)
            found["join-worker.ignition.json"] = management.bootstrap_data(cluster, "ignition", IGNITION)
        finally:
            provider.terminate()
    for name, data in found.items():
        (HERE / name).write_text(synthetic(data), encoding="utf-8", newline="")


if __name__ == "__main__":
    main()
