//! A VM of vSphere with the markers on it.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::NodeAddress;
use mcm_driver::{
    Vm,
    cloud::{CloudVm, VmOwnership},
};
use roxmltree::Node;

use super::{
    calls::Found,
    names::{
        CLUSTER_FIELD, CLUSTER_PREFIX, ID_FIELD, IDS, OWNER_FIELD, ROLE_FIELD, ROLE_PREFIX, UID_FIELD, UNLISTED_FIELD,
        extra,
    },
    soap::{Ref, child, children, number_of, text_of},
    spec::Scope,
};

/// The type of VMs.
pub(crate) const KIND: &str = "VirtualMachine";
const NAME: &str = "name";
const UUID: &str = "config.uuid";
const TEMPLATE: &str = "config.template";
const POWER: &str = "runtime.powerState";
const VALUES: &str = "customValue";
const NICS: &str = "guest.net";
const ADDRESS: &str = "guest.ipAddress";
/// The properties that tell what a VM is.
pub(crate) const PROPERTIES: [&str; 7] = [NAME, UUID, TEMPLATE, POWER, VALUES, NICS, ADDRESS];
/// Large, so it is read only of VMs that are not finished.
pub(crate) const EXTRA: &str = "config.extraConfig";
const POWERED_ON: &str = "poweredOn";
const POWERED_OFF: &str = "poweredOff";

/// A VM as vCenter shows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VirtualMachine {
    pub reference: Ref,
    name: String,
    /// BIOS UUID, in lower case.
    uuid: String,
    is_template: bool,
    power: String,
    /// Values of its custom fields, by their keys.
    values: BTreeMap<i64, String>,
    /// The same by their names. Empty until [`Self::with_fields`].
    fields: BTreeMap<String, String>,
    /// Markers in its extra configuration.
    extra: BTreeMap<String, String>,
    has_markers_of_another: bool,
    addresses: Vec<String>,
    region: String,
}

/// A VM that was found, or one that vCenter cannot describe yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    Vm(Box<VirtualMachine>),
    /// A VM that is being made, or whose host is not connected, has no configuration.
    Unknown {
        name: String,
        values: BTreeMap<i64, String>,
    },
}

/// Reads a VM. `None` if it has no name or no state, which every VM has.
pub(crate) fn read(found: &Found<'_, '_>) -> Option<Seen> {
    let name = unescaped(&found.text(NAME)?);
    let power = found.text(POWER)?;
    let value = |one: Node<'_, '_>| Some((number_of(one, "key")?, text_of(one, "value")?));
    let values = found.value(VALUES).into_iter().flat_map(|all| children(all, "CustomFieldValue"));
    let values = values.map(value).collect::<Option<BTreeMap<_, _>>>()?;
    let Some(uuid) = found.text(UUID).filter(|uuid| !uuid.is_empty()) else {
        return Some(Seen::Unknown { name, values });
    };
    let nics = found.value(NICS).into_iter().flat_map(|all| children(all, "GuestNicInfo"));
    let of_nics = nics.flat_map(|nic| children(nic, "ipAddress")).filter_map(|node| node.text()).map(str::to_owned);
    let mut addresses: Vec<String> =
        found.text(ADDRESS).into_iter().chain(of_nics).filter(|ip| is_usable(ip)).collect();
    let mut known = BTreeSet::new();
    addresses.retain(|address| known.insert(address.clone()));
    Some(Seen::Vm(Box::new(VirtualMachine {
        reference: found.reference()?,
        name,
        uuid: uuid.to_ascii_lowercase(),
        is_template: found.text(TEMPLATE).as_deref() == Some("true"),
        power,
        values,
        fields: BTreeMap::new(),
        extra: BTreeMap::new(),
        has_markers_of_another: false,
        addresses,
        region: String::new(),
    })))
}

