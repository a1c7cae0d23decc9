//! Random changes of the deployment `pool`: the prediction of `mcm plan` is compared with what then happens.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use mcm::api::{labels::FREEZE, machine::MachineDeployment};
use serde_json::{Value, json};
use tokio::process::Command;

use super::{objects, program::mcm, scene::Scene, wait, world::World};

/// A rollout of five machines with a slow cloud takes less.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs `mcm plan ... -o json`.
pub async fn plan(world: &World, arguments: &[String]) -> (i32, Value) {
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
pub type Change = Vec<(String, Value)>;

/// Numbers that are the same for a seed on every machine (splitmix64).
pub struct Rng(pub u64);

impl Rng {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % count
    }
}

pub fn any_change(rng: &mut Rng) -> Change {
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
    change.iter().for_each(|one| objects::merge(&mut spec, nest(one)));
    json!({ "spec": spec })
}

/// The deployment, once it is settled.
async fn settled(world: &World, limit: Duration) -> MachineDeployment {
    let api = world.deployments();
    wait::until_within(limit, "the pool to settle", async || {
        let pool = api.get("pool").await.unwrap();
        let status = pool.status.clone().unwrap_or_default();
        let wanted = pool.spec.replicas;
        let is_settled = Some(status.observed_generation) == pool.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3];
        let machines = world.machines().list(&ListParams::default()).await.unwrap();
        // The Go program freezes a pool that has too many machines, and a plan predicts that nothing is created.
        let is_frozen = pool.labels().contains_key(FREEZE);
        let is_done = is_settled && !is_frozen && machines.items.len() == usize::try_from(wanted).unwrap();
        is_done.then_some(pool)
    })
    .await
}

/// The machines in the order in which they were created, and in which their deletion began.
#[derive(Default)]
struct Acts {
    seen: BTreeMap<String, bool>,
    acts: Vec<Act>,
}

#[derive(Clone, Debug, PartialEq)]
enum Act {
    Create,
    Delete(String),
}

impl Acts {
    fn saw(&mut self, scene: &Scene) {
        for (name, machine) in &scene.machines {
            let is_deleting = machine.metadata.deletion_timestamp.is_some();
            let known = self.seen.insert(name.clone(), is_deleting);
            if known.is_none() {
                self.acts.push(Act::Create);
            }
            if is_deleting && known != Some(true) {
                self.acts.push(Act::Delete(name.clone()));
            }
        }
    }

    /// Acts of the machines that the scene has from now on.
    fn follow(world: &World) -> Arc<Mutex<Self>> {
        let acts = Arc::<Mutex<Self>>::default();
        let seen = Arc::clone(&acts);
        world.scene.always("acts are recorded", move |scene| {
            let mut acts = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let is_first = acts.seen.is_empty();
            acts.saw(scene);
            if is_first {
                acts.acts.clear();
            }
            true
        });
        acts
    }
}

/// The part of a plan about one object.
struct Said(Value);

impl Said {
    fn names(&self, actions: &[&str]) -> BTreeSet<String> {
        let machines = self.0["machines"].as_array().unwrap().iter();
        let chosen = machines.filter(|machine| actions.contains(&machine["action"].as_str().unwrap()));
        chosen.map(|machine| machine["name"].as_str().unwrap().to_owned()).collect()
    }

    fn bounds(&self) -> Option<(usize, usize)> {
        let number = |field: &str| usize::try_from(self.0["bounds"][field].as_u64()?).ok();
        Some((number("maxTotal")?, number("minAvailable")?))
    }

    /// The round of each machine that is deleted.
    fn steps(&self) -> BTreeMap<String, usize> {
        let machines = self.0["machines"].as_array().unwrap().iter();
        let step = |machine: &Value| {
            Some((machine["name"].as_str()?.to_owned(), usize::try_from(machine["step"].as_u64()?).ok()?))
        };
        machines.filter_map(step).collect()
    }

    /// Machines that are created before each round, and in all.
    fn created_before(&self) -> Vec<usize> {
        let mut before = vec![0, 0];
        for round in self.0["rounds"].as_array().unwrap() {
            let number = |field: &str| usize::try_from(round[field].as_u64().unwrap()).unwrap();
            for _ in 0..number("times") {
                before.push(before.last().unwrap() + number("create"));
            }
        }
        before
    }

