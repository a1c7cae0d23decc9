//! Connects workload clusters, and records the results.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;
use serde_json::json;

use super::{Action, KubeconfigAttempt, Snapshot};
use crate::provider::settings::TargetClientFactory;
use mcm_api::{labels, machine::Machine};
use mcm_controllers::secret::MetadataOfSecret;
use mcm_conversion::types::{Cluster, MCMMachinePool, names};
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    handlers::HandlerList,
    kubeconfig,
    objects::{CachedApi, chain},
    reconcile::{LoopContinuation, PlanExecutor, ReconcileRun},
    secrets::SecretCache,
    target::{CellTargets, TargetId},
    worker::ReconcileError,
};

/// Reconciles the workload clusters of Clusters.
pub(super) struct WorkloadClusters {
    pub clusters: Arc<CachedApi<Cluster>>,
    pub pools: Arc<CachedApi<MCMMachinePool>>,
    pub natives: Arc<CachedApi<Machine>>,
    pub kubeconfigs: Arc<CachedApi<MetadataOfSecret>>,
    pub secrets: SecretCache,
    pub targets: Arc<CellTargets>,
    pub workloads: Arc<ConnectionAttempts>,
    pub connect: TargetClientFactory,
}

/// The target of a cell that is the workload cluster of a Cluster.
pub(in super::super) fn target_of(cluster: &Key) -> TargetId {
    TargetId::named(&cluster.to_string())
}

/// Suffix of the name of the Secret with the kubeconfig of a Cluster.
const SUFFIX: &str = "-kubeconfig";

/// The Secret with the kubeconfig of a Cluster.
pub(super) fn kubeconfig_of(cluster: &Key) -> Key {
    Key::new(&cluster.namespace, format!("{}{SUFFIX}", cluster.name))
}

/// The name of the Cluster whose kubeconfig a Secret contains.
pub(super) fn cluster_of(secret: &Key) -> Option<Key> {
    secret.name.strip_suffix(SUFFIX).map(|name| Key::new(&secret.namespace, name))
}

type AttemptHandler = dyn Fn(&Key) + Send + Sync;

/// The last attempt to connect each workload cluster. Kinds of one cell share it.
#[derive(Default)]
pub(in super::super) struct ConnectionAttempts {
    attempts: RwLock<BTreeMap<Key, KubeconfigAttempt>>,
    handlers: HandlerList<AttemptHandler>,
}

impl ConnectionAttempts {
    /// The last attempt; `None` if there was none.
    pub fn attempt(&self, cluster: &Key) -> Option<KubeconfigAttempt> {
        self.attempts.read().get(cluster).cloned()
    }

    /// Calls `handler` with each Cluster for which there was an attempt.
    pub fn on_change(&self, handler: impl Fn(&Key) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    fn set(&self, cluster: &Key, attempt: Option<KubeconfigAttempt>) {
        match attempt {
            Some(attempt) => drop(self.attempts.write().insert(cluster.clone(), attempt)),
            None => drop(self.attempts.write().remove(cluster)),
        }
        self.handlers.each(|handler| handler(cluster));
    }
}

impl PlanExecutor for WorkloadClusters {
    async fn apply(
        &self,
        _: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut ReconcileRun<'_, Self>,
    ) -> Result<LoopContinuation, ReconcileError> {
        let cluster = turn.key;
        for step in steps {
            match step.action {
                Action::Connect(version) => {
                    let problem = connect(self, cluster).await?.err();
                    if let Some(problem) = &problem {
                        tracing::warn!(%cluster, problem, "workload cluster not connected");
                    }
                    self.workloads.set(cluster, Some(KubeconfigAttempt { version, problem }));
                }
                Action::Miss => {
                    let problem = format!("Secret {} does not exist", kubeconfig_of(cluster));
                    self.workloads
                        .set(cluster, Some(KubeconfigAttempt { version: String::new(), problem: Some(problem) }));
                }
                Action::ReleaseNode(node) => {
                    let Some(target) = self.targets.get(&target_of(cluster)) else { continue };
                    let patch =
                        json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": [labels::NODE_FINALIZER] } });
                    target.nodes.patch_strategically(&node.metadata, &patch).await?;
                }
                Action::Disconnect => {
                    self.targets.disconnect(&target_of(cluster));
                    self.workloads.set(cluster, None);
                }
            }
        }
        Ok(LoopContinuation::Plan)
    }
}

/// Connects with the kubeconfig of core. The inner error describes an invalid kubeconfig. The data are not kept.
async fn connect(kind: &WorkloadClusters, cluster: &Key) -> Result<Result<(), String>, ReconcileError> {
    let key = kubeconfig_of(cluster);
    let data = kind.secrets.data(&key).await;
    kind.secrets.forget(&key);
    let data = data.map_err(|source| ReconcileError::read(format!("Secret {key}"), source))?;
    let text = data.as_ref().and_then(|data| data.get(names::KUBECONFIG_KEY));
    let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) else {
        return Ok(Err(format!("Secret {key} has no text under the key {}", names::KUBECONFIG_KEY)));
    };
    let config = match kubeconfig::ClusterConfig::from_text(text, "Secret", &key.to_string()).await {
        Ok(config) => config,
        Err(error) => return Ok(Err(chain(&error))),
    };
    match (kind.connect)(&config) {
        Ok(clients) => {
            kind.targets.connect(&target_of(cluster), &clients);
            Ok(Ok(()))
        }
        Err(error) => Ok(Err(chain(&error))),
    }
}
