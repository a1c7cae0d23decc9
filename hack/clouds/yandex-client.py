"""Calls the REST API of Yandex Cloud with its own client, as a user would, and prints as JSON what it saw.

The client has gRPC only. So its channel is replaced by one that sends each call over HTTP, as the annotations of the protos describe,
and reads answers strictly: messages, signed requests of tokens, retries and the waiting for operations are those of the client.
"""

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid

import grpc
from google.api import annotations_pb2
from google.protobuf import descriptor_pool, json_format, message_factory
from yandex.cloud.compute.v1.disk_type_service_pb2 import GetDiskTypeRequest
from yandex.cloud.compute.v1.disk_type_service_pb2_grpc import DiskTypeServiceStub
from yandex.cloud.compute.v1.image_service_pb2 import GetImageRequest
from yandex.cloud.compute.v1.image_service_pb2_grpc import ImageServiceStub
from yandex.cloud.compute.v1.instance_pb2 import IPV4, Instance
from yandex.cloud.compute.v1.instance_service_pb2 import (
    AttachedDiskSpec, CreateInstanceMetadata, CreateInstanceRequest, DeleteInstanceMetadata, DeleteInstanceRequest,
    GetInstanceRequest, ListInstancesRequest, NetworkInterfaceSpec, OneToOneNatSpec, PrimaryAddressSpec, ResourcesSpec,
    UpdateInstanceMetadata, UpdateInstanceRequest,
)
from yandex.cloud.compute.v1.instance_service_pb2_grpc import InstanceServiceStub
from yandex.cloud.compute.v1.zone_service_pb2 import GetZoneRequest
from yandex.cloud.compute.v1.zone_service_pb2_grpc import ZoneServiceStub
from yandex.cloud.endpoint.api_endpoint_service_pb2 import ListApiEndpointsRequest
from yandex.cloud.endpoint.api_endpoint_service_pb2_grpc import ApiEndpointServiceStub
from yandex.cloud.iam.v1.iam_token_service_pb2_grpc import IamTokenServiceStub
from yandex.cloud.quota.quota_pb2 import QuotaFailure  # noqa: F401, details of errors contain it
from yandex.cloud.resourcemanager.v1.folder_service_pb2 import GetFolderRequest
from yandex.cloud.resourcemanager.v1.folder_service_pb2_grpc import FolderServiceStub
from yandex.cloud.vpc.v1.address_service_pb2 import ListAddressesRequest
from yandex.cloud.vpc.v1.address_service_pb2_grpc import AddressServiceStub
from yandex.cloud.vpc.v1.subnet_service_pb2 import GetSubnetRequest
from yandex.cloud.vpc.v1.subnet_service_pb2_grpc import SubnetServiceStub
from yandexcloud import SDK, _channels
from yandexcloud.operations import OperationError

URL, FOLDER, ZONE, IMAGE, SUBNET = sys.argv[1:6]
CODES = {code.value[0]: code for code in grpc.StatusCode}


class Refused(grpc.RpcError):
    """An error of the API."""

    def __init__(self, status):
        self.status = status

    def code(self):
        return CODES[self.status["code"]]

    def details(self):
        return self.status["message"]


class RestCall(grpc.UnaryUnaryMultiCallable):
    """One method of the API over HTTP."""

    def __init__(self, base, token, method):
        service, name = method.strip("/").split("/")
        self.base, self.token = base, token
        self.method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]

    def __call__(self, request, timeout=None, metadata=None, **_):
        rule = self.method.GetOptions().Extensions[annotations_pb2.http]
        kind = rule.WhichOneof("pattern")
        fields = json_format.MessageToDict(request)
        parameter = lambda match: urllib.parse.quote(fields.pop(json_name(match[1])), safe="")
        path = re.sub(r"{(\w+)}", parameter, getattr(rule, kind))
        body = json.dumps(fields).encode() if rule.body else None
        query = "" if rule.body or not fields else "?" + urllib.parse.urlencode(fields)
        headers = {"content-type": "application/json", **dict(metadata or [])}
        if self.token:
            headers["authorization"] = f"Bearer {self.token()}"
        sent = urllib.request.Request(self.base + path + query, body, headers, method=kind.upper())
        answer = message_factory.GetMessageClass(self.method.output_type)()
        try:
            with urllib.request.urlopen(sent) as received:
                return json_format.Parse(received.read(), answer)
        except urllib.error.HTTPError as error:
            raise Refused(json.load(error)) from None

    def with_call(self, request, **options):
        return self(request, **options), None

    def future(self, request, **options):
        raise NotImplementedError


class RestChannel(grpc.Channel):
    """A channel whose calls are sent over HTTP."""

    def __init__(self, base, token=None):
        self.base, self.token = base, token

    def unary_unary(self, method, *_, **__):
        return RestCall(self.base, self.token, method)

    def close(self):
        pass

    subscribe = unsubscribe = unary_stream = stream_unary = stream_stream = close


class RestChannels(_channels.Channels):
    """The channels of the client, with the addresses that the endpoint lists."""

    iam_token = None

    def channel(self, service, endpoint=None, insecure=False):
        return RestChannel(f"http://{self.endpoints[service]}", self.fetched)

    def fetched(self):
        if self.iam_token is None:
            request = self._token_requester.get_token_request()
            iam = IamTokenServiceStub(RestChannel(f"http://{self.endpoints['iam']}"))
            self.iam_token = iam.Create(request).iam_token
        return self.iam_token

    def _get_endpoints(self):
        listed = ApiEndpointServiceStub(RestChannel(URL)).List(ListApiEndpointsRequest())
        return {endpoint.id: endpoint.address for endpoint in listed.endpoints}


def json_name(name):
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


