//! The state of an API server.

use std::sync::Arc;

use super::{
    call::Call,
    network::Network,
    store::{Object, Refusal, Store},
};

/// A write that was carried out, or was refused.
#[derive(Debug)]
pub struct Write<'a> {
    pub call: &'a Call,
    pub before: Option<&'a Object>,
    pub after: Option<&'a Object>,
    /// Why it was refused.
    pub refusal: Option<&'a Refusal>,
}

impl Write<'_> {
    /// Whether anything is different now.
    pub fn changed(&self) -> bool {
        self.before.map(|object| object.version) != self.after.map(|object| object.version)
    }
}

pub(super) type Observer = Arc<dyn Fn(&Write<'_>) + Send + Sync>;

/// The objects, and what becomes of requests for them.
pub(super) struct State {
    pub store: Store,
    pub network: Arc<dyn Network>,
    pub observer: Option<Observer>,
    #[cfg(any(test, feature = "testing"))]
    pub calls: Vec<Arc<Call>>,
    pub largest_page: usize,
    pub is_paused: bool,
}
