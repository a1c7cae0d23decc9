//! The acts of the demo. Each waits for a state and reports its duration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    scene::{Props, Scene},
    screen::Screen,
    stage::Stage,
    summary::{Act, Summary},
};
use crate::api::machine::{MachineDeployment, MachinePhase};

const FEWER: usize = 2;
/// Numbers of machines in titles.
const WORDS: [&str; 6] = ["no", "one", "two", "three", "four", "five"];
/// Time limit of an act.
const LIMIT: Duration = Duration::from_secs(150);

struct Play<'a> {
    stage: &'a Stage,
    scene: Scene,
    screen: &'a Screen,
    acts: Vec<Act>,
    replicas: usize,
}

/// Plays all acts, with `keep` all but the last one.
pub async fn play(stage: &Stage, screen: &Screen, keep: bool) -> Result<Summary> {
    let start = Instant::now();
    let scene = Scene::watch(&stage.client, &stage.cloud);
    let mut play = Play { stage, scene, screen, acts: Vec::new(), replicas: stage.cloud.replicas() };
    let has_orphan = play.create_by_hand().await?;
    play.create().await?;
    play.roll().await?;
    play.kill().await?;
    play.scale_down().await?;
    if has_orphan {
        play.collect().await?;
    }
    if !keep {
        play.remove().await?;
    }
    let vms = stage.cloud.vms().await.context("count the VMs")?;
    Ok(Summary {
        acts: play.acts,
        seconds: start.elapsed().as_secs_f64(),
        vms_created: vms.created,
        vms_alive: vms.alive,
    })
}

impl Play<'_> {
    /// An orphan is deleted a minute after it is first seen, so it comes first.
    async fn create_by_hand(&mut self) -> Result<bool> {
        if !self.stage.cloud.create_by_hand().await.context("create VMs by hand")? {
            return Ok(false);
        }
        let reached = |props: &Props| !props.vms.by_hand.is_empty() && props.vms.foreign > 0;
        let result = "one has the tags of the pool and no machine; the other is of another cluster";
        self.act("Create two VMs by hand", None, result, reached, |_| 0).await?;
        Ok(true)
    }

    async fn create(&mut self) -> Result<()> {
        self.stage.apply_templates().await?;
        let replicas = self.replicas;
        let reached = move |props: &Props| running(props, "small") == replicas && available(props) == replicas;
        let title = format!("Create {} machines", word(replicas));
        let result = format!("{replicas} machines were created and joined the cluster");
        self.act(&title, None, &result, reached, |_| 0).await
    }

    async fn roll(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        self.patch(json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}})).await?;
        let replicas = self.replicas;
        let reached = move |props: &Props| {
            running(props, "large") == replicas && props.machines.len() == replicas && available(props) == replicas
        };
        let result = "every machine was replaced, one or two at a time, after its pods were evicted";
        let done = |props: &Props| running(props, "large") as u64;
        self.act("Roll them to a larger class", Some(replicas as u64), result, reached, done).await
    }

    async fn kill(&mut self) -> Result<()> {
        let props = self.scene.props();
        let victim = props.machines.values().find(|machine| machine.phase() == MachinePhase::Running);
        let victim = victim.context("no machine is Running")?;
        let (name, replicas) = (victim.name_any(), self.replicas);
        self.stage.cloud.kill(&victim.spec.provider_id).await.context("kill the VM")?;
        let gone = name.clone();
        let reached = move |props: &Props| !props.machines.contains_key(&gone) && running(props, "large") == replicas;
        let result = format!("{name} became Unknown, then Failed, and was replaced");
        self.act(&format!("Kill the VM of {name}"), None, &result, reached, |_| 0).await
    }

    async fn scale_down(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        self.patch(json!({"spec": {"replicas": FEWER}})).await?;
        let reached = |props: &Props| props.machines.len() == FEWER && running(props, "large") == FEWER;
        let gone = self.replicas.saturating_sub(FEWER);
        let machines = if gone == 1 { "machine was" } else { "machines were" };
        let result = format!("{gone} {machines} drained within the disruption budget and deleted");
        self.act("Scale down to two while pods run", None, &result, reached, |_| 0).await
    }

    async fn collect(&mut self) -> Result<()> {
        let reached = |props: &Props| props.vms.by_hand.is_empty();
        let result =
            "no machine had it in two lists a minute apart, so it was deleted; the VM of the other cluster stays";
        self.act("Collect the VM without a machine", None, result, reached, |_| 0).await?;
        ensure!(self.scene.props().vms.foreign > 0, "the VM of another cluster is gone");
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        // Pods without another node would block the drain, because of their disruption budget.
        let workloads: Api<Deployment> = Api::namespaced(self.stage.client.clone(), "demo");
        workloads.delete("workload", &DeleteParams::background()).await.context("delete the workload")?;
        self.deployments().delete("pool", &DeleteParams::background()).await.context("delete the deployment")?;
        let reached = |props: &Props| {
            let is_empty = props.machines.is_empty() && props.deployments.is_empty() && props.nodes.is_empty();
            is_empty && props.vms.alive == 0
        };
        self.act("Remove everything", None, "no machine, node or VM is left", reached, |_| 0).await
    }

    async fn act(
        &mut self,
        title: &str,
        steps: Option<u64>,
        result: &str,
        reached: impl Fn(&Props) -> bool,
        done: impl Fn(&Props) -> u64,
    ) -> Result<()> {
        let start = Instant::now();
        let mut picture = self.screen.picture(title, steps);
        let mut frames = 0u32;
        let name = format!("act-{}", self.acts.len() + 1);
        let show = |props: &Props| {
            picture.show(props, done(props));
            frames += 1;
            if frames == 12 {
                picture.record(&name);
            }
        };
        if !self.scene.until(LIMIT, show, reached).await {
            let phases: Vec<String> = self
                .scene
                .props()
                .machines
                .iter()
                .map(|(name, machine)| {
                    let operation = machine.status.clone().unwrap_or_default().last_operation;
                    format!("{name} is {:?}: {}", machine.phase(), operation.description)
                })
                .collect();
            bail!("{title}: not reached within {LIMIT:?}; {}", phases.join("; "));
        }
        let seconds = start.elapsed().as_secs_f64();
        picture.done(&format!("{result} ({seconds:.1} s)"));
        self.acts.push(Act { title: title.to_owned(), seconds, result: result.to_owned() });
        Ok(())
    }

    /// Waits for running pods, so that the drain has something to evict.
    async fn until_pods_run(&self) -> Result<()> {
        let runs = |props: &Props| {
            let running = props.pods.values().filter(|pod| {
                pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                    && pod.metadata.deletion_timestamp.is_none()
            });
            running.count() == 6
        };
        if self.scene.until(LIMIT, |_| {}, runs).await {
            Ok(())
        } else {
            bail!("the pods of the workload are not running")
        }
    }

    async fn patch(&self, patch: Value) -> Result<()> {
        let parameters = PatchParams::default();
        self.deployments().patch("pool", &parameters, &Patch::Merge(patch)).await.context("change the deployment")?;
        Ok(())
    }

    fn deployments(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.stage.client.clone(), "demo")
    }
}

fn word(number: usize) -> String {
    WORDS.get(number).map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

fn running(props: &Props, class: &str) -> usize {
    props.machines.values().filter(|machine| machine.is_available() && machine.spec.class.name == class).count()
}

fn available(props: &Props) -> usize {
    let deployment = props.deployments.get("pool").and_then(|deployment| deployment.status.as_ref());
    deployment.and_then(|status| usize::try_from(status.available_replicas).ok()).unwrap_or_default()
}