/// The markers in the extra configuration of a VM, if it was asked for.
pub(crate) fn markers_in(found: &Found<'_, '_>) -> BTreeMap<String, String> {
    let options = found.value(EXTRA).into_iter().flat_map(|all| children(all, "OptionValue"));
    let option = |one: Node<'_, '_>| {
        let key = text_of(one, "key").filter(|key| key.starts_with(extra::PREFIX))?;
        Some((key, child(one, "value")?.text().unwrap_or_default().to_owned()))
    };
    options.filter_map(option).collect()
}

/// Addresses that only one link has are of no use for a Node.
fn is_usable(address: &str) -> bool {
    use std::net::IpAddr;
    match address.parse() {
        Ok(IpAddr::V4(ip)) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        Ok(IpAddr::V6(ip)) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
        Err(_) => false,
    }
}

/// vCenter escapes three characters in names.
fn unescaped(name: &str) -> String {
    ["%2f", "%2F"].into_iter().fold(name.to_owned(), |name, from| name.replace(from, "/")).replace("%25", "%")
}

impl VirtualMachine {
    /// The VM with the names of its custom fields. Values that are empty were taken away.
    pub(crate) fn with_fields(self, names: &BTreeMap<i64, String>) -> Self {
        let named = |(key, value): (&i64, &String)| Some((names.get(key)?.clone(), value.clone()));
        let fields = self.values.iter().filter_map(named).collect();
        Self { fields, ..self }
    }

    /// The VM with the region of a class, which is a part of its provider ID.
    pub(crate) fn in_region(self, region: &str) -> Self {
        Self { region: region.to_owned(), ..self }
    }

    /// The VM with the markers in its extra configuration, unless they are those of a VM of which it is a copy.
    pub(crate) fn with_extra(self, extra: BTreeMap<String, String>) -> Self {
        let has_markers = !extra.is_empty();
        if extra.get(extra::MACHINE) == Some(&self.name) {
            Self { extra, ..self }
        } else {
            Self { has_markers_of_another: has_markers, ..self }
        }
    }

    /// It was made and nothing else was done with it: it is off, and has no markers and no custom fields.
    pub(crate) fn is_untouched(&self) -> bool {
        let has_fields = self.fields.values().any(|value| !value.is_empty());
        let has_markers = self.has_markers_of_another || !self.extra.is_empty() || has_fields;
        self.is_off() && !self.is_template && !has_markers
    }

