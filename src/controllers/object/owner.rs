//! Owner references. Changes to one owner do not change the others.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;
use serde_json::Value;

/// The reference to the controller of an object, if it has one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|reference| reference.controller == Some(true))
}

/// UID of the controller of an object, as an index term: empty without a controller.
pub fn controller_uid<K: Resource>(object: &K) -> String {
    controller_of(object.meta()).map(|reference| reference.uid.clone()).unwrap_or_default()
}

/// The object with this UID controls the object.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|reference| reference.uid == uid)
}

/// A controller reference to an object; `None` if the object has no UID because it was never stored.
pub fn reference_to<K: Resource<DynamicType = ()>>(owner: &K) -> Option<OwnerReference> {
    let reference = owner.controller_owner_ref(&())?;
    Some(OwnerReference { block_owner_deletion: Some(true), ..reference })
}

/// The owners of an object without a controller once it is adopted; `None` if it has a controller.
pub fn adopted(meta: &ObjectMeta, controller: &OwnerReference) -> Option<Vec<OwnerReference>> {
    match controller_of(meta) {
        Some(_) => None,
        None => Some(led_by(meta, controller)),
    }
}

/// A merge patch makes the object with this UID an owner.
pub fn adopts(patch: &Value, uid: &str) -> bool {
    let owners = patch.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

/// The owners of an object that gets another controller.
pub fn moved(meta: &ObjectMeta, controller: &OwnerReference) -> Vec<OwnerReference> {
    led_by(meta, controller)
}

/// The other owners of an object, without the owner of this UID; `None` if it is not an owner.
pub fn released(meta: &ObjectMeta, uid: &str) -> Option<Vec<OwnerReference>> {
    let all = meta.owner_references.as_deref().unwrap_or_default();
    let rest: Vec<OwnerReference> = all.iter().filter(|reference| reference.uid != uid).cloned().collect();
    (rest.len() < all.len()).then_some(rest)
}

/// The controller first, because the reference reads only entry 0; then the other owners.
fn led_by(meta: &ObjectMeta, controller: &OwnerReference) -> Vec<OwnerReference> {
    let others = meta
        .owner_references
        .iter()
        .flatten()
        .filter(|reference| reference.controller != Some(true) && reference.uid != controller.uid);
    std::iter::once(controller).chain(others).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mcm_api::machine::MachineSet;
    use rstest::rstest;
    use serde_json::json;

    fn owner(uid: &str, controller: bool) -> OwnerReference {
        OwnerReference { uid: uid.into(), controller: controller.then_some(true), ..OwnerReference::default() }
    }

    fn owned_by(owners: &[OwnerReference]) -> ObjectMeta {
        ObjectMeta { owner_references: Some(owners.to_vec()), ..ObjectMeta::default() }
    }

    fn uids(owners: Option<Vec<OwnerReference>>) -> Option<Vec<String>> {
        Some(owners?.into_iter().map(|owner| owner.uid).collect())
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
        assert_eq!(uids(adopted(&owned_by(owners), &owner("me", true))), expected);
    }

    #[test]
    fn a_move_replaces_the_controller_and_no_other_owner() {
        let owners = [owner("x", false), owner("old", true), owner("y", false)];
        let after = moved(&owned_by(&owners), &owner("new", true));
        assert_eq!(uids(Some(after)), Some(vec!["new".to_owned(), "x".to_owned(), "y".to_owned()]));
    }

    #[rstest]
    #[case::only_the_own_reference_goes(&[owner("me", true), owner("x", false)], Some(vec!["x"]))]
    #[case::the_last_one(&[owner("me", true)], Some(vec![]))]
    #[case::not_an_owner(&[owner("x", true)], None)]
    #[case::no_owners(&[], None)]
    fn releasing(#[case] owners: &[OwnerReference], #[case] expected: Option<Vec<&str>>) {
        let expected = expected.map(|uids| uids.into_iter().map(String::from).collect());
        assert_eq!(uids(released(&owned_by(owners), "me")), expected);
    }
}
