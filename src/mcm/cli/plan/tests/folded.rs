//! Rounds of many machines that are alike are played with a few.

use super::*;

#[tokio::test]
async fn rounds_of_many_machines_are_folded() {
    let plane = Plane::of(&deployment(50)).await;
    let plan = plane.patched(of_template(&json!({ "class": { "name": "small" } }))).await;
    assert_eq!((plan.summary.create, plan.summary.delete), (50, 50), "{}", text(&plan));
    assert!(text(&plan).lines().count() < 24, "{}", text(&plan));
}

/// A machine with a separate annotation is unlike the others, so that all are played.
fn unlike(seeds: &mut Vec<SeedObject>) {
    let machine = seeds.iter_mut().find(|(kind, _)| *kind == &MACHINES);
    machine.unwrap().1["metadata"]["annotations"]["note"] = json!("unlike the others");
}

/// Plans of the same change with few machines, and with all.
async fn few_and_all(pool: &Value, wish: ChangeContent) -> (ObjectPlan, ObjectPlan) {
    let few = Plane::of(pool).await.plan(&[change(wish.clone())]).await.objects.remove(0);
    let all = Plane::with(pool, unlike).await.plan(&[change(wish)]).await.objects.remove(0);
    (few, all)
}

/// The plans are the same, but for a remark and a part of the time.
fn assert_same(mut few: ObjectPlan, mut all: ObjectPlan) {
    assert_eq!((few.remarks.len(), all.remarks.len(), few.is_estimate), (1, 0, false), "{few:?}\n{all:?}");
    few.remarks.clear();
    let seconds = |plan: &mut ObjectPlan| plan.duration.as_mut().and_then(|takes| takes.expected_seconds.take());
    if let (Some(of_few), Some(of_all)) = (seconds(&mut few), seconds(&mut all)) {
        assert!(of_few.abs_diff(of_all) <= of_all / 100 + 2, "{of_few} {of_all}");
    }
    assert_eq!(few, all);
}

#[rstest]
#[case::surge(36, 1, 0)]
#[case::unavailable(36, 0, 1)]
#[case::both(36, 1, 1)]
#[case::three_at_once(36, 2, 1)]
#[case::a_wide_surge(40, 10, 0)]
#[case::widely_unavailable(40, 0, 10)]
#[case::both_widely(40, 10, 10)]
#[case::more_surge(48, 16, 8)]
#[case::less_surge(48, 6, 16)]
#[case::all_at_once(30, 30, 0)]
#[case::all_unavailable(30, 0, 30)]
#[tokio::test]
async fn a_rollout_that_is_played_with_few_machines_equals_one_with_all(
    #[case] replicas: i32,
    #[case] surge: i32,
    #[case] unavailable: i32,
) {
    let mut pool = deployment(replicas);
    pool["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    let wish = ChangeContent::Patch(of_template(&json!({ "class": { "name": "small" } })));
    let (few, all) = few_and_all(&pool, wish).await;
    assert_same(few, all);
}

#[rstest]
#[case::grows(&json!({ "replicas": 60 }))]
#[case::grows_without_a_common_divisor(&json!({ "replicas": 53 }))]
#[case::shrinks(&json!({ "replicas": 10 }))]
#[case::shrinks_without_a_common_divisor(&json!({ "replicas": 3 }))]
#[case::shrinks_to_nothing(&json!({ "replicas": 0 }))]
#[case::grows_and_is_rolled(&json!({ "replicas": 60, "template": { "spec": { "class": { "name": "small" } } } }))]
#[case::is_recreated(&json!({ "strategy": { "type": "Recreate", "rollingUpdate": null }, "template": { "spec": { "class": { "name": "small" } } } }))]
#[tokio::test]
async fn a_change_that_is_played_with_few_machines_equals_one_with_all(#[case] spec: &Value) {
    let mut pool = deployment(40);
    pool["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 10, "maxUnavailable": 10 });
    let (few, all) = few_and_all(&pool, ChangeContent::Patch(json!({ "spec": spec }))).await;
    assert_same(few, all);
}

/// How many machines are available when a round begins depends on the joins of the round before.
#[tokio::test]
async fn a_rollout_of_a_pool_that_shrinks_is_played_with_all_machines() {
    let mut pool = deployment(40);
    pool["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 10, "maxUnavailable": 10 });
    let spec = json!({ "replicas": 20, "template": { "spec": { "class": { "name": "small" } } } });
    let (few, all) = few_and_all(&pool, ChangeContent::Patch(json!({ "spec": spec }))).await;
    assert_eq!((few.remarks.len(), few.is_estimate), (0, false), "{few:?}");
    assert_eq!(few, all);
}

#[tokio::test]
async fn a_deletion_that_is_played_with_few_machines_equals_one_with_all() {
    let (few, all) = few_and_all(&deployment(41), ChangeContent::Delete).await;
    assert_same(few, all);
}

#[tokio::test]
async fn updates_in_place_that_are_played_with_few_machines_equal_those_with_all() {
    let mut pool = deployment(30);
    pool["spec"]["strategy"] = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "orchestrationType": "Auto", "maxSurge": 0, "maxUnavailable": 10 } });
    let (few, all) =
        few_and_all(&pool, ChangeContent::Patch(of_template(&json!({ "class": { "name": "small" } })))).await;
    assert_same(few, all);
}

