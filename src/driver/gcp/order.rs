//! The request that creates a VM. What is empty, zero or false is left out, as Google's own clients do.

use serde_json::{Map, Value, json};

use super::{
    names::{OWNER_LABEL, UID_LABEL},
    spec::{Disk, NetworkInterface, SCRATCH, Shielded, Spec},
    user_data::Item,
};

/// A VM to create.
pub(super) struct Order<'a> {
    pub spec: &'a Spec,
    pub project: &'a str,
    /// Name of the Machine.
    pub machine: &'a str,
    /// UID of the Machine.
    pub uid: &'a str,
    /// Marker of its owner; empty for none.
    pub owner: &'a str,
    /// The metadata with its user data.
    pub user_data: &'a [Item],
}

impl Order<'_> {
    /// The body of `instances.insert`.
    pub(super) fn body(&self) -> Value {
        let Self { spec, project, .. } = *self;
        let Spec { zone, .. } = spec;
        object([
            ("name", Some(self.machine.into())),
            ("machineType", Some(format!("zones/{zone}/machineTypes/{}", spec.machine_type).into())),
            ("canIpForward", on(spec.can_ip_forward)),
            ("deletionProtection", on(spec.deletion_protection)),
            ("description", text(&spec.description)),
            ("disks", Some(spec.disks.iter().map(|one| disk(one, zone)).collect())),
            ("guestAccelerators", self.accelerators()),
            ("labels", Some(self.labels())),
            ("metadata", Some(json!({ "items": self.metadata() }))),
            ("minCpuPlatform", text(&spec.min_cpu_platform)),
            (
                "networkInterfaces",
                Some(spec.network_interfaces.iter().map(|one| interface(one, project, spec)).collect()),
            ),
            ("scheduling", Some(self.scheduling())),
            ("serviceAccounts", list(self.service_accounts())),
            ("tags", Some(json!({ "items": spec.tags }))),
            ("shieldedInstanceConfig", spec.shielded.as_ref().map(shielded)),
            (
                "advancedMachineFeatures",
                spec.nested_virtualization.map(|is_on| object([("enableNestedVirtualization", on(is_on))])),
            ),
        ])
    }

    fn labels(&self) -> Value {
        let mut labels: Map<String, Value> =
            self.spec.labels.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
        labels.insert(UID_LABEL.to_owned(), self.uid.into());
        if !self.owner.is_empty() {
            labels.insert(OWNER_LABEL.to_owned(), self.owner.into());
        }
        Value::Object(labels)
    }

    /// The user data comes first.
    fn metadata(&self) -> Vec<Value> {
        let user_data = self.user_data.iter().map(|(key, value)| json!({ "key": key, "value": value }));
        let items = self.spec.metadata.iter().map(|(key, value)| {
            object([
                ("key", Some(key.as_str().into()).filter(|_| !key.is_empty())),
                ("value", value.as_deref().map(Value::from)),
            ])
        });
        user_data.chain(items).collect()
    }

    fn accelerators(&self) -> Option<Value> {
        let (gpu, project, zone) = (self.spec.gpu.as_ref()?, self.project, &self.spec.zone);
        let kind = format!("projects/{project}/zones/{zone}/acceleratorTypes/{}", gpu.accelerator_type);
        Some(json!([{ "acceleratorType": kind, "acceleratorCount": gpu.count }]))
    }

    fn scheduling(&self) -> Value {
        let scheduling = &self.spec.scheduling;
        object([
            ("automaticRestart", Some(scheduling.automatic_restart.into())),
            ("onHostMaintenance", Some(scheduling.on_host_maintenance.as_str().into())),
            ("preemptible", on(scheduling.preemptible)),
        ])
    }

    fn service_accounts(&self) -> Vec<Value> {
        let account = |email: &Option<String>, scopes: &[String]| {
            object([
                ("email", text(email)),
                ("scopes", list(scopes.iter().map(|scope| scope.as_str().into()).collect())),
            ])
        };
        self.spec.service_accounts.iter().map(|one| account(&one.email, &one.scopes)).collect()
    }
}

fn disk(disk: &Disk, zone: &str) -> Value {
    let is_scratch = disk.kind == SCRATCH;
    let parameters = if is_scratch {
        object([("diskType", Some(format!("zones/{zone}/diskTypes/local-ssd").into()))])
    } else {
        object([
            ("diskSizeGb", number(disk.size)),
            ("diskType", Some(format!("zones/{zone}/diskTypes/{}", disk.kind).into())),
            ("labels", Some(json!(disk.labels)).filter(|_| !disk.labels.is_empty())),
            ("sourceImage", text(&disk.image)),
            ("provisionedIops", number(disk.iops)),
            ("provisionedThroughput", number(disk.throughput)),
            ("storagePool", text(&disk.storage_pool)),
        ])
    };
    object([
        ("type", Some(if is_scratch { SCRATCH } else { "PERSISTENT" }.into())),
        ("boot", on(disk.boot && !is_scratch)),
        ("autoDelete", on(disk.auto_delete)),
        ("interface", text(&disk.interface).filter(|_| is_scratch)),
        ("initializeParams", Some(parameters)),
        (
            "diskEncryptionKey",
            disk.encryption.as_ref().map(|encryption| {
                object([
                    ("kmsKeyName", Some(encryption.key.as_str().into())),
                    ("kmsKeyServiceAccount", text(&encryption.service_account)),
                ])
            }),
        ),
    ])
}

fn interface(interface: &NetworkInterface, project: &str, spec: &Spec) -> Value {
    let network = interface.network.as_ref().map(|name| format!("projects/{project}/global/networks/{name}"));
    let subnetwork = interface.subnetwork.as_ref().map(|name| format!("regions/{}/subnetworks/{name}", spec.region));
    let ranged = |value: Option<Value>| value.filter(|_| interface.has_ranges());
    object([
        // One without a name of its own is an external address.
        ("accessConfigs", Some(json!([{}])).filter(|_| !interface.disable_external_ip)),
        ("network", text(&network)),
        ("subnetwork", text(&subnetwork)),
        ("stackType", ranged(text(&interface.stack_type))),
        ("ipv6AccessType", ranged(text(&interface.ipv6_access_type))),
        (
            "aliasIpRanges",
            ranged(Some(json!([object([
                ("ipCidrRange", text(&interface.ip_cidr_range)),
                ("subnetworkRangeName", text(&interface.range_name)),
            ])]))),
        ),
    ])
}

fn shielded(shielded: &Shielded) -> Value {
    let given = |value: Option<bool>| on(value == Some(true));
    object([
        ("enableIntegrityMonitoring", given(shielded.integrity_monitoring)),
        ("enableSecureBoot", given(shielded.secure_boot)),
        ("enableVtpm", given(shielded.vtpm)),
    ])
}

/// An object with the fields that have a value.
fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect())
}

fn text(value: &Option<String>) -> Option<Value> {
    value.as_deref().map(Value::from)
}

fn on(is_on: bool) -> Option<Value> {
    is_on.then_some(Value::Bool(true))
}

/// 64 bits are a text in JSON.
fn number(value: i64) -> Option<Value> {
    (value != 0).then(|| value.to_string().into())
}

fn list(items: Vec<Value>) -> Option<Value> {
    Some(items).filter(|items| !items.is_empty()).map(Value::Array)
}
