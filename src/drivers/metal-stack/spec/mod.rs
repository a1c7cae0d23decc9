//! `providerSpec` of the provider metal-stack: its fields as the reference names them, and their problems.

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde_json::Value;

use super::names::{CLUSTER_TAG, is_own, value_of};
use mcm_driver::{
    Code, DriverError,
    spec::{ClassProblems, FieldReader, ScalarType, string, text},
};

const FIELDS: [&str; 9] =
    ["partition", "size", "image", "project", "network", "tags", "sshKeys", "dnsServers", "ntpServers"];
/// metal-api takes no more servers.
const MOST_DNS_SERVERS: usize = 3;
const MOST_NTP_SERVERS: usize = 5;

/// A `providerSpec`. Fields that are wrong have their default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spec {
    pub partition: String,
    pub size: String,
    pub image: String,
    pub project: String,
    pub network: String,
    /// `key=value`, without tags that only mcm sets.
    pub tags: Vec<String>,
    pub ssh_keys: Vec<String>,
    /// Addresses.
    pub dns_servers: Vec<String>,
    /// Addresses or names.
    pub ntp_servers: Vec<String>,
}

/// How machines of a class differ from others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub project: String,
    /// Value of the cluster tag.
    pub cluster: String,
}

impl Scope {
    /// The tag of the cluster, as metal-api stores it.
    pub fn tag(&self) -> String {
        format!("{CLUSTER_TAG}={}", self.cluster)
    }
}

impl Spec {
    /// Reads a `providerSpec` and reports its problems.
    pub fn read(value: &Value, problems: &mut ClassProblems) -> Self {
        if value.is_null() {
            problems.expected("providerSpec", "an object", "nothing");
        }
        let mut fields = FieldReader::of_spec(value, &FIELDS, problems);
        let mut required = |name| fields.required(name, &string()).unwrap_or_default();
        let (partition, size, image) = (required("partition"), required("size"), required("image"));
        let (project, network) = (required("project"), required("network"));
        let all_tags = fields.list("tags", &text());
        let spec = Self {
            partition,
            size,
            image,
            project,
            network,
            tags: all_tags.iter().filter(|tag| !is_own(tag)).cloned().collect(),
            ssh_keys: fields.list("sshKeys", &text()),
            dns_servers: fields.objects("dnsServers", &["ip"], |one| one.required("ip", &address())),
            ntp_servers: fields.objects("ntpServers", &["address"], |one| one.required("address", &string())),
        };
        check_tags(&all_tags, problems);
        let counts = [
            ("dnsServers", spec.dns_servers.len(), MOST_DNS_SERVERS),
            ("ntpServers", spec.ntp_servers.len(), MOST_NTP_SERVERS),
        ];
        for (name, count, most) in counts {
            if count > most {
                problems.expected(format!("providerSpec.{name}"), &format!("at most {most}"), &count.to_string());
            }
        }
        spec
    }

    /// The parts that look-ups and deletions need. Other fields may be wrong: a machine can be freed whatever its class became.
    ///
    /// # Errors
    /// [`Code::InvalidArgument`]: the class has no project or no cluster tag.
    pub fn scope(&self) -> Result<Scope, DriverError> {
        match cluster_of(&self.tags) {
            Some(cluster) if !self.project.is_empty() && !cluster.is_empty() => {
                Ok(Scope { project: self.project.clone(), cluster: cluster.to_owned() })
            }
            _ => {
                let message = format!(
                    "the class needs providerSpec.project and a tag {CLUSTER_TAG}=<cluster>: without them its machines could not \
                     be told from others"
                );
                Err(DriverError::new(Code::InvalidArgument, message))
            }
        }
    }
}

/// The cluster in some tags. Of several tags with one key metal-api stores the last.
pub(super) fn cluster_of<'a>(tags: impl IntoIterator<Item = &'a String>) -> Option<&'a str> {
    tags.into_iter().filter_map(|tag| value_of(tag, CLUSTER_TAG)).last()
}

fn check_tags(tags: &[String], problems: &mut ClassProblems) {
    const PATH: &str = "providerSpec.tags";
    for (index, tag) in tags.iter().enumerate().filter(|(_, tag)| is_own(tag)) {
        let key = tag.split('=').next().unwrap_or_default();
        problems.warning(format!("{PATH}[{index}]"), format!("ignored: mcm sets the tag {key} itself"));
    }
    let clusters = tags.iter().filter(|tag| value_of(tag, CLUSTER_TAG).is_some()).count();
    match cluster_of(tags) {
        None => problems.expected(PATH, &format!("a tag {CLUSTER_TAG}=<cluster>"), "none"),
        Some("") => problems.expected(PATH, &format!("a cluster in the tag {CLUSTER_TAG}=<cluster>"), "an empty one"),
        Some(_) if clusters > 1 => {
            problems.warning(PATH, format!("{clusters} tags have the key {CLUSTER_TAG}: the last marks the machines"));
        }
        Some(_) => {}
    }
}

/// An IP address.
fn address() -> ScalarType<String> {
    let parse = |value: &Value| value.as_str().filter(|text| text.parse::<IpAddr>().is_ok()).map(str::to_owned);
    ScalarType::new("an IP address", parse)
}
