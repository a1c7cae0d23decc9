use serde_json::{Value, json};

use crate::{cloud::fields::UnreadFields, report::ConversionReport};

/// The spec of the machines of an AWSMachinePool: its launch template, subnet and tags.
pub fn machine_spec(spec: &Value, report: &mut ConversionReport) -> Value {
    let mut given = UnreadFields::from_value("spec", spec.clone(), report);
    let mut machine = given.map("awsLaunchTemplate", report);
    for name in ["name", "versionNumber"] {
        machine.remove(name);
    }
    // A launch template without a key starts VMs without one; the key of the cluster is only for single machines.
    machine.entry("sshKeyName").or_insert_with(|| json!(""));
    if let Some(tags) = given.take("additionalTags") {
        machine.insert("additionalTags".to_owned(), tags);
    }
    let zones = given.list("availabilityZones", report);
    let mut subnets = given.list("subnets", report);
    if zones.len() > 1 || subnets.len() > 1 {
        let reason = "the pool spreads over several subnets, and an MCM class has one";
        report.refuse(given.path("subnets"), reason, "create a pool for each zone");
    } else if let Some(subnet) = subnets.pop() {
        machine.insert("subnet".to_owned(), subnet);
    }
    for name in ["providerID", "providerIDList", "availabilityZoneSubnetType"] {
        given.take(name);
    }
    for name in ["minSize", "maxSize"] {
        let advice = "annotate the MachinePool with the bounds of the autoscaler, if there is one";
        given.lose(name, report, "MCM has no bounds for the number of machines", advice);
    }
    for name in ["defaultCoolDown", "defaultInstanceWarmup", "refreshPreferences", "suspendProcesses"] {
        given.lose(name, report, "MCM replaces VMs by the strategy of the pool", "");
    }
    given.lose("capacityRebalance", report, "MCM does not replace a spot VM ahead of its interruption", "");
    let reason = "MCM has one type of VM for each class";
    given.refuse("mixedInstancesPolicy", report, reason, "create a pool for each type");
    given.refuse("lifecycleHooks", report, "MCM has no lifecycle hooks", "remove them");
    given.refuse("ignition", report, "MCM does not rewrite user data for Ignition", "use cloud-init, or remove it");
    given.finish(report);
    machine.into()
}
