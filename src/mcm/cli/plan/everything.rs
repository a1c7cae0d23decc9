//! The objects of a plan without a change, in one namespace or in all.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;

use super::{
    answer::{Plan, SettledCounts},
    change::{ChangeContent, PlannedChange},
};
use crate::{
    api::machine::{MachineDeployment, MachineSet},
    cli::{
        exit::{CommandExit, ExitError},
        reading::{
            self,
            story::{DEPLOYMENT, NamespaceFacts, SET},
        },
    },
    process::ReadOnlyClients,
};
use mcm_controllers::object::owner::controller_of;
use mcm_runtime::refusal::forbidden;

/// Namespaces that are read at a time.
pub(super) const AT_A_TIME: usize = 4;
/// The note of a plan without objects.
const NOTHING: &str = "there are no MachineDeployments and no MachineSets";
/// Namespaces that a note names.
const MOST_NAMED: usize = 3;

/// Every deployment, and every set without one, as it is; with a note if there is none.
pub(super) fn changes(facts: &NamespaceFacts) -> (Vec<PlannedChange>, Vec<String>) {
    let is_alone = |set: &MachineSet| controller_of(&set.metadata).is_none();
    let alone = facts.sets.iter().filter(|(_, set)| is_alone(set)).map(|(name, _)| (SET, name));
    let all = facts.deployments.keys().map(|name| (DEPLOYMENT, name)).chain(alone);
    let changes: Vec<PlannedChange> =
        all.map(|(kind, name)| PlannedChange { kind, name: name.clone(), wish: ChangeContent::Nothing }).collect();
    let nothing = format!("{NOTHING} in namespace {}", facts.namespace);
    let notes = if changes.is_empty() { vec![nothing] } else { Vec::new() };
    (changes, notes)
}

/// Namespaces of a cluster.
#[derive(Default)]
pub(super) struct ClusterNamespaces {
    /// Namespaces with deployments or sets.
    pub used: BTreeSet<String>,
    /// Namespaces that the user may not read, with the refusal in words.
    pub refused: BTreeMap<String, String>,
}

/// Finds the namespaces with one list for all, or with one for each if the user may not list all.
///
/// # Errors
/// The user may list neither deployments nor namespaces, or a list fails for another reason.
pub(super) async fn namespaces(reach: &ReadOnlyClients) -> Result<ClusterNamespaces> {
    match used(&reach.control, None).await {
        Ok(used) => Ok(ClusterNamespaces { used, ..ClusterNamespaces::default() }),
        Err(error) if reading::is_forbidden(&error) => each_namespace(reach).await,
        Err(error) => Err(error),
    }
}

async fn each_namespace(reach: &ReadOnlyClients) -> Result<ClusterNamespaces> {
    let all = match reading::pages(&Api::<Namespace>::all(reach.control.clone()), ListParams::default()).await {
        Err(error) if reading::is_forbidden(&error) => {
            let message = "this user may list neither the MachineDeployments of all namespaces nor the namespaces";
            let hint = "name a namespace with -n instead of -A".to_owned();
            return Err(ExitError { message: message.to_owned(), hint, exit: CommandExit::Failed }.into());
        }
        listed => listed?,
    };
    let names = all.iter().map(ResourceExt::name_any);
    let asked = names.map(|name| async move { (used(&reach.control, Some(&name)).await, name) });
    let answers: Vec<(Result<BTreeSet<String>>, String)> = stream::iter(asked).buffered(AT_A_TIME).collect().await;
    let mut found = ClusterNamespaces::default();
    for (answer, name) in answers {
        match answer {
            Ok(used) => found.used.extend(used),
            Err(error) => drop(found.refused.insert(name, refusal(error)?)),
        }
    }
    Ok(found)
}

/// The refusal that an error is, in words.
///
/// # Errors
/// It is another error.
fn refusal(error: anyhow::Error) -> Result<String> {
    let Some(status) = error.downcast_ref().and_then(forbidden) else { return Err(error) };
    let kind = status.message.split('.').next().unwrap_or_default();
    Ok(reading::refused(&status.message, kind))
}

/// The namespaces with deployments or sets, of all or of one.
async fn used(control: &Client, namespace: Option<&str>) -> Result<BTreeSet<String>> {
    let (deployments, sets) =
        tokio::try_join!(used_by::<MachineDeployment>(control, namespace), used_by::<MachineSet>(control, namespace))?;
    Ok(deployments.into_iter().chain(sets).collect())
}

async fn used_by<K>(control: &Client, namespace: Option<&str>) -> Result<BTreeSet<String>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<PartialObjectMeta<K>> = match namespace {
        Some(namespace) => Api::namespaced(control.clone(), namespace),
        None => Api::all(control.clone()),
    };
    let objects = reading::pages(&api, ListParams::default()).await?;
    Ok(objects.iter().filter_map(ResourceExt::namespace).collect())
}

/// One plan of those of several namespaces. Namespaces that the user may not read are named.
pub(super) fn joined(now: Timestamp, plans: Vec<(String, Plan)>, refused: &BTreeMap<String, String>) -> Plan {
    let (mut objects, mut notes, mut flags) = (Vec::new(), NamespacedNotes::default(), NamespacedNotes::default());
    let (mut settled, count) = (SettledCounts::default(), plans.len());
    for (namespace, plan) in plans {
        let SettledCounts { deployments, sets } = plan.settled.unwrap_or_default();
        settled.deployments += deployments;
        settled.sets += sets;
        objects.extend(plan.objects);
        plan.notes.into_iter().for_each(|note| notes.add(note, &namespace));
        plan.flags.into_iter().for_each(|source| flags.add(source, &namespace));
    }
    let mut unread = NamespacedNotes::default();
    refused.iter().for_each(|(namespace, refusal)| unread.add(format!("not read ({refusal})"), namespace));
    let mut texts = [unread.texts(usize::MAX), notes.texts(count)].concat();
    if count == 0 && refused.is_empty() {
        texts.push(NOTHING.to_owned());
    }
    let plan = Plan::from_objects(now, objects, texts);
    Plan {
        complete: plan.complete && refused.is_empty(),
        flags: Some(flags.texts(count).join("; ")).filter(|text| !text.is_empty()),
        settled: Some(settled),
        unread: refused.keys().cloned().collect(),
        ..plan
    }
}

/// Texts with the namespaces for which they hold, in the order in which they are first met.
#[derive(Default)]
struct NamespacedNotes(Vec<(String, Vec<String>)>);

impl NamespacedNotes {
    fn add(&mut self, text: String, namespace: &str) {
        match self.0.iter_mut().find(|(known, _)| *known == text) {
            Some((_, namespaces)) => namespaces.push(namespace.to_owned()),
            None => self.0.push((text, vec![namespace.to_owned()])),
        }
    }

    /// Each text with its namespaces. One that holds for all namespaces names none.
    fn texts(&self, count: usize) -> Vec<String> {
        let text = |(text, namespaces): &(String, Vec<String>)| match namespaces.len() {
            all if all == count => text.clone(),
            _ => format!("{}: {text}", named(namespaces)),
        };
        self.0.iter().map(text).collect()
    }
}

/// Such as `namespaces a, b, c and 4 more`.
fn named(namespaces: &[String]) -> String {
    let shown = namespaces.iter().take(MOST_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = namespaces.len().saturating_sub(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{} {shown}{more}", if namespaces.len() == 1 { "namespace" } else { "namespaces" })
}

#[cfg(test)]
mod tests;
