//! How a call of a cloud fails in a test.

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The request is carried out, and its answer breaks off.
    LostAnswer,
    /// The cloud throttles.
    Throttle,
    /// Something before the cloud has no connection to it.
    ServerError,
    /// No answer.
    TimeOut,
    /// The answer cannot be parsed.
    Malformed,
    /// The credentials are invalid.
    Auth,
    /// The credentials do not permit the call.
    Denied,
    /// No machines of the type are left.
    StockOut,
    /// The quota is used up.
    Quota,
    /// The named object does not exist.
    NotFound,
}
