//! `mcm why`: says why an object does not progress. It reads, and plans as the controllers do, and writes nothing. It works on
//! control planes of the Go programs.

mod report;
mod story;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use anyhow::{Context, Result};
use clap::Args;
use jiff::SignedDuration;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use serde_json::json;

use self::story::{ByName, CONTROLLERS, Facts, Manager, Verdict};
use super::{
    error::Misuse,
    flags::{ControlKubeconfig, TargetKubeconfig},
    format::Format,
    run,
};
use crate::{
    driver::{Catalogue, Guards},
    process::{DriverSources, Leadership, ReadOnly},
    simulated_cloud::{Cloud, CloudApi, Control},
};

/// Duration of a Lease that says none.
const LEASE: i32 = 15;

/// Options of the command.
#[derive(Args, Debug)]
pub struct WhyOptions {
    /// The object: NAME or KIND/NAME of a MachineDeployment, MachineSet, Machine, MachineClass or Node. Without it, everything
    /// in the namespace that waits is listed
    #[arg(value_name = "OBJECT")]
    object: Option<String>,
    /// Namespace of the objects; that of the kubeconfig if absent
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
    /// Kubeconfig of the control cluster, which contains the machine objects; if absent, KUBECONFIG, the credentials of this pod,
    /// or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the target cluster, which the Nodes join: a file, "none" if the manager runs without one, or empty if the
    /// Nodes are in the control cluster
    #[arg(long, default_value = "", value_name = "FILE")]
    target_kubeconfig: String,
    /// Format of the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

/// The answer, and the exit code that it means.
pub struct Why {
    /// For standard output.
    pub text: String,
    /// 0: all is settled or progresses; 3: a user has to act; 4: something waits, and goes on without a user.
    pub code: u8,
}

/// Says why an object does not progress.
///
/// # Errors
/// The control cluster cannot be read, or has no such object.
pub async fn run(options: WhyOptions) -> Result<Why> {
    let process = run::reading_options(options.control(), options.target());
    let cell = ReadOnly::open(&process, options.namespace.clone(), drivers()?).await?;
    let facts = facts(&cell).await?;
    let notes = notes(&cell, &facts);
    let namespace = &cell.namespace;
    let Some(wanted) = &options.object else {
        let answers = facts.all();
        let worst = answers.iter().map(|answer| answer.verdict).max().unwrap_or(Verdict::Settled);
        let text = match options.output {
            Format::Text => report::all(&answers, &facts.managers, namespace, &notes, facts.now),
            Format::Json => as_json(&answers, &facts, &notes)?,
        };
        return Ok(Why { text, code: code_of(worst) });
    };
    let Some(object) = facts.find(wanted) else { return Err(unknown(wanted, namespace, &facts).into()) };
    let answer = facts.answer(&object);
    let text = match options.output {
        Format::Text => report::one(&answer, facts.manager_of(&object.kind), &notes, facts.now),
        Format::Json => as_json(std::slice::from_ref(&answer), &facts, &notes)?,
    };
    Ok(Why { text, code: code_of(answer.verdict) })
}

impl WhyOptions {
    fn control(&self) -> ControlKubeconfig {
        self.kubeconfig.clone().map_or(ControlKubeconfig::Default, ControlKubeconfig::Named)
    }

    fn target(&self) -> TargetKubeconfig {
        match (self.target_kubeconfig.as_str(), &self.kubeconfig) {
            ("none", _) => TargetKubeconfig::None,
            ("", Some(control)) => TargetKubeconfig::Path(control.clone()),
            ("", None) => TargetKubeconfig::InCluster,
            (path, _) => TargetKubeconfig::Path(path.into()),
        }
    }
}

/// The drivers of this build, which validate classes. None of them is asked anything else.
fn drivers() -> Result<Catalogue> {
    let simulated_cloud = || Ok(Arc::new(Cloud::new(0, Control::default())) as Arc<dyn CloudApi>);
    let sources = DriverSources {
        simulated_cloud: &simulated_cloud,
        secrets: &crate::driver::SecretPolicy::default(),
        #[cfg(feature = "remote")]
        remote: &[],
    };
    Ok(sources.open(None, &Guards::unobserved())?)
}

/// Objects of a page of a list.
const PAGE: u32 = 500;

async fn list<K>(cell: &ReadOnly) -> Result<ByName<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(cell.control.clone(), &cell.namespace);
    let (mut found, mut params) = (BTreeMap::new(), ListParams::default().limit(PAGE));
    loop {
        let page = api.list(&params).await.with_context(|| format!("list {}", K::plural(&())))?;
        found.extend(page.items.into_iter().map(|object| (object.name_any(), object)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(found),
        }
    }
}

async fn facts(cell: &ReadOnly) -> Result<Facts> {
    let (deployments, sets, machines, classes) = tokio::try_join!(list(cell), list(cell), list(cell), list(cell))?;
    let mut facts = Facts {
        now: cell.clock.now(),
        namespace: cell.namespace.clone(),
        deployments,
        sets,
        machines,
        classes,
        previews: BTreeMap::new(),
        managers: cell.leaderships().await.map(|all| all.iter().map(manager).collect()).unwrap_or_default(),
    };
    for (kind, controller) in CONTROLLERS {
        let preview = |name: &String| Some((name.clone(), cell.preview(controller, name)?));
        let previews = facts.names(kind).filter_map(preview).collect();
        facts.previews.insert(kind, previews);
    }
    Ok(facts)
}

fn manager(leadership: &Leadership) -> Manager {
    let spec = leadership.lease.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    Manager {
        lease: leadership.role.lease.to_owned(),
        role: leadership.role.name.to_owned(),
        holder: spec.holder_identity.unwrap_or_default(),
        renewed: spec.renew_time.map(|time| time.0),
        lasts: SignedDuration::from_secs(i64::from(spec.lease_duration_seconds.unwrap_or(LEASE))),
        exists: leadership.lease.is_some(),
    }
}

/// What the answer could not take into account.
fn notes(cell: &ReadOnly, facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if !cell.unread.is_empty() {
        notes.push(format!("not read, so unknown: {}", cell.unread.join(", ")));
    }
    if facts.managers.is_empty() {
        notes.push("the Leases of the managers could not be read".to_owned());
    }
    notes
}

fn unknown(wanted: &str, namespace: &str, facts: &Facts) -> Misuse {
    let name = wanted.rsplit('/').next().unwrap_or(wanted);
    let alike = facts.all_names().map(|known| (strsim::jaro_winkler(known, name), known));
    let alike = alike.filter(|(score, _)| *score > 0.8).max_by(|one, other| one.0.total_cmp(&other.0));
    let hint = match alike {
        Some((_, known)) => format!("did you mean {known}?"),
        None => format!("mcm why -n {namespace} lists what waits"),
    };
    Misuse { message: format!("there is no {wanted} in namespace {namespace}"), hint }
}

fn as_json(answers: &[story::Answer], facts: &Facts, notes: &[String]) -> Result<String> {
    let document = json!({
        "apiVersion": "cli.mcm/v1",
        "kind": "Explanation",
        "at": facts.now,
        "objects": answers,
        "managers": facts.managers,
        "notes": notes,
    });
    Ok(format!("{}\n", serde_json::to_string_pretty(&document)?))
}

const fn code_of(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Settled | Verdict::Progressing => 0,
        Verdict::Waiting => 4,
        Verdict::Unknown | Verdict::Blocked => 3,
    }
}
