//! The memory of managers, which objects do not show: since when an object waits, how often it was planned, and when the next
//! attempt is. Without it the answers are those of the objects.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use reqwest::Url;

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use super::manager::Manager;
use crate::{controllers::MACHINES, plan::Subject, process::ReadOnly, runtime::leader::is_own_form};

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Size of an answer, in bytes.
const LARGEST: usize = 8 << 20;
/// Objects of an answer.
const MOST: usize = 5000;

/// The memory of managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct Memory {
    /// The objects that wait.
    pub explained: Vec<Explained>,
    /// The managers that answered, by the names of their pods or URLs.
    pub asked: Vec<String>,
    /// Why another one was not asked.
    pub problems: Vec<String>,
}

/// The answer of a manager.
#[derive(Clone, Debug, Deserialize)]
struct Waiters {
    items: Vec<Explained>,
}

/// The last plan of an object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Explained {
    /// The object.
    pub object: Named,
    /// The last step of its last plan.
    #[serde(default)]
    pub step: Option<String>,
    /// Its waits.
    pub waits: Vec<Remembered>,
}

/// A reference to an object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(in crate::cli) struct Named {
    /// Kind.
    pub kind: String,
    /// Name. Its namespace was asked for.
    pub name: String,
}

/// A wait that a manager remembers.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(in crate::cli) struct Remembered {
    /// Kind of the wait. Another version may have other kinds.
    pub kind: String,
    /// Completes "waiting for".
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    /// The next attempt.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Plans that ended with it.
    pub plans: u32,
}

impl Memory {
    /// The last plan of an object. A manager joins those of several controllers.
    pub(in crate::cli) fn of(&self, object: &Subject) -> Option<&Explained> {
        self.explained.iter().find(|one| one.object.kind == object.kind && one.object.name == object.name)
    }

    fn add(&mut self, whom: String, answer: Result<Waiters>) {
        match answer {
            Ok(waiters) => {
                self.explained.extend(waiters.items);
                self.asked.push(whom);
            }
            Err(error) => {
                self.problems.push(format!("the manager {whom} was not asked since when objects wait: {error:#}"))
            }
        }
    }
}

/// Asks a manager at its URL, or the holders of the Leases through the API server. A problem is never fatal.
pub(in crate::cli) async fn ask(cell: &ReadOnly, managers: &[Manager], url: Option<&Url>) -> Memory {
    let mut memory = Memory::default();
    let query = format!("explain?namespace={}&limit={MOST}", cell.namespace);
    if let Some(url) = url {
        let answer = within(get(url, &query)).await;
        memory.add(url.to_string(), answer);
        return memory;
    }
    for (pod, answer) in answers(cell, managers, &query).await {
        memory.add(pod, answer.map_err(|error| anyhow!("{error:#}; name its address with --manager")));
    }
    memory
}

/// The memory of a Node. Lists of what waits leave Nodes out, because other managers may have their machines.
pub(in crate::cli) async fn of_node(
    cell: &ReadOnly,
    managers: &[Manager],
    url: Option<&Url>,
    node: &str,
) -> Option<Explained> {
    let query = format!("explain/node/{}/{node}", cell.namespace);
    match url {
        Some(url) => within(get(url, &query)).await.ok(),
        None => answers(cell, managers, &query).await.into_iter().find_map(|(_, answer)| answer.ok()),
    }
}

/// The settings of the holders of the Leases, with the names of their pods.
pub(in crate::cli) async fn settings(cell: &ReadOnly, managers: &[Manager]) -> Vec<(String, Result<Value>)> {
    answers(cell, managers, "configz").await
}

/// Asks the holders of the Leases through the API server.
async fn answers<T: DeserializeOwned>(cell: &ReadOnly, managers: &[Manager], query: &str) -> Vec<(String, Result<T>)> {
    let (mut asked, mut answers) = (BTreeSet::new(), Vec::new());
    for manager in managers.iter().filter(|manager| is_own_form(&manager.holder)) {
        let Some((pod, _)) = manager.holder.rsplit_once('_') else { continue };
        // One process may hold both Leases, and serves at the port of the first.
        if asked.insert(manager.holder.clone()) {
            let port: u16 = if manager.role == MACHINES.name { 10259 } else { 10258 };
            let path = format!("/api/v1/namespaces/{}/pods/http:{pod}:{port}/proxy/{query}", cell.namespace);
            let answer = match within(through(cell, path)).await {
                // It is no pod, and runs on this computer.
                Err(_) if hostname::get().is_ok_and(|host| host.to_string_lossy() == pod) => {
                    within(local(port, query)).await
                }
                answer => answer,
            };
            answers.push((pod.to_owned(), answer));
        }
    }
    answers
}

async fn within<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| bail!("no answer within {} s", PATIENCE.as_secs()))
}

/// A manager that runs on this computer, as `mcm run` does in a terminal.
async fn local<T: DeserializeOwned>(port: u16, query: &str) -> Result<T> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}"))?;
    let answer = get(&url, query).await;
    answer.map_err(|error| anyhow!("it does not answer at {url}: {}", error.root_cause()))
}

/// Through the proxy of the API server.
async fn through<T: DeserializeOwned>(cell: &ReadOnly, path: String) -> Result<T> {
    let request = http::Request::get(path).body(Vec::new())?;
    match cell.control.request_text(request).await {
        Ok(text) => read(text.as_bytes()),
        Err(kube::Error::Api(status)) => {
            let message = status.message.trim();
            bail!("{message} (forward its port with kubectl port-forward, and pass --manager http://127.0.0.1:PORT)")
        }
        Err(error) => Err(error.into()),
    }
}

async fn get<T: DeserializeOwned>(url: &Url, query: &str) -> Result<T> {
    let mut response = reqwest::get(url.join(query)?).await?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        if body.len() + part.len() > LARGEST {
            bail!("it sent more than {} MiB", LARGEST >> 20);
        }
        body.extend_from_slice(&part);
    }
    if !status.is_success() {
        let text: String = String::from_utf8_lossy(&body).trim().chars().take(200).collect();
        bail!("{status}: {text}");
    }
    read(&body)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T> {
    serde_json::from_slice(body).context("it answers, but not as this version of mcm does")
}
