//! Findings about the Deployment of the Go programs. Pure.

use jiff::{SignedDuration, Timestamp};

use super::workload::{GoContainer, GoDeployment, MACHINE_CONTROLLER};
use crate::{
    api::machine::MachineDeployment,
    cli::check::finding::{CheckFinding, some_of},
};
use mcm_insight::{
    error::error_line,
    story::{ByName, ManagerLease},
    terminal::{ago, span},
};

/// Time that a pod needs to end its reconciles and to release its Leases, in seconds.
const ENOUGH: i64 = 30;

/// The user may not read the Deployments.
pub(super) fn unread_workloads(error: &anyhow::Error) -> CheckFinding {
    let message = error_line(error);
    let text = format!("not read: {message}; flags, permissions and grace period of the Go programs were not checked");
    CheckFinding::unknown("deployment", text).then("ask an administrator")
}

/// No Deployment runs a Go program.
pub(super) fn no_workload(namespace: &str) -> CheckFinding {
    let text = "no Deployment runs machine-controller-manager or machine-controller: its flags, permissions and grace period \
                were not checked";
    CheckFinding::unknown("deployment", text).then(format!("kubectl get deployments -n {namespace}"))
}

/// Flags of the containers.
pub(super) fn flags(workload: &GoDeployment) -> Vec<CheckFinding> {
    const CHECK: &str = "flags";
    let mut findings = Vec::new();
    let (mut count, mut ignored) = (0, Vec::new());
    for container in &workload.containers {
        let name = &container.name;
        let Some(flags) = &container.flags else {
            let text = format!("container {name} starts {} by a script: its flags were not read", container.program);
            findings.push(CheckFinding::unknown(CHECK, text));
            continue;
        };
        count += flags.count;
        ignored.extend(flags.without_effect.clone());
        if !flags.unknown.is_empty() {
            let text = format!("container {name} has flags that mcm does not know: {}", some_of(&flags.unknown));
            let next = match workload.is_of_gardener {
                true => "keep the Go image of this container: Gardener writes its flags",
                false => "remove them",
            };
            findings.push(CheckFinding::problem(CHECK, text).then(next));
        } else if let Err(error) = &flags.options {
            findings.push(CheckFinding::problem(CHECK, format!("container {name} would not start: {error}")));
        }
    }
    if findings.is_empty() {
        ignored.sort_unstable();
        ignored.dedup();
        let ignored = match ignored.len() {
            0 => String::new(),
            number => format!("; {number} without effect: {}", some_of(&ignored)),
        };
        findings.push(CheckFinding::good(CHECK, format!("{count} of {count} known{ignored}")));
    }
    findings
}

/// A container without a command runs the program of its image. Gardener deploys its sidecars so.
pub(super) fn entry_points(workload: &GoDeployment) -> Vec<CheckFinding> {
    let without = workload.containers.iter().filter(|container| !container.has_command);
    without
        .map(|container| {
            let text = format!("container {} names no command, so it runs the program of its image", container.name);
            let own = format!("use an image whose entry point is /{}", container.program);
            CheckFinding::note("command", text).then(match workload.is_of_gardener {
                true => own,
                false => format!("{own}, or set its command to [/{}]", container.program),
            })
        })
        .collect()
}

/// A finding on the time that a pod has to release its Leases.
pub(super) fn grace(workload: &GoDeployment, namespace: &str) -> Vec<CheckFinding> {
    const CHECK: &str = "grace";
    let GoDeployment { name, grace, .. } = workload;
    if *grace >= ENOUGH {
        return vec![CheckFinding::good(
            CHECK,
            format!("a pod of {name} has {grace} s to end its work and release its Leases"),
        )];
    }
    let lease = workload.lease().and_then(|lease| SignedDuration::try_from(lease).ok()).map(span);
    let lease = lease.map(|lease| format!(", and the next pod waits {lease}")).unwrap_or_default();
    let text = format!(
        "terminationGracePeriodSeconds of {name} is {grace}: a pod that is ended while it works does not release its Leases{lease}"
    );
    if workload.is_of_gardener {
        let text = format!("{text}. Gardener sets it, and restores it after a change");
        return vec![CheckFinding::note(CHECK, text)];
    }
    let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"terminationGracePeriodSeconds":{ENOUGH}}}}}}}}}"#);
    vec![CheckFinding::note(CHECK, text).then(format!("kubectl patch deployment {name} -n {namespace} -p '{patch}'"))]
}

/// Two pods without leader election would act at once.
pub(super) fn election(workload: &GoDeployment) -> Option<CheckFinding> {
    if workload.elects() || !workload.overlaps {
        return None;
    }
    let text =
        format!("{} runs without leader election, and its pods overlap during a change: two would act", workload.name);
    let next = match workload.is_of_gardener {
        true => "keep the Go images: Gardener writes the flags and the strategy",
        false => "remove --leader-elect=false, or set the strategy to Recreate",
    };
    Some(CheckFinding::problem("election", text).then(next))
}

