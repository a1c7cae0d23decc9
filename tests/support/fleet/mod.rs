//! Control planes in the namespaces of one API server, and replicas that share them. Each replica has a separate way to the control
//! cluster, to the target cluster and to the cloud. All that they write is recorded with their names.

pub mod audit;
mod cloud_gate;
pub mod ownership;
pub mod replica;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use mcm::api::machine::{Machine, MachineClass, MachineDeployment};
use serde::Deserialize;
use serde_json::{Value, json};

use self::{
    audit::FleetRecord,
    ownership::{CLAIMS, OwnershipVerdict},
    replica::{FleetReplica, ReplicaAccounts, ReplicaWays},
};
use super::{
    clock::ProcessClock,
    control_plane::ControlPlane,
    guard, identity, objects,
    world::{Manager, World},
};

/// The namespace of the fleet, as in `config/fleet`.
pub const SYSTEM: &str = "mcm-system";
const POLICY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/fleet/audit.yaml");
const RBAC: &str = "rbac.authorization.k8s.io";
/// The label by which the Nodes of the control planes are told apart: they are in one cluster.
pub const PLANE: &str = "example.com/plane";
const AUDIT_LOG: &str = "audit.log";
/// The classes of each control plane.
const CLASSES: [&str; 2] = ["small", "large"];
/// Requests of this process at once.
pub const AT_ONCE: usize = 8;

/// An API server with an audit log of the replicas.
pub struct FleetServer {
    pub control: ControlPlane,
    folder: guard::Folder,
}

/// Control planes with one cloud, and Nodes in the same API server.
pub struct FleetPlanes {
    pub world: World,
    pub namespaces: Vec<String>,
    pub record: FleetRecord,
    accounts: Arc<ReplicaAccounts>,
    /// The name of the fleet.
    pub name: String,
    replicas: usize,
}

/// The holders of the claims, by namespace and Lease.
pub type ClaimHolders = BTreeMap<(String, String), String>;

impl FleetServer {
    /// Starts it.
    pub async fn start() -> Self {
        let folder = guard::Folder::new("mcm-fleet-");
        let flags = audit::flags(Path::new(POLICY), &folder.path().join(AUDIT_LOG));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let control = ControlPlane::apart_with(&flags).await.unwrap().install().await.unwrap();
        Self { control, folder }
    }
}

impl FleetPlanes {
    /// So many control planes, each with a pool of so many machines.
    pub async fn new(server: &FleetServer, prefix: &str, planes: usize, machines: u32) -> Self {
        // Each connection of a replica is two of this process.
        mcm_runtime::descriptors::raise();
        let control = &server.control;
        let world = World::between(control, control, prefix, &[]).await;
        control.ensure_namespace(SYSTEM).await;
        for mut object in documents(include_str!("../../../config/fleet/rbac.yaml")) {
            bind_accounts(&mut object);
            objects::apply(&world.client, &object).await;
        }
        let mut namespaces = vec![world.namespace.clone()];
        while namespaces.len() < planes {
            namespaces.push(control.namespace(prefix).await);
        }
        let set_up = namespaces.iter().map(|namespace| lay_out(&world.client, namespace, machines));
        stream::iter(set_up).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        Self {
            record: FleetRecord::new(server.folder.path().join(AUDIT_LOG)),
            accounts: Arc::new(ReplicaAccounts::new(world.client.clone(), control)),
            name: world.namespace.chars().take(40).collect(),
            world,
            namespaces,
            replicas: 0,
        }
    }

    /// Starts a further replica, with a clock that can be moved.
    pub async fn launch_with_clock(&mut self, server: &FleetServer) -> FleetReplica {
        let clock = ProcessClock::at(self.world.folder().join(format!("clock-{}", self.replicas)));
        let ways = self.open_ways(server).await;
        self.launch_replica(ways, Some(clock)).await
    }

    /// Starts a further replica.
    pub async fn launch(&mut self, server: &FleetServer) -> FleetReplica {
        let ways = self.open_ways(server).await;
        self.launch_replica(ways, None).await
    }

    /// Starts a further replica that reaches the control cluster as in production: over HTTP/2, where watches share connections. A
    /// door needs a connection for each.
    pub async fn launch_direct(&mut self, server: &FleetServer) -> FleetReplica {
        let direct = format!("https://{}", identity::server(self.world.admin()));
        let ways = ReplicaWays { direct: Some(direct), ..self.open_ways(server).await };
        self.launch_replica(ways, None).await
    }

