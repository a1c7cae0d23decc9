//! Moves machines between Cluster API and the native controllers, and between infrastructure providers; see
//! docs/cluster-api.md.

mod report;
mod view;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use super::flags::{DriverOptions, value};
use crate::{
    capi::{
        adoption::{Kind, Object, Stage, Way, apply::Stopped, observe::World, way_of},
        types::{Authority, MCMMigration, Side, names},
    },
    driver::{Catalogue, Environment, Guards},
    runtime::kubeconfig::{self, Cluster, Clusters, ControlKubeconfig, Fallback, TargetKubeconfig, UserAgent},
    simulated_cloud::{Client, Cloud, CloudApi, Control},
};
use report::Report;
use view::View;

/// What to do with the machines of a Cluster.
#[derive(Debug, Subcommand)]
pub enum AdoptCommand {
    /// Show what would be done, and check whether it can be: changes nothing
    ///
    /// Exit code 0: every check passed; 1: one did not.
    Plan(Box<PlanOptions>),
    /// Move the machines, step by step; goes on where an earlier run ended
    ///
    /// Nothing is begun unless every check passes. Until the authority is switched, mcm adopt abort undoes everything.
    Apply(Box<ApplyOptions>),
    /// Show how far each deployment is, and what it waits for
    Status(Box<StatusOptions>),
    /// Undo what is under way
    Abort(Box<AbortOptions>),
}

/// Flags of `mcm adopt plan`.
#[derive(Args, Clone, Debug)]
pub struct PlanOptions {
    #[command(flatten)]
    way: Ends,
    /// Format of the plan
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    output: Format,
    #[command(flatten)]
    place: Place,
}

/// Flags of `mcm adopt apply`.
#[derive(Args, Clone, Debug)]
pub struct ApplyOptions {
    #[command(flatten)]
    way: Ends,
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    place: Place,
}

/// Flags of `mcm adopt status`.
#[derive(Args, Clone, Debug)]
pub struct StatusOptions {
    /// Format of the answer
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Text, hide_possible_values = true)]
    output: Format,
    #[command(flatten)]
    place: Place,
}

/// Flags of `mcm adopt abort`.
#[derive(Args, Clone, Debug)]
pub struct AbortOptions {
    #[command(flatten)]
    patience: Patience,
    #[command(flatten)]
    place: Place,
}

/// Where the objects, the Nodes and the VMs are.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("simulated_cloud", |arg| arg.help("URL of the simulated cloud; without it none of its VMs is found")))]
struct Place {
    /// Name of the Cluster whose machines are moved
    #[arg(long, value_name = "NAME")]
    cluster: String,
    /// Only this MachineDeployment; may be repeated. All of the Cluster if absent
    #[arg(long, value_name = "NAME")]
    deployment: Vec<String>,
    /// Namespace of the objects; that of the kubeconfig if absent
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
    /// Kubeconfig of the management cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Kubeconfig of the cluster of the Nodes; if absent, the Secret of the Cluster
    #[arg(long, value_name = "FILE")]
    target_kubeconfig: Option<PathBuf>,
    /// Secret with the credentials of a MachineClass that is made from the template of another provider
    #[arg(long, value_name = "NAME")]
    credentials_secret: Option<String>,
    #[command(flatten)]
    drivers: DriverOptions,
}

/// From one side to another. One of both is enough, but for machines that come from another provider.
#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
struct Ends {
    /// Who has the machines now
    #[arg(long, value_enum)]
    from: Option<End>,
    /// Who shall have them
    #[arg(long, value_enum)]
    to: Option<End>,
}

/// How long to wait for others.
#[derive(Args, Clone, Debug)]
struct Patience {
    /// How long the controllers may take for one step
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = value::duration)]
    timeout: Duration,
}

/// An end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Core of Cluster API, with the infrastructure provider mcm
    Capi,
    /// Core of Cluster API, with another infrastructure provider: that of AWS or Google Cloud
    Other,
    /// The native controllers: mcm run
    Native,
}

/// Format of an answer: text or json.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables.
    Text,
    /// One JSON document.
    Json,
}

impl From<End> for Side {
    fn from(end: End) -> Self {
        match end {
            End::Capi => Self::ClusterApi,
            End::Other => Self::OtherProvider,
            End::Native => Self::MachineController,
        }
    }
}

