//! The request that creates a VM. What is empty, zero or false is left out, as Google's own clients do.

use google_cloud_compute_v1::model::{
    AcceleratorConfig, AccessConfig, AdvancedMachineFeatures, AliasIpRange, AttachedDisk, AttachedDiskInitializeParams,
    CustomerEncryptionKey, Instance, Metadata, NetworkInterface, Scheduling, ServiceAccount, ShieldedInstanceConfig,
    Tags, metadata::Items,
};

use super::{
    names::{MOST_LABELS, OWN_LABELS, shared},
    spec::{self, SCRATCH, Spec},
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
    pub(super) fn body(&self) -> Instance {
        let Self { spec, project, .. } = *self;
        let Spec { zone, .. } = spec;
        let features = |is_on| AdvancedMachineFeatures::new().set_or_clear_enable_nested_virtualization(on(is_on));
        Instance::new()
            .set_name(self.machine)
            .set_machine_type(format!("zones/{zone}/machineTypes/{}", spec.machine_type))
            .set_or_clear_can_ip_forward(on(spec.can_ip_forward))
            .set_or_clear_deletion_protection(on(spec.deletion_protection))
            .set_or_clear_description(spec.description.as_deref())
            .set_disks(spec.disks.iter().map(|one| disk(one, zone)))
            .set_guest_accelerators(self.accelerators())
            .set_labels(self.labels())
            .set_metadata(Metadata::new().set_items(self.metadata()))
            .set_or_clear_min_cpu_platform(spec.min_cpu_platform.as_deref())
            .set_network_interfaces(spec.network_interfaces.iter().map(|one| interface(one, project, spec)))
            .set_scheduling(self.scheduling())
            .set_service_accounts(self.service_accounts())
            .set_tags(Tags::new().set_items(&spec.tags))
            .set_or_clear_shielded_instance_config(spec.shielded.as_ref().map(shielded))
            .set_or_clear_advanced_machine_features(spec.nested_virtualization.map(features))
    }

    fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let of_class = self.spec.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        // Of several with the same key the last counts.
        of_class.chain(self.own_labels())
    }

    /// Labels of mcm, as far as Google takes so many. A VM without the UID is known by its name, as one of the reference, and one
    /// without an owner is listed as one of the cluster.
    fn own_labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let count = self.spec.labels.keys().filter(|key| !OWN_LABELS.contains(&key.as_str())).count();
        let own = OWN_LABELS.into_iter().zip([self.uid, self.owner]).filter(|(_, value)| !value.is_empty());
        own.take(MOST_LABELS.saturating_sub(count))
    }

    /// The user data is the first item.
    fn metadata(&self) -> impl Iterator<Item = Items> {
        let user_data = self.user_data.iter().map(|(key, value)| Items::new().set_key(*key).set_value(value));
        user_data.chain(self.spec.metadata.iter().map(|(key, value)| {
            let key = Some(key).filter(|key| !key.is_empty());
            Items::new().set_or_clear_key(key).set_or_clear_value(value.as_deref())
        }))
    }

    fn accelerators(&self) -> Option<AcceleratorConfig> {
        let (gpu, project, zone) = (self.spec.gpu.as_ref()?, self.project, &self.spec.zone);
        let kind = format!("projects/{project}/zones/{zone}/acceleratorTypes/{}", gpu.accelerator_type);
        Some(AcceleratorConfig::new().set_accelerator_type(kind).set_accelerator_count(gpu.count))
    }

    fn scheduling(&self) -> Scheduling {
        let scheduling = &self.spec.scheduling;
        Scheduling::new()
            .set_automatic_restart(scheduling.automatic_restart)
            .set_on_host_maintenance(scheduling.on_host_maintenance.as_str())
            .set_or_clear_preemptible(on(scheduling.preemptible))
    }

    fn service_accounts(&self) -> impl Iterator<Item = ServiceAccount> {
        let account = |one: &spec::ServiceAccount| {
            ServiceAccount::new().set_or_clear_email(one.email.as_deref()).set_scopes(&one.scopes)
        };
        self.spec.service_accounts.iter().map(account)
    }
}

fn disk(disk: &spec::Disk, zone: &str) -> AttachedDisk {
    let is_scratch = disk.kind == SCRATCH;
    let kind = if is_scratch { "local-ssd" } else { &disk.kind };
    let parameters = AttachedDiskInitializeParams::new().set_disk_type(format!("zones/{zone}/diskTypes/{kind}"));
    let parameters = if is_scratch {
        parameters
    } else {
        parameters
            .set_or_clear_disk_size_gb(number(disk.size))
            .set_labels(&disk.labels)
            .set_or_clear_source_image(disk.image.as_deref())
            .set_or_clear_provisioned_iops(number(disk.iops))
            .set_or_clear_provisioned_throughput(number(disk.throughput))
            .set_or_clear_storage_pool(disk.storage_pool.as_deref())
    };
    AttachedDisk::new()
        .set_type(if is_scratch { SCRATCH } else { "PERSISTENT" })
        .set_or_clear_boot(on(disk.boot && !is_scratch))
        .set_or_clear_auto_delete(on(disk.auto_delete))
        .set_or_clear_interface(disk.interface.as_deref().filter(|_| is_scratch))
        .set_initialize_params(parameters)
        .set_or_clear_disk_encryption_key(disk.encryption.as_ref().map(|encryption| {
            CustomerEncryptionKey::new()
                .set_kms_key_name(&encryption.key)
                .set_or_clear_kms_key_service_account(encryption.service_account.as_deref())
        }))
}

fn interface(interface: &spec::NetworkInterface, project: &str, spec: &Spec) -> NetworkInterface {
    let or_path = |name: &str, of_project: String| if shared(name).is_some() { name.to_owned() } else { of_project };
    let network = interface.network.as_ref();
    let network = network.map(|name| or_path(name, format!("projects/{project}/global/networks/{name}")));
    let subnetwork = interface.subnetwork.as_ref();
    let subnetwork = subnetwork.map(|name| or_path(name, format!("regions/{}/subnetworks/{name}", spec.region)));
    // An access configuration without a name is an external address.
    let external = Some(AccessConfig::new()).filter(|_| !interface.disable_external_ip);
    let sent = NetworkInterface::new().set_access_configs(external);
    let sent = sent.set_or_clear_network(network).set_or_clear_subnetwork(subnetwork);
    if !interface.has_ranges() {
        return sent;
    }
    let range = AliasIpRange::new()
        .set_or_clear_ip_cidr_range(interface.ip_cidr_range.as_deref())
        .set_or_clear_subnetwork_range_name(interface.range_name.as_deref());
    sent.set_or_clear_stack_type(interface.stack_type.as_deref())
        .set_or_clear_ipv_6_access_type(interface.ipv6_access_type.as_deref())
        .set_alias_ip_ranges([range])
}

fn shielded(shielded: &spec::Shielded) -> ShieldedInstanceConfig {
    let given = |value: Option<bool>| on(value == Some(true));
    ShieldedInstanceConfig::new()
        .set_or_clear_enable_integrity_monitoring(given(shielded.integrity_monitoring))
        .set_or_clear_enable_secure_boot(given(shielded.secure_boot))
        .set_or_clear_enable_vtpm(given(shielded.vtpm))
}

fn on(is_on: bool) -> Option<bool> {
    Some(is_on).filter(|is_on| *is_on)
}

fn number(value: i64) -> Option<i64> {
    Some(value).filter(|value| *value != 0)
}
