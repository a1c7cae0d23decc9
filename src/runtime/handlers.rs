//! Callbacks that run on every change.

use parking_lot::RwLock;

use super::panics::{self, PanicPlace};

/// The handlers of one event. They are called in the order of their registration, in the task of the caller, so they must
/// return quickly.
pub struct HandlerList<F: ?Sized>(pub RwLock<Vec<Box<F>>>);

impl<F: ?Sized> Default for HandlerList<F> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<F: ?Sized> HandlerList<F> {
    pub fn add(&self, handler: Box<F>) {
        self.0.write().push(handler);
    }

    /// Calls each: `call` passes the arguments. A handler that panics affects no other.
    pub fn each(&self, call: impl Fn(&F)) {
        self.each_of(|| "an event".to_owned(), call);
    }

    /// Like [`Self::each`]; `what` names the event in the log of a panic.
    pub fn each_of(&self, what: impl Fn() -> String, call: impl Fn(&F)) {
        self.0.read().iter().for_each(|handler| panics::caught_in(PanicPlace::Handler, &what, || call(handler)));
    }

    /// Drops all handlers with their captured values.
    pub fn forget(&self) {
        // Dropped after the lock is released: a handler may hold the last reference to anything.
        let _forgotten = std::mem::take(&mut *self.0.write());
    }
}

/// Handlers that are called with a namespace.
pub type NamespaceHandlers = HandlerList<dyn Fn(&str) + Send + Sync>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_handler_that_panics_keeps_the_event_from_no_other() {
        let handlers = HandlerList::<dyn Fn(u32) + Send + Sync>::default();
        let sum = std::sync::Arc::new(AtomicU32::new(0));
        let (before, after) = (sum.clone(), sum.clone());
        handlers.add(Box::new(move |value| {
            before.fetch_add(value, Ordering::Relaxed);
        }));
        handlers.add(Box::new(|value| assert_eq!(value, 0, "a bug")));
        handlers.add(Box::new(move |value| {
            after.fetch_add(10 * value, Ordering::Relaxed);
        }));
        panics::of_cell("handlers".into(), async { handlers.each(|handler| handler(3)) }).await;
        assert_eq!(sum.load(Ordering::Relaxed), 33);
        assert_eq!(panics::counted(PanicPlace::Handler, "handlers"), 1);
    }
}
