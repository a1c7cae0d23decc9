//! Preconditions: no request of a process may change another object than the intended one.

use std::sync::Arc;

use super::{
    super::{
        super::api_server::{Call, OUTSIDE, Verb},
        faults::Faults,
    },
    Ledger,
};

impl Ledger {
    /// Each request that writes.
    pub(in super::super) fn check_request(&mut self, call: &Call, faults: &Faults) {
        if &*call.caller == OUTSIDE || is_harmless(call) {
            return;
        }
        if call.subresource == "eviction" {
            self.asked.insert((Arc::clone(&call.caller), call.name.clone()));
        }
        let (has_uid, has_version) = (call.uid().is_some(), call.version().is_some());
        let is_safe = match call.verb {
            Verb::Create if call.subresource == "eviction" => has_uid,
            Verb::Create | Verb::Get | Verb::List | Verb::Watch => true,
            Verb::Update => has_version,
            Verb::MergePatch => has_version || has_uid,
            // Names single entries of lists, so it needs no version.
            Verb::StrategicPatch => has_uid,
            Verb::Delete => has_uid,
        };
        faults.must(is_safe, || format!("{} without a precondition", call.subject()));
    }
}

/// Events may be written twice, and a bootstrap token has a name that only one Machine uses.
fn is_harmless(call: &Call) -> bool {
    call.kind.plural == "events" || call.kind.plural == "secrets" && call.name.starts_with("bootstrap-token-")
}
