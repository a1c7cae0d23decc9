//! Kinds of requests, by which they are counted and limited.

/// A kind of request.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Its name in the metrics.
    pub service: &'static str,
    pub is_read: bool,
}

/// Requests that change nothing.
pub(super) const fn reading(service: &'static str) -> Kind {
    Kind { service, is_read: true }
}

/// Requests that change something.
pub(super) const fn writing(service: &'static str) -> Kind {
    Kind { service, is_read: false }
}