#[rstest]
#[case::at_once(10)]
#[case::one_by_one(1)]
#[tokio::test]
async fn a_rollout_that_stops_is_played_once_with_few_machines_and_stops_as_with_all(#[case] amount: i32) {
    let mut pool = deployment(40);
    pool["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": amount, "maxUnavailable": amount });
    let (few, all) =
        few_and_all(&pool, ChangeContent::Patch(of_template(&json!({ "class": { "name": "nonesuch" } })))).await;
    assert!(!few.settles, "{few:?}");
    assert_same(few, all);
}

#[tokio::test]
async fn a_creation_of_many_machines_is_played_with_few() {
    let plane = Plane::of(&deployment(1)).await;
    let mut other = deployment(1234);
    other["metadata"]["name"] = json!("other");
    for label in ["/spec/selector/matchLabels/pool", "/spec/template/metadata/labels/pool"] {
        *other.pointer_mut(label).unwrap() = json!("other");
    }
    let (changes, _) = changes_of_files(&[other], NAMESPACE).unwrap();
    insta::assert_snapshot!("many_created", text(&plane.plan(&changes).await));
}

/// A settled pool of many machines, copied from the first of a small one.
fn crowd(seeds: &mut Vec<SeedObject>, count: usize) {
    let first = |kind| seeds.iter().find(|(one, _)| *one == kind).unwrap().1.clone();
    let (machine, node) = (first(&MACHINES), first(&NODES));
    let name = machine["metadata"]["name"].as_str().unwrap().to_owned();
    let (uid, id) = (machine["metadata"]["uid"].as_str().unwrap(), machine["spec"]["providerID"].as_str().unwrap());
    let copy = |value: &Value, at: usize| {
        let text = value.to_string().replace(uid, &format!("crowd-{at}")).replace(id, &format!("elsewhere:///{at}"));
        let text = text.replace("\"uid\":\"elsewhere-node", &format!("\"uid\":\"crowd-{at}-"));
        serde_json::from_str::<Value>(&text.replace(&name, &format!("pool-{at:04}"))).unwrap()
    };
    seeds.retain(|(kind, _)| *kind != &MACHINES && *kind != &NODES);
    seeds.extend((0..count).flat_map(|at| [(&MACHINES, copy(&machine, at)), (&NODES, copy(&node, at))]));
    for (kind, value) in seeds.iter_mut().filter(|(kind, _)| *kind == &SETS || *kind == &DEPLOYMENTS) {
        value["spec"]["replicas"] = json!(count);
        for (_, number) in
            value["status"].as_object_mut().unwrap().iter_mut().filter(|(field, _)| field.ends_with("eplicas"))
        {
            *number = json!(count);
        }
        if *kind == &SETS {
            value["metadata"]["annotations"][labels::DESIRED_REPLICAS] = count.to_string().into();
            value["metadata"]["annotations"][labels::MAX_REPLICAS] = (count + 1).to_string().into();
        }
    }
}

