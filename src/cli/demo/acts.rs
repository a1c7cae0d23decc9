//! The acts of the demo. Each waits for a state and reports its duration.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
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

const REPLICAS: usize = 5;
const FEWER: usize = 2;
/// Time limit of an act.
const LIMIT: Duration = Duration::from_secs(90);

struct Play<'a> {
    stage: &'a Stage,
    scene: Scene,
    screen: &'a Screen,
    acts: Vec<Act>,
}

/// Plays all acts, with `keep` all but the last one.
pub async fn play(stage: &Stage, screen: &Screen, keep: bool) -> Result<Summary> {
    let start = Instant::now();
    let mut play = Play { stage, scene: Scene::watch(&stage.client), screen, acts: Vec::new() };
    play.create().await?;
    play.roll().await?;
    play.kill().await?;
    play.scale_down().await?;
    if !keep {
        play.remove().await?;
    }
    let statistics = stage.statistics().await?;
    let count = |name: &str| statistics.get(name).and_then(Value::as_u64).unwrap_or_default();
    Ok(Summary {
        acts: play.acts,
        seconds: start.elapsed().as_secs_f64(),
        vms_created: count("created"),
        vms_alive: count("alive"),
    })
}

impl Play<'_> {
    async fn create(&mut self) -> Result<()> {
        self.stage.apply_templates().await?;
        let reached = |props: &Props| running(props, "small") == REPLICAS && available(props) == REPLICAS;
        let result = format!("{REPLICAS} machines were created and joined the cluster");
        self.act("Create five machines", None, &result, reached, |_| 0).await
    }

    async fn roll(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        self.patch(json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}})).await?;
        let reached = |props: &Props| {
            running(props, "large") == REPLICAS && props.machines.len() == REPLICAS && available(props) == REPLICAS
        };
        let result = "every machine was replaced, one or two at a time, after its pods were evicted".to_owned();
        let done = |props: &Props| running(props, "large") as u64;
        self.act("Roll them to a larger class", Some(REPLICAS as u64), &result, reached, done).await
    }

    async fn kill(&mut self) -> Result<()> {
        let props = self.scene.props();
        let victim = props.machines.values().find(|machine| machine.phase() == MachinePhase::Running);
        let victim = victim.context("no machine is Running")?;
        let name = victim.name_any();
        self.stage.kill_vm(&victim.spec.provider_id).await?;
        let gone = name.clone();
        let reached = move |props: &Props| !props.machines.contains_key(&gone) && running(props, "large") == REPLICAS;
        let result = format!("{name} became Unknown, then Failed, and was replaced");
        self.act(&format!("Kill the VM of {name}"), None, &result, reached, |_| 0).await
    }

    async fn scale_down(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        self.patch(json!({"spec": {"replicas": FEWER}})).await?;
        let reached = |props: &Props| props.machines.len() == FEWER && running(props, "large") == FEWER;
        let result = format!("{} machines were drained within the disruption budget and deleted", REPLICAS - FEWER);
        self.act("Scale down to two while pods run", None, &result, reached, |_| 0).await
    }

    async fn remove(&mut self) -> Result<()> {
        // Pods without another node would block the drain, because of their disruption budget.
        let workloads: Api<Deployment> = Api::namespaced(self.stage.client.clone(), "demo");
        workloads.delete("workload", &DeleteParams::background()).await.context("delete the workload")?;
        self.deployments().delete("pool", &DeleteParams::background()).await.context("delete the deployment")?;
        let reached =
            |props: &Props| props.machines.is_empty() && props.deployments.is_empty() && props.nodes.is_empty();
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

fn running(props: &Props, class: &str) -> usize {
    props.machines.values().filter(|machine| machine.is_available() && machine.spec.class.name == class).count()
}

fn available(props: &Props) -> usize {
    let deployment = props.deployments.get("pool").and_then(|deployment| deployment.status.as_ref());
    deployment.and_then(|status| usize::try_from(status.available_replicas).ok()).unwrap_or_default()
}
