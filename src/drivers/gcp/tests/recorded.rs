//! Compares the requests of Gardener's driver and of this driver for the same class: `recorded.json` has one creation per case,
//! with the class, the user data and the body of the insert, or none if Gardener's driver refused the class.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use futures::future::join_all;
use serde::Deserialize;
use serde_json::Value;

use super::{OWNER, OWNER_LABEL, UID_LABEL, World, class};
use mcm_driver::{MachineRequest, interface::Driver};

/// A difference of all cases in which both send something: ours adds two labels.
const OWN_LABELS: [(&str, &str); 2] = [(UID_LABEL, "uid"), (OWNER_LABEL, OWNER)];

/// Ours refuses a class for which Gardener's driver sends a request.
const REFUSED: &str = "refused";
/// Ours sends a request for a class that Gardener's driver refuses.
const SENT: &str = "sent";

/// All other differences: case, where they differ, and why ours is right.
const DIFFERENCES: [(&str, &str, &str); 8] = [
    ("gpu -1", REFUSED, "Google refuses it, after the quota of requests is used"),
    ("name dot", REFUSED, "Google refuses the name, and a part of a filter must be a name"),
    ("name long", REFUSED, "Google refuses the name"),
    ("no tags", REFUSED, "nothing would find the VM again"),
    ("size -1", REFUSED, "Google refuses it"),
    ("type empty", REFUSED, "Google refuses a type of disk without a name"),
    ("user data empty", SENT, "there are images that need no user data"),
    ("zone _", REFUSED, "no zone has it, and zones are part of URLs"),
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recorded {
    case: String,
    machine_name: String,
    provider_spec: Value,
    /// Keys with values in Base64.
    secret: BTreeMap<String, String>,
    request: Option<Value>,
}

#[tokio::test]
async fn differences_to_what_gardeners_driver_sends_are_justified() {
    let all: Vec<Recorded> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert_eq!(all.len(), 81);
    let found = join_all(all.iter().map(async |one| {
        let places = differences(one).await;
        places.into_iter().map(|place| (one.case.clone(), place))
    }));
    let found: BTreeSet<(String, String)> = found.await.into_iter().flatten().collect();
    let justified = DIFFERENCES.map(|(case, place, _)| (case.to_owned(), place.to_owned())).into();
    let new: Vec<_> = found.difference(&justified).collect();
    let gone: Vec<_> = justified.difference(&found).collect();
    assert!(new.is_empty() && gone.is_empty(), "not justified: {new:#?}\nno difference any more: {gone:#?}");
}

/// Where the two differ.
async fn differences(recorded: &Recorded) -> Vec<String> {
    let ours = sent(recorded).await.map(without_own_labels);
    match (&recorded.request, ours) {
        (None, None) => Vec::new(),
        (Some(_), None) => vec![REFUSED.to_owned()],
        (None, Some(_)) => vec![SENT.to_owned()],
        (Some(theirs), Some(ours)) => {
            let mut places = Vec::new();
            compare(theirs, &ours, "", &mut places);
            places
        }
    }
}

/// The body that ours sends, if it sends one.
async fn sent(recorded: &Recorded) -> Option<Value> {
    let world = World::new().await;
    let mut request = MachineRequest {
        class: Arc::new(class(recorded.provider_spec.clone())),
        ..world.request_for(&recorded.machine_name, "uid", Value::Null)
    };
    for (key, value) in &recorded.secret {
        request.secret.0.insert(key.clone(), STANDARD.decode(value).unwrap());
    }
    let created = world.driver.create(&request).await;
    let body = world.gce.lock().bodies("instances.insert").first().cloned();
    assert_eq!(created.is_ok(), body.is_some(), "{}: {created:?}", recorded.case);
    body
}

/// The body without the labels that VMs of ours have if there is room.
fn without_own_labels(mut body: Value) -> Value {
    let labels = body["labels"].as_object_mut().unwrap();
    let room = labels.len() < 64 || labels.contains_key(UID_LABEL);
    for (key, value) in OWN_LABELS.into_iter().filter(|_| room) {
        assert_eq!(labels.remove(key).unwrap(), value);
    }
    if labels.is_empty() {
        body.as_object_mut().unwrap().remove("labels");
    }
    body
}

/// Adds the places in which two values differ, as JSON pointers.
fn compare(theirs: &Value, ours: &Value, place: &str, places: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(one), Value::Object(other)) => {
            for key in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                compare(&theirs[key], &ours[key], &format!("{place}/{key}"), places);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                compare(one, other, &format!("{place}/{index}"), places);
            }
        }
        _ if theirs != ours => places.push(place.to_owned()),
        _ => {}
    }
}
