//! `mcm check`: what an installation needs, and whether it can be taken over from the Go programs.

mod finding;
mod install;
mod kinds;
mod read;
mod report;
mod rights;
mod takeover;

use anyhow::Result;
use clap::{Args, Subcommand};
use jiff::Timestamp;

use self::{
    finding::{Finding, exit},
    install::{Kind, Target},
    rights::{In, Who},
    takeover::TakeoverOptions,
};
use super::{
    exit::Answer,
    flags::ReadFlags,
    format::Format,
    reading::{
        self, Listed, ReadingOptions,
        story::{Unreadable, Verdict},
    },
    terminal::LookOptions,
};
use crate::{
    api::{
        labels,
        machine::{Machine, MachineClass, MachineDeployment, MachineSet},
        reasons::ConditionType,
    },
    driver::Catalogue,
    plan::Subject,
    process::Reach,
};

/// Options of the command.
#[derive(Args, Debug)]
pub struct CheckOptions {
    #[command(subcommand)]
    command: Option<CheckCommand>,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Check the permissions of this ServiceAccount of the namespace instead of those of the user
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    #[command(flatten)]
    output: OutputOptions,
}

/// Options of the output.
#[derive(Args, Clone, Copy, Debug)]
struct OutputOptions {
    /// Format of the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text)]
    output: Format,
    #[command(flatten)]
    look: LookOptions,
}

/// Sub-commands of `mcm check`.
#[derive(Debug, Subcommand)]
enum CheckCommand {
    /// Check whether the image of the Go programs can be replaced
    ///
    /// Looks at the Deployment of the Go programs: whether mcm accepts its flags, its ServiceAccount has the rights that mcm
    /// needs, this build has the drivers, and every stored object is readable. Exit codes: 0 if there is no problem, 3 if there
    /// is one, 1 if the control cluster could not be asked.
    #[command(
        after_help = "Examples:\n  mcm check takeover -n shoot--dev--one\n  mcm check takeover -n shoot--dev--one --image registry.example/mcm:v0.1.0"
    )]
    Takeover(TakeoverOptions),
}

/// Checks an installation.
///
/// # Errors
/// The control cluster does not answer.
pub async fn run(options: CheckOptions, read_flags: ReadFlags) -> Result<Answer> {
    match options.command {
        Some(CheckCommand::Takeover(options)) => takeover::run(options, read_flags).await,
        None => installation(options).await,
    }
}

/// Kinds, stored objects and classes: what both checks read.
struct Stored {
    machines: Result<Listed<Machine>>,
    sets: Result<Listed<MachineSet>>,
    deployments: Result<Listed<MachineDeployment>>,
    classes: Result<Listed<MachineClass>>,
}

impl Stored {
    async fn read(reach: &Reach) -> Self {
        let (control, namespace) = (&reach.control, reach.namespace.as_str());
        let (machines, sets, deployments, classes) = tokio::join!(
            reading::list(control, namespace),
            reading::list(control, namespace),
            reading::list(control, namespace),
            reading::list(control, namespace)
        );
        Self { machines, sets, deployments, classes }
    }

    fn findings(&self) -> Vec<Finding> {
        fn kind<K>(name: &'static str, listed: &Result<Listed<K>>) -> (Kind, Vec<Unreadable>) {
            match listed {
                Ok(listed) => (Kind { name, objects: Ok(listed.objects.len()) }, listed.unreadable.clone()),
                Err(error) => (Kind { name, objects: Err(format!("{error:#}")) }, Vec::new()),
            }
        }
        let (kinds, unreadable): (Vec<Kind>, Vec<Vec<Unreadable>>) = [
            kind("class", &self.classes),
            kind("deployment", &self.deployments),
            kind("set", &self.sets),
            kind("machine", &self.machines),
        ]
        .into_iter()
        .unzip();
        install::objects(&kinds, &unreadable.concat())
    }

    /// Names of sets that create no machines because there were too many.
    fn frozen(&self) -> Vec<String> {
        let Ok(sets) = &self.sets else { return Vec::new() };
        let is_frozen = |set: &MachineSet| {
            let label = set.metadata.labels.as_ref().and_then(|all| all.get(labels::FREEZE));
            let conditions = set.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
            let frozen = ConditionType::Frozen.as_str();
            label.is_some_and(|value| value == labels::TRUE)
                || conditions.iter().any(|one| one.type_ == frozen && one.status == "True")
        };
        sets.objects.iter().filter(|(_, set)| is_frozen(set)).map(|(name, _)| name.clone()).collect()
    }
}

