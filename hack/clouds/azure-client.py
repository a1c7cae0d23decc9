"""Calls a Resource Manager of Azure with Microsoft's own clients, as a user would, and prints as JSON what it saw."""

import json
import sys
import time
import urllib.parse
import urllib.request

from azure.core.credentials import AccessToken, AccessTokenInfo
from azure.core.exceptions import HttpResponseError
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient

account = json.loads(sys.argv[1])
URL, GROUP, LOCATION = account["url"], account["group"], account["location"]
# The fake has no TLS, and its changes are done soon.
PLAIN = {"enforce_https": False}
SOON = {"polling_interval": 0, **PLAIN}


class Credential:
    """A token by client credentials. The library for it asks for TLS."""

    def __init__(self):
        form = {
            "client_id": account["client"], "client_secret": account["secret"], "scope": account["scope"],
            "grant_type": "client_credentials",
        }
        url = f"{URL}/{account['tenant']}/oauth2/v2.0/token"
        with urllib.request.urlopen(url, urllib.parse.urlencode(form).encode()) as answer:
            self.token = json.load(answer)["access_token"]

    def get_token(self, *_, **__):
        return AccessToken(self.token, int(time.time()) + 3000)

    def get_token_info(self, *_, **__):
        return AccessTokenInfo(self.token, int(time.time()) + 3000)


credential = Credential()
options = {"base_url": URL, "credential_scopes": [account["scope"]]}
compute = ComputeManagementClient(credential, account["subscription"], **options)
network = NetworkManagementClient(credential, account["subscription"], **options)
vms, disks, nics = compute.virtual_machines, compute.disks, network.network_interfaces


def refusal(call):
    """The status and the code of the error of a call."""
    try:
        call()
    except HttpResponseError as error:
        return [error.status_code, error.error and error.error.code]
    return None


def nic(name, **more):
    subnet = network.subnets.get(GROUP, account["vnet"], account["subnet"], **PLAIN)
    address = {"name": name, "properties": {"privateIPAllocationMethod": "Dynamic", "subnet": {"id": subnet.id}}}
    body = {"location": LOCATION, "properties": {"ipConfigurations": [address], **more}}
    return nics.begin_create_or_update(GROUP, name, body, **SOON).result()


def vm(name, nic_id):
    body = {
        "location": LOCATION, "zones": ["1"], "tags": {"kubernetes.io-cluster-a": "1"},
        "properties": {
            "hardwareProfile": {"vmSize": account["size"]},
            "storageProfile": {
                "imageReference": {"id": account["image"]},
                "osDisk": {"name": f"{name}-os-disk", "createOption": "FromImage", "deleteOption": "Delete"},
            },
            "osProfile": {"computerName": name, "adminUsername": "core", "adminPassword": "Hunter-2-Hunter-2"},
            "networkProfile": {"networkInterfaces": [{"id": nic_id, "properties": {"deleteOption": "Delete"}}]},
        },
    }
    return vms.begin_create_or_update(GROUP, name, body, **SOON).result()


seen = {"subnet": network.subnets.get(GROUP, account["vnet"], account["subnet"], **PLAIN).name}
first = nic("a-nic")
seen["nic"] = [first.name, first.provisioning_state]
created = vm("a", first.id)
seen["vm"] = [created.name, created.provisioning_state, created.zones[0], created.tags]
viewed = vms.get(GROUP, "a", expand="instanceView", **PLAIN)
seen["power"] = [status.code for status in viewed.instance_view.statuses]
seen["holder"] = nics.get(GROUP, "a-nic", **PLAIN).virtual_machine.id.split("/")[-1]
disk = disks.get(GROUP, "a-os-disk", **PLAIN)
seen["disk"] = [disk.name, disk.managed_by.split("/")[-1]]
seen["in use"] = refusal(lambda: nics.begin_delete(GROUP, "a-nic", **SOON).result())[1]
try:
    vm("starves", nic("starves-nic").id)
except HttpResponseError as error:
    seen["failed"] = [error.error.code, vms.get(GROUP, "starves", **PLAIN).provisioning_state]
seen["absent"] = refusal(lambda: vms.get(GROUP, "absent", **PLAIN))
seen["unknown field"] = refusal(lambda: nic("b-nic", isCheap=True))
for name in ("a", "starves"):
    vms.begin_delete(GROUP, name, **SOON).result()
seen["deleted"] = True
seen["left"] = [refusal(lambda: nics.get(GROUP, "a-nic", **PLAIN))[0], refusal(lambda: disks.get(GROUP, "a-os-disk", **PLAIN))[0]]
vms.begin_delete(GROUP, "a", **SOON).result()
seen["nothing to delete"] = True
nic("left-nic")
print(json.dumps(seen))
