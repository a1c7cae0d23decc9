//! `providerSpec` of the provider Equinix Metal: its fields as the reference names them, and their problems.

#[cfg(test)]
mod tests;

use mcm_driver::{
    Code, DriverError,
    cloud::ClassMarkers,
    spec::{ClassProblems, FieldReader, boolean, one_of, string, text},
};
use serde_json::Value;

use crate::names::{MARKERS, own_key};

/// The last four have no effect.
const FIELDS: [&str; 14] = [
    "metro",
    "machineType",
    "projectID",
    "OS",
    "ipxeScriptUrl",
    "billingCycle",
    "tags",
    "sshKeys",
    "reservationIDs",
    "reservedDevicesOnly",
    "userdata",
    "facilities",
    "secretRef",
    "apiVersion",
];
const BILLING_CYCLES: [&str; 4] = ["hourly", "daily", "monthly", "yearly"];
/// The operating system of a device that boots from an iPXE script.
const CUSTOM_IPXE: &str = "custom_ipxe";

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spec {
    /// Its code.
    pub metro: String,
    /// The plan.
    pub machine_type: String,
    pub project: String,
    /// `custom_ipxe` with an iPXE script.
    pub operating_system: String,
    pub ipxe_script_url: Option<String>,
    pub billing_cycle: &'static str,
    /// Without tags that only mcm sets.
    pub tags: Vec<String>,
    /// IDs of keys of the project. Without any, a device gets all keys of the project.
    pub ssh_keys: Vec<String>,
    /// IDs of hardware reservations, in the order in which they are tried.
    pub reservations: Vec<String>,
    /// Devices are not ordered on demand when no reservation can be used.
    pub is_reserved_only: bool,
}

/// How devices of a class differ from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Scope {
    pub project: String,
    pub markers: ClassMarkers,
}

impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let mut required = |name| fields.required(name, &string()).unwrap_or_default();
        let (metro, machine_type, project) = (required("metro"), required("machineType"), required("projectID"));
        let ipxe_script_url = fields.optional("ipxeScriptUrl", &text());
        let all_tags = fields.list("tags", &text());
        let spec = Self {
            metro,
            machine_type,
            project,
            operating_system: operating_system(&mut fields, ipxe_script_url.is_some()),
            ipxe_script_url,
            billing_cycle: fields.required("billingCycle", &one_of(&BILLING_CYCLES)).unwrap_or_default(),
            tags: all_tags.iter().filter(|tag| own_key(tag).is_none()).cloned().collect(),
            ssh_keys: fields.list("sshKeys", &string()),
            reservations: fields.list("reservationIDs", &string()),
            is_reserved_only: fields.optional("reservedDevicesOnly", &boolean()).unwrap_or_default(),
        };
        let (has_user_data, has_facilities) = (fields.has("userdata"), fields.has("facilities"));
        if has_user_data {
            problems
                .warning("providerSpec.userdata", "ignored, as in Gardener's driver: userData of the Secret counts");
        }
        if has_facilities {
            problems.warning("providerSpec.facilities", "ignored, as in Gardener's driver: metro counts");
        }
        check_reservations(&spec, problems);
        check_tags(&all_tags, problems);
        spec
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a device can be deleted whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no project or no markers.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        let markers = ClassMarkers::from_keys(self.tags.iter().map(String::as_str), MARKERS);
        match markers {
            Some(markers) if !self.project.is_empty() => Ok(Scope { project: self.project.clone(), markers }),
            _ => {
                let message = format!(
                    "the class needs providerSpec.projectID and tags that contain {} and {}: without them its devices could not \
                     be told from others",
                    MARKERS.cluster, MARKERS.role
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}

fn operating_system(fields: &mut FieldReader<'_>, has_script: bool) -> String {
    if !has_script {
        return fields.required("OS", &string()).unwrap_or_default();
    }
    fields.with("OS", |path, value, problems| {
        if value.as_str().is_some_and(|other| !other.is_empty() && other != CUSTOM_IPXE) {
            problems.warning(path, format!("ignored with ipxeScriptUrl: the operating system is {CUSTOM_IPXE}"));
        }
        None::<()>
    });
    CUSTOM_IPXE.to_owned()
}

fn check_reservations(spec: &Spec, problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.reservationIDs";
    match (spec.reservations.is_empty(), spec.is_reserved_only) {
        (true, true) => problems.expected(PATH, "a reservation with reservedDevicesOnly", "none"),
        (false, false) => {
            let text = "a device is ordered on demand if no reservation can be used; Gardener's driver means to, and names \
                        the last reservation again, so it never gets one";
            problems.difference(PATH, text);
        }
        _ => {}
    }
}

fn check_tags(tags: &[String], problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    for (index, key) in tags.iter().enumerate().filter_map(|(index, tag)| Some((index, own_key(tag)?))) {
        problems.warning(format!("{PATH}[{index}]"), format!("ignored: mcm sets the tag {key} itself"));
    }
    ClassMarkers::check(tags.iter().map(String::as_str), MARKERS, PATH, problems);
}
