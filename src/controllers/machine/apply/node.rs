use std::sync::Arc;

use futures::FutureExt;
use kube::api::ListParams;
use serde_json::Value;

use super::{pods::in_time, ports::MachineContext};
use crate::machine::{NodeLookup, NodeWrite, Snapshot};
use mcm_api::{labels, node::Node, syntax};
use mcm_runtime::{
    cache::Key,
    objects::{CachedApi, ObjectWriteError, WriteFailure, chain},
};

/// Reads a Node live: whether it exists. A Node that was found is in the cache afterwards.
pub(super) async fn read(context: &MachineContext, snapshot: &Snapshot, key: &NodeLookup) -> Result<bool, String> {
    let target = context.target_of(snapshot).map_err(str::to_owned)?;
    let nodes = &target.nodes;
    match key {
        NodeLookup::Name(name) => read_by_name(nodes, name).await.map(|node| node.is_some()),
        // No Node can have the label, and the API server would refuse the question.
        NodeLookup::OfMachine(machine) if !syntax::is_label_value(machine) => Ok(false),
        NodeLookup::OfMachine(machine) => {
            let labelled = ListParams::default().labels(&format!("{}={machine}", labels::MACHINE_NAME));
            let listed = nodes.api("").list(&labelled).boxed().await;
            let listed =
                listed.map_err(|error| format!("cannot list nodes of machine {machine}: {}", chain(&error)))?;
            let found: Vec<_> = listed.items.into_iter().map(|node| nodes.cache.wrote(node.0)).collect();
            Ok(!found.is_empty())
        }
    }
}

async fn read_by_name(nodes: &CachedApi<Node>, name: &str) -> Result<Option<Arc<Node>>, String> {
    let read = nodes.read_again(&Key::new("", name)).await;
    read.map_err(|error| format!("cannot read node {name}: {}", chain(&error)))
}

/// How a patch of a Node is sent.
#[derive(Clone, Copy)]
pub(super) enum NodePatchType {
    Merge,
    Strategic,
    StrategicStatus,
}

pub(super) async fn patch(
    context: &MachineContext,
    snapshot: &mut Snapshot,
    node: &Node,
    patch: &Value,
    form: NodePatchType,
    purpose: NodeWrite,
) -> Result<(), ObjectWriteError> {
    let Ok(target) = context.target_of(snapshot) else { return Ok(()) };
    let (nodes, meta) = (&target.nodes, &node.metadata);
    let write = async {
        match form {
            NodePatchType::Merge => nodes.patch(meta, patch).await,
            NodePatchType::Strategic => nodes.patch_strategically(meta, patch).await,
            NodePatchType::StrategicStatus => nodes.patch_status_strategically(meta, patch).await,
        }
    }
    .boxed();
    let answer = match purpose {
        // The drain does not become late by its preparation.
        NodeWrite::Announce | NodeWrite::Cordon => match in_time(context, snapshot, write).await {
            Ok(answer) => answer,
            Err(message) => {
                snapshot.now = context.now();
                snapshot.node_failed(purpose, message);
                return Ok(());
            }
        },
        _ => write.await,
    };
    match answer {
        Ok(_) => snapshot.node_patched(purpose, patch),
        Err(error) => match error.failure() {
            WriteFailure::Conflict => return Err(error),
            WriteFailure::Gone => snapshot.node_gone(),
            WriteFailure::Refused => snapshot.node_refused(purpose, error.text()),
            _ => snapshot.node_failed(purpose, error.text()),
        },
    }
    Ok(())
}

/// A 409 can mean another UID, or the rejection of an admission webhook. A read shows which.
pub(super) async fn delete(context: &MachineContext, snapshot: &mut Snapshot, node: &Node) {
    let Ok(target) = context.target_of(snapshot) else { return };
    let nodes = &target.nodes;
    let is_left = |left: &Option<Arc<Node>>| left.as_ref().is_some_and(|left| left.metadata.uid == node.metadata.uid);
    let key = Key::from_meta(&node.metadata);
    match nodes.delete(&node.metadata).await {
        Ok(()) if is_left(&nodes.cache.get(&key)) => snapshot.node_written(NodeWrite::Delete),
        Ok(()) => snapshot.node_gone(),
        Err(error) if error.failure() == WriteFailure::Conflict => match read_by_name(nodes, &key.name).await {
            Ok(left) if !is_left(&left) => snapshot.node_gone(),
            _ => snapshot.node_failed(NodeWrite::Delete, error.text()),
        },
        Err(error) if error.failure() == WriteFailure::Refused => {
            snapshot.node_refused(NodeWrite::Delete, error.text())
        }
        Err(error) => snapshot.node_failed(NodeWrite::Delete, error.text()),
    }
}
