//! The memory of managers, which objects do not show: since when an object waits, how often it was planned, and when the next
//! attempt is. Without it a report uses the objects alone.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use kube::Client;
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;

use super::manager::ManagerLease;
use crate::{error::error_line, read_only::ReadOnly};
use mcm_api::{GoDuration, syntax::is_subdomain};
use mcm_controllers::MACHINES;
use mcm_rules::plan::SubjectRef;
use mcm_runtime::{leader::is_own_form, members::MemberIdentity, paths::path_of};

/// Time for an answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Size of an answer, in bytes.
const LARGEST: usize = 8 << 20;
/// Objects of an answer.
const MOST: usize = 5000;

/// The memory of managers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The objects that wait.
    pub explained: Vec<RememberedPlan>,
    /// The managers that answered, by the names of their pods or URLs.
    pub asked: Vec<String>,
    /// Why another one was not asked.
    pub problems: Vec<String>,
    /// How often the manager of sets checks for too many machines, where its flags were read.
    pub overshoot_period: Option<GoDuration>,
}

/// The answer of a manager.
#[derive(Clone, Debug, Deserialize)]
struct WaiterList {
    items: Vec<RememberedPlan>,
}

/// The last plan of an object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RememberedPlan {
    /// The object.
    pub object: WaiterRef,
    /// The last step of its last plan.
    #[serde(default)]
    pub step: Option<String>,
    /// Its waits.
    pub waits: Vec<RememberedWait>,
}

/// A reference to an object.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct WaiterRef {
    /// Kind.
    pub kind: String,
    /// Name. Its namespace was asked for.
    pub name: String,
}

/// A wait that a manager remembers.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RememberedWait {
    /// Kind of the wait. Another version may have other kinds.
    pub kind: String,
    /// Completes "waiting for".
    pub text: String,
    /// Since when.
    pub since: Timestamp,
    #[serde(default)]
    pub next_attempt: Option<Timestamp>,
    /// When the controllers end it by force.
    #[serde(default)]
    pub forced_at: Option<Timestamp>,
    /// Plans that ended with it.
    pub plans: u32,
}

impl Memory {
    /// The last plan of an object. A manager joins those of several controllers.
    pub fn remembered_plan(&self, object: &SubjectRef) -> Option<&RememberedPlan> {
        self.explained.iter().find(|one| one.object.kind == object.kind && one.object.name == object.name)
    }

    fn add(&mut self, whom: String, answer: Result<WaiterList>) {
        match answer {
            Ok(waiters) => {
                self.explained.extend(waiters.items);
                self.asked.push(whom);
            }
            Err(error) => self
                .problems
                .push(format!("the manager {whom} was not asked since when objects wait: {}", error_line(&error))),
        }
    }
}

/// Reads from a manager at its URL, or from the holders of the Leases through the API server. A problem is never fatal.
pub async fn ask(cell: &ReadOnly, managers: &[ManagerLease], url: Option<&Url>) -> Memory {
    let mut memory = Memory::default();
    let limit = MOST.to_string();
    let query = match question(&["explain"], &[("namespace", cell.namespace.as_str()), ("limit", limit.as_str())]) {
        Ok(query) => query,
        Err(error) => {
            memory.problems.push(format!("no manager was asked since when objects wait: {}", error_line(&error)));
            return memory;
        }
    };
    if let Some(url) = url {
        let asked = async {
            identify(url, managers.iter().filter(|manager| manager.is_alive(cell.clock.now()))).await?;
            get(url, &query).await
        };
        let answer = within(asked).await;
        memory.add(url.to_string(), answer);
        return memory;
    }
    for (pod, answer) in answers(cell, managers, &query).await {
        memory.add(pod, answer.map_err(|error| anyhow!("{}; name its address with --manager", error_line(&error))));
    }
    memory
}

/// The memory of a Node. Lists of what waits leave Nodes out, because other managers may have their machines.
pub async fn of_node(
    cell: &ReadOnly,
    managers: &[ManagerLease],
    url: Option<&Url>,
    node: &str,
) -> Option<RememberedPlan> {
    let query = question(&["explain", "node", &cell.namespace, node], &[]).ok()?;
    match url {
        Some(url) => within(get(url, &query)).await.ok(),
        None => answers(cell, managers, &query).await.into_iter().find_map(|(_, answer)| answer.ok()),
    }
}