/// 400 machines, or as many as the variable has. The aim for 5,000 is a minute in a debug build.
fn many() -> usize {
    std::env::var("MCM_PLANS_MACHINES").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

#[tokio::test]
async fn changes_of_many_machines_are_answered() {
    let count = many();
    let plane = Plane::with(&deployment(2), |seeds| crowd(seeds, count)).await;
    let rolled = |surge: Value, unavailable: Value| {
        let amounts = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
        json!({ "strategy": { "rollingUpdate": amounts }, "template": { "spec": { "class": { "name": "small" } } } })
    };
    let patch = |spec: Value| ChangeContent::Patch(json!({ "spec": spec }));
    for (what, wish, verdict, (create, delete), is_estimate) in [
        ("maxSurge 1", patch(rolled(json!(1), json!(0))), PlanVerdict::Replaces, (count, count), false),
        ("25 %", patch(rolled(json!("25%"), json!("25%"))), PlanVerdict::Replaces, (count, count), false),
        ("101 and 67", patch(rolled(json!(101), json!(67))), PlanVerdict::Replaces, (count, count), true),
        ("100 more", patch(json!({ "replicas": count + 100 })), PlanVerdict::Scales, (100, 0), false),
        ("100 left", patch(json!({ "replicas": 100 })), PlanVerdict::Scales, (0, count - 100), false),
        ("deletion", ChangeContent::Delete, PlanVerdict::Deletes, (0, count), false),
    ] {
        let begun = std::time::Instant::now();
        let plan = plane.plan(&[change(wish)]).await;
        println!("{what} of {count} machines: {:.1?}\n{}", begun.elapsed(), text(&plan));
        let object = &plan.objects[0];
        assert_eq!((object.verdict, object.is_estimate), (verdict, is_estimate), "{what}: {}", text(&plan));
        assert_eq!((object.summary.create, object.summary.delete), (create, delete), "{what}: {}", text(&plan));
        assert_eq!(object.machines.len(), count, "{what}");
        if let Some(bounds) = object.bounds {
            let total = object.rounds.iter().map(|round| round.total).max().unwrap();
            assert!(i32::try_from(total).unwrap() <= bounds.max_total || is_estimate, "{what}: {}", text(&plan));
        }
    }
}

/// Machines of a large deployment are never all alike.
#[tokio::test]
async fn changes_of_many_machines_of_which_some_differ_are_estimated() {
    let count = many();
    let differ = |seeds: &mut Vec<SeedObject>| {
        crowd(seeds, count);
        unlike(seeds);
        let mut machines = seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES);
        machines.nth(count / 2).unwrap().1["status"]["currentStatus"]["phase"] = json!("Unknown");
    };
    let plane = Plane::with(&deployment(2), differ).await;
    let patch = |amounts: Value| json!({ "spec": { "strategy": { "rollingUpdate": amounts }, "template": { "spec": { "class": { "name": "small" } } } } });
    let wide = plane.patched(patch(json!({ "maxSurge": "25%", "maxUnavailable": "10%" }))).await.objects.remove(0);
    assert_eq!((wide.verdict, wide.is_estimate, wide.settles), (PlanVerdict::Replaces, true, true), "{wide:?}");
    assert_eq!((wide.summary.create, wide.summary.delete, wide.rounds.is_empty()), (count, count, false), "{wide:?}");
    let narrow = plane.patched(patch(json!({ "maxSurge": 1, "maxUnavailable": 0 }))).await.objects.remove(0);
    assert_eq!((narrow.verdict, narrow.is_estimate, narrow.settles), (PlanVerdict::Replaces, true, true), "{narrow:?}");
    assert_eq!((narrow.summary.create, narrow.summary.delete), (count, count), "{narrow:?}");
    assert_eq!((narrow.rounds.len(), &narrow.duration), (0, &None), "{narrow:?}");
}

/// Names of the machines with an action.
fn names(plan: &ObjectPlan, action: Action) -> Vec<&str> {
    plan.machines.iter().filter(|machine| machine.action == action).map(|machine| machine.name.as_str()).collect()
}

