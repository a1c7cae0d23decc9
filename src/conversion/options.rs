use jiff::Timestamp;

use super::answers::UserAnswers;
use mcm_api::GoDuration;

/// Settings of a conversion beyond the objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConversionOptions {
    /// Cluster of native objects without the label `cluster.x-k8s.io/cluster-name`.
    pub cluster: Option<String>,
    /// The time, for `rollout.after`; without it, no such time has passed.
    pub now: Option<Timestamp>,
    /// The infrastructure provider that serves the machines on the side of Cluster API.
    pub infrastructure: InfrastructureChoice,
    /// Secret with the credentials of a class that is made from the template of another provider.
    pub credentials: Option<String>,
    /// Values that templates leave to their provider.
    pub answers: UserAnswers,
    /// The defaults of the native controllers: the values of their flags.
    pub native: NativeDefaults,
}

/// Flags of the native controllers that apply to absent fields.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeDefaults {
    /// `--machine-drain-timeout`.
    pub drain_timeout: GoDuration,
    /// `--machine-creation-timeout`.
    pub creation_timeout: GoDuration,
    /// `--machine-health-timeout`.
    pub health_timeout: GoDuration,
    /// `--node-conditions`.
    pub node_conditions: String,
}

impl Default for NativeDefaults {
    fn default() -> Self {
        Self {
            drain_timeout: GoDuration::from_secs(2 * 3600),
            creation_timeout: GoDuration::from_secs(20 * 60),
            health_timeout: GoDuration::from_secs(10 * 60),
            node_conditions: "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable".to_owned(),
        }
    }
}

/// An infrastructure provider of Cluster API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InfrastructureChoice {
    /// mcm, with its drivers. A template that came from another provider returns to it.
    #[default]
    Mcm,
    /// That of the cloud, if mcm can write its templates.
    OfCloud,
}
