//! An observer that counts requests instead of measuring them.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;

use crate::{Code, DriverObserver, DriverOperation};

/// Successes and failures by provider and service.
type Counts = BTreeMap<(String, &'static str), (usize, usize)>;

/// Counts of succeeded and failed requests.
#[derive(Default)]
pub struct Recorder(Mutex<Counts>);

impl DriverObserver for Recorder {
    fn observed(&self, _: &str, _: DriverOperation, _: Duration, _: Result<(), Code>) {}

    fn requested(&self, provider: &str, service: &'static str, _: Duration, is_success: bool) {
        let mut all = self.0.lock();
        let (successes, failures) = all.entry((provider.to_owned(), service)).or_default();
        *(if is_success { successes } else { failures }) += 1;
    }
}

impl Recorder {
    /// The requests since the last call, all of which must be of one provider.
    pub fn take(&self, provider: &str) -> Vec<(&'static str, usize, usize)> {
        let taken = std::mem::take(&mut *self.0.lock());
        assert!(taken.keys().all(|(one, _)| one == provider), "{taken:?}");
        taken.into_iter().map(|((_, service), (successes, failures))| (service, successes, failures)).collect()
    }
}
