//! Plays changes of a deployment, as the controllers would carry them out.

use std::{
    collections::BTreeSet,
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    answer::{ChangedField, FieldEffect},
    fields::{ValueDifference, to_value},
    fold::{DeploymentSample, FoldAccuracy, MachineFold},
    outcome::{effect, pause_between_rounds},
};
use crate::rehearsal::{
    cloud::{RehearsalTiming, ready},
    play::{DeploymentWrite, RehearsalError, RehearsalSetup, SeedObject, play},
    record::{RehearsalCourse, RehearsalEnding},
};
use mcm_api::machine::{Machine, MachineClass, MachineDeployment, MachinePhase, MachineSet};
use mcm_controllers::{Settings, machine_class::secret_refs};
use mcm_fake_api::{CLASSES, DEPLOYMENTS, MACHINES, NODES, SECRETS, SETS};

/// Real time after which a change is not played any further.
const BUDGET: Duration = Duration::from_mins(2);
/// The same for a rehearsal of few machines, beside which there is another way.
const BUDGET_OF_FEW: Duration = Duration::from_secs(30);
/// Real time after which a rehearsal has failed.
const LIMIT: Duration = Duration::from_mins(10);
/// The same for the effects of fields.
const BUDGET_OF_FIELDS: Duration = Duration::from_secs(60);
/// Time of a join where no machine of the deployment has joined.
const JOIN: Duration = Duration::from_mins(2);
/// Time of the deletion of a VM.
const LEAVE: Duration = Duration::from_secs(5);
/// Time of an update by the agent on a Node.
const UPDATE: Duration = Duration::from_mins(1);
/// Calls of the cloud that are made at a time. They are not queued: how long a real one takes is not known.
const CALLS: usize = 10_000;
/// More changed fields are not played one by one.
const MOST_FIELDS: usize = 40;
/// Machines from which progress is shown.
const MANY: usize = 300;
/// Time between two messages on a terminal, and elsewhere.
const LOOK: Duration = Duration::from_millis(250);
const NEWS: Duration = Duration::from_secs(10);

/// Names of Secrets with which no machine is created.
#[derive(Default)]
pub struct SecretFaults {
    /// They do not exist.
    pub missing: BTreeSet<String>,
    /// They have no user data.
    pub without_user_data: BTreeSet<String>,
}

/// The facts that all rehearsals of a deployment share.
pub struct RehearsalFacts<'a> {
    pub now: Timestamp,
    pub namespace: &'a str,
    pub settings: &'a Settings,
    pub has_target: bool,
    pub deployment: Option<&'a Value>,
    pub sets: Vec<&'a MachineSet>,
    pub machines: Vec<&'a Machine>,
    /// Other objects that may adopt some of these machines.
    pub rivals: Vec<SeedObject>,
    /// The classes as they will be.
    pub classes: Vec<&'a MachineClass>,
    pub secrets: &'a SecretFaults,
    /// Classes of which the cloud creates no VM.
    pub out_of_stock: &'a BTreeSet<String>,
    /// Nodes by name; `None` if they are not known, and so taken for ready.
    pub nodes: Option<Vec<Value>>,
    /// Users select the Nodes to be updated in place.
    pub selects: bool,
    /// How long the last joins took.
    pub join: Option<Duration>,
}

