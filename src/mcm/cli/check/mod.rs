//! `mcm check`: what an installation needs, and whether it can be taken over from the Go programs.

mod finding;
mod images;
mod install;
mod kinds;
mod output;
mod owners;
mod read;
mod report;
mod rights;
mod stored;
mod takeover;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use jiff::Timestamp;

use self::{
    finding::CheckFinding,
    install::TargetReachability,
    output::answer,
    rights::{ReviewedIdentity, RuleCluster},
    stored::stored_findings,
    takeover::TakeoverOptions,
};
use super::{
    exit::CommandAnswer,
    flags::ReadFlags,
    format::OutputOptions,
    reading::{self, ReadingOptions},
};
use mcm_insight::{
    error::error_line,
    read_only::ReadOnlyClients,
    reader,
    story::{ManagerLease, ObjectVerdict},
};
use mcm_rules::plan::SubjectRef;

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
pub async fn run(options: CheckOptions, read_flags: ReadFlags) -> Result<CommandAnswer> {
    match options.command {
        Some(CheckCommand::Takeover(options)) => takeover::run(options, read_flags).await,
        None => installation(options).await,
    }
}

async fn installation(options: CheckOptions) -> Result<CommandAnswer> {
    let reach = options.reading.reach().await?;
    let control = read::control(&reach).await?;
    let target = read::target(&reach).await;
    let drivers = reading::drivers()?;
    let namespace = reach.namespace.clone();

    let (stored, more) = stored_findings(&reach, &drivers).await?;
    let is_of_provider = stored.is_of_provider_alone();
    // The provider has workload clusters, and the default of the target cluster is the control cluster.
    let shown = if is_of_provider && !reach.is_apart() { &TargetReachability::None } else { &target };
    let mut findings = vec![install::clusters(&control, shown)];
    findings.extend(more);
    if let (Ok(machines), Ok(classes)) = (&stored.machines, &stored.classes) {
        let listed = read::cluster_api_machines(&reach.control, &namespace).await;
        findings.extend(images::images(&listed, &machines.objects, &classes.objects));
    }
    findings.extend(permissions(&reach, &target, options.service_account.as_deref()).await);
    let managers = reach.leaderships().await.map(|all| all.iter().map(reader::manager).collect());
    let mut managers: Result<Vec<ManagerLease>, String> = managers.map_err(|error| error_line(&error));
    if is_of_provider {
        managers.iter_mut().for_each(|all| all.retain(|manager| manager.exists));
        findings.push(install::provider_lease(reader::provider(&reach.control).await.as_ref(), Timestamp::now()));
    }
    findings.extend(install::leases(&managers, stored.has_objects() && !is_of_provider, Timestamp::now()));
    findings.push(install::clocks(&control, &target));
    findings.extend(install::frozen(&stored.frozen(), &namespace));
    let is_served = [stored.machines.is_ok(), stored.sets.is_ok(), stored.deployments.is_ok(), stored.classes.is_ok()];
    let blocked = match (&target, is_served.iter().all(|is_served| *is_served)) {
        (TargetReachability::Fails(_), _) => Err("the target cluster does not answer".to_owned()),
        (_, false) => Err("not all objects can be read".to_owned()),
        _ => blocked(&options.reading, reach.clone()).await.map_err(|error| error_line(&error)),
    };
    findings.push(install::waits(&blocked, &namespace));
    answer("Check", &reach, findings, options.output)
}

/// The rights of a ServiceAccount, or those of the user.
async fn permissions(
    reach: &ReadOnlyClients,
    target: &TargetReachability,
    service_account: Option<&str>,
) -> Vec<CheckFinding> {
    let there = reach.target.as_ref().filter(|_| matches!(target, TargetReachability::Answers(_)));
    let Some(name) = service_account else {
        let there = there.map(|(client, _)| client);
        let answers = read::rights(None, &reach.control, there, &reach.namespace).await;
        let mut findings = rights::judge(&read::whoami(&reach.control).await, RuleCluster::Control, &answers);
        if let Some(client) = there {
            findings.extend(rights::judge(&read::whoami(client).await, RuleCluster::Target, &answers));
        }
        return findings;
    };
    let who = ReviewedIdentity::service_account(&reach.namespace, name);
    // Another cluster has other ServiceAccounts.
    let same = there.filter(|(_, server)| *server == reach.server).map(|(client, _)| client);
    let answers = read::rights(Some(&who), &reach.control, same, &reach.namespace).await;
    [RuleCluster::Control, RuleCluster::Target].into_iter().flat_map(|of| rights::judge(&who, of, &answers)).collect()
}

/// Objects that wait until a user acts.
async fn blocked(reading: &ReadingOptions, reach: ReadOnlyClients) -> Result<Vec<SubjectRef>> {
    let cell = reading.cell(reach).await?;
    let facts = reader::facts(&cell).await?;
    let unread = facts.unread_kinds().join(", ");
    ensure!(unread.is_empty(), "{unread} could not be read");
    let answers = facts.all().into_iter().filter(|answer| answer.verdict == ObjectVerdict::Blocked);
    Ok(answers.map(|answer| answer.object).collect())
}

#[cfg(test)]
mod tests;
