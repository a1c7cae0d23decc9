//! Time that a paused tokio runtime moves.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::clock::Clock;

/// Seconds since the epoch at which every test begins.
pub(crate) const EPOCH: i64 = 1_700_000_000;

/// The time of tokio as wall time. A clone shares the offset; [`VirtualClock::of_another_host`] has its own.
#[derive(Clone, Debug)]
pub(crate) struct VirtualClock {
    start: Instant,
    offset: Arc<Mutex<SignedDuration>>,
    /// The time of the last read, and the number of reads at that time.
    looks: Arc<Mutex<(Instant, u32)>>,
}

/// A caller that looks this often while no time passes waits for a past time, and would wait for ever.
const LOOKS: u32 = 300_000;

impl VirtualClock {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), offset: Arc::default(), looks: Arc::new(Mutex::new((Instant::now(), 0))) }
    }

    /// The same time on a host whose clock can be set wrong.
    pub(crate) fn of_another_host(&self) -> Self {
        Self { start: self.start, ..Self::new() }
    }

    /// Sets this host's clock ahead of (or behind) the true time.
    pub(crate) fn set_offset(&self, offset: SignedDuration) {
        *self.offset.lock() = offset;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let mut looks = self.looks.lock();
        let now = Instant::now();
        *looks = if looks.0 == now { (now, looks.1 + 1) } else { (now, 0) };
        assert!(looks.1 < LOOKS, "something is done again and again, and no time passes");
        drop(looks);
        let elapsed = SignedDuration::try_from(self.start.elapsed()).unwrap();
        Timestamp::from_second(EPOCH).unwrap() + elapsed + *self.offset.lock()
    }
}
