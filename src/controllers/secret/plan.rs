use kube::ResourceExt;
use serde_json::Value;

use super::Snapshot;
use crate::{machine_class::secret_names, object::finalizer};
use mcm_api::labels::SECRET_FINALIZER;
use mcm_rules::plan::{Plan, PlanInput, SentPatch, WaitKind};

impl PlanInput for Snapshot {
    type Action = Value;

    fn plan(&self) -> Plan<Value> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, patch: &'a Value) -> Option<SentPatch<'a>> {
        Some(SentPatch::of_metadata("Secret", &self.secret, patch))
    }
}

/// Plans the finalizer of a Secret: a merge patch that is sent with its resource version.
pub(crate) fn plan(snapshot: &Snapshot) -> Plan<Value> {
    let secret = snapshot.secret.as_ref();
    let name = secret.name.as_deref().unwrap_or_default();
    let mut users: Vec<String> = snapshot
        .classes
        .iter()
        .filter(|class| secret_names(class).contains(name))
        .map(|class| class.name_any())
        .collect();
    users.sort_unstable();
    let mut plan = Plan::default();
    if let Some(user) = users.first() {
        if secret.deletion_timestamp.is_some() {
            plan.wait(
                WaitKind::Users,
                format!("the classes that name secret {name} to be deleted: {}", users.join(", ")),
                None,
            );
        } else if let Some(patch) = finalizer::add(secret, SECRET_FINALIZER) {
            plan.then(patch, format!("class {user} names secret {name}"));
        }
    } else if let Some(patch) = finalizer::remove(secret, SECRET_FINALIZER) {
        if snapshot.unreadable_classes.is_empty() {
            plan.then(patch, format!("no class names secret {name}"));
        } else {
            let unreadable = snapshot.unreadable_classes.join(", ");
            plan.wait(
                WaitKind::Unreadable,
                format!("classes that may name secret {name} to become readable: {unreadable}"),
                None,
            );
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use mcm_api::machine::MachineClass;

    fn class(value: Value) -> Arc<MachineClass> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn naming() -> Arc<MachineClass> {
        class(json!({ "metadata": { "name": "c" }, "credentialsSecretRef": { "name": "s" } }))
    }

    fn going() -> Arc<MachineClass> {
        let deleted = json!({ "name": "c", "deletionTimestamp": "2023-11-14T00:00:00Z", "finalizers": ["x"] });
        class(json!({ "metadata": deleted, "secretRef": { "name": "s" } }))
    }

    #[rstest]
    #[case::named(json!({ "finalizers": ["x"] }), vec![naming()], &[], Some(json!(["x", SECRET_FINALIZER])))]
    #[case::held(json!({ "finalizers": [SECRET_FINALIZER] }), vec![naming()], &[], None)]
    #[case::not_named(json!({ "finalizers": ["x", SECRET_FINALIZER, "y"] }), vec![], &[], Some(json!(["x", "y"])))]
    #[case::nothing_to_do_with_us(json!({}), vec![], &[], None)]
    #[case::being_deleted_takes_no_finalizer(json!({ "deletionTimestamp": "2023-11-14T00:00:00Z" }), vec![naming()], &[], None)]
    #[case::an_unreadable_class_may_name_it(json!({ "finalizers": [SECRET_FINALIZER] }), vec![], &["u"], None)]
    #[case::a_class_that_is_being_deleted_still_names_it(json!({ "finalizers": [SECRET_FINALIZER] }), vec![going()], &[], None)]
    fn a_secret_is_held_while_a_class_names_it(
        #[case] mut meta: Value,
        #[case] classes: Vec<Arc<MachineClass>>,
        #[case] unreadable: &[&str],
        #[case] expected: Option<Value>,
    ) {
        meta["name"] = json!("s");
        let unreadable_classes = unreadable.iter().map(|&name| name.to_owned()).collect();
        let snapshot = Snapshot { secret: serde_json::from_value(meta).unwrap(), classes, unreadable_classes };
        let finalizers = plan(&snapshot).steps.first().map(|step| step.action["metadata"]["finalizers"].clone());
        assert_eq!(finalizers, expected);
    }
}
