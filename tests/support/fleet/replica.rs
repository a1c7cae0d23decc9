//! One replica: its process, its account, and its ways to other programs.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use http::Uri;
use jiff::Timestamp;
use kube::Client;
use serde_json::json;

use super::{
    PLANE, SYSTEM,
    audit::FleetRecord,
    cloud_gate::CloudGate,
    ownership::{ActPlace, FleetAct},
};
use crate::support::{
    clock::ProcessClock,
    control_plane::ControlPlane,
    door::{Door, DoorRules, anything, writes},
    identity, objects,
    wait::PATIENCE,
    world::Manager,
};

/// The server in a kubeconfig.
pub const SERVER: &str = "/clusters/0/cluster/server";

/// A replica of a fleet. Its process may have ended, to be started again.
pub struct FleetReplica {
    pub manager: Manager,
    pub ways: ReplicaWays,
    pub clock: Option<ProcessClock>,
    /// The account of the process, which is its name in the record.
    pub account: String,
    pub(super) kubeconfig: PathBuf,
    pub(super) accounts: Arc<ReplicaAccounts>,
    pub(super) record: FleetRecord,
}

impl FleetReplica {
    /// The same program again with a new account, after it ended.
    pub async fn start_again(&mut self) {
        let account = self.accounts.issue(&self.kubeconfig, &self.ways.control_url()).await;
        // Requests of the last process are its own.
        self.record_acts();
        self.account = account;
        self.manager.program.start_again();
    }

    /// Continues the process after SIGSTOP.
    pub fn resume(&self) {
        let before = Timestamp::now();
        let note = |after| self.record.with(|record| record.add_resumption(&self.account, before, after));
        note(None);
        self.manager.program.signal("CONT");
        note(Some(Timestamp::now()));
    }

    /// Waits until the process has joined the fleet.
    pub async fn joined(&mut self) {
        let begun = Instant::now();
        while !self.is_member() {
            self.manager.program.assert_runs();
            assert!(begun.elapsed() < PATIENCE, "{} waited {PATIENCE:?} in vain to join the fleet", self.account);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The last write of the Lease of a membership was that of this process.
    pub fn is_member(&self) -> bool {
        self.record.with(|record| record.holds_any(SYSTEM, &self.account))
    }

    /// Records the writes to targets and to the cloud since the last call.
    pub fn record_acts(&self) {
        let act =
            |at, namespace, place, request| FleetAct { at, replica: self.account.clone(), namespace, place, request };
        let of_target = self.ways.target.take_heard().into_iter().map(|(at, call)| {
            let namespace = call.path.split('/').nth(1).unwrap_or_default().to_owned();
            let at = Timestamp::try_from(at).unwrap();
            act(at, namespace, ActPlace::Target, format!("{} {}", call.method, call.path))
        });
        let of_cloud = self.ways.cloud.take_calls().into_iter();
        let of_cloud = of_cloud.map(|call| act(call.at, call.namespace, ActPlace::Cloud, call.request));
        self.record.with(|record| of_target.chain(of_cloud).for_each(|act| record.add_act(act)));
    }
}

/// The ways of a replica to the control cluster, to the targets of all control planes, and to the cloud.
pub struct ReplicaWays {
    pub control: Door,
    pub target: Door,
    pub cloud: CloudGate,
    /// The address of the control cluster, for a replica that does not use the door to it.
    pub(super) direct: Option<String>,
}

impl ReplicaWays {
    pub(super) async fn open(server: &ControlPlane, cloud: &str) -> Self {
        Self::with_target(server, target_door(server).await, cloud).await
    }

    /// The same with TLS to the targets, as kubeconfigs that are found in the control cluster require it.
    pub async fn secured(server: &ControlPlane, cloud: &str) -> Self {
        let rules = DoorRules { records: writes, rewrites: of_plane };
        Self::with_target(server, Door::secured(server, rules).await, cloud).await
    }

    async fn with_target(server: &ControlPlane, target: Door, cloud: &str) -> Self {
        // The audit log has the writes to the control cluster.
        let control = DoorRules { records: |_| false, ..DoorRules::default() };
        let control = Door::with_rules(server, control).await;
        Self { control, target, cloud: CloudGate::to(cloud).await, direct: None }
    }

    /// The address at which the replica reaches the control cluster.
    pub(super) fn control_url(&self) -> String {
        self.direct.clone().unwrap_or_else(|| self.control.url())
    }

    /// Cuts the way to the control cluster: no request is passed on or answered.
    pub fn cut_control(&self) {
        self.control.ignore(anything, usize::MAX);
    }

    /// The same for the way to the targets.
    pub fn cut_target(&self) {
        self.target.ignore(anything, usize::MAX);
    }
}

/// A door to the targets of all control planes: the name of the namespace is the path of its target.
pub async fn target_door(server: &ControlPlane) -> Door {
    Door::with_rules(server, DoorRules { records: writes, rewrites: of_plane }).await
}

/// The same with TLS, for other programs than replicas: it records nothing.
pub async fn secured_target_door(server: &ControlPlane) -> Door {
    Door::secured(server, DoorRules { records: |_| false, rewrites: of_plane }).await
}

/// Writes the kubeconfig of a control plane into a folder of `--fleet`: one that exists, with another server.
pub fn write_plane(kubeconfig: &Path, server: String, folder: &Path, namespace: &str) {
    // An entry with a point is ignored until it is complete.
    let new = folder.join(format!(".{namespace}"));
    fs::copy(kubeconfig, &new).unwrap();
    identity::change(&new, SERVER, server.into());
    fs::rename(new, folder.join(namespace)).unwrap();
}

/// A list or watch of Nodes in the target of a control plane: that of its Nodes in the cluster that all share.
fn of_plane(uri: &Uri) -> Uri {
    let path = uri.path().trim_start_matches('/');
    let (plane, rest) = path.split_once('/').unwrap_or((path, ""));
    let query = uri.query().unwrap_or_default();
    let selected = match rest {
        "api/v1/nodes" => format!("/{rest}?{query}&labelSelector={}%3D{plane}", PLANE.replace('/', "%2F")),
        _ => format!("/{rest}?{query}"),
    };
    selected.parse().unwrap()
}

/// Issues an account to each process, so that the audit log tells the processes apart.
pub struct ReplicaAccounts {
    client: Client,
    admin: PathBuf,
    issued: AtomicUsize,
}

impl ReplicaAccounts {
    pub(super) fn new(client: Client, control: &ControlPlane) -> Self {
        Self { client, admin: control.kubeconfig().to_owned(), issued: AtomicUsize::new(0) }
    }

    /// Writes a kubeconfig with a new account for a server; returns the name of the account.
    pub(super) async fn issue(&self, path: &Path, server: &str) -> String {
        let name = format!("replica-{}", self.issued.fetch_add(1, Ordering::SeqCst));
        let account =
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM}});
        objects::apply(&self.client, &account).await;
        let folder = path.parent().unwrap();
        let written = identity::kubeconfig(&self.client, &self.admin, SYSTEM, &name, folder).await;
        identity::change(&written, SERVER, server.into());
        fs::rename(written, path).unwrap();
        name
    }
}
