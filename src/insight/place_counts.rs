//! The machines of a namespace by place. Pure.

use std::{collections::BTreeMap, sync::OnceLock};

/// The numbers of machines by zone, by class and by account.
pub type CountsByPlace = [BTreeMap<String, usize>; 3];

/// The machines of a namespace in each zone, of each class and of each account. They are counted once, for all groups: facts do not
/// change after the first answer.
#[derive(Default)]
pub struct PlaceCounts(OnceLock<CountsByPlace>);

impl PlaceCounts {
    /// The counts, which the first call makes.
    pub fn counted(&self, count: impl FnOnce() -> CountsByPlace) -> &CountsByPlace {
        self.0.get_or_init(count)
    }
}
