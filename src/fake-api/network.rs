//! The network between a client and the API server, with its faults.

use std::time::Duration;

use super::call::Call;

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Time until it arrives.
    pub there: Duration,
    /// Time until the answer arrives.
    pub back: Duration,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// Not carried out, and no answer.
    LostBefore,
    /// Carried out, and no answer.
    LostAfter,
    /// Not carried out; the API server, or something before it, answers with this code.
    Refused(u16),
    /// Another client writes the object a moment earlier.
    Overtaken,
    /// Executed unless it is a watch; the client never gets an answer, nor an error of the connection.
    Silent,
}

/// How a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The server closes it.
    Closed,
    /// The connection is reset.
    Reset,
    /// All messages are lost from now on.
    Silent,
}

/// Decides the fate of requests.
pub trait Network: Send + Sync + 'static {
    fn fate(&self, _call: &Call) -> Fate {
        Fate { there: Duration::ZERO, back: Duration::ZERO, outcome: Outcome::Answered }
    }

    /// How late a watch shows the next change.
    fn lag(&self, _call: &Call) -> Duration {
        Duration::ZERO
    }

    /// How long a watch lasts if it ends early, and how it ends.
    fn watch_lasts(&self, _call: &Call) -> Option<(Duration, Broken)> {
        None
    }
}

/// No faults, and no delays.
pub struct Perfect;

impl Network for Perfect {}
