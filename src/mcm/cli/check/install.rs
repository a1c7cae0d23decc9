//! Judges an installation from facts. Pure.

use jiff::{SignedDuration, Timestamp};

use super::finding::{Finding, Level, count, some_of};
use crate::cli::{
    class::{Line, Verdict},
    reading::story::{Manager, Unreadable},
    terminal::span,
};
use mcm_rules::plan::Subject;

/// A larger difference of clocks is worth a look.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// An API server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    pub version: String,
    /// The lead of its clock over that of this computer.
    pub skew: Option<SignedDuration>,
}

/// The target cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The managers run without one.
    None,
    Answers(Server),
    Fails(String),
}

/// The objects of a kind, or why they were not read.
pub(super) struct Kind {
    /// `machine`, `set`, `deployment` or `class`.
    pub name: &'static str,
    pub objects: Result<usize, String>,
}

/// A class and what its driver finds.
pub(super) struct Class {
    pub name: String,
    pub provider: String,
    /// An error if no driver serves it.
    pub driver: Result<(), String>,
    pub lines: Vec<Line>,
}

/// A Secret that a class names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Secret {
    There,
    /// Its name and that of the class.
    Missing(String, String),
    /// It may not be read.
    Unread(String),
}

/// Both clusters.
pub(super) fn clusters(control: &Server, target: &Target) -> Finding {
    const CHECK: &str = "clusters";
    let control = &control.version;
    match target {
        Target::None => Finding::good(CHECK, format!("control cluster {control} answers; there is no target cluster")),
        Target::Answers(target) => {
            Finding::good(CHECK, format!("control cluster {control} and target cluster {} answer", target.version))
        }
        Target::Fails(cause) => {
            Finding::problem(CHECK, format!("control cluster {control} answers, the target cluster does not: {cause}"))
                .then("pass --target-kubeconfig FILE, or none if the managers run without a target cluster")
        }
    }
}

/// Clocks of API servers.
pub(super) fn clocks(control: &Server, target: &Target) -> Finding {
    const CHECK: &str = "clocks";
    let target = if let Target::Answers(server) = target { server.skew } else { None };
    let skews = [("control", control.skew), ("target", target)];
    let skewed = skews.iter().find_map(|(name, skew)| skew.filter(|skew| skew.abs() > SKEW).map(|skew| (name, skew)));
    match skewed {
        Some((name, skew)) => {
            let (size, side) = (span(skew.abs()), if skew.is_negative() { "behind" } else { "ahead of" });
            let text = format!("the clock of the {name} cluster is {size} {side} that of this computer");
            Finding::note(CHECK, format!("{text}. mcm computes ages with the time of the API servers"))
                .then("synchronise both, because certificates and tokens expire by them")
        }
        None => Finding::good(CHECK, "those of the API servers and of this computer agree"),
    }
}

/// Stored objects.
pub(super) fn objects(kinds: &[Kind], unreadable: &[Unreadable]) -> Vec<Finding> {
    const CHECK: &str = "objects";
    let mut findings: Vec<Finding> = unreadable
        .iter()
        .map(|one| {
            let next = format!("kubectl edit {}.machine.sapcloud.io {}", one.kind.to_lowercase(), one.name);
            Finding::problem(CHECK, one.to_string()).then(next)
        })
        .collect();
    let unread = kinds.iter().filter_map(|kind| kind.objects.as_ref().err().map(|cause| (kind.name, cause)));
    findings.extend(unread.map(|(name, cause)| Finding::unknown(CHECK, format!("{} not read: {cause}", plural(name)))));
    if findings.is_empty() {
        let counts: Vec<String> =
            kinds.iter().map(|kind| counted(kind.objects.clone().unwrap_or(0), kind.name)).collect();
        findings.push(Finding::good(CHECK, format!("all readable: {}", counts.join(", "))));
    }
    findings
}

fn plural(name: &str) -> String {
    if name.ends_with('s') { format!("{name}es") } else { format!("{name}s") }
}

fn counted(number: usize, name: &str) -> String {
    if number == 1 { format!("1 {name}") } else { format!("{number} {}", plural(name)) }
}

/// Leases and their holders.
pub(super) fn leases(managers: &Result<Vec<Manager>, String>, now: Timestamp) -> Vec<Finding> {
    const CHECK: &str = "leases";
    let managers = match managers {
        Ok(managers) => managers,
        Err(cause) => return vec![Finding::unknown(CHECK, format!("not read: {cause}"))],
    };
    let level = |one: &Manager| if one.is_alive(now) { Level::Good } else { Level::Note };
    managers.iter().map(|one| Finding::new(CHECK, level(one), one.state(now))).collect()
}

