"""Prints messages of Yandex Cloud's API as definitions in JSON, read from the descriptors of its own client."""

import json
import sys

from google.protobuf.descriptor import FieldDescriptor as Field
from yandex.cloud.compute.v1 import disk_type_pb2, image_pb2, instance_pb2, instance_service_pb2, zone_pb2
from yandex.cloud.endpoint import api_endpoint_service_pb2
from yandex.cloud.iam.v1 import iam_token_service_pb2
from yandex.cloud.operation import operation_pb2
from yandex.cloud.quota import quota_pb2
from yandex.cloud.resourcemanager.v1 import folder_pb2
from yandex.cloud.vpc.v1 import address_service_pb2, subnet_pb2

MESSAGES = [
    disk_type_pb2.DiskType,
    image_pb2.Image,
    instance_pb2.Instance,
    instance_service_pb2.CreateInstanceRequest,
    instance_service_pb2.GetInstanceRequest,
    instance_service_pb2.ListInstancesRequest,
    instance_service_pb2.ListInstancesResponse,
    instance_service_pb2.UpdateInstanceRequest,
    zone_pb2.Zone,
    api_endpoint_service_pb2.ListApiEndpointsResponse,
    iam_token_service_pb2.CreateIamTokenRequest,
    iam_token_service_pb2.CreateIamTokenResponse,
    operation_pb2.Operation,
    quota_pb2.QuotaFailure,
    folder_pb2.Folder,
    address_service_pb2.ListAddressesRequest,
    address_service_pb2.ListAddressesResponse,
    subnet_pb2.Subnet,
]

# Descriptors do not name them: they are in the comments of the protos.
REQUIRED = {
    "compute.v1.CreateInstanceRequest": [
        "folderId", "zoneId", "platformId", "resourcesSpec", "bootDiskSpec", "networkInterfaceSpecs",
    ],
    "compute.v1.ResourcesSpec": ["memory", "cores"],
    "compute.v1.AttachedDiskSpec.DiskSpec": ["size"],
    "compute.v1.NetworkInterfaceSpec": ["subnetId"],
    "compute.v1.ListInstancesRequest": ["folderId"],
    "vpc.v1.ListAddressesRequest": ["folderId"],
}

# Kinds with a special form in JSON. Whole numbers of 64 bits are texts.
WELL_KNOWN = {
    "google.protobuf.Any": {"type": "object"},
    "google.protobuf.Duration": {"type": "string"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Timestamp": {"type": "string"},
}
SCALARS = {
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_BYTES: {"type": "string"},
    Field.TYPE_DOUBLE: {"type": "number"},
    Field.TYPE_FLOAT: {"type": "number"},
    Field.TYPE_INT32: {"type": "integer"},
    Field.TYPE_INT64: {"type": "string", "format": "int64"},
    Field.TYPE_STRING: {"type": "string"},
}

definitions = {}


def name_of(message):
    return message.full_name.removeprefix("yandex.cloud.")


def schema_of(field):
    message = field.message_type
    if message and message.GetOptions().map_entry:
        return {"type": "object"}
    if field.type == Field.TYPE_ENUM:
        schema = {"type": "string", "enum": [value.name for value in field.enum_type.values]}
    elif message and message.full_name in WELL_KNOWN:
        schema = WELL_KNOWN[message.full_name]
    elif message:
        define(message)
        schema = {"$ref": f"#/definitions/{name_of(message)}"}
    else:
        schema = SCALARS[field.type]
    return {"type": "array", "items": schema} if field.is_repeated else schema


def define(message):
    name = name_of(message)
    if name in definitions:
        return
    definition = definitions[name] = {}
    if name in REQUIRED:
        definition["required"] = REQUIRED[name]
    definition["properties"] = {field.json_name: schema_of(field) for field in message.fields}


for message in MESSAGES:
    define(message.DESCRIPTOR)
lines = [f"    {json.dumps(name)}: {json.dumps(definitions[name])}" for name in sorted(definitions)]
sys.stdout.write('{\n  "definitions": {\n' + ",\n".join(lines) + "\n  }\n}\n")
