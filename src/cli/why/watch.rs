//! Answers again after each change.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, stream};
use kube::{
    Api,
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher},
};
use tokio::time::{sleep, timeout};

use super::answer::{Answered, WhyOptions, ask, exit};
use crate::{
    api::machine::{Machine, MachineClass, MachineDeployment, MachineSet},
    cli::{
        exit::Answer,
        reading::story::{self, Verdict},
        terminal::{Look, print},
    },
    process::ReadOnly,
};

/// Answers are at least this far apart.
const PAUSE: Duration = Duration::from_millis(250);
/// A person sees the durations grow. Nodes, pods and managers change without a change of the watched kinds.
const TICK: Duration = Duration::from_secs(5);

/// Answers after each change until Ctrl-C, or until the object is settled if the options say so. The end has the exit code of
/// the last answer. A pipe gets one block for each answer that differs from the one before.
///
/// # Errors
/// The first answer cannot be given.
pub(super) async fn run(cell: &ReadOnly, options: &WhyOptions, look: Look) -> Result<Answer> {
    let mut changes = stream::select_all([
        changes::<MachineDeployment>(cell),
        changes::<MachineSet>(cell),
        changes::<Machine>(cell),
        changes::<MachineClass>(cell),
    ]);
    let mut shown: Option<(Vec<story::Answer>, Verdict)> = None;
    loop {
        match ask(cell, options, look).await {
            Ok(answered) => {
                let Answered { text, verdict, objects } = answered;
                let is_news = shown.as_ref().is_none_or(|(known, _)| *known != objects);
                if (is_news || look.is_terminal) && !show(look, &text)? {
                    return Ok(Answer { text: String::new(), exit: exit(verdict) });
                }
                shown = Some((objects, verdict));
                if options.until_settled && verdict == Verdict::Settled {
                    return Ok(Answer { text: String::new(), exit: exit(verdict) });
                }
            }
            // A deleted object, or an API server that does not answer for a while.
            Err(error) if shown.is_none() => return Err(error),
            Err(error) => eprintln!("warning: {error:#}"),
        }
        tokio::select! {
            signal = tokio::signal::ctrl_c() => {
                signal.context("listen for Ctrl-C")?;
                let verdict = shown.map_or(Verdict::Unknown, |(_, verdict)| verdict);
                return Ok(Answer { text: String::new(), exit: exit(verdict) });
            }
            _ = timeout(TICK, changes.next()) => {}
        }
        sleep(PAUSE).await;
        while timeout(Duration::ZERO, changes.next()).await.is_ok_and(|change| change.is_some()) {}
    }
}

/// A stream with an item after each change of an object of a kind.
fn changes<K>(cell: &ReadOnly) -> stream::BoxStream<'static, ()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(cell.control.clone(), &cell.namespace);
    watcher(api, watcher::Config::default()).default_backoff().map(drop).boxed()
}

fn show(look: Look, text: &str) -> Result<bool> {
    const CLEAR: &str = "\x1b[H\x1b[2J";
    if look.is_terminal { print(&format!("{CLEAR}{text}")) } else { print(&format!("{text}\n")) }
}
