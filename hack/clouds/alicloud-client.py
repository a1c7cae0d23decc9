"""Calls ECS with Alibaba Cloud's own client, as a user would, and prints as JSON what it saw."""

import base64
import json
import sys

from alibabacloud_ecs20140526 import models
from alibabacloud_ecs20140526.client import Client
from alibabacloud_tea_openapi.models import Config

HOST, REGION, ZONE, IMAGE, TYPE, VSWITCH, GROUP, KEYPAIR = sys.argv[1:9]
KEY_ID, KEY_SECRET = sys.stdin.read().split()
TAGS = {"kubernetes.io/cluster/theirs": "ä & b", "kubernetes.io/role/node": "1"}


def client(secret=KEY_SECRET):
    config = Config(access_key_id=KEY_ID, access_key_secret=secret, region_id=REGION, endpoint=HOST, protocol="http")
    return Client(config)


ecs = client()


def run(name, token, **more):
    disk = models.RunInstancesRequestDataDisk(
        category="cloud_efficiency", delete_with_instance=True, description="", disk_name=f"{name}-d-data-disk", encrypted="true", size=20
    )
    fields = {
        "client_token": token,
        "data_disk": [disk],
        "image_id": IMAGE,
        "instance_charge_type": "PostPaid",
        "instance_name": name,
        "instance_type": TYPE,
        "internet_max_bandwidth_out": 0,
        "key_pair_name": KEYPAIR,
        "private_ip_address": "",
        "region_id": REGION,
        "security_group_id": GROUP,
        "spot_strategy": "SpotAsPriceGo",
        "system_disk": models.RunInstancesRequestSystemDisk(category="cloud_essd", size="50"),
        "tag": [models.RunInstancesRequestTag(key=key, value=value) for key, value in TAGS.items()],
        "user_data": base64.b64encode(b"#cloud-config ~*+/=").decode(),
        "v_switch_id": VSWITCH,
        "zone_id": ZONE,
    }
    return ecs.run_instances(models.RunInstancesRequest(**{**fields, **more})).body.instance_id_sets.instance_id_set[0]


def describe(of=ecs, **query):
    """All pages of two, as mcm and the drivers of the Machine Controller Manager list VMs."""
    found, token = [], None
    while token != "":
        request = models.DescribeInstancesRequest(region_id=REGION, max_results=10, next_token=token, **query)
        body = of.describe_instances(request).body
        found += body.instances.instance
        token = body.next_token or ""
    return found


def names(**query):
    return [instance.instance_name for instance in describe(**query)]


def error_of(call):
    """The HTTP status and the code of a call that fails."""
    try:
        call()
    except Exception as error:
        return [error.status_code, error.code]
    return "it succeeded"


def delete(instance, force=True):
    return ecs.delete_instance(models.DeleteInstanceRequest(instance_id=instance, force=force))


seen = {}
ids = {name: run(name, f"token-{name}") for name in ["vm-a", "vm-b", "vm-c"]}
one = describe(instance_ids=json.dumps([ids["vm-a"]]))[0]
seen["new"] = one.status
seen["repeated"] = run("vm-a", "token-vm-a") == ids["vm-a"]
seen["other parameters"] = error_of(lambda: run("vm-d", "token-vm-a"))
seen["too early"] = error_of(lambda: delete(ids["vm-a"]))
while one.status != "Running":
    one = describe(instance_ids=json.dumps([ids["vm-a"]]))[0]
seen["tags"] = {tag.tag_key: tag.tag_value for tag in one.tags.tag}
seen["address"] = one.vpc_attributes.private_ip_address.ip_address[0].startswith("10.")
seen["zone"] = one.zone_id
tags = [models.DescribeInstancesRequestTag(key=key, value=value) for key, value in TAGS.items()]
seen["by tags"] = names(tag=tags)
seen["by other tags"] = names(tag=[models.DescribeInstancesRequestTag(key="kubernetes.io/role/node", value="2")])
seen["by name"] = names(instance_name="vm-b")
seen["by wildcard"] = names(instance_name="vm-*")
seen["by no name"] = names(instance_name="vm")
seen["pages"] = len(describe(tag=tags))
seen["dry run"] = error_of(lambda: describe(dry_run=True))
seen["wrong key"] = error_of(lambda: describe(of=client("another-secret")))
seen["no image"] = error_of(lambda: run("vm-d", "token-vm-d", image_id="m-none"))
seen["no type"] = error_of(lambda: run("vm-d", "token-vm-e", instance_type="ecs.none"))
resource = {"region_id": REGION, "resource_type": "instance", "resource_id": [ids["vm-b"]]}
ecs.tag_resources(models.TagResourcesRequest(tag=[models.TagResourcesRequestTag(key="more", value="x")], **resource))
ecs.untag_resources(models.UntagResourcesRequest(tag_key=["kubernetes.io/role/node"], **resource))
seen["tagged"] = sorted(tag.tag_key for tag in describe(instance_name="vm-b")[0].tags.tag)
image = ecs.describe_images(models.DescribeImagesRequest(region_id=REGION, image_id=IMAGE)).body.images.image[0]
kind = ecs.describe_instance_types(models.DescribeInstanceTypesRequest(instance_types=[TYPE])).body
switch = ecs.describe_vswitches(models.DescribeVSwitchesRequest(region_id=REGION, v_switch_id=VSWITCH)).body
group = ecs.describe_security_groups(
    models.DescribeSecurityGroupsRequest(region_id=REGION, security_group_ids=json.dumps([GROUP]))
).body
pair = ecs.describe_key_pairs(models.DescribeKeyPairsRequest(region_id=REGION, key_pair_name=KEYPAIR)).body
zones = ecs.describe_zones(models.DescribeZonesRequest(region_id=REGION)).body.zones.zone
seen["resources"] = [
    image.image_id,
    kind.instance_types.instance_type[0].instance_type_id,
    switch.v_switches.v_switch[0].zone_id,
    group.security_groups.security_group[0].vpc_id == switch.v_switches.v_switch[0].vpc_id,
    pair.key_pairs.key_pair[0].key_pair_name,
    [zone.zone_id for zone in zones],
]
seen["not forced"] = error_of(lambda: delete(ids["vm-a"], force=False))
while any(instance.status != "Running" for instance in describe()):
    pass
for instance in ids.values():
    delete(instance)
seen["left"] = names()
seen["nothing to delete"] = error_of(lambda: delete(ids["vm-a"]))
json.dump(seen, sys.stdout)