/// The settings of the holders of the Leases, with the names of their pods.
pub async fn settings(cell: &ReadOnly, managers: &[ManagerLease]) -> Vec<(String, Result<Value>)> {
    answers(cell, managers, "configz").await
}

/// How often a manager checks for too many machines; `None` if it does not answer.
pub async fn overshoot_period(
    (control, namespace): (&Client, &str),
    manager: ManagerLease,
    now: Timestamp,
) -> Option<GoDuration> {
    let answers = answers_within((control, namespace), &[manager], "configz", now).await;
    overshoot_period_in(&answers.into_iter().find_map(|(_, answer)| answer.ok())?)
}

/// The flag in the answer of `/configz`.
fn overshoot_period_in(configz: &Value) -> Option<GoDuration> {
    configz["mcm"]["flags"]["machine-safety-overshooting-period"].as_str()?.parse().ok()
}

/// Reads from the holders of the Leases through the API server.
async fn answers<T: DeserializeOwned>(
    cell: &ReadOnly,
    managers: &[ManagerLease],
    query: &str,
) -> Vec<(String, Result<T>)> {
    answers_within((&cell.control, cell.namespace.as_str()), managers, query, cell.clock.now()).await
}

/// The same with a client for a namespace.
async fn answers_within<T: DeserializeOwned>(
    (control, namespace): (&Client, &str),
    managers: &[ManagerLease],
    query: &str,
    now: Timestamp,
) -> Vec<(String, Result<T>)> {
    let (mut asked, mut answers) = (BTreeSet::new(), Vec::new());
    for manager in managers.iter().filter(|manager| is_own_form(&manager.holder) && manager.is_alive(now)) {
        let Some((pod, _)) = manager.holder.rsplit_once('_') else { continue };
        let pod = MemberIdentity::parse(&manager.holder).map_or(pod, |member| member.host);
        // One process may hold both Leases, and serves at the port of the first.
        if asked.insert(manager.holder.clone()) {
            let port: u16 = if manager.role == MACHINES.name { 10259 } else { 10258 };
            let asked = async { through(control, &format!("{}/{query}", proxy(namespace, pod, port)?)).await };
            let answer = match within(asked).await {
                // It is no pod, and runs on this computer.
                Err(_) if hostname::get().is_ok_and(|host| host.to_string_lossy() == pod) => {
                    within(local(port, manager, query)).await
                }
                answer => answer,
            };
            answers.push((pod.to_owned(), answer));
        }
    }
    answers
}

/// The path of a pod behind the proxy of the API server. The name is text of whoever may write the Lease.
fn proxy(namespace: &str, pod: &str, port: u16) -> Result<String> {
    if !is_subdomain(pod) {
        bail!("the holder of the Lease is not the name of a pod");
    }
    let pod = format!("http:{pod}:{port}");
    Ok(path_of(&["api", "v1", "namespaces", namespace, "pods", &pod, "proxy"])?)
}

/// The path and query of a request to a manager, without the slash before it.
fn question(parts: &[&str], query: &[(&str, &str)]) -> Result<String> {
    let mut url = Url::parse("http://localhost")?.join(&path_of(parts)?)?;
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(format!("{}{query}", url.path().trim_start_matches('/')))
}

async fn within<T>(answer: impl Future<Output = Result<T>>) -> Result<T> {
    timeout(PATIENCE, answer).await.unwrap_or_else(|_| bail!("no answer within {} s", PATIENCE.as_secs()))
}

/// A manager that runs on this computer, as `mcm run` does in a terminal.
async fn local<T: DeserializeOwned>(port: u16, manager: &ManagerLease, query: &str) -> Result<T> {
    let url = Url::parse(&format!("http://127.0.0.1:{port}"))?;
    identify(&url, [manager].into_iter()).await?;
    let answer = get(&url, query).await;
    answer.map_err(|error| anyhow!("it does not answer at {url}: {}", error.root_cause()))
}

