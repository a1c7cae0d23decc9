use std::sync::Arc;

use super::{Action, Snapshot};
use crate::{object::apply::read, stand_in::observe::Ground};
use mcm_conversion::types::Cluster;
use mcm_rules::plan::Step;
use mcm_runtime::{
    cache::Key,
    clock::Clock,
    objects::Objects,
    reconcile::{Execute, Next, Turn, UnresolvedWrite},
    worker::ReconcileError,
};

/// Reconciles Clusters.
pub(super) struct Clusters {
    pub objects: Arc<Objects<Cluster>>,
    pub ground: Ground,
    pub watch_filter: Option<String>,
    pub clock: Arc<dyn Clock>,
}

impl Execute for Clusters {
    async fn apply(
        &self,
        snapshot: Snapshot,
        steps: Vec<Step<Action>>,
        turn: &mut Turn<'_, Self>,
    ) -> Result<Next, ReconcileError> {
        for step in steps {
            match step.action {
                Action::WriteStatus(status) => {
                    turn.write_status(
                        &self.objects,
                        &snapshot.object.metadata,
                        &snapshot.object.status,
                        &Some(*status),
                    )
                    .await?;
                }
            }
        }
        Ok(Next::Plan)
    }

    async fn resolve(&self, key: &Key, _: &UnresolvedWrite) -> Result<(), ReconcileError> {
        read(&self.objects, key).await.map(drop)
    }
}