impl Ends {
    /// Between core with mcm and the native controllers, unless the other provider is named.
    fn way(&self) -> Result<Way> {
        let beside = |end: End| match end {
            End::Capi => Side::MachineController,
            End::Other | End::Native => Side::ClusterApi,
        };
        let (from, to) = match (self.from, self.to) {
            (Some(from), Some(to)) if from == to => bail!("--from and --to are the same side"),
            (Some(from), Some(to)) => (from.into(), to.into()),
            (Some(from), None) => (from.into(), beside(from)),
            (None, Some(to)) => (beside(to), to.into()),
            (None, None) => bail!("--from or --to is needed"),
        };
        Way::between(from, to).context(
            "these are two ways, by way of capi: first --from other --to capi, then --from capi --to native; back, first \
             --from native --to capi, then --from capi --to other",
        )
    }
}

/// Shows the plans of all deployments. False if a check failed.
///
/// # Errors
/// A cluster cannot be used, or there is nothing to move.
pub async fn plan(options: PlanOptions) -> Result<(String, bool)> {
    let (place, way) = (&options.place, options.way.way()?);
    let world = place.world().await?;
    let mut plans = Vec::new();
    for deployment in place.deployments(&world, way).await? {
        plans.push(world.plan(&place.cluster, &deployment, way).await?);
    }
    let is_possible = plans.iter().all(|plan| plan.failed().next().is_none());
    Ok((Report::plans(&plans, options.output), is_possible))
}

/// Moves all deployments, one after the other.
///
/// # Errors
/// A check failed, or something did not happen in time. The command can be repeated.
pub async fn apply(options: ApplyOptions) -> Result<()> {
    let (place, way) = (&options.place, options.way.way()?);
    let world = place.world().await?;
    let deployments = place.deployments(&world, way).await?;
    // Nothing is begun unless everything can be.
    for deployment in &deployments {
        let plan = world.plan(&place.cluster, deployment, way).await?;
        if plan.stage == Stage::Fresh && plan.failed().next().is_some() {
            bail!(Stopped::Refused(Box::new(plan)));
        }
    }
    for deployment in &deployments {
        let mut view = View::default();
        let names = (place.cluster.as_str(), deployment.as_str());
        world.walk(names, way, options.patience.timeout, |event| view.show(&event)).await?;
    }
    Ok(())
}

/// Shows how far all deployments are.
///
/// # Errors
/// A cluster cannot be used.
pub async fn status(options: StatusOptions) -> Result<String> {
    let place = &options.place;
    let world = place.world().await?;
    let mut plans = Vec::new();
    for (deployment, migration) in place.migrations(&world).await? {
        plans.push(world.plan(&place.cluster, &deployment, way_of(&migration)).await?);
    }
    Ok(Report::states(&plans, options.output))
}

/// Undoes every migration that is under way.
///
/// # Errors
/// There is none, or something did not happen in time. The command can be repeated.
pub async fn abort(options: AbortOptions) -> Result<()> {
    let place = &options.place;
    let world = place.world().await?;
    let mut count = 0;
    for (deployment, migration) in place.migrations(&world).await? {
        let way = way_of(&migration);
        if migration.status.is_none_or(|status| status.authority != Some(Authority::Migrating)) {
            continue;
        }
        count += 1;
        let mut view = View::default();
        let names = (place.cluster.as_str(), deployment.as_str());
        world.undo(names, way, options.patience.timeout, |event| view.show(&event)).await?;
    }
    if count == 0 {
        bail!(
            "there is nothing to undo for Cluster {}: no migration is under way before the switch of its authority; a \
             complete one goes back with mcm adopt apply",
            place.cluster
        );
    }
    Ok(())
}

