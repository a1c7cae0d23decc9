//! Findings about an installation from facts. Pure.

use jiff::{SignedDuration, Timestamp};

use super::finding::{CheckFinding, count, some_of};
use mcm_insight::{
    class::{ClassFinding, ClassFindingVerdict},
    story::{ManagerLease, UndecodableObject},
    terminal::span,
};
use mcm_rules::plan::{SubjectRef, shell::resource_name};

/// A larger difference of clocks is worth a look.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// An API server that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerFacts {
    pub version: String,
    /// The lead of its clock over that of this computer.
    pub skew: Option<SignedDuration>,
}

/// The target cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetReachability {
    /// The managers run without one.
    None,
    Answers(ServerFacts),
    Fails(String),
}

/// The objects of a kind, or why they were not read.
pub(super) struct Kind {
    /// `machine`, `set`, `deployment` or `class`.
    pub name: &'static str,
    pub objects: Result<usize, String>,
}

/// A class and what its driver finds.
pub(super) struct InstalledClass {
    pub name: String,
    pub provider: String,
    /// An error if no driver serves it.
    pub driver: Result<(), String>,
    pub lines: Vec<ClassFinding>,
}

/// A Secret that a class names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SecretPresence {
    There,
    /// Its name and that of the class.
    Missing(String, String),
    /// It may not be read.
    Unread(String),
}

/// Both clusters.
pub(super) fn clusters(control: &ServerFacts, target: &TargetReachability) -> CheckFinding {
    const CHECK: &str = "clusters";
    let control = &control.version;
    match target {
        TargetReachability::None => {
            CheckFinding::good(CHECK, format!("control cluster {control} answers; there is no target cluster"))
        }
        TargetReachability::Answers(target) => {
            CheckFinding::good(CHECK, format!("control cluster {control} and target cluster {} answer", target.version))
        }
        TargetReachability::Fails(cause) => CheckFinding::problem(
            CHECK,
            format!("control cluster {control} answers, the target cluster does not: {cause}"),
        )
        .then("pass --target-kubeconfig FILE, or none if the managers run without a target cluster"),
    }
}

/// Clocks of API servers.
pub(super) fn clocks(control: &ServerFacts, target: &TargetReachability) -> CheckFinding {
    const CHECK: &str = "clocks";
    let target = if let TargetReachability::Answers(server) = target { server.skew } else { None };
    let skews = [("control", control.skew), ("target", target)];
    let skewed = skews.iter().find_map(|(name, skew)| skew.filter(|skew| skew.abs() > SKEW).map(|skew| (name, skew)));
    match skewed {
        Some((name, skew)) => {
            let (size, side) = (span(skew.abs()), if skew.is_negative() { "behind" } else { "ahead of" });
            let text = format!("the clock of the {name} cluster is {size} {side} that of this computer");
            CheckFinding::note(CHECK, format!("{text}. mcm computes ages with the time of the API servers"))
                .then("synchronise both, because certificates and tokens expire by them")
        }
        None => CheckFinding::good(CHECK, "those of the API servers and of this computer agree"),
    }
}

/// Stored objects.
pub(super) fn objects(kinds: &[Kind], unreadable: &[UndecodableObject], namespace: &str) -> Vec<CheckFinding> {
    const CHECK: &str = "objects";
    let mut findings: Vec<CheckFinding> = unreadable
        .iter()
        .map(|one| {
            let next = format!("kubectl edit {} {} -n {namespace}", resource_name(&one.kind), one.name);
            CheckFinding::problem(CHECK, one.to_string()).then(next)
        })
        .collect();
    let unread = kinds.iter().filter_map(|kind| kind.objects.as_ref().err().map(|cause| (kind.name, cause)));
    findings.extend(
        unread.map(|(name, cause)| CheckFinding::unknown(CHECK, format!("{} not read: {cause}", plural(name)))),
    );
    if findings.is_empty() {
        let counts: Vec<String> =
            kinds.iter().map(|kind| counted(kind.objects.clone().unwrap_or(0), kind.name)).collect();
        findings.push(CheckFinding::good(CHECK, format!("all readable: {}", counts.join(", "))));
    }
    findings
}

fn plural(name: &str) -> String {
    if name.ends_with('s') { format!("{name}es") } else { format!("{name}s") }
}

fn counted(number: usize, name: &str) -> String {
    if number == 1 { format!("1 {name}") } else { format!("{number} {}", plural(name)) }
}

/// Leases and their holders. Objects without a manager, or with one that acts on no Machine, are a problem: without objects the
/// manager may not be installed yet.
pub(super) fn leases(
    managers: &Result<Vec<ManagerLease>, String>,
    has_objects: bool,
    now: Timestamp,
) -> Vec<CheckFinding> {
    const CHECK: &str = "leases";
    let managers = match managers {
        Ok(managers) => managers,
        Err(cause) => return vec![CheckFinding::unknown(CHECK, format!("not read: {cause}"))],
    };
    let finding = |one: &ManagerLease| {
        let text = one.state(now);
        if let Some(park) = &one.parked {
            CheckFinding::note(CHECK, format!("{} waits for {}", one.holder, park.why)).then(park.remedy.text.clone())
        } else if one.freeze(now).is_some() {
            CheckFinding::problem(CHECK, text)
                .then("check the API server of the target cluster, and the kubeconfig of the manager for it")
        } else if one.is_alive(now) {
            CheckFinding::good(CHECK, text)
        } else if one.exists && has_objects {
            CheckFinding::problem(CHECK, text).then("start the manager, or scale its Deployment up")
        } else {
            CheckFinding::note(CHECK, text)
        }
    };
    managers.iter().map(finding).collect()
}

