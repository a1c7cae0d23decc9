//! Preconditions: no request of a process may change another object than the intended one.

use std::sync::Arc;

use super::{
    super::{
        super::api_server::{ApiCall, ApiVerb, OUTSIDE},
        faults::Faults,
    },
    Ledger,
};

impl Ledger {
    /// Each request that writes.
    pub(in super::super) fn check_request(&mut self, call: &ApiCall, faults: &Faults) {
        if &*call.caller == OUTSIDE || is_harmless(call) {
            return;
        }
        if call.subresource == "eviction" {
            self.asked.insert((Arc::clone(&call.caller), call.name.clone()));
        }
        let (has_uid, has_version) = (call.uid().is_some(), call.version().is_some());
        let is_safe = match call.verb {
            ApiVerb::Create if call.subresource == "eviction" => has_uid,
            ApiVerb::Create | ApiVerb::Get | ApiVerb::List | ApiVerb::Watch => true,
            ApiVerb::Update => has_version,
            ApiVerb::MergePatch | ApiVerb::JsonPatch | ApiVerb::Apply => has_version || has_uid,
            // Names single entries of lists, so it needs no version.
            ApiVerb::StrategicPatch => has_uid,
            ApiVerb::Delete => has_uid,
        };
        faults.must(is_safe, || format!("{} without a precondition", call.subject()));
    }
}

/// Events may be written twice, and a bootstrap token has a name that only one Machine uses.
fn is_harmless(call: &ApiCall) -> bool {
    call.kind.plural == "events" || call.kind.plural == "secrets" && call.name.starts_with("bootstrap-token-")
}
