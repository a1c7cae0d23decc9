//! Compares the requests of Gardener's driver and of this driver for the same class.
//!
//! `recorded.json` was recorded from Gardener's driver (provider-aws, July 2026), one creation per class against a recording
//! server: the `providerSpec`, the Secret (values in Base64), the annotations of the node template, the name of the Machine, the
//! code that the driver returned, and the parameters of its RunInstances (tags as one JSON text per kind of resource; without
//! ClientToken, Version and Action), `null` if it sent none.

use std::collections::{BTreeMap, BTreeSet};

use aws_smithy_types::base64;
use serde::Deserialize;
use serde_json::Value;

use super::{
    fake::{Params, tags},
    request_for, start,
};
use mcm_driver::{SecretData, interface::Driver};

const RECORDED: &str = include_str!("recorded.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    case: String,
    code: String,
    machine_name: String,
    node_template_annotations: BTreeMap<String, String>,
    provider_spec: Value,
    request: Option<Params>,
    secret: BTreeMap<String, String>,
}

/// The code that a driver returned and the request that it sent, with one entry for each parameter and each tag.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    code: String,
    sent: Option<Params>,
}

impl Case {
    fn of_gardener(&self) -> Outcome {
        let flat = |sent: &Params| {
            let mut flat = Params::new();
            for (name, value) in sent {
                match name.strip_prefix("tags:") {
                    None => _ = flat.insert(name.clone(), value.clone()),
                    Some(kind) => flat.extend(flat_tags(kind, serde_json::from_str(value).unwrap())),
                }
            }
            flat
        };
        Outcome { code: self.code.clone(), sent: self.request.as_ref().map(flat) }
    }

    async fn of_ours(&self) -> Outcome {
        let (cloud, driver) = start().await;
        let mut request = request_for(&self.machine_name, "uid-m", self.provider_spec.clone());
        let machine = std::sync::Arc::make_mut(&mut request.machine);
        machine.spec.node_template.metadata.annotations = self.node_template_annotations.clone();
        let decoded = self.secret.iter().map(|(key, value)| (key.clone(), base64::decode(value).unwrap()));
        request.secret = SecretData(decoded.collect());
        let code = match driver.create(&request).await {
            Ok(_) => "OK".to_owned(),
            Err(error) => screaming(error.code.as_str()),
        };
        let sent = cloud.lock().sent("RunInstances").pop();
        Outcome { code, sent: sent.map(flat_request) }
    }

    /// Each difference as a line: what Gardener's driver does, and what ours does.
    async fn differences(&self) -> BTreeSet<String> {
        let (theirs, ours) = (self.of_gardener(), self.of_ours().await);
        let mut lines = BTreeSet::new();
        if theirs.code != ours.code {
            lines.insert(format!("{} -> {}", theirs.code, ours.code));
        } else if theirs.sent.is_some() != ours.sent.is_some() {
            lines.insert("one of them sends nothing".to_owned());
        }
        if let (Some(theirs), Some(ours)) = (theirs.sent, ours.sent) {
            let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            let shown = |value: Option<&String>| value.map_or("nothing".to_owned(), |value| format!("{value:?}"));
            let differing = names.into_iter().filter(|name| theirs.get(*name) != ours.get(*name));
            lines.extend(
                differing.map(|name| format!("{name}: {} -> {}", shown(theirs.get(name)), shown(ours.get(name)))),
            );
        }
        lines
    }
}

/// `InvalidArgument` as `INVALID_ARGUMENT`.
fn screaming(code: &str) -> String {
    let parts = code.chars().enumerate().flat_map(|(index, c)| {
        let underscore = (index > 0 && c.is_uppercase()).then_some('_');
        underscore.into_iter().chain([c.to_ascii_uppercase()])
    });
    parts.collect()
}

fn flat_tags(kind: &str, tags: BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    tags.into_iter().map(move |(key, value)| (format!("tag of {kind}: {key}"), value))
}

fn flat_request(sent: Params) -> Params {
    let kinds = (1..).map_while(|number| Some((number, sent.get(&format!("TagSpecification.{number}.ResourceType"))?)));
    let tags = kinds.flat_map(|(number, kind)| flat_tags(kind, tags(&sent, number)));
    let others = sent.iter().filter(|(name, _)| *name != "ClientToken" && !name.starts_with("TagSpecification."));
    others.map(|(name, value)| (name.clone(), value.clone())).chain(tags).collect()
}

