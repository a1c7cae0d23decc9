//! Adds and removes one finalizer; the others keep their order.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// Added by the API server to an object that is deleted with the propagation policy `Orphan`. The garbage collector removes it
/// once no other object has the deleted one as an owner.
const ORPHAN: &str = "orphan";

/// The objects that this one owns have to stay.
pub fn is_orphaning(meta: &ObjectMeta) -> bool {
    has(meta, ORPHAN)
}

pub fn has(meta: &ObjectMeta, finalizer: &str) -> bool {
    meta.finalizers.iter().flatten().any(|present| present == finalizer)
}

/// The finalizers with this one appended; `None` if it is already set.
pub fn with(meta: &ObjectMeta, finalizer: &str) -> Option<Vec<String>> {
    (!has(meta, finalizer)).then(|| meta.finalizers.iter().flatten().cloned().chain([finalizer.to_owned()]).collect())
}

/// The finalizers without this one; `None` if it is not there.
pub fn without(meta: &ObjectMeta, finalizer: &str) -> Option<Vec<String>> {
    has(meta, finalizer)
        .then(|| meta.finalizers.iter().flatten().filter(|present| *present != finalizer).cloned().collect())
}

/// The merge patch that adds the finalizer; `None` if it is already set.
///
/// A merge patch replaces the list as a whole, so it must be sent with the resource version it was computed from.
pub fn add(meta: &ObjectMeta, finalizer: &str) -> Option<Value> {
    with(meta, finalizer).map(|finalizers| json!({ "metadata": { "finalizers": finalizers } }))
}

/// The merge patch that removes the finalizer; `None` if it is not there.
///
/// A merge patch replaces the list as a whole, so it must be sent with the resource version it was computed from.
pub fn remove(meta: &ObjectMeta, finalizer: &str) -> Option<Value> {
    without(meta, finalizer).map(|finalizers| json!({ "metadata": { "finalizers": finalizers } }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn meta(finalizers: &[&str]) -> ObjectMeta {
        let finalizers = finalizers.iter().map(|&name| name.to_owned()).collect();
        ObjectMeta { finalizers: Some(finalizers), ..ObjectMeta::default() }
    }

    fn patch(finalizers: &[&str]) -> Value {
        json!({ "metadata": { "finalizers": finalizers } })
    }

    #[rstest]
    #[case::first(&[], Some(patch(&["own"])))]
    #[case::foreign_ones_keep_their_order(&["z", "a"], Some(patch(&["z", "a", "own"])))]
    #[case::there_already(&["own", "a"], None)]
    fn adding(#[case] present: &[&str], #[case] expected: Option<Value>) {
        assert_eq!(add(&meta(present), "own"), expected);
    }

    #[rstest]
    #[case::foreign_ones_keep_their_order(&["z", "own", "a"], Some(patch(&["z", "a"])))]
    #[case::last(&["own"], Some(patch(&[])))]
    #[case::not_there(&["z"], None)]
    fn removing(#[case] present: &[&str], #[case] expected: Option<Value>) {
        assert_eq!(remove(&meta(present), "own"), expected);
    }

    #[test]
    fn an_object_without_any_list_has_no_finalizer() {
        assert!(!has(&ObjectMeta::default(), "own"));
        assert_eq!(remove(&ObjectMeta::default(), "own"), None);
    }
}
