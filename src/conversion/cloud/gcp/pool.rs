use serde_json::Value;

use crate::report::ConversionReport;

/// The spec of the machines of a GCPMachinePool: all of its fields but the IDs of its VMs.
pub fn machine_spec(spec: &Value, _report: &mut ConversionReport) -> Value {
    let mut machine = spec.clone();
    machine.as_object_mut().map(|fields| fields.remove("providerIDList"));
    machine
}
