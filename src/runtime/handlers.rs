//! Those who are told when something happens.

use parking_lot::RwLock;

/// The handlers of one event. They are called in the order of their registration, in the task of the caller, so they must
/// return quickly.
pub(crate) struct Handlers<F: ?Sized>(RwLock<Vec<Box<F>>>);

impl<F: ?Sized> Default for Handlers<F> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<F: ?Sized> Handlers<F> {
    pub fn add(&self, handler: Box<F>) {
        self.0.write().push(handler);
    }

    /// Calls each: `call` passes the arguments.
    pub fn each(&self, call: impl Fn(&F)) {
        self.0.read().iter().for_each(|handler| call(handler));
    }

    /// Drops all, and what they hold.
    pub fn forget(&self) {
        // Dropped after the lock is released: a handler may hold the last reference to anything.
        let _forgotten = std::mem::take(&mut *self.0.write());
    }
}
