//! The record of one VM, and its state at a given time.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeAddress;
use serde::{Deserialize, Serialize};

use super::{
    control::OperationLatencies,
    messages::{ConditionRequest, CreateVm, DepartedView, PROVIDER_ID_PREFIX, VmState, VmView},
    spec::{InitialVolumes, ProviderSpec},
};
use mcm_api::GoDuration;

/// A VM. Its state is not stored: it follows from these times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VmRecord {
    /// Number of the VM; gives it its address.
    pub serial: u64,
    pub id: String,
    pub machine_name: String,
    pub namespace: String,
    pub cluster: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    pub user_data_bytes: usize,
    pub spec: ProviderSpec,
    pub volumes: Vec<String>,
    /// By type. One that was taken back stays without a status, so that its Node loses it too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, SetCondition>,
    pub created_at: Timestamp,
    /// When the create call ends.
    pub made_at: Timestamp,
    /// When it can start to boot; none while it waits to be initialized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialized_at: Option<Timestamp>,
    pub boot_latency: GoDuration,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
    /// When a deletion ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "NodeLink::is_none")]
    pub node: NodeLink,
}

/// The link of a VM to its Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum NodeLink {
    /// No Node was requested.
    #[default]
    None,
    /// A Node was requested, and the result is unknown.
    Asked,
    /// The Node with this UID.
    Registered { uid: String, at: Timestamp },
    /// The Node with this UID was deleted by a client.
    Lost { uid: String },
}

/// A condition of the Node that a control request set or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SetCondition {
    pub status: Option<String>,
    pub reason: String,
    pub message: String,
    pub since: Timestamp,
}

/// A deleted VM whose Node still exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DepartedVm {
    pub id: String,
    pub provider_id: String,
    pub node_name: String,
    /// None if it is not known that there is a Node.
    pub uid: Option<String>,
    pub at: Timestamp,
    pub how: DepartureCause,
}

/// How a VM went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum DepartureCause {
    Deleted,
    Vanished,
    Unregistered,
}

impl NodeLink {
    pub(super) const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    pub(super) fn uid(&self) -> Option<&str> {
        match self {
            Self::Registered { uid, .. } | Self::Lost { uid } => Some(uid),
            Self::None | Self::Asked => None,
        }
    }
}

impl VmRecord {
    /// The VM that is made for a request, now.
    pub(super) fn new(
        serial: u64,
        id: String,
        request: &CreateVm,
        spec: ProviderSpec,
        defaults: &OperationLatencies,
        now: Timestamp,
    ) -> Self {
        let create = spec.create_latency.map_or(defaults.create.as_std(), GoDuration::as_std);
        let boot_latency = spec.boot_latency.unwrap_or_else(|| defaults.boot.as_std().into());
        let made_at = after(now, create);
        let volumes = match &spec.volumes {
            InitialVolumes::Count(count) => (1..=*count).map(|number| format!("vol-{id}-{number}")).collect(),
            InitialVolumes::Names(names) => names.clone(),
        };
        Self {
            serial,
            id,
            machine_name: request.machine_name.clone(),
            namespace: request.namespace.clone(),
            cluster: cluster_of(request).to_owned(),
            owner: request.owner.clone(),
            token: request.token.clone(),
            user_data_bytes: request.user_data_bytes,
            volumes,
            conditions: BTreeMap::new(),
            created_at: now,
            made_at,
            initialized_at: (!spec.initialize).then_some(made_at),
            boot_latency,
            stopped_at: None,
            gone_at: None,
            node: NodeLink::None,
            spec,
        }
    }

    pub(super) fn provider_id(&self) -> String {
        format!("{PROVIDER_ID_PREFIX}{}/{}", self.spec.zone, self.id)
    }

    /// When its Node registers; none while that is open.
    pub(super) fn boots_at(&self) -> Option<Timestamp> {
        self.initialized_at.map(|at| after(at, self.boot_latency.as_std()))
    }

    pub(super) fn state(&self, now: Timestamp) -> VmState {
        if self.gone_at.is_some() {
            VmState::Deleting
        } else if self.stopped_at.is_some() {
            VmState::Stopped
        } else if now < self.made_at {
            VmState::Creating
        } else if self.boots_at().is_none_or(|at| now < at) {
            VmState::Booting
        } else {
            VmState::Running
        }
    }

    pub(super) fn view(&self, now: Timestamp) -> VmView {
        let tag = |key: String| (key, "1".to_owned());
        VmView {
            id: self.id.clone(),
            provider_id: self.provider_id(),
            machine_name: self.machine_name.clone(),
            namespace: self.namespace.clone(),
            cluster: self.cluster.clone(),
            owner: self.owner.clone(),
            token: self.token.clone(),
            node_name: self.machine_name.clone(),
            state: self.state(now),
            initialized: self.initialized_at.is_some(),
            addresses: self.addresses(),
            region: self.spec.region.clone(),
            zone: self.spec.zone.clone(),
            instance_type: self.spec.instance_type.clone(),
            tags: [tag(format!("kubernetes.io/cluster/{}", self.cluster)), tag("kubernetes.io/role/node".to_owned())]
                .into(),
            user_data_bytes: self.user_data_bytes,
            volumes: self.volumes.clone(),
            conditions: self.conditions.iter().filter_map(shown).collect(),
            created_at: self.created_at,
            joined: self.node.uid().is_some(),
        }
    }

    /// Its addresses: one of 10.0.0.0/8 by its number, and its name.
    pub(super) fn addresses(&self) -> Vec<NodeAddress> {
        let [.., b, c, d] = self.serial.to_be_bytes();
        let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
        vec![address("InternalIP", format!("10.{b}.{c}.{d}")), address("Hostname", self.machine_name.clone())]
    }

    /// The record that is kept after the VM is deleted; none if it never requested a Node.
    pub(super) fn departed(&self, at: Timestamp, how: DepartureCause) -> Option<DepartedVm> {
        (!self.node.is_none()).then(|| DepartedVm {
            id: self.id.clone(),
            provider_id: self.provider_id(),
            node_name: self.machine_name.clone(),
            uid: self.node.uid().map(str::to_owned),
            at,
            how,
        })
    }
}

impl DepartedVm {
    pub(super) fn view(&self) -> DepartedView {
        DepartedView {
            id: self.id.clone(),
            provider_id: self.provider_id.clone(),
            node_name: self.node_name.clone(),
            at: self.at,
        }
    }
}

/// The cluster that a VM of this request belongs to.
pub(super) fn cluster_of(request: &CreateVm) -> &str {
    request.cluster.as_deref().filter(|cluster| !cluster.is_empty()).unwrap_or(&request.namespace)
}

/// A time later by `duration`, or the end of time.
pub(super) fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn shown((type_, set): (&String, &SetCondition)) -> Option<ConditionRequest> {
    set.status.is_some().then(|| ConditionRequest {
        type_: type_.clone(),
        status: set.status.clone(),
        reason: set.reason.clone(),
        message: set.message.clone(),
    })
}