impl Place {
    async fn world(&self) -> Result<World> {
        let control = match &self.kubeconfig {
            Some(path) => ControlKubeconfig::Path(path.clone()),
            None => ControlKubeconfig::Default,
        };
        let clusters = Clusters::load(&control, &TargetKubeconfig::None, Fallback::LocalKubeconfig).await?;
        let management = kubeconfig::client(&clusters.control, UserAgent::Mcm).await?;
        kubeconfig::check(&management, &clusters.control.config.cluster_url).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| clusters.control.config.default_namespace.clone());
        let target = self.target(&management, &namespace).await?;
        let workload = kubeconfig::client(&target, UserAgent::Mcm).await?;
        kubeconfig::wait_until_ready(&workload, &target.config.cluster_url).await?;
        let credentials = self.credentials_secret.clone();
        Ok(World { management, workload, namespace, drivers: self.drivers()?, credentials })
    }

    /// The cluster of the Nodes.
    async fn target(&self, management: &kube::Client, namespace: &str) -> Result<Cluster> {
        if let Some(path) = &self.target_kubeconfig {
            let target = TargetKubeconfig::Path(path.clone());
            return Ok(Clusters::load(&ControlKubeconfig::SameAsTarget, &target, Fallback::None).await?.control);
        }
        let name = format!("{}-kubeconfig", self.cluster);
        let text = World::kubeconfig_of(management, namespace, &self.cluster).await?;
        let text = text.with_context(|| {
            format!(
                "there is no Secret {name} with key {} in namespace {namespace}: give --target-kubeconfig",
                names::KUBECONFIG_KEY
            )
        })?;
        let text = String::from_utf8(text).with_context(|| format!("Secret {name} is no text"))?;
        Ok(Cluster::from_text(&text, "Secret", &name).await?)
    }

    fn drivers(&self) -> Result<Catalogue> {
        // Without an address nothing is in it, so nothing is found.
        let simulated_cloud = || {
            Ok(match &self.drivers.simulated_cloud {
                Some(address) => Arc::new(Client::new(address.as_str())?) as Arc<dyn CloudApi>,
                None => Arc::new(Cloud::new(0, Control::default())) as Arc<dyn CloudApi>,
            })
        };
        #[cfg(feature = "remote")]
        let remote = self.drivers.remote.endpoints();
        #[cfg(feature = "remote")]
        if let Some(exposed) =
            remote.iter().find(|one| one.address.is_exposed() && !self.drivers.remote.driver_insecure)
        {
            bail!("credentials would travel unencrypted to {}: use https://, or --driver-insecure", exposed.address);
        }
        let environment = Environment {
            simulated_cloud: &simulated_cloud,
            #[cfg(feature = "remote")]
            remote: &remote,
        };
        Ok(Catalogue::open(&environment, self.drivers.provider.as_deref(), &Guards::unobserved())?)
    }

    /// The migrations of the Cluster, by deployment.
    async fn migrations(&self, world: &World) -> Result<Vec<(String, MCMMigration)>> {
        let all = world.list(Kind::Migration).await?;
        let mut found = Vec::new();
        for object in all {
            let Some(migration) = object.decoded::<MCMMigration>() else { bail!("{} cannot be read", object.id()) };
            let is_meant = self.deployment.is_empty() || self.deployment.iter().any(|name| name == object.name());
            if migration.spec.cluster_name == self.cluster && is_meant {
                found.push((object.name().to_owned(), migration));
            }
        }
        Ok(found)
    }

    /// The deployments that belong to the Cluster and are at the beginning of the way, and those that are on it.
    async fn deployments(&self, world: &World, way: Way) -> Result<BTreeSet<String>> {
        if !self.deployment.is_empty() {
            return Ok(self.deployment.iter().cloned().collect());
        }
        let (kind, cluster) = match way.from() {
            Side::ClusterApi | Side::OtherProvider => (Kind::CapiDeployment, "/spec/clusterName"),
            Side::MachineController => (Kind::Deployment, "/metadata/labels/cluster.x-k8s.io~1cluster-name"),
        };
        let is_of_mcm = |one: &Object| one.text("/spec/template/spec/infrastructureRef/kind") == "MCMMachineTemplate";
        let is_at_beginning = |one: &Object| {
            one.text(cluster) == self.cluster && (!way.keeps_core() || is_of_mcm(one) == (way == Way::ToOther))
        };
        let all = world.list(kind).await?;
        let mut names: BTreeSet<String> =
            all.iter().filter(|one| is_at_beginning(one)).map(|one| one.name().to_owned()).collect();
        let migrations = self.migrations(world).await?;
        names.extend(migrations.into_iter().filter(|(_, one)| way_of(one) == way).map(|(name, _)| name));
        if names.is_empty() {
            bail!(
                "Cluster {} has no deployments to move in namespace {}: name one with --deployment",
                self.cluster,
                world.namespace
            );
        }
        Ok(names)
    }
}
