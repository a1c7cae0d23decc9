"""Prints the JSON schemas of the calls that mcm makes, as the packages of OpenStack have them.

Keystone, Nova and Cinder check requests, and Nova its answers, against schemas in their packages. Neutron has tables of
attributes, from which the schemas of its ports are made.
"""

import json
import multiprocessing
import sys
import warnings

warnings.simplefilter("ignore")

TYPES = {"type:boolean": "boolean", "type:dict_or_none": ["object", "null"]}
LISTS = ("fixed_ips", "security_groups", "allowed_address_pairs")


def keystone():
    from keystone.auth import schema

    return {"auth": schema.token_issue}


def nova():
    from nova.api.openstack.compute.schemas import flavors, images, server_metadata, servers

    return {
        "server.create": servers.create,
        "server.created": servers.create_response,
        "server.shown": servers.show_response,
        "server.listed": servers.detail_response,
        "metadata.create": server_metadata.create,
        "metadata.created": server_metadata.create_response,
        "flavors": flavors.index_response,
        "images": images.index_response,
    }


def cinder():
    from cinder.api.schemas import volumes

    return {"volume.create": volumes.create}


def neutron():
    from neutron_lib.api.definitions import allowedaddresspairs, port, port_security, portbindings

    fields = {}
    for table in [port, allowedaddresspairs, port_security, portbindings]:
        fields.update(table.RESOURCE_ATTRIBUTE_MAP["ports"])
    # The definitions of these are in Neutron itself.
    fields["security_groups"] = {"allow_post": True, "allow_put": True}
    fields["description"] = {"allow_post": True, "allow_put": True, "validate": {"type:string": 255}}
    return {
        "port.create": of_ports(fields, "allow_post", ["network_id"]),
        "port.update": of_ports(fields, "allow_put", []),
    }


def of_ports(fields, permission, required):
    allowed = {name: of_attribute(name, one) for name, one in fields.items() if one.get(permission)}
    inner = {"type": "object", "properties": allowed, "required": required, "additionalProperties": False}
    return {"type": "object", "properties": {"port": inner}, "required": ["port"], "additionalProperties": False}


def of_attribute(name, attribute):
    if name in LISTS:
        return {"type": "array"}
    for kind, limit in (attribute.get("validate") or {}).items():
        if kind.startswith(("type:string", "type:uuid")):
            return {"type": "string", "maxLength": limit} if isinstance(limit, int) else {"type": "string"}
        if kind in TYPES:
            return {"type": TYPES[kind]}
    return {}


def main():
    # The packages cannot be imported into one process: they register options of the same names.
    definitions = {}
    for part in (keystone, nova, cinder, neutron):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            definitions.update(pool.apply(part))
    json.dump(definitions, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
