/// The role of all kinds.
pub(super) const ROLE_NAME: &str = "stand-in";

/// Settings from the flags.
#[derive(Clone)]
pub struct Settings {
    /// Only objects with this value of the label `cluster.x-k8s.io/watch-filter`.
    pub watch_filter: Option<String>,
    /// Concurrent reconciles of each kind.
    pub concurrency: usize,
}