    /// The rounds are sets: within one, machines are created and deleted in any order.
    fn order(&self, acts: &[Act]) -> Vec<String> {
        let (steps, before) = (self.steps(), self.created_before());
        let (mut created, mut last, mut wrong) = (0, 0, Vec::new());
        for act in acts {
            let Act::Delete(name) = act else {
                created += 1;
                continue;
            };
            let Some(&step) = steps.get(name) else { continue };
            if step < last {
                wrong.push(format!("{name} of round {step} was deleted after a machine of round {last}"));
            }
            if created < before[step] || created > before[step + 1] {
                let expected = format!("{} to {}", before[step], before[step + 1]);
                wrong.push(format!("{name} of round {step} was deleted after {created} creations, not {expected}"));
            }
            last = last.max(step);
        }
        wrong
    }
}

/// Plans a change, makes it, and returns what happened otherwise.
pub async fn compare(world: &World, change: &Change) -> Vec<String> {
    compare_within(world, change, LIMIT).await
}

/// The same for controllers that take this long at most.
pub async fn compare_within(world: &World, change: &Change, limit: Duration) -> Vec<String> {
    settled(world, limit).await;
    let names = || world.scene.now().names();
    let before = names();
    let ages = created(&world.scene.now());
    let version = world.deployments().get("pool").await.unwrap().resource_version();
    let mut arguments = vec!["pool".to_owned()];
    for (field, value) in change {
        arguments.extend(["--set".to_owned(), format!("{field}={}", value.to_string().trim_matches('"'))]);
    }
    let (code, answer) = plan(world, &arguments).await;
    assert_eq!((code, &answer["complete"], &answer["blocked"]), (0, &json!(true), &json!(false)), "{answer}");
    assert_eq!(world.deployments().get("pool").await.unwrap().resource_version(), version, "nothing was written");
    let said = Said(answer["objects"][0].clone());
    assert_eq!(said.0["settles"], true, "{answer}");

    let broken = Arc::<Mutex<BTreeSet<String>>>::default();
    if let Some((most, least)) = said.bounds() {
        let (most, least) = (most.max(before.len()), least.min(before.len()));
        let found = Arc::clone(&broken);
        world.scene.always("bounds are checked", move |scene| {
            let (total, available) = (scene.live().count(), scene.available());
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            if total > most {
                found.insert(format!("{total} machines, at most {most} were expected"));
            }
            if available < least {
                found.insert(format!("{available} available machines, at least {least} were expected"));
            }
            true
        });
    }
    let acts = Acts::follow(world);
    if !change.is_empty() {
        world.deployments().patch("pool", &PatchParams::default(), &Patch::Merge(patch_of(change))).await.unwrap();
    }
    let wanted = settled(world, limit).await.spec.replicas;
    world.until("the last change to be seen", |scene| scene.complete("pool", wanted)).await;
    world.scene.forget_rules();

    let after = names();
    let acts = acts.lock().unwrap_or_else(PoisonError::into_inner).acts.clone();
    let mut wrong: Vec<String> = broken.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
    let mut same = |what: &str, said: BTreeSet<String>, done: BTreeSet<String>| {
        if said != done {
            wrong.push(format!("{what}: {said:?} was expected, and it was {done:?}"));
        }
    };
    same("kept", said.names(&["Keep", "Update"]), before.intersection(&after).cloned().collect());
    same("gone", said.names(&["Replace", "Delete"]), before.difference(&after).cloned().collect());
    let created = acts.iter().filter(|act| **act == Act::Create).count();
    if said.0["summary"]["create"].as_u64() != u64::try_from(created).ok() {
        wrong.push(format!("{created} machines were created, {} were expected", said.0["summary"]["create"]));
    }
    let orders = said.order(&acts);
    if !orders.is_empty() {
        wrong.push(format!("{}; rounds: {}; acts: {acts:?}", orders.join("; "), said.0["rounds"]));
    }
    if !wrong.is_empty() {
        wrong.push(format!("created: {}", ages.join(", ")));
    }
    wrong
}

/// When each machine was created, in whole seconds, as sets see it.
fn created(scene: &Scene) -> Vec<String> {
    let mut created: Vec<_> = scene
        .machines
        .iter()
        .map(|(name, machine)| (machine.creation_timestamp().map(|time| time.0.as_second()), name))
        .collect();
    created.sort();
    let first = created.first().and_then(|(at, _)| *at).unwrap_or_default();
    created.into_iter().map(|(at, name)| format!("{name} at {} s", at.unwrap_or_default() - first)).collect()
}
