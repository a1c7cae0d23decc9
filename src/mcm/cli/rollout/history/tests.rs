use serde_json::json;

use super::*;
use crate::cli::document::tests::{fits, published};
use mcm_insight::testing::{NOW, TERMINAL, at, blocked_pool};

/// Revision 4 was made 5 s after `kubectl-patch` wrote the template.
fn facts() -> NamespaceFacts {
    let mut facts = blocked_pool();
    let entry = json!({
        "manager": "kubectl-patch", "operation": "Update", "apiVersion": "machine.sapcloud.io/v1alpha1", "time": at(355),
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:class": {"f:name": {}}}}}},
    });
    let status = json!({
        "manager": "mcm", "operation": "Update", "apiVersion": "machine.sapcloud.io/v1alpha1", "time": at(359), "subresource": "status",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}},
    });
    let fields = serde_json::from_value(json!([entry, status])).unwrap();
    facts.deployments.get_mut("pool").unwrap().metadata.managed_fields = Some(fields);
    let created = serde_json::from_value(json!(at(360))).unwrap();
    facts.sets.get_mut("pool-84dff").unwrap().metadata.creation_timestamp = Some(created);
    facts
}

#[test]
fn a_revision_has_the_fields_that_changed_and_who_wrote_them() {
    let facts = facts();
    let found = revisions(&facts, &facts.family("pool").unwrap());
    let [new, old] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((new.revision, new.is_current, new.machines, new.going), (4, true, 1, 0));
    let change = TemplateChange {
        path: "template.spec.class.name".to_owned(),
        old: "large".to_owned(),
        new: "small".to_owned(),
    };
    assert_eq!((new.changes.as_slice(), new.by.as_str()), ([change].as_slice(), "kubectl-patch"));
    assert_eq!((old.revision, old.is_current, old.machines, old.going), (3, false, 1, 2));
    assert_eq!((old.changes.as_slice(), old.by.as_str()), ([].as_slice(), ""));
}

/// A return to an old template reuses its set, which another program once caused.
#[test]
fn a_revision_of_a_reused_set_is_by_who_wrote_its_template_again() {
    let mut facts = facts();
    let template = json!({"f:spec": {"f:template": {}}});
    let undo = json!({
        "manager": "mcm", "operation": "Update", "apiVersion": "machine.sapcloud.io/v1alpha1", "time": at(500),
        "fieldsType": "FieldsV1", "fieldsV1": template,
    });
    let fields = &mut facts.deployments.get_mut("pool").unwrap().metadata.managed_fields;
    fields.as_mut().unwrap().push(serde_json::from_value(undo).unwrap());
    let by = |facts: &NamespaceFacts| revisions(facts, &facts.family("pool").unwrap())[0].by.clone();
    assert_eq!(by(&facts), "kubectl-patch", "its set was made for this revision");
    let set = facts.sets.get_mut("pool-84dff").unwrap();
    set.annotations_mut().insert(labels::REVISION_HISTORY.to_owned(), "1,2".to_owned());
    assert_eq!(by(&facts), "mcm");
}

#[test]
fn the_history_is_a_table() {
    let facts = facts();
    let found = revisions(&facts, &facts.family("pool").unwrap());
    insta::assert_snapshot!("pipe", text(TerminalLook::PLAIN, &found, at(NOW)));
    let narrow = text(TERMINAL, &found, at(NOW));
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!("80-columns", narrow);
    let ascii = text(TerminalLook { unicode: false, ..TERMINAL }, &found, at(NOW));
    assert!(ascii.is_ascii(), "{ascii}");
    assert_eq!(text(TerminalLook::PLAIN, &[], at(NOW)), "there is no revision yet\n");
}

#[test]
fn the_schema_is_published_and_a_history_fits_it() {
    published::<JsonDocument<RolloutHistory<'_>>>("rollout-history");
    let facts = facts();
    let revisions = revisions(&facts, &facts.family("pool").unwrap());
    let deployment = facts.subject("MachineDeployment", "pool");
    let history = RolloutHistory { deployment: &deployment, revisions: &revisions };
    let document = JsonDocument::new("RolloutHistory", at(NOW), history);
    fits::<JsonDocument<RolloutHistory<'_>>>(&serde_json::to_value(document).unwrap());
}
