//! Who controls an object, and the patches that change it. Owners other than the one meant are kept as they are.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::{Value, json};

/// The reference to the controller of an object, if it has one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// Whether the object with this UID controls the object.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|reference| reference.uid == uid)
}

/// A controller reference to an object; `None` if the object was never stored, and so has no UID.
pub fn reference_to<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    let reference = owner.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The merge patch by which an object without a controller gets one; `None` if it has one already.
pub fn adopt(meta: &ObjectMeta, controller: &OwnerReference) -> Option<Value> {
    match controller_of(meta) {
        Some(_) => None,
        None => Some(patch(&led_by(meta, controller))),
    }
}

/// The merge patch by which an object passes from the controller it has, if any, to another; `None` if it is there
/// already.
pub fn hand_over(meta: &ObjectMeta, controller: &OwnerReference) -> Option<Value> {
    (!is_controlled_by(meta, &controller.uid)).then(|| patch(&led_by(meta, controller)))
}

/// The merge patch by which an object loses the owner with this UID; `None` if it is not an owner.
pub fn release(meta: &ObjectMeta, uid: &str) -> Option<Value> {
    let all = meta.owner_references.as_deref().unwrap_or_default();
    let rest: Vec<&OwnerReference> = all.iter().filter(|reference| reference.uid != uid).collect();
    (rest.len() < all.len()).then(|| patch(&rest))
}

/// The controller first, because the reference implementation reads entry 0 only; then every owner that is no controller.
fn led_by<'a>(meta: &'a ObjectMeta, controller: &'a OwnerReference) -> Vec<&'a OwnerReference> {
    let others = meta
        .owner_references
        .iter()
        .flatten()
        .filter(|reference| reference.controller != Some(true) && reference.uid != controller.uid);
    std::iter::once(controller).chain(others).collect()
}

fn patch(references: &[&OwnerReference]) -> Value {
    json!({ "metadata": { "ownerReferences": references } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::machine::MachineSet;
    use rstest::rstest;

    fn owner(uid: &str, controller: bool) -> OwnerReference {
        OwnerReference { uid: uid.into(), controller: controller.then_some(true), ..OwnerReference::default() }
    }

    fn owned_by(owners: &[OwnerReference]) -> ObjectMeta {
        ObjectMeta { owner_references: Some(owners.to_vec()), ..ObjectMeta::default() }
    }

    fn uids(patch: Option<Value>) -> Option<Vec<String>> {
        let references = patch?["metadata"]["ownerReferences"].as_array().unwrap().clone();
        Some(references.iter().map(|reference| reference["uid"].as_str().unwrap().to_owned()).collect())
    }

    #[test]
    fn a_reference_names_kind_and_group_and_blocks_the_owners_deletion() {
        let mut set = MachineSet::new("a", Default::default());
        assert_eq!(reference_to(&set), None, "an object that was never stored owns nothing");
        set.metadata.uid = Some("u".into());
        let reference = serde_json::to_value(reference_to(&set)).unwrap();
        let expected = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "a", "uid": "u",
            "controller": true, "blockOwnerDeletion": true,
        });
        assert_eq!(reference, expected);
    }

    #[rstest]
    #[case::none(&[], Some(vec!["me"]))]
    #[case::foreign_owners_stay_behind_the_controller(&[owner("x", false), owner("y", false)], Some(vec!["me", "x", "y"]))]
    #[case::an_own_plain_reference_becomes_the_controller(&[owner("x", false), owner("me", false)], Some(vec!["me", "x"]))]
    #[case::a_controlled_object_is_never_adopted(&[owner("x", true)], None)]
    #[case::adopted_already(&[owner("me", true)], None)]
    fn adoption(#[case] owners: &[OwnerReference], #[case] expected: Option<Vec<&str>>) {
        let expected = expected.map(|uids| uids.into_iter().map(String::from).collect());
        assert_eq!(uids(adopt(&owned_by(owners), &owner("me", true))), expected);
    }

    #[rstest]
    #[case::only_the_own_reference_goes(&[owner("me", true), owner("x", false)], Some(vec!["x"]))]
    #[case::the_last_one(&[owner("me", true)], Some(vec![]))]
    #[case::not_an_owner(&[owner("x", true)], None)]
    #[case::no_owners(&[], None)]
    fn releasing(#[case] owners: &[OwnerReference], #[case] expected: Option<Vec<&str>>) {
        let expected = expected.map(|uids| uids.into_iter().map(String::from).collect());
        assert_eq!(uids(release(&owned_by(owners), "me")), expected);
    }

    #[test]
    fn handing_over_replaces_the_controller_and_keeps_the_rest() {
        let meta = owned_by(&[owner("old", true), owner("x", false)]);
        assert_eq!(uids(hand_over(&meta, &owner("new", true))), Some(vec!["new".into(), "x".into()]));
        assert_eq!(hand_over(&meta, &owner("old", true)), None);
    }
}
