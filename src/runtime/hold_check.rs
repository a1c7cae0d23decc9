//! Decides whether reconciliation of an object is on hold, such as in a paused cluster. Without a registered check
//! nothing is held.

use std::sync::OnceLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{cache::Key, handlers::HandlerList};
use mcm_rules::plan::ReconcileHold;

type HoldPredicate = Box<dyn Fn(&ObjectMeta) -> Option<ReconcileHold> + Send + Sync>;
type HoldHandler = dyn Fn(&Key) + Send + Sync;

/// The check for holds on objects of a cell. Kinds of one cell share it.
#[derive(Default)]
pub struct HoldCheck {
    check: OnceLock<HoldPredicate>,
    handlers: HandlerList<HoldHandler>,
}

impl HoldCheck {
    /// Sets the check; only the first one counts.
    pub fn set(&self, check: impl Fn(&ObjectMeta) -> Option<ReconcileHold> + Send + Sync + 'static) {
        let _ = self.check.set(Box::new(check));
    }

    /// The reason for which the object must not be touched now; `None` if it may be.
    pub fn hold_for(&self, meta: &ObjectMeta) -> Option<ReconcileHold> {
        self.check.get().and_then(|check| check(meta))
    }

    /// Calls `handler` with each object for which the answer may have changed.
    pub fn on_change(&self, handler: impl Fn(&Key) + Send + Sync + 'static) {
        self.handlers.add(Box::new(handler));
    }

    /// The answer for an object may have changed.
    pub fn changed(&self, key: &Key) {
        self.handlers.each(|handler| handler(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn nothing_is_held_without_a_check_and_changes_are_reported() {
        let holds = HoldCheck::default();
        let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        assert_eq!(holds.hold_for(&named("a")), None);
        holds.set(|meta| meta.name.clone().filter(|name| name == "a").map(ReconcileHold::from));
        assert_eq!((holds.hold_for(&named("a")), holds.hold_for(&named("b"))), (Some("a".to_owned().into()), None));
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        holds.on_change(move |key| heard.lock().unwrap().push(key.clone()));
        holds.changed(&Key::new("ns", "a"));
        assert_eq!(*told.lock().unwrap(), [Key::new("ns", "a")]);
    }
}
