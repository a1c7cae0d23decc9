use super::*;
use crate::{
    plan::{
        answer::{ObjectPlan, PlanVerdict},
        report,
    },
    terminal::TerminalLook,
    testing::pool,
};

/// The plan of a namespace with a deployment that is scaled and 20 that are settled.
fn plan(namespace: &str, notes: &[&str], flags: &str) -> Plan {
    let object = ObjectPlan::without_effect(DEPLOYMENT, namespace, "pool", PlanVerdict::Scales);
    let mut plan =
        Plan::from_objects(Timestamp::UNIX_EPOCH, vec![object], notes.iter().map(|&note| note.to_owned()).collect());
    (plan.flags, plan.settled) = (Some(flags.to_owned()), Some(SettledCounts { deployments: 20, sets: 1 }));
    plan
}

#[test]
fn the_plans_of_namespaces_are_one_with_each_note_once_and_the_namespaces_that_may_not_be_read() {
    let nodes = "not read, so unknown: nodes (alice may not list nodes)";
    let plans = [
        ("a", plan("a", &[nodes, "the Leases of the managers could not be read"], "the defaults")),
        ("b", plan("b", &[nodes], "those of mcm-0")),
        ("c", plan("c", &[nodes], "the defaults")),
    ];
    let plans = plans.map(|(namespace, plan)| (namespace.to_owned(), plan));
    let refused = ["v", "w", "x", "y", "z"];
    let refused = refused.map(|one| (one.to_owned(), "alice may not list machinedeployments".to_owned()));
    let plan = joined(Timestamp::UNIX_EPOCH, plans.into(), &refused.into());
    assert!(!plan.complete && plan.objects.len() == 3, "{plan:?}");
    assert_eq!(plan.unread, ["v", "w", "x", "y", "z"]);
    insta::assert_snapshot!("all_namespaces", report::plan(TerminalLook::PLAIN, &plan, false));
}

#[test]
fn a_cluster_without_deployments_is_named_as_such() {
    let plan = joined(Timestamp::UNIX_EPOCH, Vec::new(), &BTreeMap::new());
    assert!(plan.complete, "{plan:?}");
    assert_eq!(plan.notes, ["there are no MachineDeployments and no MachineSets"]);
}

#[test]
fn objects_that_cannot_be_decoded_are_planned_and_no_namespace_with_them_is_empty() {
    let mut facts = pool(0, Vec::new());
    facts.deployments.clear();
    facts.sets.clear();
    assert_eq!(changes(&facts).1.len(), 1, "it is empty");
    let broken = |kind: &str, owner: Option<&str>| {
        let (kind, name, owner) = (kind.to_owned(), "broken".to_owned(), owner.map(str::to_owned));
        UndecodableObject { kind, name, owner, error: "spec.replicas is no number".to_owned() }
    };
    facts.unreadable = vec![broken(DEPLOYMENT, None), broken(SET, None), broken(SET, Some("pool"))];
    let (planned, notes) = changes(&facts);
    let planned: Vec<(&str, &str)> = planned.iter().map(|one| (one.kind, one.name.as_str())).collect();
    assert_eq!(planned, [(DEPLOYMENT, "broken"), (SET, "broken")]);
    assert_eq!(notes, Vec::<String>::new());
}
