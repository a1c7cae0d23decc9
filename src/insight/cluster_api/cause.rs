//! The waits of an object of Cluster API for a cause, with the remedies that fit it. Pure.

use jiff::Timestamp;

use super::object::{CapiObject, Kind};
use crate::story::{ExplainedWait, ObjectRemedy};
use mcm_api::reasons::ProviderReason;
use mcm_rules::plan::{
    cause::WaitCause,
    guide::{WaitGuide, WaitRemedy},
    shell::word,
};

/// The cause for which an object of the provider waits, from the reason of its condition `Ready`.
pub const fn cause_of(reason: ProviderReason) -> WaitCause {
    match reason {
        ProviderReason::WaitingForOwner | ProviderReason::WaitingForCluster | ProviderReason::WaitingForMCMObjects => {
            WaitCause::Core
        }
        ProviderReason::WaitingForClusterInfrastructure
        | ProviderReason::WaitingForClusterNetwork
        | ProviderReason::WaitingForEndpoint => WaitCause::ClusterInfrastructure,
        ProviderReason::WaitingForBootstrapData => WaitCause::Bootstrap,
        ProviderReason::ClassMissing
        | ProviderReason::FailureDomainUnavailable
        | ProviderReason::ProviderIdUnknown
        | ProviderReason::SecretMissing => WaitCause::Class,
        ProviderReason::Unreadable => WaitCause::Unreadable,
        ProviderReason::OtherManagerActive
        | ProviderReason::ReplicasNotManaged
        | ProviderReason::NameTaken
        | ProviderReason::VmTaken
        | ProviderReason::VmLost
        | ProviderReason::NewVmRequired
        | ProviderReason::LoadBalancerUnsupported => WaitCause::Obstacle,
        ProviderReason::NotConnected => WaitCause::Connection,
        ProviderReason::WaitingForNode
        | ProviderReason::Registering
        | ProviderReason::Deregistering
        | ProviderReason::Deregistered => WaitCause::LoadBalancer,
        ProviderReason::NotProvisioned
        | ProviderReason::Creating
        | ProviderReason::RollingOut
        | ProviderReason::Deleting
        | ProviderReason::Failed => WaitCause::Vm,
    }
}

/// The command that shows more about the Cluster of an object. It shows the same about the Cluster itself.
const WHY_CLUSTER: &str = "mcm why cluster/{cluster} ";

/// An object that waits, for the texts of remedies.
pub struct WaitingObject<'a> {
    pub kind: Kind,
    pub object: &'a CapiObject,
    pub namespace: &'a str,
}

impl WaitingObject<'_> {
    /// The wait for a cause.
    pub fn wait_for(&self, cause: WaitCause, text: impl Into<String>, forced_at: Option<Timestamp>) -> ExplainedWait {
        let WaitGuide { meaning, end, .. } = cause.guide();
        let (kind, text, remedies) = (cause.kind(), text.into(), self.remedies_of(cause));
        ExplainedWait { kind, text, meaning, end, next_attempt: None, forced_at, since: None, plans: None, remedies }
    }

    /// The name of the Cluster.
    fn cluster(&self) -> &str {
        if self.kind == Kind::Cluster { self.object.name() } else { self.object.cluster_name() }
    }

    /// The remedies of a cause whose places are known for the object.
    pub fn remedies_of(&self, cause: WaitCause) -> Vec<ObjectRemedy> {
        let CapiObject { spec, .. } = self.object;
        let (kind, name) = (self.kind.argument(""), word(self.object.name()));
        let (kind, cluster) = (kind.trim_end_matches('/'), word(self.cluster()));
        let (config_kind, config) = (spec.bootstrap.config_ref.kind.to_lowercase(), &spec.bootstrap.config_ref.name);
        let (config_kind, config) = (word(&config_kind), Some(word(config)).filter(|_| !config.is_empty()));
        let is_machine = self.kind == Kind::Machine;
        let vm = match is_machine {
            true => format!("mcmmachine {}", word(&spec.infrastructure_ref.name)),
            false => format!("{kind} {name}"),
        };
        let places = [
            ("kind", Some(kind)),
            ("namespace", Some(self.namespace)),
            ("name", Some(&*name)),
            ("machine", Some(&*name).filter(|_| is_machine)),
            ("cluster", Some(&*cluster)),
            ("vm", Some(&*vm)),
            ("config-kind", Some(&*config_kind)),
            ("config", config.as_deref()),
        ];
        let filled = |remedy: &WaitRemedy| Some(ObjectRemedy::from_catalogue(remedy, remedy.text_with(&places)?));
        let is_itself = |remedy: &&WaitRemedy| self.kind == Kind::Cluster && remedy.text.starts_with(WHY_CLUSTER);
        cause.guide().remedies.iter().filter(|remedy| !is_itself(remedy)).filter_map(filled).collect()
    }
}