#[rstest]
#[case::one_is_unhealthy("Unknown", [0, 1, 300])]
#[case::one_is_about_to_be_healthy_again("True", [0, 1, 2])]
#[tokio::test]
async fn of_many_machines_in_several_states_as_many_are_deleted_as_are_too_many(
    #[case] node: &str,
    #[case] deleted: [usize; 3],
) {
    let count = many();
    let unhealthy = |seeds: &mut Vec<SeedObject>| {
        crowd(seeds, count);
        let mut machines = seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES);
        machines.nth(300).unwrap().1["status"]["currentStatus"]["phase"] = json!("Unknown");
        let mut nodes = seeds.iter_mut().filter(|(kind, _)| *kind == &NODES);
        nodes.nth(300).unwrap().1["status"]["conditions"][0]["status"] = json!(node);
    };
    let plane = Plane::with(&deployment(2), unhealthy).await;
    let plan = plane.patched(json!({ "spec": { "replicas": count - 3 } })).await.objects.remove(0);
    let deleted = deleted.map(|at| format!("pool-{at:04}"));
    assert_eq!(names(&plan, Action::Delete), deleted, "{:?}", plan.remarks);
    assert_eq!((plan.summary.create, plan.settles), (0, true), "{plan:?}");
}

/// All but the first machines are those of a newer set.
fn halfway(seeds: &mut Vec<SeedObject>, old: usize) {
    let set = seeds.iter().find(|(kind, _)| *kind == &SETS).unwrap().1.clone();
    let text = |pointer: &str| set.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let (uid, name) = (text("/metadata/uid"), text("/metadata/name"));
    let hash = set["metadata"]["labels"][labels::TEMPLATE_HASH].as_str().unwrap().to_owned();
    let of_newer = |value: &Value| {
        let text = value.to_string().replace(&uid, "newer").replace(&name, "pool-newer").replace(&hash, "newer");
        serde_json::from_str::<Value>(&text.replace("\"large\"", "\"small\"")).unwrap()
    };
    let mut newer = 0;
    for (_, machine) in seeds.iter_mut().filter(|(kind, _)| *kind == &MACHINES).skip(old) {
        *machine = of_newer(machine);
        newer += 1;
    }
    for (kind, value) in seeds.iter_mut() {
        if *kind == &DEPLOYMENTS {
            value["spec"]["template"]["spec"]["class"]["name"] = json!("small");
            value["status"]["updatedReplicas"] = json!(newer);
        }
        if *kind == &SETS {
            *value = sized(value, old);
        }
    }
    seeds.push((&SETS, sized(&of_newer(&set), newer)));
}

fn sized(set: &Value, count: usize) -> Value {
    let mut set = set.clone();
    set["spec"]["replicas"] = json!(count);
    for field in ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        set["status"][field] = json!(count);
    }
    set
}

#[tokio::test]
async fn numbers_are_an_estimate_if_the_replicas_change_during_a_rollout_of_many_machines() {
    let count = many();
    let begun = |seeds: &mut Vec<SeedObject>| {
        crowd(seeds, count);
        halfway(seeds, 20);
    };
    let plane = Plane::with(&deployment(2), begun).await;
    let plan = plane.patched(json!({ "spec": { "replicas": count - 30 } })).await.objects.remove(0);
    let is_said = plan.remarks.iter().any(|remark| remark.starts_with("the numbers are an estimate"));
    assert!(plan.settles && plan.is_estimate && is_said, "{:?}", plan.remarks);
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await.objects.remove(0);
    assert_eq!((plan.summary.create, plan.summary.delete), (20, 20), "{:?}", plan.remarks);
}

/// The list of machines that the autoscaler chose, and replicas without them.
fn scaled_down(chosen: &[String], replicas: usize) -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let list: Vec<String> = chosen.iter().map(|name| format!("{name}~{now}")).collect();
    let annotations = json!({ (labels::TRIGGER_DELETION): list.join(","), (labels::LAST_SCALER_CHANGE): now });
    json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": replicas } })
}