    /// Its custom fields are those of a VM of which it is a copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.marked_id().is_some_and(|id| id.rsplit('/').next() != Some(&self.uuid))
    }

    /// The provider ID in its custom fields.
    fn marked_id(&self) -> Option<&str> {
        self.field(ID_FIELD).filter(|id| id.starts_with(IDS.prefix))
    }

    /// It may be unfinished, which its extra configuration shows: the UID is the last custom field of a VM. A VM of the
    /// reference has neither, but runs.
    pub(crate) fn may_be_unfinished(&self) -> bool {
        let is_begun = !self.is_on() || self.field(OWNER_FIELD).is_some();
        !self.is_template && self.field(UID_FIELD).is_none() && is_begun
    }

    /// It was made by mcm for a Machine, and is not finished.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.field(UID_FIELD).is_none() && self.extra.contains_key(extra::UID)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.power == POWERED_ON
    }

    /// It is certainly off: a suspended VM is not.
    pub(crate) fn is_off(&self) -> bool {
        self.power == POWERED_OFF
    }

    /// The VM after it was started.
    pub(crate) fn started(self) -> Self {
        Self { power: POWERED_ON.to_owned(), ..self }
    }

    pub(crate) fn has_address(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// Another infrastructure provider has taken it over.
    pub(crate) fn is_unlisted(&self) -> bool {
        self.field(UNLISTED_FIELD).is_some()
    }

    /// The custom field has this value.
    pub(crate) fn has(&self, field: &str, value: &str) -> bool {
        self.fields.get(field).map_or("", String::as_str) == value
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// The ID that it got with its markers, or that of the class.
    pub(crate) fn provider_id(&self) -> String {
        let marked = self.marked_id().filter(|_| !self.is_copy());
        marked.map_or_else(|| IDS.node_form(&self.region, &self.uuid), str::to_owned)
    }

    pub(crate) fn vm(&self) -> Vm {
        let named = [("Hostname", self.name.as_str())];
        let addresses = self.addresses.iter().map(|address| ("InternalIP", address.as_str())).chain(named);
        Vm {
            provider_id: self.provider_id(),
            node_provider_id: None,
            node_name: self.name.clone(),
            zone: None,
            addresses: addresses
                .map(|(kind, address)| NodeAddress { type_: kind.to_owned(), address: address.to_owned() })
                .collect(),
            last_known_state: None,
            halted: (!self.is_on()).then(|| self.power.clone()),
        }
    }

    /// The value of a custom field, if it is not empty.
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn marker(&self, field: &str, key: &str) -> Option<&str> {
        self.field(field).or_else(|| self.extra.get(key).map(String::as_str))
    }

    /// The values of a marker in all its forms.
    fn all_of<'a>(&'a self, field: &'a str, prefix: &'a str, key: &'a str) -> Vec<&'a str> {
        let older = self.fields.keys().filter_map(move |name| name.strip_prefix(prefix));
        self.field(field).into_iter().chain(older).chain(self.extra.get(key).map(String::as_str)).collect()
    }
}

impl CloudVm for VirtualMachine {
    type Scope = Scope;

    /// A copy of the files of a VM has the same UUID.
    const REUSES_IDS: bool = true;

    fn id(&self) -> &str {
        &self.uuid
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn machine_uid(&self) -> Option<&str> {
        self.marker(UID_FIELD, extra::UID)
    }

    fn owner(&self) -> Option<&str> {
        self.marker(OWNER_FIELD, extra::OWNER)
    }

    fn is_listed(&self, _: &Scope) -> bool {
        !self.is_unlisted() && !self.is_copy()
    }

    fn belonging(&self, scope: &Scope) -> VmOwnership {
        let clusters = self.all_of(CLUSTER_FIELD, CLUSTER_PREFIX, extra::CLUSTER);
        let roles = self.all_of(ROLE_FIELD, ROLE_PREFIX, extra::ROLE);
        let is_other = |all: &[&str], own: &String| !all.is_empty() && !all.contains(&own.as_str());
        if self.is_template || is_other(&clusters, &scope.cluster) || is_other(&roles, &scope.role) {
            VmOwnership::Foreign
        } else if clusters.is_empty() || roles.is_empty() {
            VmOwnership::Unmarked
        } else {
            VmOwnership::Ours
        }
    }
}

/// A VM that vCenter cannot describe has the markers of a class.
pub(crate) fn has_markers(values: &BTreeMap<i64, String>, names: &BTreeMap<i64, String>, scope: &Scope) -> bool {
    let named = |(key, value): (&i64, &String)| Some((names.get(key)?.clone(), value.clone()));
    let fields: BTreeMap<String, String> = values.iter().filter_map(named).collect();
    let has = |field: &str, prefix: &str, value: &String| {
        fields.get(field) == Some(value) || fields.keys().any(|key| key.strip_prefix(prefix) == Some(value))
    };
    has(CLUSTER_FIELD, CLUSTER_PREFIX, &scope.cluster) && has(ROLE_FIELD, ROLE_PREFIX, &scope.role)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn vm(fields: &[(&str, &str)], extra: &[(&str, &str)]) -> VirtualMachine {
        let texts = |all: &[(&str, &str)]| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        VirtualMachine {
            reference: Ref::new(KIND, "vm-1"),
            name: "m".to_owned(),
            uuid: "u".to_owned(),
            is_template: false,
            power: "poweredOff".to_owned(),
            values: BTreeMap::new(),
            fields: texts(fields),
            extra: texts(extra),
            has_markers_of_another: false,
            addresses: vec![],
            region: String::new(),
        }
    }

    const CLUSTER: (&str, &str) = (CLUSTER_FIELD, "c");
    const ROLE: (&str, &str) = (ROLE_FIELD, "node");

    #[rstest]
    #[case::newer(&[CLUSTER, ROLE], &[], VmOwnership::Ours)]
    #[case::older(&[("kubernetes.io/cluster/c", "1"), ("kubernetes.io/role/node", "")], &[], VmOwnership::Ours)]
    #[case::mixed(&[CLUSTER, ("kubernetes.io/role/node", "1")], &[], VmOwnership::Ours)]
    #[case::unfinished(&[], &[("mcm.cluster", "c"), ("mcm.role", "node")], VmOwnership::Ours)]
    #[case::half_finished(&[CLUSTER], &[("mcm.cluster", "c"), ("mcm.role", "node")], VmOwnership::Ours)]
    #[case::of_another_cluster(&[(CLUSTER_FIELD, "d"), ROLE], &[], VmOwnership::Foreign)]
    #[case::of_another_role(&[CLUSTER, (ROLE_FIELD, "etcd")], &[], VmOwnership::Foreign)]
    #[case::of_a_cluster_that_begins_alike(&[("kubernetes.io/cluster/cc", "1"), ROLE], &[], VmOwnership::Foreign)]
    #[case::without_a_role(&[CLUSTER], &[], VmOwnership::Unmarked)]
    #[case::without_markers(&[("a", "b")], &[], VmOwnership::Unmarked)]
    #[case::taken_away(&[(CLUSTER_FIELD, ""), (ROLE_FIELD, "")], &[], VmOwnership::Unmarked)]
    fn a_vm_is_of_a_class_by_its_cluster_and_its_role(
        #[case] fields: &[(&str, &str)],
        #[case] extra: &[(&str, &str)],
        #[case] expected: VmOwnership,
    ) {
        let scope = Scope {
            datacenter: String::new(),
            folder: String::new(),
            cluster: "c".to_owned(),
            role: "node".to_owned(),
        };
        assert_eq!(vm(fields, extra).belonging(&scope), expected);
        let template = VirtualMachine { is_template: true, ..vm(fields, extra) };
        assert_eq!(template.belonging(&scope), VmOwnership::Foreign, "a template is never deleted");
        let keys: BTreeMap<i64, String> = (0..).zip(fields.iter().map(|(name, _)| (*name).to_owned())).collect();
        let values = (0..).zip(fields.iter().map(|(_, value)| (*value).to_owned())).collect();
        let is_marked = expected == VmOwnership::Ours && extra.is_empty();
        assert_eq!(has_markers(&values, &keys, &scope), is_marked);
    }

    #[rstest]
    #[case("10.0.0.7", true)]
    #[case("2001:db8::1", true)]
    #[case("fe80::1", false)]
    #[case("169.254.1.1", false)]
    #[case("127.0.0.1", false)]
    #[case("", false)]
    fn addresses_of_a_link_are_left_out(#[case] address: &str, #[case] expected: bool) {
        assert_eq!(is_usable(address), expected);
    }

    #[test]
    fn names_are_shown_as_they_were_given() {
        assert_eq!(unescaped("a%2fb%25c"), "a/b%c");
    }

    #[test]
    fn a_vm_with_the_uid_as_a_custom_field_is_finished() {
        let extra = [(extra::UID, "u"), (extra::OWNER, "o")];
        assert!(vm(&[CLUSTER, ROLE], &extra).is_unfinished());
        assert!(!vm(&[CLUSTER, ROLE, (UID_FIELD, "u")], &extra).is_unfinished());
        assert!(!vm(&[CLUSTER, ROLE], &[]).is_unfinished(), "one of the reference is not ours to finish");
        assert_eq!(vm(&[], &extra).listed().owner.as_deref(), Some("o"));
    }
}
