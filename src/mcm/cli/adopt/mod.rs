//! Migrates machines between Cluster API and the MCM controllers, between infrastructure providers, and from the stand-in; see
//! docs/cluster-api.md.

mod arrival;
mod ends;
mod orphans;
mod place;
mod report;
mod view;

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};

use super::{flags::value, format::OutputFormat};
use ends::OwnerOptions;
use mcm_adopt::{
    MigrationDirection, MigrationStage, MigrationUnit, Plan, apply::MigrationError, observe::MigrationEnvironment,
    way_of,
};
use mcm_conversion::types::MachineAuthority;
use place::LocationOptions;
use report::AdoptReport;
use view::MigrationDisplay;

/// Sub-commands of `mcm adopt`.
#[derive(Debug, Subcommand)]
pub enum AdoptCommand {
    /// Show the steps of a migration and run its checks, without changing anything
    ///
    /// Exit code: 0 every check passed, 3 a check failed, 1 the check could not run.
    #[command(
        after_help = "Examples:\n  mcm adopt plan --cluster demo --from capi --to native\n  mcm adopt plan --from orphans -n NAMESPACE --target-kubeconfig FILE"
    )]
    Plan(Box<AdoptPlanOptions>),
    /// Migrate the machines step by step; resumes an interrupted run
    ///
    /// Starts only if every check passes. Until the authority is switched, mcm adopt abort undoes everything.
    #[command(after_help = "Examples:\n  mcm adopt apply --cluster demo --from capi --to native --deployment pool")]
    Apply(Box<ApplyOptions>),
    /// Show the current step of each migration and what it waits for
    #[command(after_help = "Examples:\n  mcm adopt status --cluster demo")]
    Status(Box<AdoptStatusOptions>),
    /// Undo migrations that are in progress
    #[command(after_help = "Examples:\n  mcm adopt abort --cluster demo")]
    Abort(Box<AbortOptions>),
}

/// Flags of `mcm adopt plan`.
#[derive(Args, Clone, Debug)]
pub struct AdoptPlanOptions {
    #[command(flatten)]
    way: OwnerOptions,
    /// Format of the plan
    #[arg(short = 'o', long, value_enum, value_name = "text|json", default_value_t = OutputFormat::Text, hide_possible_values = true)]
    output: OutputFormat,
    #[command(flatten)]
    place: LocationOptions,
}

/// Flags of `mcm adopt apply`.
#[derive(Args, Clone, Debug)]
pub struct ApplyOptions {
    #[command(flatten)]
    way: OwnerOptions,
    #[command(flatten)]
    patience: TimeoutOptions,
    #[command(flatten)]
    place: LocationOptions,
}

/// Flags of `mcm adopt status`.
#[derive(Args, Clone, Debug)]
pub struct AdoptStatusOptions {
    /// Format of the report
    #[arg(short = 'o', long, value_enum, value_name = "text|json", default_value_t = OutputFormat::Text, hide_possible_values = true)]
    output: OutputFormat,
    #[command(flatten)]
    place: LocationOptions,
}

/// Flags of `mcm adopt abort`.
#[derive(Args, Clone, Debug)]
pub struct AbortOptions {
    #[command(flatten)]
    patience: TimeoutOptions,
    #[command(flatten)]
    place: LocationOptions,
}

/// How long to wait for others.
#[derive(Args, Clone, Debug)]
struct TimeoutOptions {
    /// Time limit for the controllers to complete one step
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = value::duration)]
    timeout: Duration,
}

/// Prints the plans of all selected units. False if a check failed.
///
/// # Errors
/// A cluster cannot be used, or there is nothing to move.
pub async fn plan(options: AdoptPlanOptions) -> Result<(String, bool)> {
    let place = &options.place;
    if options.way.are_orphans()? {
        return orphans::plan(place, options.output).await;
    }
    let ways = options.way.ways()?;
    let world = place.world(&ways).await?;
    let units = place.units(&world, &ways).await?;
    let pools = place.staying_pools(&world, &ways).await?;
    let mut plans = Vec::new();
    for way in ways {
        plans = plans_of(&world, &place.cluster, &units, way).await?;
        // The next way begins only then.
        if plans.iter().any(|plan| plan.stage != MigrationStage::Done) {
            break;
        }
    }
    let is_possible = plans.iter().all(|plan| plan.failed().next().is_none());
    Ok((AdoptReport::plans(&plans, &pools, options.output), is_possible))
}

async fn plans_of(
    world: &MigrationEnvironment,
    cluster: &str,
    units: &BTreeSet<MigrationUnit>,
    way: MigrationDirection,
) -> Result<Vec<Plan>> {
    let mut plans = Vec::new();
    for unit in units {
        plans.push(world.plan(cluster, unit, way).await?);
    }
    Ok(plans)
}

/// Migrates all selected units, one after the other.
///
/// # Errors
/// A check failed, or something did not happen in time. The command can be repeated.
pub async fn apply(options: ApplyOptions) -> Result<()> {
    let (place, limit) = (&options.place, options.patience.timeout);
    if options.way.are_orphans()? {
        return orphans::apply(place, limit).await;
    }
    let ways = options.way.ways()?;
    let world = place.world(&ways).await?;
    let units = place.units(&world, &ways).await?;
    for way in ways.iter().copied() {
        if ways.first() != Some(&way) {
            arrival::of_core(&world, &place.cluster, limit).await?;
        }
        // Nothing is begun unless everything can be.
        for plan in plans_of(&world, &place.cluster, &units, way).await? {
            if plan.stage == MigrationStage::Fresh && plan.failed().next().is_some() {
                bail!(MigrationError::Refused(Box::new(plan)));
            }
        }
        for unit in &units {
            let mut view = MigrationDisplay::default();
            world.walk((place.cluster.as_str(), unit), way, limit, |event| view.show(&event)).await?;
        }
    }
    Ok(())
}

/// Prints the progress of all migrations.
///
/// # Errors
/// A cluster cannot be used.
pub async fn status(options: AdoptStatusOptions) -> Result<String> {
    let place = &options.place;
    let world = place.world(&[]).await?;
    let mut plans = Vec::new();
    for (unit, migration) in place.migrations(&world).await? {
        plans.push(world.plan(&place.cluster, &unit, way_of(&migration)).await?);
    }
    Ok(AdoptReport::states(&plans, options.output))
}

/// Undoes every migration in progress.
///
/// # Errors
/// No migration is in progress, or something did not happen in time. The command can be repeated.
pub async fn abort(options: AbortOptions) -> Result<()> {
    let place = &options.place;
    let world = place.world(&[]).await?;
    let mut count = 0;
    for (unit, migration) in place.migrations(&world).await? {
        let way = way_of(&migration);
        if migration.status.is_none_or(|status| status.authority != Some(MachineAuthority::Migrating)) {
            continue;
        }
        count += 1;
        let mut view = MigrationDisplay::default();
        world.undo((place.cluster.as_str(), &unit), way, options.patience.timeout, |event| view.show(&event)).await?;
    }
    if count == 0 {
        bail!(
            "there is nothing to undo for Cluster {}: no migration is in progress before the switch of its authority; \
             mcm adopt apply reverses a complete one",
            place.cluster
        );
    }
    Ok(())
}
