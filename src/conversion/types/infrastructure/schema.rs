//! Admission rules and shapes of the CRDs that the types alone do not say.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::ValidationRule;
use schemars::{Schema, SchemaGenerator, json_schema};

/// Length of an ID of a VM and of a host name, from the contract.
const TEXT_MAX: u32 = 512;
/// Length of the name of a failure domain, from the contract.
const NAME_MAX: u32 = 256;

pub(super) fn id(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": TEXT_MAX })
}

pub(super) fn ids(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 10_000,
        "items": { "type": "string", "minLength": 1, "maxLength": TEXT_MAX },
    })
}

/// Empty until it is known: a ClusterClass leaves it so.
pub(super) fn host(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": TEXT_MAX })
}

/// 0 until it is known.
pub(super) fn port(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "integer", "format": "int32", "minimum": 0, "maximum": 65_535 })
}

pub(super) fn domain_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": NAME_MAX })
}

pub(super) fn class_zones(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 100,
        "additionalProperties": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}

pub(super) fn class_name(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "minLength": 1, "maxLength": 253 })
}

pub(super) fn pool_machines(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 8,
        "x-kubernetes-validations": [rule("self in ['Enabled', 'Disabled']", "write Enabled or Disabled")],
    })
}

pub(super) fn registration(_: &mut SchemaGenerator) -> Schema {
    one_of("self in ['BeforeJoin', 'AfterNode']", "write BeforeJoin or AfterNode")
}

pub(super) fn side(_: &mut SchemaGenerator) -> Schema {
    let text = "write MachineController, ClusterAPI or OtherProvider";
    one_of("self in ['MachineController', 'ClusterAPI', 'OtherProvider']", text)
}

pub(super) fn migrated(_: &mut SchemaGenerator) -> Schema {
    one_of("self in ['MachineDeployment', 'Machine', 'MachinePool']", "write MachineDeployment, Machine or MachinePool")
}

pub(super) fn authority(_: &mut SchemaGenerator) -> Schema {
    let text = "write MachineController, ClusterAPI, OtherProvider or Migrating";
    one_of("self in ['MachineController', 'ClusterAPI', 'OtherProvider', 'Migrating']", text)
}

fn one_of(expression: &str, message: &str) -> Schema {
    json_schema!({
        "type": "string",
        "maxLength": 32,
        "x-kubernetes-validations": [rule(expression, message)],
    })
}

/// A VM is described by a class or in place.
pub(super) fn one_class() -> Vec<ValidationRule> {
    vec![
        rule(
            "has(self.machineClassRef) != has(self.machineClass)",
            "write either machineClassRef with the name of a MachineClass, or machineClass with its content",
        ),
        zones_of_class(),
    ]
}

/// A named class is in one zone: its changes by zone are other classes, in `spec.failureDomains` of the MCMCluster.
fn zones_of_class() -> ValidationRule {
    rule(
        "!has(self.zones) || has(self.machineClass)",
        "zones changes machineClass: for a MachineClass, name the classes of other zones in machineClassOverrides of the MCMCluster",
    )
}

/// The VMs of a pool are described by a class, in place, or by a deployment that exists.
pub(super) fn one_source() -> Vec<ValidationRule> {
    vec![
        rule(
            "[has(self.machineClassRef), has(self.machineClass), has(self.machineDeploymentRef)].filter(it, it).size() == 1",
            "write one of machineClassRef with the name of a MachineClass, machineClass with its content, or \
         machineDeploymentRef with the name of an MCM MachineDeployment",
        ),
        zones_of_class(),
    ]
}

/// Exactly one kind of load balancer, with a name or, in a template, with an empty one.
pub(super) fn load_balancer(_: &mut SchemaGenerator) -> Schema {
    let name = json_schema!({ "type": "string", "description": "Its name.", "maxLength": 63 });
    let zone = json_schema!({
        "type": "string",
        "description": "Its zone. The VMs of this zone are its members.",
        "minLength": 1,
        "maxLength": 63,
    });
    let arn = json_schema!({
        "type": "string",
        "description": "Its ARN.",
        "maxLength": 512,
        "pattern": "^$|^arn:[a-z-]+:elasticloadbalancing:[a-z0-9-]+:[0-9]*:targetgroup/.+",
    });
    let uuid = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}";
    let pool = json_schema!({ "type": "string", "description": "Its ID.", "maxLength": 36, "pattern": format!("^({uuid})?$") });
    let port = json_schema!({
        "type": "integer",
        "format": "int32",
        "description": "Port of the API server on the members; 6443 by default.",
        "minimum": 1,
        "maximum": 65_535,
    });
    let subnet = json_schema!({
        "type": "string",
        "description": "Subnet of the members, which have their addresses in it. Without it they are in the first network of \
                        the class, and Octavia reaches them as it reaches the address of the load balancer.",
        "maxLength": 36,
        "pattern": format!("^{uuid}$"),
    });
    let one = "[has(self.awsTargetGroup), has(self.gcpInstanceGroups), has(self.openstackPool), has(self.simulated)]\
               .filter(it, it).size() == 1";
    json_schema!({
        "type": "object",
        "properties": {
            "awsTargetGroup": {
                "type": "object",
                "description": "A target group of AWS, whose targets are instances or IP addresses.",
                "required": ["arn"],
                "properties": { "arn": arn },
            },
            "gcpInstanceGroups": {
                "type": "array",
                "description": "Unmanaged instance groups of Google Cloud in the project of the VMs, one for each zone.",
                "minItems": 1,
                "maxItems": 100,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["zone"],
                "items": {
                    "type": "object",
                    "required": ["name", "zone"],
                    "properties": { "name": name, "zone": zone },
                },
            },
            "openstackPool": {
                "type": "object",
                "description": "A pool of Octavia, the load balancers of OpenStack, in the project and the region of the VMs.",
                "required": ["id"],
                "properties": { "id": pool, "protocolPort": port, "subnetID": subnet },
            },
            "simulated": {
                "type": "object",
                "description": "A load balancer of the simulated cloud.",
                "required": ["name"],
                "properties": { "name": name },
            },
        },
        "x-kubernetes-validations": [
            rule(one, "write one of awsTargetGroup, gcpInstanceGroups, openstackPool and simulated"),
        ],
    })
}

pub(super) fn load_balancers(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "maxItems": 16, "items": load_balancer(generator) })
}

fn rule(rule: &str, message: &str) -> ValidationRule {
    ValidationRule { rule: rule.into(), message: Some(message.into()), ..ValidationRule::default() }
}