impl<'a> RehearsalFacts<'a> {
    /// Plays a change with few of the machines, if the course of all follows from that, or else with all.
    ///
    /// # Errors
    /// The rehearsal did not come to an end.
    pub async fn play<'f>(
        &self,
        name: &str,
        cue: Option<DeploymentWrite>,
        folds: &'f [MachineFold],
    ) -> Result<(RehearsalCourse, Option<(&'f MachineFold, FoldAccuracy)>), RehearsalError> {
        for fold in folds {
            let cue = cue.clone().map(|cue| fold.few.cue(cue));
            let course = self.with(&fold.few).play_all(name, cue, BUDGET_OF_FEW).await?;
            if let Some((course, trust)) = fold.unfold(course, pause_between_rounds(self.join)) {
                return Ok((course, Some((fold, trust))));
            }
        }
        Ok((self.play_all(name, cue, BUDGET).await?, None))
    }

    /// The scene with the machines that are played.
    fn with<'b>(&self, few: &'b DeploymentSample) -> RehearsalFacts<'b>
    where
        'a: 'b,
    {
        let machines = self.machines.iter().copied();
        let machines: Vec<&Machine> = machines.filter(|machine| few.machines.contains(&machine.name_any())).collect();
        let of_played: BTreeSet<&str> = machines.iter().filter_map(|machine| machine.node_name()).collect();
        let is_of_played =
            |node: &&Value| node["metadata"]["name"].as_str().is_some_and(|name| of_played.contains(name));
        RehearsalFacts {
            deployment: few.deployment.as_ref(),
            sets: few.sets.iter().collect(),
            nodes: self.nodes.as_ref().map(|nodes| nodes.iter().filter(is_of_played).cloned().collect()),
            machines,
            rivals: self.rivals.clone(),
            now: self.now,
            namespace: self.namespace,
            settings: self.settings,
            has_target: self.has_target,
            classes: self.classes.clone(),
            secrets: self.secrets,
            out_of_stock: self.out_of_stock,
            selects: self.selects,
            join: self.join,
        }
    }

    /// Plays a change, or what happens without one.
    ///
    /// # Errors
    /// The rehearsal did not come to an end.
    async fn play_all(
        &self,
        name: &str,
        cue: Option<DeploymentWrite>,
        budget: Duration,
    ) -> Result<RehearsalCourse, RehearsalError> {
        let mut seeds: Vec<SeedObject> = Vec::new();
        seeds.extend(self.deployment.map(|value| (&DEPLOYMENTS, value.clone())));
        seeds.extend(self.sets.iter().map(|set| (&SETS, to_value(set))));
        seeds.extend(self.machines.iter().map(|machine| (&MACHINES, to_value(machine))));
        seeds.extend(self.rivals.iter().cloned());
        for class in &self.classes {
            seeds.push((&CLASSES, served(class)));
            for secret in secret_refs(class).filter(|one| !self.secrets.missing.contains(&one.name)) {
                let namespace = if secret.namespace.is_empty() { self.namespace } else { &secret.namespace };
                seeds.push((
                    &SECRETS,
                    placeholder(namespace, &secret.name, !self.secrets.without_user_data.contains(&secret.name)),
                ));
            }
        }
        seeds.extend(self.seed_nodes());
        let (join, machines) = (self.join.unwrap_or(JOIN), self.machines.len().max(replicas_of(cue.as_ref())));
        let stage = RehearsalSetup {
            now: self.now,
            namespace: self.namespace.to_owned(),
            name: name.to_owned(),
            seeds,
            cues: cue.into_iter().collect(),
            settings: Settings { slots: CALLS, ..self.settings.clone() },
            has_target: self.has_target,
            pace: RehearsalTiming { join, leave: LEAVE, update: UPDATE },
            selects: self.selects,
            out_of_stock: self.out_of_stock.clone(),
            judge: self.judge(),
            budget,
        };
        let mut courses = watched(stage, LIMIT, machines).await?;
        courses.pop().ok_or(RehearsalError::Ended)
    }

    fn seed_nodes(&self) -> Vec<SeedObject> {
        match &self.nodes {
            Some(nodes) => nodes.iter().map(|node| (&NODES, node.clone())).collect(),
            None => self.machines.iter().filter_map(|machine| assumed(machine)).map(|node| (&NODES, node)).collect(),
        }
    }

    /// Classes are judged by the drivers of this build, as far as these serve them.
    fn judge(&self) -> crate::rehearsal::cloud::ClassValidator {
        let drivers = Arc::clone(&self.settings.drivers);
        let classes: Vec<MachineClass> = self.classes.iter().map(|class| (*class).clone()).collect();
        Arc::new(move |served| {
            let class = classes.iter().find(|class| class.metadata.name == served.metadata.name)?;
            drivers.validate(class).ok()
        })
    }

    /// The effect of each changed field: it is made alone to a deployment of one machine, which is played.
    ///
    /// # Errors
    /// The rehearsal did not come to an end.
    pub async fn fields(
        &self,
        live: &MachineDeployment,
        differences: Vec<ValueDifference>,
    ) -> Result<Vec<ChangedField>, RehearsalError> {
        let mut fields: Vec<ChangedField> = differences.iter().map(known_effect).collect();
        let mut played: Vec<usize> =
            (0..fields.len()).filter(|one| fields[*one].effect == FieldEffect::Unknown).collect();
        if played.is_empty() || played.len() > MOST_FIELDS {
            return Ok(fields);
        }
        // The strategy decides on the effects of the others, and a paused deployment shows none.
        played.sort_by_key(|one| match differences[*one].path.get(1).map(String::as_str) {
            Some("strategy") => 0,
            Some("paused") => 2,
            _ => 1,
        });
        let mut value = alone(live);
        let mut cues = vec![DeploymentWrite::Create(value.clone())];
        for one in &played {
            mcm_api::patch::apply(&mut value, &differences[*one].patch());
            cues.push(DeploymentWrite::Write(value.clone()));
        }
        let classes: BTreeSet<&str> = differences
            .iter()
            .filter_map(|one| one.new.as_str())
            .chain([live.spec.template.spec.class.name.as_str()])
            .collect();
        let mut seeds: Vec<SeedObject> = vec![(&SECRETS, placeholder(self.namespace, "rehearsal", true))];
        seeds.extend(classes.into_iter().map(|name| {
            (
                &CLASSES,
                json!({
                    "metadata": { "name": name, "namespace": self.namespace },
                    "provider": "", "providerSpec": {},
                    "secretRef": { "name": "rehearsal", "namespace": self.namespace },
                }),
            )
        }));
        let quick = Duration::from_secs(1);
        let stage = RehearsalSetup {
            now: self.now,
            namespace: self.namespace.to_owned(),
            name: live.name_any(),
            seeds,
            cues,
            settings: self.settings.clone(),
            has_target: true,
            pace: RehearsalTiming { join: quick, leave: quick, update: quick },
            selects: true,
            out_of_stock: BTreeSet::new(),
            judge: Arc::new(|_| None),
            budget: BUDGET_OF_FIELDS,
        };
        let courses = watched(stage, LIMIT, 0).await?;
        if courses.iter().any(|course| course.ending == RehearsalEnding::Cut) {
            return Ok(fields);
        }
        for (pair, one) in courses.windows(2).zip(played) {
            fields[one].effect = effect(&pair[0], &pair[1]);
        }
        Ok(fields)
    }
}

