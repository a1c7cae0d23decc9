//! The namespaces with machine objects, for commands with `-A`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use futures::{StreamExt, stream};
use k8s_openapi::{NamespaceResourceScope, api::core::v1::Namespace};
use kube::{Api, Client, Resource, ResourceExt, api::ListParams, core::PartialObjectMeta};
use serde::de::DeserializeOwned;

use crate::cli::exit::{CommandExit, ExitError};
use mcm_api::machine::{MachineDeployment, MachineSet};
use mcm_insight::{read_only::ReadOnlyClients, reader};
use mcm_runtime::refusal::forbidden;

/// Namespaces that are read at a time.
pub(in crate::cli) const AT_A_TIME: usize = 4;

/// Namespaces of a cluster.
#[derive(Default)]
pub(in crate::cli) struct ClusterNamespaces {
    /// Namespaces with deployments or sets.
    pub(in crate::cli) used: BTreeSet<String>,
    /// Namespaces that the user may not read, with the refusal in words.
    pub(in crate::cli) refused: BTreeMap<String, String>,
}

/// Finds the namespaces with one list for all, or with one for each if the user may not list all.
///
/// # Errors
/// The user may list neither deployments nor namespaces, or a list fails for another reason.
pub(in crate::cli) async fn namespaces(reach: &ReadOnlyClients) -> Result<ClusterNamespaces> {
    match used(&reach.control, None).await {
        Ok(used) => Ok(ClusterNamespaces { used, ..ClusterNamespaces::default() }),
        Err(error) if reader::is_forbidden(&error) => each_namespace(reach).await,
        Err(error) => Err(error),
    }
}

async fn each_namespace(reach: &ReadOnlyClients) -> Result<ClusterNamespaces> {
    let all = match reader::pages(&Api::<Namespace>::all(reach.control.clone()), ListParams::default()).await {
        Err(error) if reader::is_forbidden(&error) => {
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
    Ok(reader::refused(&status.message, kind))
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
    let objects = reader::pages(&api, ListParams::default()).await?;
    Ok(objects.iter().filter_map(ResourceExt::namespace).collect())
}
