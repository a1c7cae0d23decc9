//! The deployment whose rollout is read.

use anyhow::Result;

use mcm_insight::{cluster_api, read_only::ReadOnly, reader, story::NamespaceFacts};
use mcm_rules::plan::SubjectRef;

/// Finds the MachineDeployment whose rollout is read.
///
/// # Errors
/// No MCM MachineDeployment has the name, or they could not be read. One of Cluster API is named.
pub(super) async fn find(cell: &ReadOnly, facts: &NamespaceFacts, wanted: &str) -> Result<SubjectRef> {
    match reader::find_deployment(facts, wanted) {
        Ok(object) => Ok(object),
        Err(error) => Err(cluster_api::missing_deployment(&cell.control, &cell.namespace, wanted, error).await),
    }
}
