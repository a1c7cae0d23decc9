//! Machines for VMs that have none, as after the restore of an older etcd.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::place::LocationOptions;
use crate::{
    api::{
        machine::{Machine, MachineClass, MachineSet},
        node::Node,
    },
    cli::{format::OutputFormat, reading::cloud::vms_of_class},
};
use mcm_adopt::observe::MigrationEnvironment;
use mcm_insight::table::table;

pub use mcm_controllers::orphans::{
    ADOPTED_FOR, AdoptionOffer, ClassVms, NamespaceObjects, OfferStep, TargetNode, offers,
};
use mcm_runtime::{owners::VmOwners, secrets::SecretCache};

/// Pause before machines are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The VMs without a machine, as a table or as JSON. False if something is in the way of one.
///
/// # Errors
/// A cluster or a cloud cannot be read.
pub(super) async fn plan(place: &LocationOptions, format: OutputFormat) -> Result<(String, bool)> {
    let world = place.world_of_orphans().await?;
    let offers = read(&world).await?;
    Ok((shown(&offers, format), offers.iter().all(|offer| offer.step.is_ok())))
}

/// Creates the machines, and gives them to their sets once they run.
///
/// # Errors
/// A cluster or a cloud cannot be read or written, or a machine does not run in time. The command can be repeated.
pub(super) async fn apply(place: &LocationOptions, limit: Duration) -> Result<()> {
    let world = place.world_of_orphans().await?;
    let machines: Api<Machine> = Api::namespaced(world.management.clone(), &world.namespace);
    let mut last_progress = Instant::now();
    loop {
        let offers = read(&world).await?;
        let mut open = Vec::new();
        for AdoptionOffer { machine: name, step, set, vm, .. } in offers {
            match step {
                Ok(OfferStep::Create(machine)) => {
                    let created = Box::pin(machines.create(&PostParams::default(), &machine)).await;
                    created.with_context(|| format!("create machine {name} for VM {vm}"))?;
                    eprintln!("machine {name} created for VM {vm}");
                    last_progress = Instant::now();
                    open.push(name);
                }
                Ok(OfferStep::Wait) => open.push(name),
                Ok(OfferStep::Join { machine, labels }) => {
                    let patch = Patch::Merge(join(&machine, &labels));
                    let joined = Box::pin(machines.patch(&name, &PatchParams::default(), &patch)).await;
                    joined.with_context(|| format!("give machine {name} the labels of MachineSet {set}"))?;
                    eprintln!("machine {name} runs: MachineSet {set} takes it over");
                    last_progress = Instant::now();
                }
                Err(reason) => eprintln!("VM {vm} is left: {reason}"),
            }
        }
        if open.is_empty() {
            return Ok(());
        }
        if last_progress.elapsed() > limit {
            bail!(
                "machines do not run after {limit:?}: {}; mcm why names the reason, and the command can be repeated",
                open.join(", ")
            );
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// The patch that ends the adoption, for the Machine as it was read.
fn join(machine: &Machine, labels: &BTreeMap<String, String>) -> Value {
    json!({ "metadata": {
        "uid": machine.metadata.uid, "resourceVersion": machine.metadata.resource_version,
        "labels": labels, "annotations": { ADOPTED_FOR: null },
    } })
}

async fn read(world: &MigrationEnvironment) -> Result<Vec<AdoptionOffer>> {
    let stock = NamespaceObjects {
        machines: all::<Machine>(&world.management, &world.namespace).await?.into_iter().map(Arc::new).collect(),
        sets: all::<MachineSet>(&world.management, &world.namespace).await?,
        nodes: nodes(&world.workload).await?,
    };
    let owner = VmOwners::new(&world.management).namespace_owner(&world.namespace).await?;
    let secrets = SecretCache::new(mcm_controllers::secret::CACHE.empty(), &world.management);
    let mut lists = Vec::new();
    for class in all::<MachineClass>(&world.management, &world.namespace).await? {
        let vms = vms_of_class(&world.drivers, &Arc::new(class), &secrets).await?;
        lists.push(ClassVms { owner: owner.clone(), vms });
    }
    Ok(offers(&lists, &stock))
}

async fn all<K>(client: &Client, namespace: &str) -> Result<Vec<K>>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let list = Box::pin(api.list(&ListParams::default())).await;
    Ok(list.with_context(|| format!("list {}s in namespace {namespace}", K::kind(&())))?.items)
}

async fn nodes(client: &Client) -> Result<Vec<TargetNode>> {
    let api: Api<Node> = Api::all(client.clone());
    let list = Box::pin(api.list(&ListParams::default())).await.context("list Nodes")?;
    let of_target = |node| TargetNode { target: "target".to_owned(), is_default: true, node: Arc::new(node) };
    Ok(list.items.into_iter().map(of_target).collect())
}

fn shown(offers: &[AdoptionOffer], format: OutputFormat) -> String {
    if format == OutputFormat::Json {
        let all = offers.iter().map(|offer| {
            json!({
                "vm": offer.vm, "machine": offer.machine, "node": offer.node, "set": offer.set,
                "step": offer.step.as_ref().ok().map(said), "problem": offer.step.as_ref().err(),
            })
        });
        return format!("{:#}\n", json!({ "orphans": all.collect::<Vec<_>>() }));
    }
    if offers.is_empty() {
        return "every VM has a machine\n".to_owned();
    }
    let row = |offer: &AdoptionOffer| {
        let step = offer.step.as_ref().map_or_else(|problem| format!("left: {problem}"), |step| said(step).to_owned());
        [offer.vm.clone(), offer.machine.clone(), offer.node.clone(), offer.set.clone(), step]
    };
    table(&["vm", "machine", "node", "set", "next"], offers.iter().map(row))
}

const fn said(step: &OfferStep) -> &'static str {
    match step {
        OfferStep::Create(_) => "create the machine",
        OfferStep::Wait => "wait until the machine is Running",
        OfferStep::Join { .. } => "give the machine to its set",
    }
}