/// The replicas that a deployment gets.
fn replicas_of(cue: Option<&DeploymentWrite>) -> usize {
    let replicas = match cue {
        Some(DeploymentWrite::Create(value) | DeploymentWrite::Write(value)) => value["spec"]["replicas"].as_u64(),
        Some(DeploymentWrite::Delete) | None => None,
    };
    replicas.and_then(|replicas| usize::try_from(replicas).ok()).unwrap_or_default()
}

/// The effect of a field that needs no rehearsal.
fn known_effect(difference: &ValueDifference) -> ChangedField {
    let path: Vec<&str> = difference.path.iter().map(String::as_str).collect();
    let effect = match path.as_slice() {
        _ if difference.is_same => FieldEffect::Same,
        ["spec", "replicas"] => FieldEffect::Scale,
        _ => FieldEffect::Unknown,
    };
    difference.field(effect)
}

/// The deployment with one machine, as if it were new.
fn alone(live: &MachineDeployment) -> Value {
    let mut value = to_value(live);
    value["metadata"] = json!({
        "name": live.name_any(),
        "namespace": live.metadata.namespace,
        "labels": live.metadata.labels,
    });
    value["spec"]["replicas"] = json!(1);
    if let Some(spec) = value["spec"].as_object_mut() {
        spec.remove("paused");
        spec.remove("rollbackTo");
    }
    value
}

/// Plays, and shows progress.
async fn watched(
    stage: RehearsalSetup,
    limit: Duration,
    machines: usize,
) -> Result<Vec<RehearsalCourse>, RehearsalError> {
    let progress = Arc::new(AtomicUsize::new(0));
    let playing = play(stage, &progress, limit);
    if machines < MANY {
        return playing.await;
    }
    let is_terminal = io::stderr().is_terminal();
    let (pause, before, after) = if is_terminal { (LOOK, "\r\x1b[K", "") } else { (NEWS, "", "\n") };
    let mut playing = std::pin::pin!(playing);
    loop {
        tokio::select! {
            done = &mut playing => {
                if is_terminal {
                    show(before);
                }
                return done;
            }
            () = tokio::time::sleep(pause) => {
                let count = progress.load(Ordering::Relaxed);
                show(&format!("{before}rehearsing: {count} machines joined or gone{after}"));
            }
        }
    }
}

/// Progress is no result: a failure to show it does not matter.
fn show(text: &str) {
    let mut stderr = io::stderr().lock();
    drop(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush()));
}

/// The only driver of a rehearsal serves classes that name none.
fn served(class: &MachineClass) -> Value {
    let mut value = to_value(class);
    value["provider"] = json!("");
    value
}

/// A Secret of that name. The values of the real one are never kept.
fn placeholder(namespace: &str, name: &str, has_user_data: bool) -> Value {
    // "rehearsal", in base64.
    let key = if has_user_data { "userData" } else { "rehearsal" };
    json!({ "metadata": { "name": name, "namespace": namespace, "uid": format!("secret-{name}") }, "data": { key: "cmVoZWFyc2Fs" } })
}

/// A Node for a machine that has one and is not known to be unhealthy.
fn assumed(machine: &Machine) -> Option<Value> {
    let name = machine.node_name()?;
    let is_up = matches!(machine.phase(), MachinePhase::Running | MachinePhase::InPlaceUpdating);
    let condition = if is_up { vec![ready(Timestamp::UNIX_EPOCH)] } else { Vec::new() };
    Some(json!({
        "metadata": { "name": name, "uid": format!("node-{name}"), "labels": { "kubernetes.io/hostname": name } },
        "spec": { "providerID": machine.spec.provider_id },
        "status": { "conditions": condition },
    }))
}
