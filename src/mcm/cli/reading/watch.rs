//! Repeats a command after each change of the objects that it reads.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{
    StreamExt,
    stream::{BoxStream, select_all},
};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Resource,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use crate::{
    api::machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    cli::terminal::{print, redraw},
};
use mcm_insight::{cluster_api, error::error_line, read_only::ReadOnly, terminal::TerminalLook};

/// Outputs are at least this far apart.
const PAUSE: Duration = Duration::from_millis(250);
/// Durations grow on the screen. Nodes, pods and managers change without a change of the watched kinds.
const TICK: Duration = Duration::from_secs(5);

/// Repeats a command after each change until Ctrl-C, or until an output is the last. A pipe gets one block for each output that
/// differs from its predecessor. Returns the last output. Objects of Cluster API are watched unless the named object is of MCM.
///
/// # Errors
/// The first output cannot be made.
pub(in crate::cli) async fn follow<T: PartialEq>(
    cell: &ReadOnly,
    object: Option<&str>,
    look: TerminalLook,
    mut ask: impl AsyncFnMut() -> Result<(String, T)>,
    is_last: impl Fn(&T) -> bool,
) -> Result<T> {
    let mut changes = select_all([
        changes::<MachineDeployment>(cell),
        changes::<MachineSet>(cell),
        changes::<Machine>(cell),
        changes::<MachineClass>(cell),
    ]);
    if object.is_none_or(|wanted| cluster_api::named(wanted).is_some()) {
        changes.push(cluster_api::changes(&cell.control, &cell.namespace).await?);
    }
    let (text, mut shown) = ask().await?;
    let mut is_read = show(look, &text)?;
    while is_read && !is_last(&shown) {
        tokio::select! {
            signal = tokio::signal::ctrl_c() => {
                signal.context("listen for Ctrl-C")?;
                break;
            }
            _ = timeout(TICK, changes.next()) => {}
        }
        sleep(PAUSE).await;
        while timeout(Duration::ZERO, changes.next()).await.is_ok_and(|change| change.is_some()) {}
        match ask().await {
            Ok((text, answer)) => {
                if look.is_terminal || answer != shown {
                    is_read = show(look, &text)?;
                }
                shown = answer;
            }
            // A deleted object, or an API server that does not answer for a while.
            Err(error) => eprintln!("warning: {}", error_line(&error)),
        }
    }
    Ok(shown)
}

/// A stream with an item after each change of an object of a kind.
fn changes<K>(cell: &ReadOnly) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(cell.control.clone(), &cell.namespace);
    watcher(api, watcher::Config::default()).default_backoff().map(drop).boxed()
}

fn show(look: TerminalLook, text: &str) -> Result<bool> {
    const CLEAR: &str = "\x1b[H\x1b[2J";
    if look.is_terminal { redraw(CLEAR, text) } else { print(&format!("{text}\n")) }
}