#[rstest]
#[case::few(40)]
#[case::many(many())]
#[tokio::test]
async fn the_machines_that_the_autoscaler_chose_are_deleted(#[case] count: usize) {
    let plane = Plane::with(&deployment(2), |seeds| crowd(seeds, count)).await;
    let chosen: Vec<String> = [7, count / 2, count - 1].iter().map(|at| format!("pool-{at:04}")).collect();
    let plan = plane.patched(scaled_down(&chosen, count - 3)).await.objects.remove(0);
    assert_eq!(names(&plan, Action::Delete), chosen, "{:?}", plan.remarks);
    assert_eq!((plan.summary.create, plan.settles), (0, true), "{plan:?}");
}

#[tokio::test]
async fn one_of_many_machines_whose_node_is_missing_is_replaced_alone() {
    let count = many();
    let lost = |seeds: &mut Vec<SeedObject>| {
        crowd(seeds, count);
        let first = seeds.iter().position(|(kind, _)| *kind == &NODES).unwrap();
        seeds.remove(first);
    };
    let plane = Plane::with(&deployment(2), lost).await;
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await.objects.remove(0);
    assert_eq!(names(&plan, Action::Replace), ["pool-0000"], "{:?}", plan.remarks);
    assert_eq!((plan.summary.create, plan.summary.delete), (1, 1), "{plan:?}");
}

/// The guard against meltdowns counts machines, however many each played machine represents.
#[tokio::test]
async fn unhealthy_machines_are_replaced_one_after_the_other_also_if_all_are_alike() {
    let sick = |seeds: &mut Vec<SeedObject>| {
        for (_, node) in seeds.iter_mut().filter(|(kind, _)| *kind == &NODES) {
            node["status"]["conditions"][0]["status"] = json!("Unknown");
        }
    };
    let mut pool = deployment(24);
    pool["spec"]["template"]["metadata"]["labels"][labels::DEPLOYMENT_NAME] = json!("pool");
    let plane = Plane::with(&pool, sick).await;
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await.objects.remove(0);
    assert_eq!((plan.summary.create, plan.is_estimate, plan.remarks.len()), (24, false, 0), "{plan:?}");
    assert!(plan.rounds.iter().all(|round| round.drain <= 1), "{:?}", plan.rounds);
}

#[tokio::test]
async fn steps_of_many_unhealthy_machines_are_not_known() {
    let sick = |seeds: &mut Vec<SeedObject>| {
        crowd(seeds, many());
        for (_, node) in seeds.iter_mut().filter(|(kind, _)| *kind == &NODES) {
            node["status"]["conditions"][0]["status"] = json!("Unknown");
        }
    };
    let mut pool = deployment(2);
    pool["spec"]["template"]["metadata"]["labels"][labels::DEPLOYMENT_NAME] = json!("pool");
    let plane = Plane::with(&pool, sick).await;
    let plan = plane.plan(&[change(ChangeContent::Nothing)]).await.objects.remove(0);
    assert_eq!((plan.summary.create, plan.is_estimate, plan.rounds.len()), (many(), true, 0), "{:?}", plan.remarks);
    assert_eq!(plan.duration, None);
}

#[tokio::test]
async fn nodes_in_different_stages_of_an_update_are_not_alike() {
    let mut pool = deployment(24);
    pool["spec"]["strategy"] = json!({ "type": "InPlaceUpdate", "inPlaceUpdate": {
        "orchestrationType": "Auto", "maxSurge": 0, "maxUnavailable": 8 } });
    let selected = |seeds: &mut Vec<SeedObject>| {
        let node = seeds.iter_mut().find(|(kind, _)| *kind == &NODES).unwrap();
        node.1["metadata"]["labels"][labels::CANDIDATE_FOR_UPDATE] = json!(labels::SET);
    };
    let plan = Plane::with(&pool, selected).await;
    let plan = plan.patched(of_template(&json!({ "class": { "name": "small" } }))).await.objects.remove(0);
    assert_eq!((plan.summary.in_place, plan.remarks.len()), (24, 0), "{plan:?}");
}