/// Findings about kinds, stored objects, drivers, classes and Secrets.
async fn stored_findings(reach: &Reach, drivers: &Catalogue) -> Result<(Stored, Vec<Finding>)> {
    let resources = read::resources(&reach.control).await?;
    let mut findings = kinds::judge(&resources, &read::definitions(&reach.control).await);
    let stored = Stored::read(reach).await;
    if !resources.is_empty() {
        findings.extend(stored.findings());
    }
    if let Ok(classes) = &stored.classes {
        let (classes, secrets) = read::classes(reach, drivers, &classes.objects).await;
        findings.extend(install::drivers(&classes, &drivers.names()));
        findings.extend(install::classes(&classes));
        findings.extend(install::secrets(&secrets));
    }
    Ok((stored, findings))
}

async fn installation(options: CheckOptions) -> Result<Answer> {
    let reach = options.reading.reach().await?;
    let control = read::control(&reach).await?;
    let target = read::target(&reach).await;
    let drivers = reading::drivers()?;
    let namespace = reach.namespace.clone();

    let mut findings = vec![install::clusters(&control, &target)];
    let (stored, more) = stored_findings(&reach, &drivers).await?;
    findings.extend(more);
    findings.extend(permissions(&reach, &target, options.service_account.as_deref()).await);
    let managers = reach.leaderships().await.map(|all| all.iter().map(reading::manager).collect());
    findings.extend(install::leases(&managers.map_err(|error| format!("{error:#}")), Timestamp::now()));
    findings.push(install::clocks(&control, &target));
    findings.extend(install::frozen(&stored.frozen(), &namespace));
    let is_served = [stored.machines.is_ok(), stored.sets.is_ok(), stored.deployments.is_ok(), stored.classes.is_ok()];
    let blocked = match (&target, is_served.iter().all(|is_served| *is_served)) {
        (Target::Fails(_), _) => Err("the target cluster does not answer".to_owned()),
        (_, false) => Err("not all objects can be read".to_owned()),
        _ => blocked(&options.reading, reach).await.map_err(|error| format!("{error:#}")),
    };
    findings.push(install::waits(&blocked, &namespace));
    answer("Check", &namespace, &findings, options.output)
}

/// The rights of a ServiceAccount, or those of the user.
async fn permissions(reach: &Reach, target: &Target, service_account: Option<&str>) -> Vec<Finding> {
    let there = reach.target.as_ref().filter(|_| matches!(target, Target::Answers(_)));
    let Some(name) = service_account else {
        let there = there.map(|(client, _)| client);
        let answers = read::rights(None, &reach.control, there, &reach.namespace).await;
        let mut findings = rights::judge(&read::whoami(&reach.control).await, In::Control, &answers);
        if let Some(client) = there {
            findings.extend(rights::judge(&read::whoami(client).await, In::Target, &answers));
        }
        return findings;
    };
    let who = Who::service_account(&reach.namespace, name);
    // Another cluster has other ServiceAccounts.
    let same = there.filter(|(_, server)| *server == reach.server).map(|(client, _)| client);
    let answers = read::rights(Some(&who), &reach.control, same, &reach.namespace).await;
    [In::Control, In::Target].into_iter().flat_map(|of| rights::judge(&who, of, &answers)).collect()
}

/// Objects that wait until a user acts.
async fn blocked(reading: &ReadingOptions, reach: Reach) -> Result<Vec<Subject>> {
    let cell = reading.cell(reach).await?;
    let facts = reading::facts(&cell).await?;
    let answers = facts.all().into_iter().filter(|answer| answer.verdict == Verdict::Blocked);
    Ok(answers.map(|answer| answer.object).collect())
}

fn answer(kind: &str, namespace: &str, findings: &[Finding], output: OutputOptions) -> Result<Answer> {
    let text = match output.output {
        Format::Text => report::text(output.look.stdout(), findings),
        Format::Json => report::json(kind, namespace, Timestamp::now(), findings)?,
    };
    Ok(Answer { text, exit: exit(findings) })
}

#[cfg(test)]
mod tests;
