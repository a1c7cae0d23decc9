"""A driver for mcm in Python, to copy from. Its VMs exist in memory only.

    PYTHONPATH=../../proto python driver.py unix:///tmp/example.sock
    PYTHONPATH=../../proto python driver.py 0.0.0.0:8443 --cert-file tls.crt --key-file tls.key --client-ca-file ca.crt

Replace the class Cloud by calls to a cloud, and keep the rest. docs/drivers.md has the rules.
"""

import argparse
import asyncio
import itertools
import json
import os
import pathlib
import signal

import grpc

# Compiles the protocol when the program starts, so that there is no generated code to keep.
pb, rpc = grpc.protos_and_services("mcm/driver/v1/driver.proto")

PROVIDER = "example"
PROTOCOL = 1
SIZES = ("small", "large")
PAGE = 1000
# mcm pings the connection for calls every 10 s, also without calls. Without these options the server would close it.
PINGS = (
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
)


class Failed(Exception):
    """A call that fails with a machine code. The code decides when mcm repeats the call."""

    def __init__(self, code, message):
        super().__init__(message)
        # Programs parse brackets in messages.
        self.failure = pb.Failure(code=code, message=message.replace("[", "(").replace("]", ")"))


class Cloud:
    """VMs by provider ID. Each has the tags of its Machine from the moment it exists."""

    def __init__(self):
        self.vms = {}
        self.numbers = itertools.count(1)

    def find(self, cluster, **tags):
        return [
            vm for vm in self.vms.values()
            if vm["cluster"] == cluster and all(vm[key] == value for key, value in tags.items())
        ]

    def create(self, **tags):
        provider_id = f"{PROVIDER}:///vm-{next(self.numbers)}"
        vm = self.vms[provider_id] = {"provider_id": provider_id, **tags}
        return vm

    def delete(self, vm):
        self.vms.pop(vm["provider_id"], None)


class Driver(rpc.DriverServicer):
    """All methods run in one thread and wait for nothing between looking and creating, so no two of them disturb each
    other. With a real cloud, pass the UID of the Machine as idempotency token."""

    def __init__(self, cloud):
        self.cloud = cloud

    async def GetCapabilities(self, request, context):
        return pb.GetCapabilitiesResponse(
            protocol_version=PROTOCOL if PROTOCOL in request.protocol_versions else 0,
            providers=[pb.Provider(name=PROVIDER, initialize=False, list=True, volume_ids=True)],
            program="driver-python 0.1",
        )

    async def Health(self, request, context):
        return pb.HealthResponse(serving=True)

    async def Validate(self, request, context):
        errors, warnings = problems(json.loads(request.class_json))
        return pb.ValidateResponse(problems=pb.Problems(errors=errors, warnings=warnings))

    async def Create(self, request, context):
        return vm_response(lambda: self.create(request))

    async def Initialize(self, request, context):
        return pb.VmResponse(failure=pb.Failure(code=pb.CODE_UNIMPLEMENTED, message="nothing to do"))

    async def Status(self, request, context):
        return vm_response(lambda: self.status(request))

    async def Delete(self, request, context):
        for vm in self.vms_of(request):
            self.cloud.delete(vm)
        return pb.DeleteResponse(deleted=pb.Deleted())

    async def List(self, request, context):
        vms = self.cloud.find(cluster_of(json.loads(request.class_json)))
        for start in range(0, len(vms), PAGE):
            page = [
                pb.ListedVm(provider_id=vm["provider_id"], machine_name=vm["machine"], owner=vm["owner"])
                for vm in vms[start:start + PAGE]
            ]
            yield pb.ListResponse(page=pb.Page(vms=page))
        # Without it the list is incomplete, as after an exception.
        yield pb.ListResponse(end=pb.End(count=len(vms)))

    async def VolumeIds(self, request, context):
        specs = (json.loads(spec) for spec in request.specs_json)
        return pb.VolumeIdsResponse(volumes=pb.Volumes(ids=[spec["csi"]["volumeHandle"] for spec in specs if "csi" in spec]))

    def create(self, request):
        machine, class_ = json.loads(request.machine_json), json.loads(request.class_json)
        errors, _ = problems(class_)
        if errors:
            raise Failed(pb.CODE_INVALID_ARGUMENT, "; ".join(f"{one.path}: {one.text}" for one in errors))
        cluster, name, uid = cluster_of(class_), machine["metadata"]["name"], machine["metadata"]["uid"]
        # A call before this one may have created it.
        for vm in self.cloud.find(cluster, machine=name):
            if vm["uid"] == uid:
                return vm
            raise Failed(pb.CODE_ALREADY_EXISTS, f"a VM of another machine has the name {name}")
        return self.cloud.create(cluster=cluster, machine=name, uid=uid, owner=request.owner)

    def status(self, request):
        vms = self.vms_of(request)
        if not vms:
            # Only if the cloud said so. A time-out or a broken connection is CODE_UNAVAILABLE or CODE_UNKNOWN.
            raise Failed(pb.CODE_NOT_FOUND, "there is no such VM")
        if len(vms) > 1:
            raise Failed(pb.CODE_OUT_OF_RANGE, f"there are {len(vms)} VMs")
        return vms[0]

    def vms_of(self, request):
        """Exactly the VM with the provider ID or, without one, every VM of the Machine."""
        machine, cluster = json.loads(request.machine_json), cluster_of(json.loads(request.class_json))
        provider_id = machine.get("spec", {}).get("providerID")
        if provider_id:
            return self.cloud.find(cluster, provider_id=provider_id)
        return self.cloud.find(cluster, machine=machine["metadata"]["name"])


