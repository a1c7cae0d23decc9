//! The network between a client and the API server, with its faults.

use std::time::Duration;

use super::call::ApiCall;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallDelivery {
    /// Time until it arrives.
    pub there: Duration,
    /// Time until the answer arrives.
    pub back: Duration,
    pub outcome: DeliveryOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    Answered,
    /// Not carried out, and no answer.
    LostBefore,
    /// Carried out, and no answer.
    LostAfter,
    /// Not carried out; the API server, or something before it, responds with this code.
    Refused(u16),
    /// Another client writes the object a moment earlier.
    Overtaken,
    /// Executed unless it is a watch; the client never gets an answer, nor an error of the connection.
    Silent,
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// The server closes it.
    Closed,
    /// The connection is reset.
    Reset,
    /// All messages are lost from now on.
    Silent,
}

/// Decides the fate of requests.
pub trait NetworkModel: Send + Sync + 'static {
    fn fate(&self, _call: &ApiCall) -> CallDelivery {
        CallDelivery { there: Duration::ZERO, back: Duration::ZERO, outcome: DeliveryOutcome::Answered }
    }

    /// How late a watch shows the next change.
    fn lag(&self, _call: &ApiCall) -> Duration {
        Duration::ZERO
    }

    /// How long a watch lasts if it ends early, and how it ends.
    fn watch_lasts(&self, _call: &ApiCall) -> Option<(Duration, WatchFault)> {
        None
    }
}

/// No faults, and no delays.
pub struct PerfectNetwork;

impl NetworkModel for PerfectNetwork {}