/// Matches all classes.
const EVERY: &str = "every class";

/// Reasons of several differences.
const NEWER: &str = "a value that is newer than the driver is sent, and the class gets a warning";
const EMPTY: &str = "an empty text counts as absent";
const REFUSED: &str = "EC2 would refuse it with each attempt; the class is refused before";
const CLASS: &str = "the class is wrong, so no attempt can succeed";

/// A class, a difference, and its reason. Each is there, and there is no other.
const JUSTIFIED: &[(&str, &str, &str)] = &[
    (
        EVERY,
        r#"tag of instance: machine.sapcloud.io/machine-uid: nothing -> "uid-m""#,
        "the VM of a Machine is found by the UID of the Machine, not only by its name",
    ),
    (
        EVERY,
        r#"tag of instance: machine.sapcloud.io/owner: nothing -> "team-a""#,
        "several namespaces may share the tag of a cluster",
    ),
    ("market on-demand", "INVALID_ARGUMENT -> OK", NEWER),
    ("volume GP3", "INVALID_ARGUMENT -> OK", NEWER),
    ("httpTokens x", "INVALID_ARGUMENT -> OK", NEWER),
    ("cpu sev empty", "INVALID_ARGUMENT -> OK", EMPTY),
    ("placement tenancy empty", "INVALID_ARGUMENT -> OK", EMPTY),
    ("placement group empty", r#"Placement.GroupId: "" -> nothing"#, EMPTY),
    ("interface type empty", r#"NetworkInterface.1.InterfaceType: "" -> nothing"#, EMPTY),
    ("snapshot empty", r#"BlockDeviceMapping.1.Ebs.SnapshotId: "" -> nothing"#, EMPTY),
    (
        "reservation id empty",
        r#"CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId: "" -> nothing"#,
        EMPTY,
    ),
    ("blank group", "OK -> INVALID_ARGUMENT", REFUSED),
    ("two groups", "OK -> INVALID_ARGUMENT", "the groups are named; EC2 takes only IDs with a subnet"),
    ("cpu core 0", "OK -> INVALID_ARGUMENT", REFUSED),
    ("ipv6 count -1", "OK -> INVALID_ARGUMENT", REFUSED),
    ("region with dot", "OK -> INVALID_ARGUMENT", "a region is part of a host name, and must not lead to another host"),
    ("spec null", "INTERNAL -> INVALID_ARGUMENT", CLASS),
    ("size float", "INTERNAL -> INVALID_ARGUMENT", CLASS),
    ("size string", "INTERNAL -> INVALID_ARGUMENT", CLASS),
    ("annotation no json", "INTERNAL -> INVALID_ARGUMENT", "the annotation is wrong, so no attempt can succeed"),
    ("secret: blank key", "INTERNAL -> INVALID_ARGUMENT", "the Secret is wrong, so no attempt can succeed"),
    ("secret: first empty", "INTERNAL -> OK", "an empty first spelling of a key does not hide the second"),
    ("secret: sample spelling", "INVALID_ARGUMENT -> OK", "the spelling of that driver's own sample is read"),
];

#[tokio::test]
async fn each_difference_to_the_requests_of_gardeners_driver_has_a_reason() {
    let cases: Vec<Case> = serde_json::from_str(RECORDED).unwrap();
    assert_eq!(cases.len(), 120);
    let mut found: BTreeSet<(String, String)> = BTreeSet::new();
    let mut sent = 0;
    for case in &cases {
        sent += usize::from(case.request.is_some());
        found.extend(case.differences().await.into_iter().map(|line| (case.case.clone(), line)));
    }
    assert_eq!(sent, 83);
    let is_of = |name: &str, text: &str, (case, line): &(String, String)| {
        [case.as_str(), EVERY].contains(&name) && text == line
    };
    let justified = |one: &(String, String)| JUSTIFIED.iter().any(|(name, text, _)| is_of(name, text, one));
    let unexplained: Vec<String> =
        found.iter().filter(|one| !justified(one)).map(|(case, line)| format!("{case:?}, {line}")).collect();
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let is_found = |name: &str, text: &str| found.iter().any(|one| is_of(name, text, one));
    let obsolete: Vec<_> = JUSTIFIED.iter().filter(|(name, text, _)| !is_found(name, text)).collect();
    assert!(obsolete.is_empty(), "{obsolete:#?}");
}
