//! Hash label and name of a new set. Existing sets are recognised by their template and keep their name and label.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::Value;

use mcm_api::{
    hash::{fnv1a_32, fnv1a_64},
    labels,
    machine::{MachineSet, MachineTemplate, rollout_key},
};

/// Characters of a name suffix that the reference uses.
const SHORT: usize = 5;
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Name and hash label of a new set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct NewSetIdentity {
    /// Name of the set.
    pub name: String,
    /// Value of the label [`labels::TEMPLATE_HASH`].
    pub hash: String,
}

/// The first identity that no existing set has. `collisions` counts names that turned out to be taken.
pub(in super::super) fn identity_for<'a>(
    deployment: &str,
    template: &MachineTemplate,
    collisions: i32,
    existing: impl Iterator<Item = &'a MachineSet>,
) -> NewSetIdentity {
    let mut names = BTreeSet::new();
    let mut hashes = BTreeSet::new();
    for set in existing {
        names.extend(set.metadata.name.as_deref());
        hashes.extend(
            set.metadata
                .labels
                .iter()
                .flatten()
                .filter(|(key, _)| *key == labels::TEMPLATE_HASH)
                .map(|(_, hash)| hash.as_str()),
        );
    }
    let mut content = String::new();
    canonical(&rollout_key(template), &mut content);
    let mut attempt = collisions;
    loop {
        let hash = fnv1a(content.as_bytes(), attempt).to_string();
        let suffix = safe(&hash);
        let shortest = suffix.len().min(SHORT);
        let free = (shortest..=suffix.len())
            .filter_map(|length| suffix.get(..length))
            .map(|suffix| format!("{deployment}-{suffix}"))
            .find(|name| !names.contains(name.as_str()));
        match free {
            Some(name) if !hashes.contains(hash.as_str()) => return NewSetIdentity { name, hash },
            _ => attempt = attempt.wrapping_add(1),
        }
    }
}

/// Value of the annotation [`labels::MADE_FOR`] of a set with this name. The name is part of it, so that a copy of the
/// annotation on another set means nothing.
pub(in super::super) fn made_for(name: &str, template: &MachineTemplate) -> String {
    let mut content = String::new();
    canonical(&rollout_key(template), &mut content);
    format!("{:016x}", fnv1a_64(name.bytes().chain([0]).chain(content.bytes())))
}

/// A set was created for a template, whatever the API server stored.
pub(super) fn was_made_for(set: &MachineSet, template: &MachineTemplate) -> bool {
    let (of, name) = (set.annotations().get(labels::MADE_FOR), set.metadata.name.as_deref());
    of.zip(name).is_some_and(|(of, name)| *of == made_for(name, template))
}

/// FNV-1a, 32 bits, over the canonical JSON of the compared part of the template, and over the number of collisions if
/// any.
fn fnv1a(content: &[u8], collisions: i32) -> u32 {
    let salt = if collisions == 0 { Vec::new() } else { collisions.to_le_bytes().to_vec() };
    fnv1a_32(content.iter().chain(&salt).copied())
}

/// Encodes each byte as a letter of Kubernetes' safe alphabet, which forms no words.
fn safe(hash: &str) -> String {
    hash.bytes()
        .filter_map(|byte| ALPHABET.get(usize::from(byte) % ALPHABET.len()))
        .map(|byte| char::from(*byte))
        .collect()
}

/// JSON with sorted keys and no white space, whatever order the map type keeps.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, field) in keys {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                canonical(field, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        scalar => text.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(class: &str) -> MachineTemplate {
        serde_json::from_value(json!({"metadata": {"labels": {"name": "pool"}}, "spec": {"class": {"name": class}}}))
            .unwrap()
    }

    fn set(identity: &NewSetIdentity) -> MachineSet {
        serde_json::from_value(json!({
            "metadata": {"name": identity.name, "labels": {"machine-template-hash": identity.hash}}, "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn the_identity_of_a_template_never_changes_between_releases() {
        let identity = identity_for("pool", &template("small"), 0, [].iter());
        assert_eq!((identity.name.as_str(), identity.hash.as_str()), ("pool-84dff", "4089925553"));
    }

    #[test]
    fn digits_become_the_letters_of_the_reference() {
        assert_eq!(safe("0123456789"), "456789bcdf");
    }

    #[test]
    fn a_taken_name_is_made_longer_and_a_taken_hash_is_changed() {
        let first = identity_for("pool", &template("small"), 0, [].iter());
        let taken = set(&NewSetIdentity { hash: "other".to_owned(), ..first.clone() });
        let second = identity_for("pool", &template("small"), 0, [&taken].into_iter());
        assert_eq!(second.hash, first.hash);
        assert_eq!(second.name.len(), first.name.len() + 1);
        assert!(second.name.starts_with(&first.name));
        let third = identity_for("pool", &template("small"), 0, [&set(&first)].into_iter());
        assert_ne!(third.hash, first.hash);
        assert_ne!(third.name, first.name);
    }

    #[test]
    fn a_collision_leads_to_another_name() {
        let names: BTreeSet<_> = (0..20).map(|n| identity_for("pool", &template("small"), n, [].iter()).name).collect();
        assert_eq!(names.len(), 20);
    }
}