def cluster_of(class_):
    """VMs of other clusters are never touched. Here, a namespace is a cluster."""
    return class_["metadata"].get("namespace", "")


def problems(class_):
    """All of them at once, each with its path."""
    spec, errors, warnings = class_.get("providerSpec") or {}, [], []
    if spec.get("size") not in SIZES:
        found = f"expected one of {', '.join(SIZES)}, found {json.dumps(spec.get('size'))}"
        errors.append(pb.Problem(path="providerSpec.size", text=found))
    for key in spec.keys() - {"size"}:
        warnings.append(pb.Problem(path=f"providerSpec.{key}", text="unknown field"))
    return errors, warnings


def vm_response(work):
    try:
        vm = work()
    except Failed as failed:
        return pb.VmResponse(failure=failed.failure)
    return pb.VmResponse(vm=pb.Vm(provider_id=vm["provider_id"], node_name=vm["machine"]))


def arguments():
    parser = argparse.ArgumentParser(description="Serves the example driver to mcm.")
    parser.add_argument("address", help="unix:///PATH, or HOST:PORT with certificates")
    parser.add_argument("--cert-file", help="certificate of this server")
    parser.add_argument("--key-file", help="key of that certificate")
    parser.add_argument("--client-ca-file", help="CA of client certificates; clients without such a certificate are rejected")
    found = parser.parse_args()
    is_socket = found.address.startswith("unix:///")
    if not is_socket and not (found.cert_file and found.key_file and found.client_ca_file):
        parser.error("others on the network could read credentials: pass --cert-file, --key-file and --client-ca-file")
    return found, is_socket


async def serve(found, is_socket):
    server = grpc.aio.server(options=PINGS)
    rpc.add_DriverServicer_to_server(Driver(Cloud()), server)
    if is_socket:
        # Only its user may open the socket.
        os.umask(0o077)
        server.add_insecure_port(found.address)
    else:
        key, certificate, ca = (pathlib.Path(path).read_bytes() for path in (found.key_file, found.cert_file, found.client_ca_file))
        credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
        server.add_secure_port(found.address, credentials)
    await server.start()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await server.stop(grace=20)


if __name__ == "__main__":
    asyncio.run(serve(*arguments()))
