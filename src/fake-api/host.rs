//! The host of a clock in tests.

use std::sync::Arc;

use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The offset of a host's clock, and how often it was read.
#[derive(Debug)]
pub struct HostClock {
    offset: Mutex<SignedDuration>,
    /// The time of the last read, and the number of reads at that time.
    looks: Mutex<(Instant, u32)>,
}

/// A caller that reads the time this often while none passes waits for a past time, and would wait for ever.
const LOOKS: u32 = 300_000;

impl HostClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { offset: Mutex::default(), looks: Mutex::new((Instant::now(), 0)) })
    }

    /// Counts a read, and returns the offset of this host's clock.
    pub fn looked(&self) -> SignedDuration {
        let mut looks = self.looks.lock();
        let now = Instant::now();
        *looks = if looks.0 == now { (now, looks.1 + 1) } else { (now, 0) };
        assert!(looks.1 < LOOKS, "something is done again and again, and no time passes");
        drop(looks);
        *self.offset.lock()
    }

    /// Sets the clock ahead of the true time, or behind it.
    pub fn set_offset(&self, offset: SignedDuration) {
        *self.offset.lock() = offset;
    }
}
