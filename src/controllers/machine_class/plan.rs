use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Action, SecretState, Snapshot, problems, secret_names};
use crate::{object::finalizer, secret};
use mcm_api::labels::FINALIZER;
use mcm_rules::plan::{Plan, PlanInput, SentPatch, Step, SubjectRef, WaitKind};

impl PlanInput for Snapshot {
    type Action = Action;

    fn plan(&self) -> Plan<Action> {
        plan(self)
    }

    fn sent_patch<'a>(&'a self, action: &'a Action) -> Option<SentPatch<'a>> {
        Some(match action {
            Action::PatchClass(patch) => SentPatch::new(&*self.class, patch),
            Action::PatchSecret { secret, patch } => SentPatch::of_metadata("Secret", secret, patch),
        })
    }

    fn subject(action: &Action) -> Option<SubjectRef> {
        action.subject()
    }
}

/// Plans the next writes for a class and the Secrets it names.
pub fn plan(snapshot: &Snapshot) -> Plan<Action> {
    let mut plan = Plan::default();
    if sync_finalizer(&mut plan, snapshot) {
        return plan;
    }
    // The finalizer is written first: a second patch with the same resource version would conflict, and after the first one
    // the loop plans again.
    if plan.steps.is_empty() && snapshot.class.metadata.deletion_timestamp.is_none() {
        problems::report(&mut plan, snapshot);
    }
    for name in secret_names(&snapshot.class) {
        match snapshot.secrets.get(name) {
            Some(SecretState::Present(secret)) => add_secret_finalizer(&mut plan, snapshot, secret),
            Some(SecretState::Absent) => {
                plan.wait(WaitKind::Secret, format!("secret {name} to be created"), None);
            }
            Some(SecretState::Unknown) | None => {
                plan.wait(WaitKind::Secret, format!("secret {name} to become readable"), None);
            }
        }
    }
    plan
}

/// Adds or removes the finalizer of the class. True if the API server deletes the class after this plan.
fn sync_finalizer(plan: &mut Plan<Action>, snapshot: &Snapshot) -> bool {
    let meta = &snapshot.class.metadata;
    let deleting = meta.deletion_timestamp.is_some();
    let users = snapshot.machines_using.len();
    if users > 0 {
        if deleting {
            plan.wait(
                WaitKind::Users,
                format!("the machines that use the class to be deleted: {}", listed(&snapshot.machines_using)),
                None,
            );
        } else if let Some(patch) = finalizer::add(meta, FINALIZER) {
            plan.then(Action::PatchClass(patch), format!("machines that use the class: {users}"));
        }
        return false;
    }
    let Some(patch) = finalizer::remove(meta, FINALIZER) else {
        return deleting;
    };
    if !snapshot.unreadable_machines.is_empty() {
        let names = listed(&snapshot.unreadable_machines);
        plan.wait(WaitKind::Unreadable, format!("machines that may use the class to become readable: {names}"), None);
        return false;
    }
    plan.then(Action::PatchClass(patch), "no machine uses the class");
    deleting
}

fn add_secret_finalizer(plan: &mut Plan<Action>, snapshot: &Snapshot, secret: &ObjectMeta) {
    let of_secret = secret::plan(&secret::Snapshot {
        secret: Box::new(secret.clone()),
        classes: vec![snapshot.class.clone()],
        unreadable_classes: Vec::new(),
    });
    plan.waits.extend(of_secret.waits);
    plan.steps.extend(of_secret.steps.into_iter().map(|step| Step {
        action: Action::PatchSecret { secret: Box::new(secret.clone()), patch: step.action },
        reason: step.reason,
        event: step.event,
    }));
}

