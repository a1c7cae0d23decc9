"""Calls a Compute API with Google's own client, as a user would, and prints as JSON what it saw."""

import json
import sys
import time
import uuid

from google.oauth2 import service_account
from googleapiclient.discovery import build
from googleapiclient.errors import HttpError

URL, PROJECT, ZONE = sys.argv[1:4]
SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]

account = json.load(sys.stdin)
credentials = service_account.Credentials.from_service_account_info(account, scopes=SCOPES)
options = {"api_endpoint": URL}
compute = build("compute", "v1", credentials=credentials, client_options=options, static_discovery=True)
instances, operations = compute.instances(), compute.zoneOperations()
where = {"project": PROJECT, "zone": ZONE}


def body(name):
    """An instance as the quick start of Google's documentation makes it."""
    return {
        "name": name,
        "machineType": f"zones/{ZONE}/machineTypes/e2-small",
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": "global/images/os", "diskSizeGb": "10"}}],
        "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "tags": {"items": ["a"]},
    }


def insert(name, request_id, **more):
    return instances.insert(body={**body(name), **more}, requestId=request_id, **where).execute()


def wait(operation):
    """Waits for an operation; returns its last state."""
    for _ in range(100):
        if operation["status"] == "DONE":
            return operation
        time.sleep(0.01)
        operation = operations.get(operation=operation["name"], **where).execute()
    raise TimeoutError(operation["name"])


def status_of(call):
    """The HTTP status and the reason of a call that fails."""
    try:
        call()
    except HttpError as error:
        return [error.status_code, error.error_details[0]["reason"]]
    return "it succeeded"


def names(**query):
    """All pages."""
    found, request = [], instances.list(**query, **where)
    while request is not None:
        answer = request.execute()
        found += [item["name"] for item in answer.get("items", [])]
        request = instances.list_next(request, answer)
    return found


seen = {}
ids = {name: str(uuid.uuid4()) for name in ["a", "b", "c"]}
begun = {name: insert(name, id) for name, id in ids.items()}
seen["begun"] = instances.get(instance="c", **where).execute()["status"]
seen["repeated"] = insert("a", ids["a"])["name"] == begun["a"]["name"]
seen["done"] = [wait(operation).get("error") for operation in begun.values()]
seen["conflict"] = status_of(lambda: insert("a", str(uuid.uuid4())))
seen["unknown field"] = status_of(lambda: insert("d", str(uuid.uuid4()), nonesuch=1))
seen["output only"] = status_of(lambda: insert("d", str(uuid.uuid4()), resourceStatus={"x": 1}))
seen["pages"] = names(maxResults=2)
seen["filter"] = names(filter='(name = "a") OR (name = "c")')
partial = instances.list(fields="items(name,tags/items)", filter='(name = "a")', **where).execute()
seen["fields"] = partial
one = instances.get(instance="a", **where).execute()
seen["instance"] = {key: one[key] for key in ["kind", "name", "status", "tags"]}
seen["address"] = "natIP" in one["networkInterfaces"][0]["accessConfigs"][0]
going = [instances.delete(instance=name, **where).execute() for name in ids]
seen["going"] = instances.get(instance="c", **where).execute()["status"]
seen["gone"] = [wait(operation).get("error") for operation in going]
seen["left"] = names()
seen["absent"] = status_of(lambda: instances.get(instance="a", **where).execute())
seen["nothing to delete"] = status_of(lambda: instances.delete(instance="a", **where).execute())
json.dump(seen, sys.stdout)