    async fn open_ways(&self, server: &FleetServer) -> ReplicaWays {
        ReplicaWays::open(&server.control, &self.world.cloud.url).await
    }

    async fn launch_replica(&mut self, ways: ReplicaWays, clock: Option<ProcessClock>) -> FleetReplica {
        let folder = self.folder_of_replica();
        let planes = folder.join("planes");
        std::fs::create_dir(&planes).unwrap();
        for namespace in &self.namespaces {
            let server = format!("{}/{namespace}", ways.target.url());
            replica::write_plane(&self.world.identity().target, server, &planes, namespace);
        }
        self.start_replica(&folder, ways, clock, vec![format!("--fleet=folder={}", planes.display())]).await
    }

    /// Starts a replica that finds the control planes of shoots in the control cluster, in Namespaces that a selector matches.
    pub async fn launch_in_seed(&mut self, ways: ReplicaWays, selector: &str) -> FleetReplica {
        let folder = self.folder_of_replica();
        let source = vec!["--fleet=gardener".to_owned(), format!("--fleet-selector={selector}")];
        self.start_replica(&folder, ways, None, source).await
    }

    fn folder_of_replica(&mut self) -> PathBuf {
        let folder = self.world.folder().join(format!("replica-{}", self.replicas));
        self.replicas += 1;
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    /// Starts a replica with the flags that name its control planes.
    async fn start_replica(
        &mut self,
        folder: &Path,
        ways: ReplicaWays,
        clock: Option<ProcessClock>,
        mut flags: Vec<String>,
    ) -> FleetReplica {
        let kubeconfig = folder.join("control.kubeconfig");
        let account = self.accounts.issue(&kubeconfig, &ways.control_url()).await;
        flags.extend([
            format!("--fleet-name={}", self.name),
            format!("--fleet-namespace={SYSTEM}"),
            format!("--control-kubeconfig={}", kubeconfig.display()),
            format!("--simulated-cloud={}", ways.cloud.url),
        ]);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let environment = self.world.environment.clone();
        self.world.environment.extend(clock.iter().flat_map(ProcessClock::variables));
        let manager = self.world.launch_bare("run", &flags);
        self.world.environment = environment;
        let (accounts, record) = (Arc::clone(&self.accounts), self.record.clone());
        FleetReplica { manager, ways, clock, account, kubeconfig, accounts, record }
    }

    /// Starts one process for the control planes in a folder. It shares them with no other, and has no Leases.
    pub async fn launch_alone(&self, planes: &Path) -> Manager {
        let kubeconfig = self.world.folder().join("alone.kubeconfig");
        let server = format!("https://{}", identity::server(self.world.admin()));
        self.accounts.issue(&kubeconfig, &server).await;
        let flags = [
            format!("--fleet=folder={}", planes.display()),
            "--leader-elect=false".to_owned(),
            format!("--control-kubeconfig={}", kubeconfig.display()),
            self.world.cloud_flag(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        self.world.launch_bare("run", &flags)
    }

    /// Merge-patches the pools of all control planes; returns their new generations.
    pub async fn change_pools(&self, change: impl Fn(&str) -> Value) -> BTreeMap<String, i64> {
        self.change_pools_in(&self.namespaces, change).await
    }

    /// The same for some control planes.
    pub async fn change_pools_in(
        &self,
        namespaces: &[String],
        change: impl Fn(&str) -> Value,
    ) -> BTreeMap<String, i64> {
        let patch = |namespace: &String| {
            let pools: Api<MachineDeployment> = Api::namespaced(self.world.client.clone(), namespace);
            let (namespace, patch) = (namespace.clone(), Patch::Merge(change(namespace)));
            async move {
                let changed = pools.patch(&pool_of(&namespace), &PatchParams::default(), &patch).await?;
                Ok::<_, kube::Error>((namespace, changed.metadata.generation.unwrap_or_default()))
            }
        };
        stream::iter(namespaces).map(patch).buffer_unordered(AT_ONCE).try_collect().await.unwrap()
    }

    /// Merge-patches the classes of all control planes.
    pub async fn change_classes(&self, change: &Value) {
        let patch = |namespace: &String| {
            let classes: Api<MachineClass> = Api::namespaced(self.world.client.clone(), namespace);
            let patch = Patch::Merge(change.clone());
            async move {
                for class in CLASSES {
                    classes.patch(class, &PatchParams::default(), &patch).await?;
                }
                Ok::<_, kube::Error>(())
            }
        };
        let patches = stream::iter(&self.namespaces).map(patch).buffer_unordered(AT_ONCE);
        patches.try_collect::<Vec<()>>().await.unwrap();
    }

    /// The machines of all control planes.
    pub async fn machines(&self) -> Vec<Machine> {
        let machines: Api<Machine> = Api::all(self.world.client.clone());
        machines.list(&ListParams::default()).await.unwrap().items
    }

    /// The holders of all claims; empty ones are left out.
    pub async fn holders(&self) -> ClaimHolders {
        let mut holders = ClaimHolders::new();
        let leases: Api<Lease> = Api::all(self.world.client.clone());
        for role in CLAIMS {
            let named = ListParams::default().fields(&format!("metadata.name={role}"));
            for lease in leases.list(&named).await.unwrap().items {
                let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
                if !holder.is_empty() {
                    holders.insert((lease.namespace().unwrap(), role.to_owned()), holder);
                }
            }
        }
        holders
    }

    /// The replicas that have claims, if each control plane has one owner.
    pub async fn owners(&self) -> Option<BTreeSet<String>> {
        let holders = self.holders().await;
        let is_one = |namespace: &String| {
            let [machines, sets] = CLAIMS.map(|role| holders.get(&(namespace.clone(), role.to_owned())));
            machines.is_some() && machines == sets
        };
        self.namespaces.iter().all(is_one).then(|| holders.values().cloned().collect())
    }

    /// A Lease is a claim or a membership of this fleet.
    pub fn has_lease(&self, lease: &Lease) -> bool {
        let namespace = lease.namespace().unwrap_or_default();
        let is_member = namespace == SYSTEM && lease.name_any().contains(&format!("-{}-", self.name));
        is_member || self.namespaces.contains(&namespace)
    }

    /// Judges the acts of replicas before a time, up to which all writes of Leases are recorded.
    pub fn judge_before(&self, horizon: Timestamp, replicas: &[&FleetReplica]) -> OwnershipVerdict {
        replicas.iter().for_each(|replica| replica.record_acts());
        self.record.with(|record| record.judge_before(horizon))
    }

    /// Each Machine has exactly one VM, whose ID it names, and there is no other VM.
    pub async fn assert_vms_match(&self) {
        let named =
            self.machines().await.into_iter().map(|machine| (machine.name_any(), vec![machine.spec.provider_id]));
        let named: BTreeMap<String, Vec<String>> = named.collect();
        let vms = self.world.cloud.provider_ids().await;
        assert_eq!(vms, named, "VMs on the left, what the machines name on the right");
    }
}

/// The name of the pool of a control plane, which is a part of the names of its Nodes.
pub fn pool_of(namespace: &str) -> String {
    format!("pool-{namespace}")
}

/// The right of the fleet in a namespace, and its pool.
async fn lay_out(client: &Client, namespace: &str, machines: u32) {
    for mut object in documents(include_str!("../../../config/standalone/control.yaml")) {
        object["metadata"]["namespace"] = namespace.into();
        objects::apply(client, &object).await;
    }
    let mut binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "mcm-fleet", "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": identity::ACCOUNT},
        "subjects": [],
    });
    bind_accounts(&mut binding);
    objects::apply(client, &binding).await;
    let mut pool = vec![objects::secret("pool"), objects::deployment(&pool_of(namespace), machines)];
    for name in CLASSES {
        let mut class = objects::class(name);
        class["providerSpec"]["nodeLabels"] = json!({PLANE: namespace});
        pool.push(class);
    }
    for mut object in pool {
        object["metadata"]["namespace"] = namespace.into();
        if let Some(reference) = object.pointer_mut("/secretRef") {
            reference["namespace"] = namespace.into();
        }
        objects::apply(client, &object).await;
    }
}

/// Binds a role to all accounts of the fleet: each process has a new one.
fn bind_accounts(object: &mut Value) {
    if object["subjects"].is_array() {
        let group = format!("system:serviceaccounts:{SYSTEM}");
        object["subjects"] = json!([{"apiGroup": RBAC, "kind": "Group", "name": group}]);
    }
}

fn documents(text: &str) -> impl Iterator<Item = Value> {
    serde_yaml_ng::Deserializer::from_str(text).map(|document| Value::deserialize(document).unwrap())
}
