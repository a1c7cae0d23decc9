//! Names of objects in a cluster, within a second.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, ListParams},
};
use tokio::time::timeout;

use super::words::NameQuery;
use crate::{
    api::kinds::{MACHINE_DEPLOYMENTS, mcm_kind},
    cli::flags::TargetKubeconfig,
};
use mcm_insight::{
    cluster_api::object::Kind as ClusterApiKind,
    read_only::ReadOnlyClients,
    story::{CONTROLLERS, kind_of},
};
use mcm_rules::plan::shell::CallFlags;
use mcm_runtime::kubeconfig::ContextChoice;

/// A user waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// More names help no user.
const MOST: u32 = 500;

/// The namespace and the cluster of the objects.
pub(super) struct CompletionScope {
    pub namespace: Option<String>,
    pub kubeconfig: Option<PathBuf>,
    pub choice: ContextChoice,
}

/// The names; none if the cluster does not answer in time.
pub(super) async fn find(sought: &NameQuery, place: CompletionScope) -> Vec<String> {
    timeout(PATIENCE, list(sought, place)).await.ok().flatten().unwrap_or_default()
}

async fn list(sought: &NameQuery, place: CompletionScope) -> Option<Vec<String>> {
    let (control, call) = (place.kubeconfig.into(), CallFlags::default());
    let reach = ReadOnlyClients::load(&control, &TargetKubeconfig::None, place.namespace, &place.choice, call);
    let reach = reach.await.ok()?;
    match sought {
        NameQuery::Namespaces => {
            let api: Api<Namespace> = Api::all(reach.control);
            let all = api.list_metadata(&ListParams::default().limit(MOST)).await.ok()?;
            Some(all.items.iter().map(ResourceExt::name_any).collect())
        }
        NameQuery::Of(kind) => of_resource(&reach.control, &reach.namespace, &kind.api_resource()).await,
        NameQuery::Objects(Some(word)) => {
            let resource = match ClusterApiKind::from_word(word) {
                Some(kind) => kind.resource(),
                None => mcm_kind(kind_of(word)?)?.api_resource(),
            };
            let names = of_resource(&reach.control, &reach.namespace, &resource).await?;
            Some(names.into_iter().map(|name| format!("{word}/{name}")).collect())
        }
        NameQuery::Objects(None) => {
            let resource = MACHINE_DEPLOYMENTS.api_resource();
            let mut names = of_resource(&reach.control, &reach.namespace, &resource).await?;
            names.extend(CONTROLLERS.iter().map(|(kind, _)| format!("{}/", kind.to_lowercase())));
            Some(names)
        }
    }
}

async fn of_resource(client: &Client, namespace: &str, resource: &ApiResource) -> Option<Vec<String>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, resource);
    let all = api.list_metadata(&ListParams::default().limit(MOST)).await.ok()?;
    Some(all.items.iter().map(ResourceExt::name_any).collect())
}
