//! A cell that only reads: caches, and the plans that the controllers would make. It holds no Lease, and its clients refuse every
//! request that could write.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use http::{Method, Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client, client::Body};
use tower::{BoxError, service_fn};

use super::{
    cell::settings,
    options::{CellOptions, Cells, ProcessOptions, TargetKubeconfigs},
};
use crate::{
    controllers::{KINDS, MACHINES, SETS, node},
    driver::Catalogue,
    runtime::{
        cache::Key,
        cell::{Cell, Config, Role, Scope, Shared, Unread},
        clock::{Clock, SystemClock},
        events::Events,
        kubeconfig::{self, Clusters, TargetKubeconfig},
        limiter::Rate,
        metrics::Metrics,
        preview::Preview,
        target::{Assignment, TargetClients, TargetId, Targets},
        trust,
    },
};

/// Time until the API servers listed every kind, or refused to. What is not read by then is unknown.
const PATIENCE: Duration = Duration::from_secs(20);

/// A request of a cell that only reads would have changed something.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path} was not sent, because this command only reads: please report this as a bug")]
struct WouldWrite {
    method: Method,
    path: String,
}

/// A cell that only reads.
pub(crate) struct ReadOnly {
    cell: Arc<Cell>,
    /// A client for the control cluster, which only reads.
    pub control: Client,
    /// The namespace of the objects.
    pub namespace: String,
    /// The time of this computer.
    pub clock: Arc<dyn Clock>,
    /// A client for the target cluster, which only reads; `None` without a target.
    pub target: Option<Client>,
    /// Kinds that could not be read.
    pub unread: Vec<Unread>,
}

/// The Lease of a role.
#[derive(Clone, Debug)]
pub(crate) struct Leadership {
    /// The role.
    pub role: Role,
    /// Its Lease; `None` if there is none.
    pub lease: Option<Lease>,
}

impl ReadOnly {
    /// Reads the caches of one namespace, by default that of the kubeconfig.
    ///
    /// # Errors
    /// The control cluster cannot be reached.
    pub(crate) async fn open(process: &ProcessOptions, namespace: Option<String>, drivers: Catalogue) -> Result<Self> {
        let Cells::One(CellOptions { control, targets: TargetKubeconfigs::Same(target), .. }) = &process.cells else {
            anyhow::bail!("a file of cells has no single namespace");
        };
        let clusters = Clusters::load(control, target, process.fallback).await?;
        let client = kubeconfig::client(&clusters.control, process.agent).await?;
        kubeconfig::check(&client, &clusters.control.config.cluster_url).await?;
        let control = reading(client);
        let namespace = namespace.unwrap_or_else(|| clusters.control.config.default_namespace.clone());

        let assignment = match target {
            TargetKubeconfig::None => Assignment::None,
            _ => Assignment::One(TargetId::only()),
        };
        let targets = Targets::new(assignment, node::cache_for(&process.roles));
        let mut of_target = None;
        if let Some(target) = &clusters.target {
            let client = reading(kubeconfig::client(target, process.agent).await?);
            of_target = Some(client.clone());
            let clients = TargetClients {
                requests: client.clone(),
                drains: client,
                evictions: Rate { qps: 0.0, burst: 0 },
                clock: None,
            };
            drop(targets.connect(&TargetId::only(), &clients));
        }
        let (cell, clock) = cell(process, &control, &namespace, targets, drivers);
        let unread = cell.unread_after(PATIENCE).await;
        Ok(Self { cell, control, target: of_target, namespace, clock, unread })
    }

    /// The plan that a controller would make for an object; `None` if the object does not exist or is unreadable.
    pub(crate) fn preview(&self, controller: &str, name: &str) -> Option<Preview> {
        self.cell.preview(controller, &Key::new(&self.namespace, name))
    }

    /// The Leases of the managers in the namespace.
    ///
    /// # Errors
    /// They cannot be read.
    pub(crate) async fn leaderships(&self) -> Result<Vec<Leadership>> {
        let leases: Api<Lease> = Api::namespaced(self.control.clone(), &self.namespace);
        let mut found = Vec::new();
        for role in [SETS, MACHINES] {
            let lease = leases.get_opt(role.lease).await.with_context(|| format!("read Lease {}", role.lease))?;
            found.push(Leadership { role, lease });
        }
        Ok(found)
    }
}

fn cell(
    process: &ProcessOptions,
    control: &Client,
    namespace: &str,
    targets: Arc<Targets>,
    drivers: Catalogue,
) -> (Arc<Cell>, Arc<dyn Clock>) {
    let metrics = Metrics::new();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let shared = Shared {
        clock: Arc::clone(&clock),
        metrics: metrics.clone(),
        caches: Arc::new(trust::Caches::default()),
        entropy: Arc::new(rand::random),
        cells: Arc::default(),
    };
    let settings = settings(process, targets.exist(), drivers);
    let config = Config {
        name: String::new(),
        scope: Scope::Namespace(namespace.to_owned()),
        control: control.clone(),
        targets,
        events: Events::start(control.clone(), "mcm", Arc::clone(&clock), metrics),
        shared,
    };
    (Cell::new(config, KINDS, &process.roles, &settings), clock)
}

/// The same client, which refuses every request but GET.
fn reading(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if request.method() != Method::GET {
                let (method, path) = (request.method().clone(), request.uri().path().to_owned());
                return Err(BoxError::from(WouldWrite { method, path }));
            }
            Ok::<Response<_>, BoxError>(client.send(request).await?)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
    use parking_lot::Mutex;

    #[tokio::test]
    async fn a_client_that_reads_sends_nothing_that_writes() {
        let seen: Arc<Mutex<Vec<Method>>> = Arc::default();
        let log = Arc::clone(&seen);
        let server = service_fn(move |request: Request<Body>| {
            log.lock().push(request.method().clone());
            async { Ok::<_, BoxError>(Response::new(Body::from(br#"{"metadata":{"name":"a"}}"#.to_vec()))) }
        });
        let maps: Api<ConfigMap> = Api::namespaced(reading(Client::new(server, "ns")), "ns");
        let map = ConfigMap::default();
        maps.get("a").await.unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap_err();
        maps.replace("a", &PostParams::default(), &map).await.unwrap_err();
        maps.patch("a", &PatchParams::default(), &Patch::Merge(&map)).await.unwrap_err();
        let error = maps.delete("a", &DeleteParams::default()).await.unwrap_err();
        let kube::Error::Service(error) = error else { panic!("{error}") };
        assert!(error.to_string().contains("this command only reads"), "{error}");
        assert_eq!(*seen.lock(), [Method::GET]);
    }
}