def client(key):
    sdk = SDK(service_account_key=key)
    sdk._channels = RestChannels(service_account_key=key)
    return sdk


def code_of(call):
    """The code of a call that fails."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "it succeeded"


def order(name, **more):
    """The request of an instance as Gardener's driver makes it."""
    disk = AttachedDiskSpec.DiskSpec(type_id="network-ssd", size=50 << 30, image_id=IMAGE)
    nat = OneToOneNatSpec(ip_version=IPV4)
    fields = {
        "folder_id": FOLDER, "name": name, "hostname": name, "zone_id": ZONE, "platform_id": "standard-v3",
        "labels": {"kubernetes-io-cluster-python": "1"}, "metadata": {"user-data": "#cloud-config"},
        "resources_spec": ResourcesSpec(memory=4 << 30, cores=2, core_fraction=100),
        "boot_disk_spec": AttachedDiskSpec(mode=AttachedDiskSpec.READ_WRITE, auto_delete=True, disk_spec=disk),
        "network_interface_specs": [
            NetworkInterfaceSpec(subnet_id=SUBNET, primary_v4_address_spec=PrimaryAddressSpec(one_to_one_nat_spec=nat))
        ],
    }
    return CreateInstanceRequest(**{**fields, **more})


key = json.load(sys.stdin)
sdk = client(key)
instances = sdk.client(InstanceServiceStub)
seen = {"endpoints": sorted(sdk._channels.endpoints)}
other = client({**key, "id": "ajeother"}).client(InstanceServiceStub)
seen["another key"] = code_of(lambda: other.List(ListInstancesRequest(folder_id=FOLDER)))
seen["nothing"] = len(instances.List(ListInstancesRequest(folder_id=FOLDER)).instances)

keys = {name: [("idempotency-key", str(uuid.uuid4()))] for name in ["a", "b", "c"]}
begun = {name: instances.Create(order(name), metadata=keys[name]) for name in keys}
meta = CreateInstanceMetadata()
begun["c"].metadata.Unpack(meta)
seen["begun"] = Instance.Status.Name(instances.Get(GetInstanceRequest(instance_id=meta.instance_id)).status)
seen["repeated"] = instances.Create(order("a"), metadata=keys["a"]).id == begun["a"].id
made = {name: sdk.wait_operation_and_get_result(begun[name], Instance, CreateInstanceMetadata) for name in keys}
seen["made"] = [[one.response.name, Instance.Status.Name(one.response.status)] for one in made.values()]
seen["same instance"] = made["a"].meta.instance_id == made["a"].response.id
seen["address"] = bool(made["a"].response.network_interfaces[0].primary_v4_address.one_to_one_nat.address)
seen["conflict"] = code_of(lambda: instances.Create(order("a")))
seen["no zone"] = code_of(lambda: instances.Create(order("d", zone_id="")))
seen["no image"] = code_of(lambda: instances.Create(order("d", boot_disk_spec=AttachedDiskSpec(
    disk_spec=AttachedDiskSpec.DiskSpec(size=50 << 30, image_id="none")))))
seen["bad label"] = code_of(lambda: instances.Create(order("d", labels={"A": "b"})))
try:
    sdk.wait_operation_and_get_result(instances.Create(order("failing")), Instance, CreateInstanceMetadata)
except OperationError as error:
    seen["failed"] = "Not enough resources" in error.message

first = instances.List(ListInstancesRequest(folder_id=FOLDER, page_size=2))
rest = instances.List(ListInstancesRequest(folder_id=FOLDER, page_size=2, page_token=first.next_page_token))
seen["pages"] = [[one.name for one in page.instances] for page in [first, rest]]
named = instances.List(ListInstancesRequest(folder_id=FOLDER, filter='name = "b"', page_size=2))
seen["filter"] = [one.name for one in named.instances]
labels = {"kubernetes-io-cluster-python": "1", "team": "x"}
update = UpdateInstanceRequest(instance_id=made["a"].response.id, labels=labels)
update.update_mask.paths.append("labels")
updated = sdk.wait_operation_and_get_result(instances.Update(update), Instance, UpdateInstanceMetadata)
seen["labels"] = dict(updated.response.labels)

seen["addresses"] = [
    [one.external_ipv4_address.address, one.used]
    for one in sdk.client(AddressServiceStub).List(ListAddressesRequest(folder_id=FOLDER)).addresses
]
seen["resources"] = [
    sdk.client(ZoneServiceStub).Get(GetZoneRequest(zone_id=ZONE)).region_id,
    sdk.client(ImageServiceStub).Get(GetImageRequest(image_id=IMAGE)).min_disk_size,
    ZONE in sdk.client(DiskTypeServiceStub).Get(GetDiskTypeRequest(disk_type_id="network-ssd")).zone_ids,
    sdk.client(FolderServiceStub).Get(GetFolderRequest(folder_id=FOLDER)).name,
    sdk.client(SubnetServiceStub).Get(GetSubnetRequest(subnet_id=SUBNET)).zone_id == ZONE,
]

going = [instances.Delete(DeleteInstanceRequest(instance_id=one.response.id)) for one in made.values()]
seen["twice"] = code_of(lambda: instances.Delete(DeleteInstanceRequest(instance_id=made["c"].response.id)))
for operation in going:
    sdk.wait_operation_and_get_result(operation, None, DeleteInstanceMetadata)
seen["left"] = len(instances.List(ListInstancesRequest(folder_id=FOLDER)).instances)
seen["absent"] = code_of(lambda: instances.Get(GetInstanceRequest(instance_id=made["a"].response.id)))
seen["nothing to delete"] = code_of(lambda: instances.Delete(DeleteInstanceRequest(instance_id=made["a"].response.id)))
json.dump(seen, sys.stdout)