/// The first few names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    let more = names.len().saturating_sub(SHOWN);
    names.truncate(SHOWN);
    let shown = names.join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;
    use mcm_api::{labels::SECRET_FINALIZER, machine::MachineClass};

    fn class(name: &str, finalizers: &[&str], deleting: bool, secret: &str) -> Arc<MachineClass> {
        let mut class = json!({
            "metadata": { "name": name, "finalizers": finalizers },
            "providerSpec": {}, "secretRef": { "name": secret, "namespace": "elsewhere" },
        });
        if deleting {
            class["metadata"]["deletionTimestamp"] = json!("2023-11-14T00:00:00Z");
        }
        Arc::new(serde_json::from_value(class).unwrap())
    }

    fn secret(finalizers: &[&str]) -> SecretState {
        let meta: ObjectMeta = serde_json::from_value(json!({ "name": "s", "finalizers": finalizers })).unwrap();
        SecretState::Present(Box::new(meta))
    }

    fn snapshot(class: Arc<MachineClass>, users: usize, secret: SecretState) -> Snapshot {
        Snapshot {
            class,
            machines_using: (0..users).map(|index| format!("m{index}")).collect(),
            unreadable_machines: Vec::new(),
            secrets: [("s".to_owned(), secret)].into(),
            problems: None,
        }
    }

    /// `class [...]` or `secret [...]`: the finalizers after each step.
    fn steps(snapshot: &Snapshot) -> Vec<String> {
        let finalizers = |patch: &Value| patch["metadata"]["finalizers"].to_string();
        let describe = |step: &Step<Action>| match &step.action {
            Action::PatchClass(patch) => format!("class {}", finalizers(patch)),
            Action::PatchSecret { secret, patch } => {
                format!("secret {} {}", secret.name.as_deref().unwrap(), finalizers(patch))
            }
        };
        plan(snapshot).steps.iter().map(describe).collect()
    }

    fn waits(snapshot: &Snapshot) -> String {
        plan(snapshot).waits.iter().map(|wait| wait.text.clone()).collect::<Vec<_>>().join("\n")
    }

    const CLASS: &str = FINALIZER;
    const SECRET: &str = SECRET_FINALIZER;

    #[rstest]
    #[case::used(class("c", &["x"], false, "s"), 2, &["x"],
        &[r#"class ["x","machine.sapcloud.io/machine-controller-manager"]"#,
          r#"secret s ["x","machine.sapcloud.io/machine-controller"]"#])]
    #[case::finalizers_present(class("c", &[CLASS], false, "s"), 2, &[SECRET], &[])]
    #[case::unused(class("c", &[CLASS, "x"], false, "s"), 0, &[SECRET], &[r#"class ["x"]"#])]
    #[case::unused_class_still_needs_its_secret(class("c", &[], false, "s"), 0, &[],
        &[r#"secret s ["machine.sapcloud.io/machine-controller"]"#])]
    #[case::deleting_with_users(class("c", &[CLASS], true, "s"), 1, &[SECRET], &[])]
    #[case::deleting_with_users_and_without_finalizer(class("c", &["x"], true, "s"), 1, &[SECRET], &[])]
    #[case::deleting_unused(class("c", &[CLASS], true, "s"), 0, &["y"], &["class []"])]
    #[case::foreign_finalizers_left(class("c", &["x"], true, "s"), 0, &[], &[])]
    fn finalizers(
        #[case] class: Arc<MachineClass>,
        #[case] users: usize,
        #[case] on_secret: &[&str],
        #[case] expected: &[&str],
    ) {
        assert_eq!(steps(&snapshot(class, users, secret(on_secret))), expected);
    }

    #[test]
    fn a_deleting_class_says_which_machines_use_it() {
        let snapshot = snapshot(class("c", &[CLASS], true, "s"), 7, secret(&[SECRET]));
        assert_eq!(waits(&snapshot), "the machines that use the class to be deleted: m0, m1, m2, m3, m4 and 2 more");
    }

    #[test]
    fn a_class_that_an_unreadable_machine_may_use_keeps_its_finalizer() {
        let mut snapshot = snapshot(class("c", &[CLASS], true, "s"), 0, secret(&[SECRET]));
        snapshot.unreadable_machines = vec!["u".into()];
        assert_eq!(steps(&snapshot), [""; 0]);
        assert_eq!(waits(&snapshot), "machines that may use the class to become readable: u");
    }

    #[rstest]
    #[case(SecretState::Absent, "secret s to be created")]
    #[case(SecretState::Unknown, "secret s to become readable")]
    fn a_secret_that_cannot_be_seen_is_waited_for(#[case] secret: SecretState, #[case] text: &str) {
        let snapshot = snapshot(class("c", &[CLASS], false, "s"), 1, secret);
        assert_eq!((steps(&snapshot), waits(&snapshot).as_str()), (Vec::new(), text));
    }

    #[test]
    fn both_secrets_of_a_class_are_named_each_once() {
        let mut class = class("c", &[], false, "s").as_ref().clone();
        class.credentials_secret_ref = class.secret_ref.clone();
        assert_eq!(secret_names(&class).into_iter().collect::<Vec<_>>(), ["s"]);
        class.credentials_secret_ref.as_mut().unwrap().name = "t".into();
        assert_eq!(secret_names(&class).into_iter().collect::<Vec<_>>(), ["s", "t"]);
    }

    #[test]
    fn the_json_of_a_plan_has_no_data_of_a_secret() {
        let applied = json!({ "data": { "password": "hunter2" } }).to_string();
        let meta =
            json!({ "name": "s", "annotations": { "kubectl.kubernetes.io/last-applied-configuration": applied } });
        let secret = SecretState::Present(serde_json::from_value(meta).unwrap());
        let plan = plan(&snapshot(class("c", &[FINALIZER], false, "s"), 1, secret));
        let json = serde_json::to_string(&plan).unwrap();
        assert!(json.contains(r#""action":"patch secret s: "#), "{json}");
        assert!(!json.contains("hunter2"), "{json}");
    }
}
