//! The specifications of a clone and of its configuration.

use std::collections::BTreeMap;

use mcm_driver::cloud::MachineIdentity;

use super::{
    calls::Placement,
    names::{ID_FIELD, OWNER_FIELD, UID_FIELD, extra},
    place::Target,
    soap::{Ref, Xml},
    spec::{Scope, Spec},
    user_data::Carried,
};

/// The version of virtual hardware that a VM has at least.
pub(crate) const HARDWARE: &str = "vmx-15";

/// A VM that is ordered.
pub(crate) struct Order<'a> {
    pub target: &'a Target,
    pub scope: &'a Scope,
    pub wanted: MachineIdentity<'a>,
    pub owner: &'a str,
}

impl Order<'_> {
    /// The arguments of `CloneVM_Task`.
    pub(crate) fn arguments(&self, placement: &Placement) -> Xml {
        Xml::new()
            .reference("folder", &self.target.folder)
            .text("name", self.wanted.name)
            .tag("spec", &self.specification(placement))
    }

    /// The clone has its markers from its first moment, so that it is found whatever happens next.
    pub(crate) fn specification(&self, placement: &Placement) -> Xml {
        let Self { target, scope, wanted, owner } = self;
        let location = Xml::new()
            .reference("folder", &target.folder)
            .with(placement.datastore.as_ref(), |xml, datastore: &Ref| xml.reference("datastore", datastore))
            .reference("pool", &target.pool)
            .with(placement.host.as_ref(), |xml, host| xml.reference("host", host))
            .and(&target.nic);
        let markers = [
            (extra::CLUSTER, scope.cluster.as_str()),
            (extra::ROLE, scope.role.as_str()),
            (extra::UID, wanted.uid),
            (extra::OWNER, owner),
            (extra::MACHINE, wanted.name),
        ];
        let config = Xml::new().with(target.disk.as_ref(), Xml::and);
        let config = options(config, markers.into_iter().filter(|(_, value)| !value.is_empty()));
        Xml::new()
            .tag("location", &location)
            .value("template", false)
            .tag("config", &config)
            .with(target.customization.as_ref(), |xml, customization| xml.tag("customization", customization))
            .value("powerOn", false)
    }
}

/// The arguments of `ReconfigVM_Task`.
pub(crate) fn configuration(spec: &Spec, carried: &Carried) -> Xml {
    let texts = |map: &BTreeMap<String, String>| map.clone().into_iter().collect::<Vec<_>>();
    let all = [texts(&carried.extra), texts(&spec.extra_config)].concat();
    let config = Xml::new()
        .with(spec.guest_id.as_deref(), |xml, guest| xml.text("guestId", guest))
        // For volumes, whose disks are found by their UUIDs.
        .tag("flags", &Xml::new().value("diskUuidEnabled", true))
        .with(spec.cpus, |xml, cpus| xml.value("numCPUs", cpus))
        .with(spec.memory, |xml, memory| xml.value("memoryMB", memory));
    let config = options(config, all.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let properties = Xml::new().each(&carried.properties, |xml, (key, id, value)| {
        let info = Xml::new().value("key", key).text("id", id).value("userConfigurable", true).text("value", value);
        xml.tag("property", &Xml::new().text("operation", "edit").tag("info", &info))
    });
    let config =
        if carried.properties.is_empty() { config } else { config.typed("vAppConfig", "VmConfigSpec", &properties) };
    let config = config.with(spec.reserves_memory, |xml, is| xml.value("memoryReservationLockedToMax", is));
    Xml::new().tag("spec", &config)
}

fn options<'a>(xml: Xml, all: impl IntoIterator<Item = (&'a str, &'a str)>) -> Xml {
    xml.each(all, |xml, (key, value)| {
        xml.typed("extraConfig", "OptionValue", &Xml::new().text("key", key).string("value", value))
    })
}

/// The custom fields of a VM: those of the class, the owner and the ID of the VM. The UID of the Machine is the last, for a VM
/// that is finished.
pub(crate) fn fields(spec: &Spec, owner: &str, id: &str) -> BTreeMap<String, String> {
    let own = [(OWNER_FIELD, owner), (ID_FIELD, id)].into_iter().filter(|(_, value)| !value.is_empty());
    spec.tags.clone().into_iter().chain(own.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// The custom field that a finished VM has.
pub(crate) fn uid_field(uid: &str) -> BTreeMap<String, String> {
    [(UID_FIELD.to_owned(), uid.to_owned())].into()
}

/// Virtual hardware of this version has to be upgraded.
pub(crate) fn is_older(version: &str) -> bool {
    let number = |text: &str| text.strip_prefix("vmx-").and_then(|number| number.parse::<u32>().ok());
    number(version).is_none_or(|version| number(HARDWARE).is_some_and(|least| version < least))
}

#[cfg(test)]
mod tests {
    use super::is_older;
    use rstest::rstest;

    #[rstest]
    #[case("vmx-09", true)]
    #[case("vmx-15", false)]
    #[case("vmx-21", false)]
    #[case("", true)]
    fn older_virtual_hardware_is_upgraded(#[case] version: &str, #[case] expected: bool) {
        assert_eq!(is_older(version), expected);
    }
}
