//! The state of an API server.

use std::sync::Arc;

use super::{call::ApiCall, network::NetworkModel, object::ServerObject, refusal::RequestRefusal, store::ObjectStore};

/// A write that was carried out, or was refused.
#[derive(Debug)]
pub struct WriteRecord<'a> {
    pub call: &'a ApiCall,
    pub before: Option<&'a ServerObject>,
    pub after: Option<&'a ServerObject>,
    /// Why it was refused.
    pub refusal: Option<&'a RequestRefusal>,
}

impl WriteRecord<'_> {
    /// A write changed something.
    pub fn changed(&self) -> bool {
        self.before.map(|object| object.version) != self.after.map(|object| object.version)
    }
}

pub(super) type WriteObserver = Arc<dyn Fn(&WriteRecord<'_>) + Send + Sync>;

/// The objects, and what becomes of requests for them.
pub(super) struct ApiServerState {
    pub store: ObjectStore,
    pub network: Arc<dyn NetworkModel>,
    pub observer: Option<WriteObserver>,
    #[cfg(any(test, feature = "testing"))]
    pub calls: Vec<Arc<ApiCall>>,
    pub largest_page: usize,
    pub is_paused: bool,
}
