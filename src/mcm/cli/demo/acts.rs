//! The acts of the demo. Each waits for a state and reports its duration.

use std::future::ready;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::{
    props::{self, DemoObjects},
    screen::DemoScreen,
    show::DemoShow,
    stage::DemoEnvironment,
    summary::DemoSummary,
};
use crate::api::machine::{MachineDeployment, MachinePhase};

const FEWER: usize = 2;
/// Numbers of machines in titles.
const WORDS: [&str; 6] = ["no", "one", "two", "three", "four", "five"];

struct DemoRun<'a> {
    stage: &'a DemoEnvironment,
    show: DemoShow<'a, DemoObjects>,
    replicas: usize,
}

/// Plays all acts, with `keep` all but the last one.
pub async fn play(stage: &DemoEnvironment, screen: &DemoScreen, keep: bool) -> Result<DemoSummary> {
    let show = DemoShow::new(screen, props::watch(&stage.client, &stage.cloud));
    let mut play = DemoRun { stage, show, replicas: stage.cloud.replicas() };
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
    Ok(play.show.end(vms.created, vms.alive))
}

impl DemoRun<'_> {
    /// First, because an orphan is deleted a minute after it is first seen.
    async fn create_by_hand(&mut self) -> Result<bool> {
        if !self.stage.cloud.create_by_hand().await.context("create VMs by hand")? {
            return Ok(false);
        }
        let reached = |props: &DemoObjects| !props.vms.by_hand.is_empty() && props.vms.foreign > 0;
        let result = "one has the tags of the pool and no machine; the other is of another cluster";
        self.show.act("Create two VMs by hand", ready(Ok(())), reached, None, result).await?;
        Ok(true)
    }

    async fn create(&mut self) -> Result<()> {
        let replicas = self.replicas;
        let reached = move |props: &DemoObjects| running(props, "small") == replicas && available(props) == replicas;
        let title = format!("Create {} machines", word(replicas));
        let result = format!("{replicas} machines were created and joined the cluster");
        self.show.act(&title, self.stage.apply_templates(), reached, None, &result).await
    }

    async fn roll(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        let replicas = self.replicas;
        let reached = move |props: &DemoObjects| {
            running(props, "large") == replicas && props.machines.len() == replicas && available(props) == replicas
        };
        let doing = patch(self.stage, json!({"spec": {"template": {"spec": {"class": {"name": "large"}}}}}));
        let progress: (u64, &dyn Fn(&DemoObjects) -> u64) = (replicas as u64, &|props| running(props, "large") as u64);
        let result = "every machine was replaced, one or two at a time, after its pods were evicted";
        self.show.act("Roll them to a larger class", doing, reached, Some(progress), result).await
    }

    async fn kill(&mut self) -> Result<()> {
        let props = self.show.props();
        // The oldest, because a machine that fails when it is young has to be 20 s old before it is replaced.
        let candidates = props.machines.values().filter(|machine| machine.phase() == MachinePhase::Running);
        let victim = candidates.min_by_key(|machine| machine.creation_timestamp()).context("no machine is Running")?;
        let (name, replicas, cloud) = (victim.name_any(), self.replicas, &self.stage.cloud);
        let doing = async { cloud.kill(&victim.spec.provider_id).await.context("kill the VM") };
        let gone = name.clone();
        let reached =
            move |props: &DemoObjects| !props.machines.contains_key(&gone) && running(props, "large") == replicas;
        let result = format!("mcm detected that the VM of {name} was gone, and replaced the machine");
        self.show.act(&format!("Kill the VM of {name}"), doing, reached, None, &result).await
    }

    async fn scale_down(&mut self) -> Result<()> {
        self.until_pods_run().await?;
        let reached = |props: &DemoObjects| props.machines.len() == FEWER && running(props, "large") == FEWER;
        let gone = self.replicas.saturating_sub(FEWER);
        let machines = if gone == 1 { "machine was" } else { "machines were" };
        let doing = patch(self.stage, json!({"spec": {"replicas": FEWER}}));
        let result = format!("{gone} {machines} drained within the disruption budget and deleted");
        self.show.act("Scale down to two while pods run", doing, reached, None, &result).await
    }

    async fn collect(&mut self) -> Result<()> {
        let reached = |props: &DemoObjects| props.vms.by_hand.is_empty();
        let result =
            "no machine had it in two lists a minute apart, so it was deleted; the VM of the other cluster stays";
        self.show.act("Collect the VM without a machine", ready(Ok(())), reached, None, result).await?;
        ensure!(self.show.props().vms.foreign > 0, "the VM of another cluster is gone");
        Ok(())
    }

    async fn remove(&mut self) -> Result<()> {
        let reached = |props: &DemoObjects| {
            let is_empty = props.machines.is_empty() && props.deployments.is_empty() && props.nodes.is_empty();
            is_empty && props.vms.alive == 0
        };
        let result = "no machine, node or VM is left";
        self.show.act("Remove everything", delete(self.stage), reached, None, result).await
    }

    /// Waits for running pods, so that the drain has something to evict.
    async fn until_pods_run(&self) -> Result<()> {
        let runs = |props: &DemoObjects| {
            let running = props.pods.values().filter(|pod| {
                pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
                    && pod.metadata.deletion_timestamp.is_none()
            });
            running.count() == 6
        };
        self.show.until("the pods of the workload to run", runs).await
    }
}

async fn patch(stage: &DemoEnvironment, patch: Value) -> Result<()> {
    let parameters = PatchParams::default();
    deployments(stage).patch("pool", &parameters, &Patch::Merge(patch)).await.context("change the deployment")?;
    Ok(())
}

async fn delete(stage: &DemoEnvironment) -> Result<()> {
    // Pods without another node would block the drain, because of their disruption budget.
    let workloads: Api<Deployment> = Api::namespaced(stage.client.clone(), "demo");
    workloads.delete("workload", &DeleteParams::background()).await.context("delete the workload")?;
    deployments(stage).delete("pool", &DeleteParams::background()).await.context("delete the deployment")?;
    Ok(())
}

fn deployments(stage: &DemoEnvironment) -> Api<MachineDeployment> {
    Api::namespaced(stage.client.clone(), "demo")
}

fn word(number: usize) -> String {
    WORDS.get(number).map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

fn running(props: &DemoObjects, class: &str) -> usize {
    props.machines.values().filter(|machine| machine.is_available() && machine.spec.class.name == class).count()
}

fn available(props: &DemoObjects) -> usize {
    let deployment = props.deployments.get("pool").and_then(|deployment| deployment.status.as_ref());
    deployment.and_then(|status| usize::try_from(status.available_replicas).ok()).unwrap_or_default()
}
