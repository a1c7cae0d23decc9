//! `mcm plan` on a real control plane: what it says about a change is compared with what the controllers then do.

use std::{collections::BTreeSet, env};

use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use mcm::api::machine::MachineDeployment;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{program::mcm, world::World};

/// How many random changes are compared, unless `MCM_PLANS` says another number.
const CHANGES: u64 = 10;

/// Runs `mcm plan ... -o json`.
async fn plan(world: &World, arguments: &[String]) -> (i32, Value) {
    let output = Command::new(mcm())
        .arg("plan")
        .args(arguments)
        .args(["-n", &world.namespace, "-o", "json", "--kubeconfig"])
        .arg(world.admin())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), serde_json::from_str(&text).unwrap())
}

/// Fields of the spec with their new values.
type Change = Vec<(String, Value)>;

/// Numbers that are the same for a seed on every machine (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % count
    }
}

fn any_change(rng: &mut Rng) -> Change {
    let mut change = Change::new();
    let mut set = |field: &str, value: Value| change.push((field.to_owned(), value));
    match rng.below(8) {
        0..=2 => set("template.spec.class.name", ["small", "large"][usize::try_from(rng.below(2)).unwrap()].into()),
        3 => set("template.spec.drainTimeout", format!("{}m0s", 1 + rng.below(5)).into()),
        4 => set("template.spec.nodeTemplate.metadata.labels.team", format!("team-{}", rng.below(4)).into()),
        5 => set("minReadySeconds", (rng.below(2)).into()),
        6 => set("template.spec.class.name", "large".into()),
        _ => {}
    }
    if rng.below(3) == 0 {
        set("replicas", (1 + rng.below(5)).into());
    }
    if rng.below(3) == 0 {
        let (surge, unavailable) = [(1, 0), (0, 1), (1, 1), (2, 1)][usize::try_from(rng.below(4)).unwrap()];
        set("strategy.rollingUpdate.maxSurge", surge.into());
        set("strategy.rollingUpdate.maxUnavailable", unavailable.into());
    }
    change
}

fn patch_of(change: &Change) -> Value {
    let nest = |(field, value): &(String, Value)| {
        field.split('.').rev().fold(value.clone(), |inner, part| json!({ part: inner }))
    };
    let mut spec = json!({});
    change.iter().for_each(|one| crate::support::objects::merge(&mut spec, nest(one)));
    json!({ "spec": spec })
}

fn names(plan: &Value, actions: &[&str]) -> BTreeSet<String> {
    let machines = plan["machines"].as_array().unwrap().iter();
    let chosen = machines.filter(|machine| actions.contains(&machine["action"].as_str().unwrap()));
    chosen.map(|machine| machine["name"].as_str().unwrap().to_owned()).collect()
}

/// The deployment, once it is settled.
async fn settled(world: &World) -> MachineDeployment {
    let api = world.deployments();
    crate::support::wait::until("the pool to settle", async || {
        let pool = api.get("pool").await.unwrap();
        let status = pool.status.clone().unwrap_or_default();
        let wanted = pool.spec.replicas;
        let is_settled = Some(status.observed_generation) == pool.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3];
        let machines = world.machines().list(&ListParams::default()).await.unwrap();
        let is_done = is_settled && machines.items.len() == usize::try_from(wanted).unwrap();
        is_done.then_some(pool)
    })
    .await
}

async fn all_names(world: &World) -> BTreeSet<String> {
    world.machines().list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect()
}

#[tokio::test]
async fn what_a_plan_says_about_random_changes_is_what_then_happens() {
    let world = World::new("plan").await;
    let _manager = world.run(&[]).await;
    world.pool(3, json!({})).await;
    world.settled(3, "small").await;
    let seed: u64 = env::var("MCM_PLANS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let count = env::var("MCM_PLANS").ok().and_then(|text| text.parse().ok()).unwrap_or(CHANGES);
    let mut rng = Rng(seed);
    for number in 0..count {
        let change = any_change(&mut rng);
        let what = format!("seed {seed}, change {number}: {change:?}");
        settled(&world).await;
        let before = all_names(&world).await;
        let version = world.deployments().get("pool").await.unwrap().resource_version();
        let mut arguments = vec!["pool".to_owned()];
        for (field, value) in &change {
            arguments.extend(["--set".to_owned(), format!("{field}={}", value.to_string().trim_matches('"'))]);
        }
        let (code, answer) = plan(&world, &arguments).await;
        assert_eq!(
            (code, &answer["complete"], &answer["blocked"]),
            (0, &json!(true), &json!(false)),
            "{what}: {answer}"
        );
        assert_eq!(world.deployments().get("pool").await.unwrap().resource_version(), version, "{what}");
        let object = &answer["objects"][0];
        assert_eq!(object["settles"], true, "{what}: {answer}");

        if let (Some(most), Some(least)) =
            (object["bounds"]["maxTotal"].as_u64(), object["bounds"]["minAvailable"].as_u64())
        {
            let (most, least) = (usize::try_from(most).unwrap(), usize::try_from(least).unwrap());
            let (most, least) = (most.max(before.len()), least.min(before.len()));
            world.scene.always(&format!("{what}: {most} at most, {least} at least"), move |scene| {
                scene.live().count() <= most && scene.available() >= least
            });
        }
        if !change.is_empty() {
            world.deployments().patch("pool", &PatchParams::default(), &Patch::Merge(patch_of(&change))).await.unwrap();
        }
        settled(&world).await;
        world.scene.forget_rules();
        let after = all_names(&world).await;
        let kept: BTreeSet<_> = before.intersection(&after).cloned().collect();
        let gone: BTreeSet<_> = before.difference(&after).cloned().collect();
        assert_eq!(names(object, &["Keep", "Update"]), kept, "{what}: kept: {answer}");
        assert_eq!(names(object, &["Replace", "Delete"]), gone, "{what}: gone: {answer}");
        let created = after.difference(&before).count();
        assert_eq!(object["summary"]["create"].as_u64(), u64::try_from(created).ok(), "{what}: created: {answer}");
    }
}

#[tokio::test]
async fn a_change_that_the_api_server_refuses_is_refused_and_fail_on_exits_with_3() {
    let world = World::new("plan-refused").await;
    let _manager = world.run(&[]).await;
    world.pool(1, json!({})).await;
    world.settled(1, "small").await;
    let arguments = |set: &str| ["pool", "--set", set].map(str::to_owned).to_vec();
    let (code, answer) = plan(&world, &arguments("replicas=many")).await;
    assert_eq!((code, &answer["objects"][0]["verdict"]), (3, &json!("Refused")), "{answer}");
    let mut replace = arguments("template.spec.class.name=large");
    let (code, answer) = plan(&world, &replace).await;
    assert_eq!((code, &answer["objects"][0]["verdict"]), (0, &json!("Replaces")), "{answer}");
    assert_eq!(answer["notes"], json!([]), "{answer}");
    replace.push("--fail-on=replace".to_owned());
    assert_eq!(plan(&world, &replace).await.0, 3);
}
