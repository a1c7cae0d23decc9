//! Location and selection of the machines.

use std::{collections::BTreeSet, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::{
    api::labels,
    cli::{
        answers::AnswerOptions,
        flags::DriverOptions,
        reading::{ContextOptions, cloud::open_drivers},
    },
};
use mcm_adopt::{
    Kind, MigrationDirection, MigrationUnit, StayingPool, UnstructuredObject, has_finalizer, lone_name,
    observe::{MigrationEnvironment, NotRead},
    way_of,
};
use mcm_conversion::types::{MCMMigration, MigrationSide, names};
use mcm_insight::error::UsageError;
use mcm_runtime::kubeconfig::{
    self, ClusterConfig, ControlKubeconfig, KubeconfigFallback, ProcessClusters, TargetKubeconfig, UserAgent,
};

/// Label of an MCM object of a Cluster.
const CLUSTER: &str = "/metadata/labels/cluster.x-k8s.io~1cluster-name";

/// Location of objects, Nodes and VMs.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("simulated_cloud", |arg| arg.help("URL of the simulated cloud; without it none of its VMs is found")))]
pub(super) struct LocationOptions {
    /// Name of the Cluster whose machines are migrated; required, but for --from orphans
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(super) cluster: String,
    /// Migrate only this MachineDeployment; may be repeated. Without --deployment, --machine and --machine-pool all
    /// deployments and machines of the Cluster are migrated
    #[arg(long, value_name = "NAME")]
    deployment: Vec<String>,
    /// Migrate only this Machine without a MachineSet, by the name of its MCM Machine, which is also the name of its
    /// MCMMachine; may be repeated
    #[arg(long, value_name = "NAME")]
    machine: Vec<String>,
    /// Migrate only this MachinePool of CAPA, whose VMs become a MachineDeployment of the same name, or back; may be repeated.
    /// The plan names the commands of AWS that are run by hand
    #[arg(long, value_name = "NAME")]
    machine_pool: Vec<String>,
    /// Namespace of the objects; that of the kubeconfig if absent
    #[arg(short = 'n', long, value_name = "NAME")]
    namespace: Option<String>,
    /// Kubeconfig of the management cluster; if absent, KUBECONFIG, the credentials of this pod, or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    context: ContextOptions,
    /// Kubeconfig of the cluster with the Nodes; if absent, the kubeconfig Secret of the Cluster
    #[arg(long, value_name = "FILE")]
    target_kubeconfig: Option<PathBuf>,
    /// Secret with the credentials of a MachineClass that is created from the template of another provider
    #[arg(long, value_name = "NAME")]
    credentials_secret: Option<String>,
    #[command(flatten)]
    answers: AnswerOptions,
    #[command(flatten)]
    drivers: DriverOptions,
}

impl LocationOptions {
    /// API servers and drivers. Migrations from the stand-in do not read Nodes.
    pub(super) async fn world(&self, ways: &[MigrationDirection]) -> Result<MigrationEnvironment> {
        if self.cluster.is_empty() {
            let message = "this migration needs --cluster NAME".to_owned();
            let hint = "mcm adopt plan --cluster demo --from capi --to native".to_owned();
            bail!(UsageError { message, hint });
        }
        let clusters = self.management().await?;
        let management = kubeconfig::client(&clusters.control, UserAgent::Mcm).await?;
        kubeconfig::check(&management, &clusters.control.config.cluster_url).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| clusters.control.config.default_namespace.clone());
        let workload = match ways {
            [MigrationDirection::FromStandIn] => management.clone(),
            _ => self.workload(&management, &namespace).await?,
        };
        let credentials = self.credentials_secret.clone();
        let answers = self.answers.answers();
        Ok(MigrationEnvironment {
            management,
            workload,
            namespace,
            drivers: open_drivers(&self.drivers)?,
            credentials,
            answers,
        })
    }

    /// API servers and drivers for VMs without a machine. The Nodes are in the same cluster, unless a kubeconfig names another.
    pub(super) async fn world_of_orphans(&self) -> Result<MigrationEnvironment> {
        if !self.cluster.is_empty() || !self.named().is_empty() {
            bail!(
                "--from orphans takes all VMs of a namespace: omit --cluster, --deployment, --machine and --machine-pool"
            );
        }
        let clusters = self.management().await?;
        let management = kubeconfig::client(&clusters.control, UserAgent::Mcm).await?;
        kubeconfig::check(&management, &clusters.control.config.cluster_url).await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| clusters.control.config.default_namespace.clone());
        let workload = match &self.target_kubeconfig {
            None => management.clone(),
            Some(_) => self.workload(&management, &namespace).await?,
        };
        let answers = self.answers.answers();
        Ok(MigrationEnvironment {
            management,
            workload,
            namespace,
            drivers: open_drivers(&self.drivers)?,
            credentials: None,
            answers,
        })
    }

    async fn management(&self) -> Result<ProcessClusters> {
        let control = ControlKubeconfig::from(self.kubeconfig.clone());
        let (fallback, choice) = (KubeconfigFallback::LocalKubeconfig, self.context.choice());
        Ok(ProcessClusters::load_chosen(&control, &TargetKubeconfig::None, fallback, &choice).await?)
    }

    async fn workload(&self, management: &kube::Client, namespace: &str) -> Result<kube::Client> {
        let target = self.target(management, namespace).await?;
        let workload = kubeconfig::client(&target, UserAgent::Mcm).await?;
        kubeconfig::wait_until_ready(&workload, &target.config.cluster_url).await?;
        Ok(workload)
    }

    /// The cluster of the Nodes.
    async fn target(&self, management: &kube::Client, namespace: &str) -> Result<ClusterConfig> {
        if let Some(path) = &self.target_kubeconfig {
            let target = TargetKubeconfig::Path(path.clone());
            return Ok(ProcessClusters::load(&ControlKubeconfig::SameAsTarget, &target, KubeconfigFallback::None)
                .await?
                .control);
        }
        let name = format!("{}-kubeconfig", self.cluster);
        let text = MigrationEnvironment::kubeconfig_of(management, namespace, &self.cluster).await?;
        let Some(text) = text else { bail!(self.no_kubeconfig(management, namespace, &name).await) };
        let text = String::from_utf8(text).with_context(|| format!("Secret {name} is no text"))?;
        Ok(ClusterConfig::from_text(&text, "Secret", &name).await?)
    }

    /// Why there is no kubeconfig: a Cluster of that name is missing, or only its Secret is.
    async fn no_kubeconfig(&self, management: &kube::Client, namespace: &str, secret: &str) -> UsageError {
        let clusters = MigrationEnvironment::clusters(management, namespace).await.unwrap_or_default();
        if clusters.contains(&self.cluster) {
            let key = names::KUBECONFIG_KEY;
            return UsageError {
                message: format!("Secret {secret} with key {key} does not exist in namespace {namespace}"),
                hint: "pass --target-kubeconfig FILE".to_owned(),
            };
        }
        let hint = match clusters.is_empty() {
            true => format!("namespace {namespace} has no Clusters: pass --namespace"),
            false => format!("Clusters here: {}", clusters.join(", ")),
        };
        UsageError { message: format!("there is no Cluster {} in namespace {namespace}", self.cluster), hint }
    }

    /// The migrations of the Cluster. What the stand-in serves is not one.
    pub(super) async fn migrations(&self, world: &MigrationEnvironment) -> Result<Vec<(MigrationUnit, MCMMigration)>> {
        let all = world.list(Kind::Migration).await?;
        let named = self.named();
        let mut found = Vec::new();
        for object in all.into_iter().filter(|one| one.label(labels::STAND_IN).is_none()) {
            let Some(migration) = object.decoded::<MCMMigration>() else { bail!("{} cannot be read", object.id()) };
            let unit = MigrationUnit::from_spec(&migration.spec, object.name());
            if migration.spec.cluster_name == self.cluster && (named.is_empty() || named.contains(&unit)) {
                found.push((unit, migration));
            }
        }
        Ok(found)
    }

    /// Units of the Cluster at the start of the first migration, and units in one of the migrations.
    pub(super) async fn units(
        &self,
        world: &MigrationEnvironment,
        ways: &[MigrationDirection],
    ) -> Result<BTreeSet<MigrationUnit>> {
        if ways.contains(&MigrationDirection::FromStandIn) && !self.machine.is_empty() {
            bail!("the stand-in serves MachineDeployments only: name them with --deployment");
        }
        if !self.machine_pool.is_empty() && !ways.iter().all(|way| way.keeps_core()) {
            bail!("MachinePools are migrated only between other and capi: pass --from other --to capi, or the reverse");
        }
        let mut units = self.named();
        if !units.is_empty() {
            return Ok(units);
        }
        for way in ways.iter().take(1) {
            units.extend(self.deployments(world, *way).await?);
            units.extend(self.machines(world, *way).await?);
        }
        let migrations = self.migrations(world).await?;
        // The deployments of pools are theirs.
        units.retain(|unit| !migrations.iter().any(|(other, _)| other.is_pool() && other.name() == unit.name()));
        units.extend(migrations.into_iter().filter(|(_, one)| ways.contains(&way_of(one))).map(|(unit, _)| unit));
        if units.is_empty() {
            let pools = self.staying_pools(world, ways).await?;
            let pools: String =
                pools.iter().map(|one| format!("; MachinePool {} stays: {}", one.machine_pool, one.reason)).collect();
            bail!(
                "Cluster {} has nothing to migrate in namespace {}: name it with --deployment, --machine or --machine-pool{pools}",
                self.cluster,
                world.namespace
            );
        }
        Ok(units)
    }

    /// MachinePools of the Cluster that keep their owner, unless single units are named.
    pub(super) async fn staying_pools(
        &self,
        world: &MigrationEnvironment,
        ways: &[MigrationDirection],
    ) -> Result<Vec<StayingPool>> {
        let Some(way) = ways.first().filter(|way| **way != MigrationDirection::FromStandIn && self.named().is_empty())
        else {
            return Ok(Vec::new());
        };
        let all = match world.list(Kind::MachinePool).await {
            // Without the kind there are no pools.
            Err(NotRead::NotServed { .. }) => Vec::new(),
            listed => listed?,
        };
        let own = all.iter().filter(|pool| pool.text("/spec/clusterName") == self.cluster);
        Ok(own.filter_map(|pool| StayingPool::for_pool(pool, *way)).collect())
    }

    fn named(&self) -> BTreeSet<MigrationUnit> {
        let deployments = self.deployment.iter().cloned().map(MigrationUnit::Deployment);
        let machines = self.machine.iter().cloned().map(MigrationUnit::Machine);
        deployments.chain(machines).chain(self.machine_pool.iter().cloned().map(MigrationUnit::Pool)).collect()
    }

    async fn deployments(&self, world: &MigrationEnvironment, way: MigrationDirection) -> Result<Vec<MigrationUnit>> {
        let is_of_mcm =
            |one: &UnstructuredObject| one.text("/spec/template/spec/infrastructureRef/kind") == "MCMMachineTemplate";
        let is_native =
            |one: &UnstructuredObject| one.text(CLUSTER) == self.cluster && one.label(labels::POOL).is_none();
        let is_of_core = |one: &UnstructuredObject| one.text("/spec/clusterName") == self.cluster;
        let is_at_beginning = |one: &UnstructuredObject| match way {
            MigrationDirection::ToNative => is_of_core(one),
            MigrationDirection::FromNative => is_native(one),
            MigrationDirection::FromOther => is_of_core(one) && !is_of_mcm(one),
            MigrationDirection::ToOther => is_of_core(one) && is_of_mcm(one),
            MigrationDirection::FromStandIn if one.kind == Kind::Deployment => {
                is_native(one) && one.label(labels::STAND_IN).is_some()
            }
            MigrationDirection::FromStandIn => is_of_core(one) && has_finalizer(one),
        };
        let mut all = Vec::new();
        if way.from() != MigrationSide::MachineController {
            all.extend(world.list(Kind::CapiDeployment).await?);
        }
        if matches!(way, MigrationDirection::FromNative | MigrationDirection::FromStandIn) {
            all.extend(world.list(Kind::Deployment).await?);
        }
        let found = all.iter().filter(|one| is_at_beginning(one));
        Ok(found.map(|one| MigrationUnit::Deployment(one.name().to_owned())).collect())
    }

    /// Machines without a set. Those of a control plane are moved only if they are named, and then refused.
    async fn machines(&self, world: &MigrationEnvironment, way: MigrationDirection) -> Result<Vec<MigrationUnit>> {
        let (kind, cluster) = match way {
            MigrationDirection::ToNative => (Kind::CapiMachine, "/spec/clusterName"),
            MigrationDirection::FromNative => (Kind::Machine, CLUSTER),
            MigrationDirection::FromOther | MigrationDirection::ToOther | MigrationDirection::FromStandIn => {
                return Ok(Vec::new());
            }
        };
        let all = world.list(kind).await?;
        // Machines of a set have no owner while they are removed; their migration lists them.
        let is_meant = |one: &&UnstructuredObject| {
            one.text(cluster) == self.cluster
                && one.label(names::CONTROL_PLANE).is_none()
                && one.annotation(labels::MIGRATION).is_none()
        };
        let meant = all.iter().filter(is_meant);
        Ok(meant.filter_map(lone_name).map(|name| MigrationUnit::Machine(name.to_owned())).collect())
    }
}