/// Leases, and how long a successor waits for them.
pub(super) fn leases(
    managers: &Result<Vec<ManagerLease>, String>,
    workloads: &[GoDeployment],
    now: Timestamp,
) -> Vec<CheckFinding> {
    const CHECK: &str = "leases";
    let managers = match managers {
        Ok(managers) => managers,
        Err(cause) => return vec![CheckFinding::unknown(CHECK, format!("not read: {cause}"))],
    };
    let judged = managers.iter().map(|manager| {
        let ManagerLease { lease, holder, .. } = manager;
        if !manager.is_alive(now) {
            return CheckFinding::note(CHECK, manager.state(now));
        }
        let renewed = manager.renewed.map(|at| ago(now, at)).unwrap_or_default();
        let text = format!(
            "{lease} is held by {holder}, renewed {renewed} ago; if it is not released, it expires {} after the last renewal",
            span(manager.lasts)
        );
        match workloads.is_empty() || workloads.iter().any(|one| holder.starts_with(&one.name)) {
            true => CheckFinding::good(CHECK, text),
            false => CheckFinding::note(CHECK, format!("{text}. The holder is no pod of the Deployments above"))
                .then("end the other program first, or both wait for the same Lease"),
        }
    });
    judged.collect()
}

/// Rollouts that are under way.
pub(super) fn settled(deployments: &ByName<MachineDeployment>) -> CheckFinding {
    const CHECK: &str = "settled";
    let rolling = deployments.iter().filter_map(|(name, deployment)| {
        let status = deployment.status.clone().unwrap_or_default();
        let wanted = deployment.spec.replicas;
        let is_new = deployment.metadata.generation.is_some_and(|generation| generation > status.observed_generation);
        let is_rolling = is_new || status.updated_replicas < wanted || status.replicas != wanted;
        is_rolling.then(|| format!("{name} ({} of {wanted})", status.updated_replicas))
    });
    let rolling: Vec<String> = rolling.collect();
    match rolling.len() {
        0 => CheckFinding::good(CHECK, "no deployment is rolling"),
        1 => CheckFinding::note(CHECK, format!("{} is rolling, and is taken over in the middle", rolling[0])),
        number => CheckFinding::note(
            CHECK,
            format!("{number} are rolling, and are taken over in the middle: {}", some_of(&rolling)),
        ),
    }
}

/// The ServiceAccount of this cluster has no rights in another one.
pub(super) fn target_rights(workload: &GoDeployment) -> CheckFinding {
    let text =
        format!("in the target cluster not checked: {} reads its kubeconfig from a file of its pods", workload.name);
    CheckFinding::unknown("permissions", text)
        .then("mcm check --target-kubeconfig FILE shows the rights of that kubeconfig")
}

/// The suffix of the tag of the image whose entry point is `/machine-controller`.
const OF_SIDECAR: &str = "-machine-controller";

/// The image for a container. One without a command needs the image that starts its program: another tag, with another digest.
fn image_of(container: &GoContainer, image: &str) -> String {
    let tagged = image.split('@').next().unwrap_or(image);
    let has_tag = tagged.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let plain = tagged.strip_suffix(OF_SIDECAR).unwrap_or(tagged);
    match container.program == MACHINE_CONTROLLER && !container.has_command {
        _ if !has_tag => image.to_owned(),
        true => format!("{plain}{OF_SIDECAR}"),
        false if plain == tagged => image.to_owned(),
        false => plain.to_owned(),
    }
}

/// The images that image vectors of Gardener name, for a container each.
fn image_vectors(workload: &GoDeployment, image: &str) -> String {
    let entry = |container: &GoContainer| {
        let owner = match container.program {
            MACHINE_CONTROLLER => "the provider extension",
            _ => "gardenlet",
        };
        format!("in that of {owner} {}: {}", container.name, image_of(container, image))
    };
    let entries = workload.containers.iter().map(entry).collect::<Vec<_>>().join("; ");
    format!("set imageVectorOverwrite, {entries}. gardenlet reverts kubectl set image; docs/gardener.md has the steps")
}

/// The command that replaces the image, or the image vectors of Gardener.
pub(super) fn image(image: Option<&str>, workloads: &[GoDeployment], namespace: &str) -> Vec<CheckFinding> {
    const CHECK: &str = "image";
    let Some(image) = image else { return Vec::new() };
    let ours = env!("CARGO_PKG_VERSION");
    let tag = image.split('@').next().and_then(|name| name.rsplit('/').next()).and_then(|name| name.split_once(':'));
    let is_ours = tag.is_some_and(|(_, tag)| tag.trim_start_matches('v') == ours);
    let text = format!("the flags and drivers above are those of this program, version {ours}");
    let finding = match is_ours {
        true => CheckFinding::good(CHECK, text),
        false => CheckFinding::note(CHECK, format!("{text}; {image} may have others")),
    };
    let set = |workload: &GoDeployment| {
        if workload.is_of_gardener {
            return image_vectors(workload, image);
        }
        let containers = workload.containers.iter();
        let containers = containers.map(|container| format!("{}={}", container.name, image_of(container, image)));
        let containers = containers.collect::<Vec<_>>().join(" ");
        format!("kubectl set image deployment/{} -n {namespace} {containers}", workload.name)
    };
    let commands = workloads.iter().map(set).collect::<Vec<_>>().join("; ");
    vec![if commands.is_empty() { finding } else { finding.then(commands) }]
}