/// Fails if the process at a URL is none of these managers: several may run on a computer, and each has other objects and flags.
async fn identify(url: &Url, mut managers: impl Iterator<Item = &ManagerLease> + Clone) -> Result<()> {
    let Some(first) = managers.clone().next() else { return Ok(()) };
    let config: Value = get(url, "configz").await.map_err(|error| anyhow!("{}", error.root_cause()))?;
    if managers.any(|manager| is_named(&config, &manager.holder)) {
        return Ok(());
    }
    bail!("another manager answers at {url}, and {} holds the Lease {}", first.holder, first.lease)
}

/// The process with these settings has this name in a Lease.
fn is_named(config: &Value, holder: &str) -> bool {
    let identities = config["mcm"]["identities"].as_array();
    identities.is_some_and(|all| all.iter().any(|identity| identity == holder))
}

/// Through the proxy of the API server.
async fn through<T: DeserializeOwned>(control: &Client, path: &str) -> Result<T> {
    let request = http::Request::get(path).body(Vec::new())?;
    match control.request_text(request).await {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The holder of a Lease is text of whoever may write it.
    #[rstest]
    #[case::service(
        "x:1/proxy/../../../../../namespaces/kube-system/services/http:admin-panel:80/proxy/delete?confirm=yes&z="
    )]
    #[case::path_of_its_pod("x:1/proxy/other?z=")]
    #[case::other_port("x:80")]
    #[case::encoded("x%2F..%2F..")]
    #[case::up("..")]
    #[case::query("x?")]
    #[case::nothing("")]
    fn a_holder_that_is_no_pod_is_not_asked(#[case] pod: &str) {
        assert_eq!(
            proxy("demo", pod, 10258).unwrap_err().to_string(),
            "the holder of the Lease is not the name of a pod"
        );
    }

    #[rstest]
    #[case::itself(serde_json::json!({"mcm": {"identities": ["other_1", "host_2"]}}), true)]
    #[case::another_manager_of_the_computer(serde_json::json!({"mcm": {"identities": ["host_1"]}}), false)]
    #[case::a_standby(serde_json::json!({"mcm": {"identities": []}}), false)]
    #[case::another_program(serde_json::json!({"kind": "Status"}), false)]
    fn a_process_is_the_holder_of_a_lease_by_its_identity(#[case] config: Value, #[case] expected: bool) {
        assert_eq!(is_named(&config, "host_2"), expected);
    }

    #[test]
    fn a_pod_is_asked_through_the_api_server() {
        let path = proxy("demo", "mcm-7f4d9", 10258).unwrap();
        assert_eq!(path, "/api/v1/namespaces/demo/pods/http:mcm-7f4d9:10258/proxy");
        assert!(proxy("demo/../x", "mcm-7f4d9", 10258).is_err());
    }

    #[test]
    fn the_period_of_overshoot_checks_is_a_flag_of_the_manager() {
        let configz =
            |period: &str| serde_json::json!({"mcm": {"flags": {"machine-safety-overshooting-period": period}}});
        assert_eq!(overshoot_period_in(&configz("5m0s")), Some(GoDuration::from_secs(300)));
        assert_eq!(overshoot_period_in(&configz("often")), None);
        assert_eq!(overshoot_period_in(&serde_json::json!({"kind": "Status"})), None);
    }

    #[rstest]
    #[case(&["explain"], &[("namespace", "demo"), ("limit", "5")], Some("explain?namespace=demo&limit=5"))]
    #[case::encoded(&["explain"], &[("namespace", "a&b=c#d")], Some("explain?namespace=a%26b%3Dc%23d"))]
    #[case(&["explain", "node", "demo", "node-1"], &[], Some("explain/node/demo/node-1"))]
    #[case::hostile_node(&["explain", "node", "demo", "../../configz"], &[], None)]
    fn a_question_has_encoded_parts(
        #[case] parts: &[&str],
        #[case] query: &[(&str, &str)],
        #[case] expected: Option<&str>,
    ) {
        assert_eq!(question(parts, query).ok().as_deref(), expected);
    }
}