/// Drivers of this build for the classes.
pub(super) fn drivers(classes: &[Class], known: &[String]) -> Vec<Finding> {
    const CHECK: &str = "drivers";
    let failed = classes.iter().filter_map(|class| class.driver.as_ref().err());
    let mut findings: Vec<Finding> = failed.map(|cause| Finding::problem(CHECK, cause.clone())).collect();
    if findings.is_empty() {
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let text = if classes.is_empty() {
            format!("there is no class; drivers of this build: {known}")
        } else {
            let mut used: Vec<&str> = classes.iter().map(|class| class.provider.as_str()).collect();
            used.sort_unstable();
            used.dedup();
            format!("this build has one for each class: {}", used.join(", "))
        };
        findings.push(Finding::good(CHECK, text));
    }
    findings
}

/// Fields of classes, as their drivers judge them.
pub(super) fn classes(classes: &[Class]) -> Vec<Finding> {
    const CHECK: &str = "classes";
    let mut findings = Vec::new();
    let mut valid = 0_usize;
    let served: Vec<&Class> = classes.iter().filter(|class| class.driver.is_ok()).collect();
    for class in &served {
        let of = |verdict: Verdict| {
            let lines = class.lines.iter().filter(move |line| line.verdict == verdict);
            lines.map(|line| format!("{} {}", line.path, line.text)).collect::<Vec<_>>()
        };
        let (errors, warnings) = (of(Verdict::Error), of(Verdict::Warning));
        if errors.is_empty() {
            valid += 1;
        } else {
            let text = format!("no VM can be created from class {}: {}", class.name, some_of(&errors));
            findings.push(Finding::problem(CHECK, text).then(format!(
                "kubectl get machineclass {} -o yaml | mcm class check -f - names each field",
                class.name
            )));
        }
        if !warnings.is_empty() {
            findings.push(Finding::note(CHECK, format!("class {}: {}", class.name, some_of(&warnings))));
        }
    }
    if findings.is_empty() && !served.is_empty() {
        findings.push(Finding::good(CHECK, format!("{valid} of {} valid", served.len())));
    }
    findings
}

/// Secrets that classes name.
pub(super) fn secrets(secrets: &[Secret]) -> Vec<Finding> {
    const CHECK: &str = "secrets";
    let mut findings: Vec<Finding> = Vec::new();
    for secret in secrets {
        match secret {
            Secret::There => {}
            Secret::Missing(name, class) => {
                let text =
                    format!("Secret {name} of class {class} does not exist: no VM of it can be created or deleted");
                findings.push(Finding::problem(CHECK, text).then("create it, or correct the class"));
            }
            Secret::Unread(cause) => findings.push(Finding::unknown(CHECK, format!("not read: {cause}"))),
        }
    }
    findings.dedup();
    if findings.is_empty() && !secrets.is_empty() {
        findings.push(Finding::good(CHECK, format!("{0} of {0} there", secrets.len())));
    }
    findings
}

/// Sets that create no machines because there were too many.
pub(super) fn frozen(sets: &[String], namespace: &str) -> Vec<Finding> {
    if sets.is_empty() {
        return Vec::new();
    }
    let text = format!("{} frozen, and creates no machine: {}", count(sets.len(), "set"), some_of(sets));
    vec![Finding::note("frozen", text).then(format!("mcm why machineset/{} -n {namespace}", sets[0]))]
}

/// Objects that wait until a user acts.
pub(super) fn waits(blocked: &Result<Vec<Subject>, String>, namespace: &str) -> Finding {
    const CHECK: &str = "waits";
    match blocked {
        Err(cause) => Finding::unknown(CHECK, format!("not planned: {cause}")),
        Ok(blocked) if blocked.is_empty() => Finding::good(CHECK, "nothing waits for a user"),
        Ok(blocked) => {
            let names: Vec<String> = blocked.iter().map(|one| format!("{} {}", one.kind, one.name)).collect();
            Finding::note(CHECK, format!("{} for a user: {}", waiting(names.len()), some_of(&names)))
                .then(format!("mcm why -n {namespace}"))
        }
    }
}

fn waiting(number: usize) -> String {
    if number == 1 { "1 object waits".to_owned() } else { format!("{number} objects wait") }
}

#[cfg(test)]
mod tests;