/// The Lease of the provider for Cluster API, where it manages all machines. It may run without leader election, or be in another
/// namespace than usual, so its absence is no problem.
pub(super) fn provider_lease(provider: Option<&ManagerLease>, now: Timestamp) -> CheckFinding {
    const CHECK: &str = "leases";
    const OF_PROVIDER: &str =
        "the provider for Cluster API manages all machines, which need no Lease machine-controller*";
    match provider.map(|lease| (lease, lease.vacancy(now))) {
        None => CheckFinding::good(CHECK, OF_PROVIDER),
        Some((lease, None)) => CheckFinding::good(CHECK, format!("{OF_PROVIDER}: {}", lease.state(now))),
        Some((_, Some(vacancy))) => CheckFinding::note(CHECK, format!("{OF_PROVIDER}, and may not run: {vacancy}"))
            .then("kubectl get pods -n capmcm-system"),
    }
}

/// Drivers of this build for the classes.
pub(super) fn drivers(classes: &[InstalledClass], known: &[String]) -> Vec<CheckFinding> {
    const CHECK: &str = "drivers";
    let failed = classes.iter().filter_map(|class| class.driver.as_ref().err());
    let mut findings: Vec<CheckFinding> = failed.map(|cause| CheckFinding::problem(CHECK, cause.clone())).collect();
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
        findings.push(CheckFinding::good(CHECK, text));
    }
    findings
}

/// Fields of classes, as their drivers judge them.
pub(super) fn classes(classes: &[InstalledClass]) -> Vec<CheckFinding> {
    const CHECK: &str = "classes";
    let mut findings = Vec::new();
    let mut valid = 0_usize;
    let served: Vec<&InstalledClass> = classes.iter().filter(|class| class.driver.is_ok()).collect();
    for class in &served {
        let of = |verdict: ClassFindingVerdict| {
            let lines = class.lines.iter().filter(move |line| line.verdict == verdict);
            lines.map(|line| format!("{} {}", line.path, line.text)).collect::<Vec<_>>()
        };
        let (errors, warnings) = (of(ClassFindingVerdict::Error), of(ClassFindingVerdict::Warning));
        if errors.is_empty() {
            valid += 1;
        } else {
            let text = format!("no VM can be created from class {}: {}", class.name, some_of(&errors));
            findings.push(CheckFinding::problem(CHECK, text).then(format!(
                "kubectl get machineclasses.machine.sapcloud.io {} -o yaml | mcm class check -f - names each field",
                class.name
            )));
        }
        if !warnings.is_empty() {
            findings.push(CheckFinding::note(CHECK, format!("class {}: {}", class.name, some_of(&warnings))));
        }
    }
    if findings.is_empty() && !served.is_empty() {
        findings.push(CheckFinding::good(CHECK, format!("{valid} of {} valid", served.len())));
    }
    findings
}

/// Secrets that classes name.
pub(super) fn secrets(secrets: &[SecretPresence]) -> Vec<CheckFinding> {
    const CHECK: &str = "secrets";
    let mut findings: Vec<CheckFinding> = Vec::new();
    for secret in secrets {
        match secret {
            SecretPresence::There => {}
            SecretPresence::Missing(name, class) => {
                let text =
                    format!("Secret {name} of class {class} does not exist: no VM of it can be created or deleted");
                findings.push(CheckFinding::problem(CHECK, text).then("create it, or correct the class"));
            }
            SecretPresence::Unread(cause) => findings.push(CheckFinding::unknown(CHECK, format!("not read: {cause}"))),
        }
    }
    findings.dedup();
    if findings.is_empty() && !secrets.is_empty() {
        findings.push(CheckFinding::good(CHECK, format!("{0} of {0} there", secrets.len())));
    }
    findings
}

/// Sets that create no machines because there were too many.
pub(super) fn frozen(sets: &[String], namespace: &str) -> Vec<CheckFinding> {
    if sets.is_empty() {
        return Vec::new();
    }
    let text = format!("{} frozen, and creates no machine: {}", count(sets.len(), "set"), some_of(sets));
    vec![CheckFinding::note("frozen", text).then(format!("mcm why machineset/{} -n {namespace}", sets[0]))]
}

/// Objects that wait until a user acts.
pub(super) fn waits(blocked: &Result<Vec<SubjectRef>, String>, namespace: &str) -> CheckFinding {
    const CHECK: &str = "waits";
    match blocked {
        Err(cause) => CheckFinding::unknown(CHECK, format!("not planned: {cause}")),
        Ok(blocked) if blocked.is_empty() => CheckFinding::good(CHECK, "nothing waits for a user"),
        Ok(blocked) => {
            let names: Vec<String> = blocked.iter().map(|one| format!("{} {}", one.kind, one.name)).collect();
            CheckFinding::note(CHECK, format!("{} for a user: {}", waiting(names.len()), some_of(&names)))
                .then(format!("mcm why -n {namespace}"))
        }
    }
}

fn waiting(number: usize) -> String {
    if number == 1 { "1 object waits".to_owned() } else { format!("{number} objects wait") }
}

#[cfg(test)]
mod tests;
